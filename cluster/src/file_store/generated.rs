//! Recipients made of a number, to try a relay and machines without a real audience.
//!
//! `reveille audience generate` writes them to a file and imports it; tests encode them as a part. The same number
//! gives the same recipients in every build. Their addresses are under `.invalid` (RFC 2606), so no email to one of
//! them arrives.

use reveille_ledger::content::Recipient;

/// A generated audience.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedAudience {
    /// Another seed makes other addresses.
    pub seed: u64,
    /// Number of recipients.
    pub recipients: u32,
    /// Names of their variables.
    pub columns: Vec<String>,
}

impl GeneratedAudience {
    /// Returns all recipients, in order.
    pub fn list(&self) -> Vec<Recipient> {
        (0..self.recipients).map(|number| self.recipient(number)).collect()
    }

    /// Returns the recipient with this number.
    pub fn recipient(&self, number: u32) -> Recipient {
        let address = format!("r{number:08}.s{}@audience.invalid", self.seed);
        let value = |(column_number, column): (u64, &String)| {
            let value = mixed(self.seed ^ mixed(u64::from(number) << 8 | column_number));
            format!("{column} {:06x}", value & 0xff_ffff)
        };
        let values = (0..).zip(&self.columns).map(value).collect();
        Recipient { key: address.clone(), address, values }
    }
}

/// Returns the last step of SplitMix64 for a number: neighbouring numbers give very different results.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
