//! Levels of the ledger (P23).

/// Level of a new ledger. It never changes: an empty ledger must be the same in every release.
pub const GENESIS_LEVEL: u32 = 1;

/// Highest level of this release.
pub const LEVEL: u32 = 1;

/// Highest level that this build knows: [`LEVEL`], or the one after it in a test build (`next_level`).
pub const KNOWN: u32 = LEVEL + cfg!(feature = "next-level") as u32;

/// Highest level that this process applies and announces: [`LEVEL`]. `apply` does not use it; it uses the replicated
/// level.
#[cfg(not(feature = "next-level"))]
pub const fn highest() -> u32 {
    LEVEL
}

/// Highest level that this process applies and announces: [`LEVEL`], or the value of `REVEILLE_LEVEL`. So one build can
/// act as the former release or the next one. An invalid value ends the process.
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
