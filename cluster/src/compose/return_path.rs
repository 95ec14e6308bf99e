//! The envelope sender with a token, so that the address of a bounce identifies the handoff (VERP).
//!
//! Made once at the start of a node; `worker/composition.rs` gets the sender of each email from it.
//! `bounce@b.example.com` becomes `bounce+TOKEN@b.example.com`. A token contains run and recipient (the ledger knows
//! their tenant), and a keyed hash over both, the cluster and its incarnation (P21). It is base32 in lower case,
//! because some relays change the case of a local part. No local part exceeds the 64 bytes of RFC 5321, whatever the
//! run.

use data_encoding::BASE32_NOPAD;
use reveille_ledger::address::Address;
use reveille_ledger::ids::RunId;

use crate::process::secret::{Secret, SigningKeys};

/// Maximum bytes of a local part (RFC 5321 4.5.3.1.1).
const LOCAL_BYTES_MAX: usize = 64;
/// Maximum bytes of an address: those of a path (RFC 5321 4.5.3.1.3) without its brackets.
const ADDRESS_BYTES_MAX: usize = 254;
/// Bytes of the keyed hash. A forged bounce succeeds with a chance of 1 in 2^80.
const HASH: usize = 10;
/// Maximum bytes of index, place and recipient as varints.
const NAMED_MAX: usize = 10 + 5 + 5;
/// Maximum number of characters of a token.
const TOKEN_MAX: usize = ((HASH + NAMED_MAX) * 8).div_ceil(5);
/// Maximum bytes before the `+`.
pub const NAME_BYTES_MAX: usize = LOCAL_BYTES_MAX - 1 - TOKEN_MAX;
/// The address for bounces, and the keys that sign its tokens.
#[derive(Debug)]
pub struct ReturnPath {
    /// The local part before the `+`.
    name: String,
    domain: String,
    keys: SigningKeys,
}

/// Reason why the address cannot be used. Its text never contains a key, so it may be logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReturnPathError {
    /// The address cannot be used.
    #[error("{0}")]
    Address(String),
    /// One of the keys cannot be used.
    #[error("{0}")]
    Key(String),
}

/// The email that a bounce belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounced {
    /// The run of the email.
    pub run: RunId,
    /// Number of the recipient in the run's audience.
    pub recipient: u32,
}

impl ReturnPath {
    /// Reads the keys and checks the address.
    ///
    /// # Errors
    /// Returns what is wrong, and what would be right.
    pub fn new(address: &str, keys: &[Secret]) -> Result<ReturnPath, ReturnPathError> {
        let parsed = Address::parse(address).map_err(|error| ReturnPathError::Address(error.to_string()))?;
        let (name, domain) = (parsed.local().to_owned(), parsed.domain().to_owned());
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !is_plain || name.len() > NAME_BYTES_MAX {
            let form = format!("letters, digits and -_. before the @, {NAME_BYTES_MAX} at most");
            return Err(ReturnPathError::Address(format!("'{address}' leaves no room for a token: {form}")));
        }
        if LOCAL_BYTES_MAX + 1 + domain.len() > ADDRESS_BYTES_MAX {
            return Err(ReturnPathError::Address(format!("'{address}' is too long")));
        }
        let keys = SigningKeys::read(keys, "reveille 2026-11 return path").map_err(ReturnPathError::Key)?;
        Ok(ReturnPath { name, domain, keys })
    }

    /// Returns the envelope sender of an email. `incarnation` is that of the cluster when the run opened.
    pub fn address(&self, cluster: u128, incarnation: u64, bounced: Bounced) -> String {
        let Bounced { run, recipient } = bounced;
        let named = postcard::to_stdvec(&(run.index, run.place, recipient)).expect("three numbers can be encoded");
        let hash: [u8; HASH] = self.keys.sign(&[&prefix(cluster, incarnation), &named]);
        let token = to_base32(&[&hash, named.as_slice()].concat());
        format!("{}+{token}@{}", self.name, self.domain)
    }

