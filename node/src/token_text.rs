//! The text of an admin token: `rvt_ID_SECRET_CHECKSUM`.
//!
//! Callers of the admin API send it as `authorization: Bearer TOKEN`. The ledger has a hash of the secret only. The
//! prefix marks it for scanners of secrets; by the checksum a typing error is found without a network.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE32_NOPAD;
use reveille_ledger::ids::{Hash, TokenId};
use uuid::Uuid;

const PREFIX: &str = "rvt_";
/// Context of the hash. Another purpose of the same secret would have another context.
const HASH_CONTEXT: &str = concat!("reveille", " admin token 1");
const SECRET_BYTES: usize = 32;

/// A token with its secret.
#[derive(Clone, derive_more::Debug)]
#[debug("TokenText {id}")]
pub struct TokenText {
    /// Its id, which is no secret.
    pub id: TokenId,
    secret: [u8; SECRET_BYTES],
}

/// The text is not a token, or a part of it is missing or wrong. Does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not an admin token, or it was not copied completely")]
pub struct NotAToken;

impl TokenText {
    /// Draws a new token.
    pub fn generate() -> TokenText {
        // 122 random bits of the system each, and the hash makes 256 of them.
        let mut hasher = blake3::Hasher::new();
        for _ in 0..4 {
            hasher.update(Uuid::new_v4().as_bytes());
        }
        let (id, _) = Uuid::new_v4().as_u64_pair();
        TokenText { id: TokenId(id), secret: *hasher.finalize().as_bytes() }
    }

    /// Returns the hash by which the ledger knows the token.
    pub fn hash(&self) -> Hash {
        Hash(blake3::derive_key(HASH_CONTEXT, &self.secret))
    }

    /// True if the ledger's hash is that of this token. Takes the same time for every hash.
    pub fn has_hash(&self, hash: &Hash) -> bool {
        blake3::Hash::from(self.hash().0) == blake3::Hash::from(hash.0)
    }

    fn checksum(&self) -> [u8; 4] {
        let id = self.id.0.to_be_bytes();
        crc32c::crc32c_append(crc32c::crc32c(&id), &self.secret).to_be_bytes()
    }
}

impl fmt::Display for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| BASE32_NOPAD.encode(bytes).to_ascii_lowercase();
        write!(f, "{PREFIX}{}_{}_{}", self.id, text(&self.secret), text(&self.checksum()))
    }
}

impl FromStr for TokenText {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<TokenText, NotAToken> {
        parse(text.trim()).ok_or(NotAToken)
    }
}

fn parse(text: &str) -> Option<TokenText> {
    let mut parts = text.strip_prefix(PREFIX)?.split('_');
    let (id, secret, checksum) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = |text: &str| BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).ok();
    let token = TokenText { id: id.parse().ok()?, secret: bytes(secret)?.try_into().ok()? };
    let is_whole = parts.next().is_none() && bytes(checksum)? == token.checksum();
    is_whole.then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_has_the_documented_form_and_survives_being_written_down() {
        let token = TokenText::generate();
        let text = token.to_string();
        let lengths: Vec<usize> = text.split('_').map(str::len).collect();
        assert_eq!(lengths, [3, 16, 52, 7]);
        let read: TokenText = format!(" {text}\n").parse().expect("the same token");
        assert_eq!((read.id, read.hash()), (token.id, token.hash()));
        assert!(read.has_hash(&token.hash()) && !read.has_hash(&TokenText::generate().hash()));
    }

    #[test]
    fn every_changed_or_missing_character_is_found() {
        let text = TokenText::generate().to_string();
        for place in 0..text.len() {
            let other = if text.as_bytes()[place] == b'a' { "b" } else { "a" };
            let mut changed = text.clone();
            changed.replace_range(place..=place, other);
            assert!(changed.parse::<TokenText>().is_err(), "{place}");
            assert!(text[..place].parse::<TokenText>().is_err(), "{place}");
        }
        for other in ["", "rvt_", "rvt___", "rvj1_aaaa", "rvt_0_0_0_0"] {
            assert_eq!(other.parse::<TokenText>().err(), Some(NotAToken), "{other}");
        }
    }

    #[test]
    fn debug_text_has_no_part_of_the_secret() {
        let token = TokenText::generate();
        assert_eq!(format!("{token:?}"), format!("TokenText {}", token.id));
    }

    mod fuzz {
        use proptest::prelude::*;
        use reveille_fuzz::{cases, damage, damaged_text};

        use super::*;

        proptest! {
            #![proptest_config(cases(1_000))]

            #[test]
            fn token_reads_back_and_damaged_one_is_none(
                id in any::<u64>(),
                secret in any::<[u8; SECRET_BYTES]>(),
                damage in prop::collection::vec(damage(), 1..4),
            ) {
                let token = TokenText { id: TokenId(id), secret };
                let same = |read: TokenText| (read.id, read.secret) == (token.id, token.secret);
                let text = token.to_string();
                prop_assert!(text.parse().is_ok_and(same));
                // The case of its letters and blanks around it do not matter.
                let other = damaged_text(&text, &damage);
                prop_assert!(other.parse().map_or(true, same), "{other}");
            }
        }
    }
}
