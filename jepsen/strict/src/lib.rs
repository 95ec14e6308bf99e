//! Skips tests that need root, Postfix or another program, where the machine lacks it.
//!
//! A skipped test passes, so a green result of a machine without these programs proves nothing about them. Where all
//! programs are installed, `REVEILLE_CI_STRICT=1` makes a skip a failure. `.ci/run` sets it.

/// Environment variable that makes a skip a failure, whatever its value.
pub const VARIABLE: &str = "REVEILLE_CI_STRICT";

/// Writes to standard error that the calling test is skipped. The caller returns afterwards.
///
/// # Panics
/// Panics if [`VARIABLE`] is set: a machine that must run every test lacks what `missing` names.
pub fn skip(missing: &str) {
    assert!(std::env::var_os(VARIABLE).is_none(), "{VARIABLE} is set, and a test would be skipped: {missing}");
    eprintln!("skipped: {missing}");
}
