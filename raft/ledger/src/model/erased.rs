//! The opt-out of a person who was erased: a hash remains of the address, so that the opt-out holds.
//!
//! The hash hides the address from a search, and not from a guess: each gate must be able to compute it.

use crate::model::{Ledger, OptedOut};

/// First character of the key under which the opt-out of an erased person is stored. Each address key has an `@`, and
/// this one has none.
const MARK: char = '#';

/// Returns the key under which the opt-out of an erased person is stored.
fn erased_key(tenant: &str, key: &str) -> String {
    let hash = blake3::derive_key("reveille erased recipient 1", format!("{tenant}\0{key}").as_bytes());
    format!("{MARK}{}", blake3::Hash::from_bytes(hash).to_hex())
}

/// True if this key of the table of opt-outs is that of an erased person.
pub fn is_erased_key(key: &str) -> bool {
    key.starts_with(MARK) && !key.contains('@')
}

impl Ledger {
    /// Returns the key of the table of opt-outs under which an erased person is stored.
    pub(crate) fn erased_opt_out_key(tenant: &str, key: &str) -> (String, String) {
        (tenant.to_owned(), erased_key(tenant, key))
    }

    /// Returns the key of the table of opt-outs under which a (tenant, address key) is, or would be, stored.
    pub(crate) fn opt_out_key(&self, place: &(String, String)) -> (String, String) {
        let erased = Ledger::erased_opt_out_key(&place.0, &place.1);
        if !self.opted_out.contains(place) && self.opted_out.contains(&erased) { erased } else { place.clone() }
    }

    /// Returns the opt-out of a (tenant, address key), also if its person was erased. Both keys are always tried: a
    /// restored state has opt-outs of persons that the former cluster erased after the backup.
    pub fn opt_out_of(&self, place: &(String, String)) -> Option<&OptedOut> {
        let erased = || self.opted_out.get(&Ledger::erased_opt_out_key(&place.0, &place.1));
        self.opted_out.get(place).or_else(erased)
    }
}