    /// Returns the email that a bounce to this address belongs to. `None` if no known key has signed it. `incarnation`
    /// returns the cluster's incarnation when a run opened, which is in the run's page; `None` if there is no such run.
    pub fn read(
        &self,
        address: &str,
        cluster: u128,
        incarnation: impl FnOnce(RunId) -> Option<u64>,
    ) -> Option<Bounced> {
        let (local, domain) = address.rsplit_once('@')?;
        let (name, token) = local.split_once('+')?;
        let is_ours = name.eq_ignore_ascii_case(&self.name) && domain.eq_ignore_ascii_case(&self.domain);
        let bytes = from_base32(token).filter(|_| is_ours && token.len() <= TOKEN_MAX)?;
        let (hash, named) = bytes.split_first_chunk::<HASH>()?;
        let ((index, place, recipient), []) = postcard::take_from_bytes::<(u64, u32, u32)>(named).ok()? else {
            return None;
        };
        let run = RunId { index, place };
        let prefix = prefix(cluster, incarnation(run)?);
        self.keys.verify(&[&prefix, named], hash).then_some(Bounced { run, recipient })
    }
}

/// Returns the bytes that are signed before run and recipient: the cluster and its incarnation.
fn prefix(cluster: u128, incarnation: u64) -> [u8; 24] {
    let mut prefix = [0; 24];
    prefix[..16].copy_from_slice(&cluster.to_be_bytes());
    prefix[16..].copy_from_slice(&incarnation.to_be_bytes());
    prefix
}

/// Encodes as base32 (RFC 4648), in lower case and without padding.
fn to_base32(bytes: &[u8]) -> String {
    BASE32_NOPAD.encode(bytes).to_ascii_lowercase()
}

