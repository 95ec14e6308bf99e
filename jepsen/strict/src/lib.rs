//! A test that needs root, Postfix or another program is skipped where the machine lacks it. A skipped test passes, so a
//! machine that lacks everything would prove nothing. Where all of it is installed, `REVEILLE_CI_STRICT=1` makes a skip
//! a failure; `.ci/run` sets it.

/// The variable that makes a skip a failure, whatever its value.
pub const VARIABLE: &str = "REVEILLE_CI_STRICT";

/// Says on standard error that the calling test is skipped. The caller returns afterwards.
///
/// # Panics
/// If [`VARIABLE`] is set: a machine that must run every test lacks what `missing` names.
pub fn skip(missing: &str) {
    assert!(std::env::var_os(VARIABLE).is_none(), "{VARIABLE} is set, and a test would be skipped: {missing}");
    eprintln!("skipped: {missing}");
}
