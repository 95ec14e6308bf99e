//! Levels of the ledger (P23).

/// The level of a new ledger. It never changes: an empty ledger must be the same in every release.
pub const GENESIS_LEVEL: u32 = 1;

/// The highest level of this release.
pub const LEVEL: u32 = 1;

/// The highest level that this build knows: [`LEVEL`], and the one after it in a build for tests (`next_level`).
pub const KNOWN: u32 = LEVEL + cfg!(feature = "next-level") as u32;

/// The highest level that this process applies and announces: [`LEVEL`]. `apply` never reads it: it goes by the
/// replicated level.
#[cfg(not(feature = "next-level"))]
pub const fn highest() -> u32 {
    LEVEL
}

/// The highest level that this process applies and announces: [`LEVEL`], or what the variable `REVEILLE_LEVEL` says, so
/// that one build can be the former release and the next one. A value that is no level ends the process.
#[cfg(feature = "next-level")]
pub fn highest() -> u32 {
    use std::sync::OnceLock;
    static HIGHEST: OnceLock<u32> = OnceLock::new();
    let known = |level: &String| level.parse().ok().filter(|level| (LEVEL..=KNOWN).contains(level));
    let read = || match std::env::var("REVEILLE_LEVEL") {
        Ok(level) => known(&level).unwrap_or_else(|| panic!("REVEILLE_LEVEL is '{level}': use {LEVEL} or {KNOWN}")),
        Err(_) => LEVEL,
    };
    *HIGHEST.get_or_init(read)
}
