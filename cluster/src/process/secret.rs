//! References to secrets in a node's configuration. They never contain the secret.
//!
//! Used for the credentials of relays and for the keys of unsubscribe links and return paths.

use std::io::Read;
use std::str::FromStr;

use reveille_ledger::access::is_path;
use thiserror::Error;

/// Source from which a node reads a secret.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub enum Secret {
    /// The only line of the file with this absolute path.
    #[display("file:{_0}")]
    File(String),
    /// The variable of the node's environment with this name.
    #[display("env:{_0}")]
    Env(String),
}

/// The text is not a reference to a secret. The error does not repeat the text, which may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("is not a reference to a secret; give file:/absolute/path or env:NAME")]
pub struct NoSecret;

/// Maximum number of keys: the one that signs, and former ones.
pub const KEYS_MAX: usize = 4;
/// Minimum size of a key in bytes: 256 bits, if they are random.
pub const KEY_BYTES_MIN: usize = 32;
/// Maximum size of a secret in bytes, more than any key or token has.
const SECRET_BYTES_MAX: u64 = 4_096;

/// Maximum length of a variable's name in bytes.
const NAME_BYTES_MAX: usize = 1_024;

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

impl Secret {
    /// Reads the secret, without white space at its end.
    ///
    /// # Errors
    /// Returns why it cannot be read. The text does not contain the secret.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        let mut bytes = match self {
            Secret::File(path) => {
                let mut bytes = Vec::new();
                let read =
                    std::fs::File::open(path).and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes));
                read.map_err(|error| format!("cannot be read: {error}"))?;
                bytes
            }
            Secret::Env(name) => std::env::var(name).map_err(|_| "is not set, or not a text".to_owned())?.into_bytes(),
        };
        bytes.truncate(bytes.trim_ascii_end().len());
        match bytes.len() as u64 > SECRET_BYTES_MAX {
            true => Err(format!("has more than {SECRET_BYTES_MAX} bytes")),
            false => Ok(bytes),
        }
    }
}

/// Keys for tokens: the first one signs, and all of them verify. Debug output shows their number only.
#[derive(derive_more::Debug)]
#[debug("{}", _0.len())]
pub struct SigningKeys(Vec<[u8; blake3::KEY_LEN]>);

impl SigningKeys {
    /// Reads the keys, in the order of `secrets`. `purpose` derives different keys from one secret for different
    /// purposes.
    ///
    /// # Errors
    /// Returns which secret cannot be used and why, but never its content.
    pub fn read(secrets: &[Secret], purpose: &str) -> Result<SigningKeys, String> {
        if secrets.is_empty() || secrets.len() > KEYS_MAX {
            return Err(format!("1 to {KEYS_MAX} keys are needed, not {}", secrets.len()));
        }
        let key = |secret: &Secret| key(secret, purpose).map_err(|why| format!("{secret} {why}"));
        Ok(SigningKeys(secrets.iter().map(key).collect::<Result<_, _>>()?))
    }

    /// Returns the keyed hash of the concatenated parts, by the first key.
    pub fn sign<const N: usize>(&self, parts: &[&[u8]]) -> [u8; N] {
        self.0.first().map(|key| keyed_hash(key, parts)).unwrap_or([0; N])
    }

    /// Returns true if `hash` is the keyed hash by any of the keys. Takes constant time: all keys are tried, and all
    /// bytes of each are compared.
    pub fn verify<const N: usize>(&self, parts: &[&[u8]], hash: &[u8; N]) -> bool {
        let differs = |key: &[u8; blake3::KEY_LEN]| {
            let own: [u8; N] = keyed_hash(key, parts);
            own.iter().zip(hash).fold(0_u8, |differs, (one, other)| differs | (one ^ other))
        };
        self.0.iter().fold(false, |fits, key| fits | (differs(key) == 0))
    }
}

/// Returns the first `N` bytes of the keyed hash, at most 32.
fn keyed_hash<const N: usize>(key: &[u8; blake3::KEY_LEN], parts: &[&[u8]]) -> [u8; N] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().as_bytes().first_chunk().copied().unwrap_or([0; N])
}

/// Reads and derives a key.
fn key(secret: &Secret, purpose: &str) -> Result<[u8; blake3::KEY_LEN], String> {
    let key = secret.read()?;
    if key.len() < KEY_BYTES_MIN {
        let length = key.len();
        return Err(format!("has {length} bytes, not {KEY_BYTES_MIN} or more: openssl rand -hex 32 makes some"));
    }
    Ok(blake3::derive_key(purpose, &key))
}

fn is_variable(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_reference_parses_to_what_it_prints() {
        for text in ["file:/etc/reveille/ses", "file:/a b:c", "env:SES_LOGIN", "env:_x1"] {
            assert_eq!(text.parse::<Secret>().map(|secret| secret.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn plain_secret_is_refused_and_not_repeated() {
        for text in ["anna:hunter2", "file:relative", "file:", "file:/a\n", "env:", "env:1X", "env:A B", "hunter2", ""]
        {
            let refused = text.parse::<Secret>().expect_err(text).to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }
}