/// Decodes base32 in either case. `None` if [`to_base32`] could not have written it.
fn from_base32(text: &str) -> Option<Vec<u8>> {
    BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Bounced = Bounced { run: RunId { index: 1042, place: 3 }, recipient: 12 };
    const LAST: Bounced = Bounced { run: RunId { index: u64::MAX, place: u32::MAX }, recipient: u32::MAX };

    fn return_path(address: &str, keys: &[&str]) -> Result<ReturnPath, ReturnPathError> {
        let folder = tempfile::tempdir().expect("a folder");
        let secret = |(number, key): (usize, &&str)| {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, key.repeat(32)).expect("written");
            Secret::File(path.to_string_lossy().into_owned())
        };
        ReturnPath::new(address, &keys.iter().enumerate().map(secret).collect::<Vec<_>>())
    }

    fn bounces(keys: &[&str]) -> ReturnPath {
        return_path("bounce@b.example.com", keys).expect("made")
    }

    #[test]
    fn token_names_run_and_recipient_and_survives_a_change_of_case() {
        let path = bounces(&["k"]);
        for email in [ONE, LAST, Bounced { run: RunId { index: 0, place: 0 }, recipient: 0 }] {
            let address = path.address(7, 2, email);
            let asked = |run| (run == email.run).then_some(2);
            assert!(address.starts_with("bounce+") && address.ends_with("@b.example.com"), "{address}");
            assert_eq!(path.read(&address, 7, asked), Some(email), "{address}");
            assert_eq!(path.read(&address.to_uppercase(), 7, asked), Some(email));
            assert_eq!(path.address(7, 2, email), address, "each attempt has the same");
        }
        assert_eq!(path.address(7, 2, ONE).len(), "bounce+@b.example.com".len() + 23);
    }

    #[test]
    fn token_of_another_key_cluster_or_incarnation_is_refused() {
        let path = bounces(&["k"]);
        let address = path.address(7, 2, ONE);
        assert_eq!(path.read(&address, 8, |_| Some(2)), None, "another cluster");
        assert_eq!(path.read(&address, 7, |_| Some(3)), None, "a run of the same name after a restore (P21)");
        assert_eq!(path.read(&address, 7, |_| None), None, "no such run");
        assert_eq!(bounces(&["l"]).read(&address, 7, |_| Some(2)), None, "another key");
        assert_eq!(bounces(&["l", "k"]).read(&address, 7, |_| Some(2)), Some(ONE), "a key that was replaced");
        let unsubscribe = blake3::derive_key("reveille 2026-11 unsubscribe token", "k".repeat(32).as_bytes());
        let named = postcard::to_stdvec(&(ONE.run.index, ONE.run.place, ONE.recipient)).expect("numbers");
        let mut hasher = blake3::Hasher::new_keyed(&unsubscribe);
        let hash = hasher.update(&prefix(7, 2)).update(&named).finalize();
        let other = [&hash.as_bytes()[..HASH], &named].concat();
        let other = format!("bounce+{}@b.example.com", to_base32(&other));
        assert_eq!(path.read(&other, 7, |_| Some(2)), None, "a key serves one purpose");
    }

    #[test]
    fn address_that_was_not_signed_is_refused() {
        let path = bounces(&["k"]);
        let address = path.address(7, 2, ONE);
        let token = address.strip_prefix("bounce+").and_then(|rest| rest.strip_suffix("@b.example.com")).expect("one");
        for index in 0..token.len() {
            for digit in "abcdefghijklmnopqrstuvwxyz234567".chars() {
                let forged: String =
                    token.chars().enumerate().map(|(at, old)| if at == index { digit } else { old }).collect();
                let read = path.read(&format!("bounce+{forged}@b.example.com"), 7, |_| Some(2));
                assert_eq!(read, (forged == token).then_some(ONE), "{forged}");
            }
            assert_eq!(path.read(&format!("bounce+{}@b.example.com", &token[..index]), 7, |_| Some(2)), None);
        }
        let others = [
            format!("bounce+{token}a@b.example.com"),
            format!("bounce+{token}==@b.example.com"),
            format!("other+{token}@b.example.com"),
            format!("bounce+{token}@c.example.com"),
            format!("bounce-{token}@b.example.com"),
            format!("bounce+{}@b.example.com", "a".repeat(9_999)),
            "bounce@b.example.com".to_owned(),
            "bounce+é@b.example.com".to_owned(),
            String::new(),
        ];
        for other in others {
            assert_eq!(path.read(&other, 7, |_| Some(2)), None, "{other}");
        }
    }

    #[test]
    fn local_part_has_64_bytes_at_most_whatever_the_run() {
        let longest = "b".repeat(NAME_BYTES_MAX);
        let address =
            return_path(&format!("{longest}@b.example.com"), &["k"]).expect("made").address(u128::MAX, u64::MAX, LAST);
        assert_eq!(address.split('@').next().map(str::len), Some(LOCAL_BYTES_MAX), "{address}");
        let longer = format!("{longest}b@b.example.com");
        for wrong in
            [longer.as_str(), "bo+unce@b.example.com", "zoë@b.example.com", "\"a b\"@b.example.com", "bounce", ""]
        {
            assert!(matches!(return_path(wrong, &["k"]), Err(ReturnPathError::Address(_))), "{wrong}");
        }
        let domain = ["d".repeat(60), "d".repeat(60), "d".repeat(60), "d".repeat(10)].join(".");
        assert!(matches!(return_path(&format!("b@{domain}"), &["k"]), Err(ReturnPathError::Address(_))));
        assert_eq!(
            return_path("b@b.example.com", &[]).map_err(|error| error.to_string()).err().as_deref(),
            Some("1 to 4 keys are needed, not 0")
        );
        let shown = format!("{:?}", bounces(&["k"]));
        assert!(!shown.contains("kkk") && shown.contains("keys: 1"), "{shown}");
    }

    mod fuzz {
        use proptest::prelude::*;
        use reveille_fuzz::{cases, damage, damaged_text};

        use super::*;

        proptest! {
            #![proptest_config(cases(500))]

            #[test]
            fn address_reads_back_and_damaged_one_names_no_other_email(
                index in any::<u64>(),
                place in any::<u32>(),
                recipient in any::<u32>(),
                damage in prop::collection::vec(damage(), 1..4),
            ) {
                let path = return_path("bounce@bounces.example.com", &["k"]).expect("made");
                let bounced = Bounced { run: RunId { index, place }, recipient };
                let address = path.address(7, 1, bounced);
                prop_assert_eq!(path.read(&address, 7, |_| Some(1)), Some(bounced));
                prop_assert_eq!(path.read(&address, 8, |_| Some(1)), None, "another cluster's");
                let other = damaged_text(&address, &damage);
                // Programs on the way may change the case of letters.
                prop_assert!(path.read(&other, 7, |_| Some(1)).is_none_or(|read| read == bounced), "{other}");
            }
        }
    }
}
