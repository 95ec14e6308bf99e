//! Where a node finds a secret of its own: a reference, never the secret.
//!
//! Written in the node's configuration, for the credentials of relays and the keys of unsubscribe links and of
//! return paths.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

use reveille_ledger::access::is_path;
use thiserror::Error;

/// Where a node finds a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The only line of a file, by its absolute path.
    File(String),
    /// A variable of the node's environment.
    Env(String),
}

/// A text that is no reference to a secret. It does not repeat the text: it may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("is not a reference to a secret; give file:/absolute/path or env:NAME")]
pub struct NoSecret;

/// Keys that are known at once: the one that signs, and those of before.
pub const KEYS_MAX: usize = 4;
/// Bytes of a key's file at least: 256 bits, if they are random.
pub const KEY_BYTES_MIN: usize = 32;
/// More than any key has.
const KEY_BYTES_MAX: u64 = 4_096;

/// The longest name of a variable, in bytes.
const NAME_MAX_BYTES: usize = 1_024;

impl FromStr for Secret {
    type Err = NoSecret;

    fn from_str(text: &str) -> Result<Secret, NoSecret> {
        match text.split_once(':') {
            Some(("file", path)) if is_path(path) => Ok(Secret::File(path.to_owned())),
            Some(("env", name)) if is_variable(name) => Ok(Secret::Env(name.to_owned())),
            _ => Err(NoSecret),
        }
    }
}

/// Keys that sign tokens: the first signs, and each verifies.
pub struct SigningKeys(Vec<[u8; blake3::KEY_LEN]>);

impl SigningKeys {
    /// The keys that secrets stand for, in their order. `purpose` keeps a key that serves two purposes apart.
    ///
    /// # Errors
    /// Which secret is none, and why; never what it says.
    pub fn read(secrets: &[Secret], purpose: &str) -> Result<SigningKeys, String> {
        if secrets.is_empty() || secrets.len() > KEYS_MAX {
            return Err(format!("1 to {KEYS_MAX} keys are needed, not {}", secrets.len()));
        }
        let key = |secret: &Secret| key(secret, purpose).map_err(|why| format!("{secret} {why}"));
        Ok(SigningKeys(secrets.iter().map(key).collect::<Result<_, _>>()?))
    }

    /// The keyed hash of these parts, one after the other, by the first key.
    pub fn sign<const N: usize>(&self, parts: &[&[u8]]) -> [u8; N] {
        self.0.first().map(|key| keyed_hash(key, parts)).unwrap_or([0; N])
    }

    /// Is it the keyed hash by one of the keys? Takes the same time whatever is compared: all keys are tried, and all
    /// bytes of each are compared.
    pub fn verify<const N: usize>(&self, parts: &[&[u8]], hash: &[u8; N]) -> bool {
        let differs = |key: &[u8; blake3::KEY_LEN]| {
            let own: [u8; N] = keyed_hash(key, parts);
            own.iter().zip(hash).fold(0_u8, |differs, (one, other)| differs | (one ^ other))
        };
        self.0.iter().fold(false, |fits, key| fits | (differs(key) == 0))
    }
}

/// Shows how many there are.
impl fmt::Debug for SigningKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0.len())
    }
}

/// The first `N` bytes, 32 at most.
fn keyed_hash<const N: usize>(key: &[u8; blake3::KEY_LEN], parts: &[&[u8]]) -> [u8; N] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().as_bytes().first_chunk().copied().unwrap_or([0; N])
}

/// The line's end is no part of it.
fn key(secret: &Secret, purpose: &str) -> Result<[u8; blake3::KEY_LEN], String> {
    let bytes = match secret {
        Secret::File(path) => {
            let mut bytes = Vec::new();
            let read = std::fs::File::open(path).and_then(|file| file.take(KEY_BYTES_MAX + 1).read_to_end(&mut bytes));
            read.map_err(|error| format!("cannot be read: {error}"))?;
            bytes
        }
        Secret::Env(name) => std::env::var(name).map_err(|_| "is not set, or not a text".to_owned())?.into_bytes(),
    };
    let key = bytes.trim_ascii_end();
    if key.len() < KEY_BYTES_MIN || key.len() as u64 > KEY_BYTES_MAX {
        let length = key.len();
        return Err(format!(
            "has {length} bytes, not {KEY_BYTES_MIN} to {KEY_BYTES_MAX}: openssl rand -hex 32 makes some"
        ));
    }
    Ok(blake3::derive_key(purpose, key))
}

fn is_variable(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.len() <= NAME_MAX_BYTES && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Secret::File(path) => write!(formatter, "file:{path}"),
            Secret::Env(name) => write!(formatter, "env:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_reads_as_it_is_written() {
        for text in ["file:/etc/reveille/ses", "file:/a b:c", "env:SES_LOGIN", "env:_x1"] {
            assert_eq!(text.parse::<Secret>().map(|secret| secret.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_may_be_the_secret_itself_is_refused_and_not_repeated() {
        for text in ["anna:hunter2", "file:relative", "file:", "file:/a\n", "env:", "env:1X", "env:A B", "hunter2", ""]
        {
            let refused = text.parse::<Secret>().expect_err(text).to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }
}
