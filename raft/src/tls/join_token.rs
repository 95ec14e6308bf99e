//! Join tokens: a member makes one, an operator carries it to the new machine, and any member accepts it once.
//!
//! A token names the authority by its id, so that the new node trusts no other cluster, and fixes the id of the new
//! node. It is spent when the membership has that id: a second node cannot have it. Its code proves that a member made
//! it. The code is computed with a secret that is derived from the authority's key, so no member has to store tokens.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE32_NOPAD;
use reveille_ledger::ids::{AuthorityId, NodeId};

use super::authority::Authority;
use crate::identity::ClusterId;

/// Marks a token for readers and for scanners of secrets.
const PREFIX: &str = "rvj1_";
const PURPOSE: &str = "reveille join token 1";
const CODE_BYTES: usize = 32;
/// Bytes before the address: cluster, node, expiry, id of the authority.
const FIXED_BYTES: usize = 16 + 8 + 8 + 32;
/// Bytes of a checksum, by which a typing error is found before the network is used.
const CHECKSUM_BYTES: usize = 4;

/// Permission for one node to join the cluster.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("JoinToken of node {node} for cluster {cluster}")]
pub struct JoinToken {
    /// The cluster.
    pub cluster: ClusterId,
    /// Id of the new node.
    pub node: NodeId,
    /// Peer address of the member that made the token.
    pub address: String,
    /// Unix time in seconds at which the token ends.
    pub expires_at_s: u64,
    /// The authority whose members accept the token.
    pub(super) authority: AuthorityId,
    code: [u8; CODE_BYTES],
}

/// Reason why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text is not a token, or a part of it is missing or wrong.
    #[error("this is not a join token, or it was not copied completely")]
    Malformed,
    /// Another cluster's member made it, or none, or the authority was rotated since.
    #[error("the join token is not of this cluster, or of its former certificate authority; make another one")]
    Foreign,
    /// Its time is over.
    #[error("the join token has expired; make another one")]
    Expired,
    /// The public key that came with it is not a point of P-256.
    #[error("the node's public key is not valid")]
    BadKey,
}

impl JoinToken {
    pub(super) fn new(authority: &Authority, node: NodeId, address: String, expires_at_s: u64) -> JoinToken {
        let (cluster, id) = (authority.cluster(), authority.id());
        let mut token = JoinToken { cluster, node, address, expires_at_s, authority: id, code: [0; CODE_BYTES] };
        token.code = *token.code_by(authority).as_bytes();
        token
    }

    /// Checks that a member of this cluster made the token.
    ///
    /// # Errors
    /// [`TokenError::Foreign`].
    pub(super) fn check(&self, authority: &Authority) -> Result<(), TokenError> {
        // `blake3::Hash` compares in constant time.
        if self.authority != authority.id() || self.code_by(authority) != self.code {
            return Err(TokenError::Foreign);
        }
        Ok(())
    }

    fn code_by(&self, authority: &Authority) -> blake3::Hash {
        blake3::keyed_hash(&authority.derived_secret(PURPOSE), &self.content())
    }

    /// Returns everything but the code. The order of the fields is the format.
    fn content(&self) -> Vec<u8> {
        let mut content = Vec::with_capacity(FIXED_BYTES + self.address.len());
        content.extend(self.cluster.0.to_be_bytes());
        content.extend(self.node.0.to_be_bytes());
        content.extend(self.expires_at_s.to_be_bytes());
        content.extend(self.authority.0);
        content.extend(self.address.as_bytes());
        content
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.code.to_vec();
        bytes.extend(self.content());
        let checksum = crc32c::crc32c(&bytes).to_be_bytes();
        bytes.extend(checksum);
        write!(f, "{PREFIX}{}", BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
    }
}

impl FromStr for JoinToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<JoinToken, TokenError> {
        parse(text.trim()).ok_or(TokenError::Malformed)
    }
}

fn parse(text: &str) -> Option<JoinToken> {
    let bytes = BASE32_NOPAD.decode(text.strip_prefix(PREFIX)?.to_ascii_uppercase().as_bytes()).ok()?;
    let (bytes, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    if crc32c::crc32c(bytes).to_be_bytes() != *checksum {
        return None;
    }
    let (code, rest) = bytes.split_first_chunk::<CODE_BYTES>()?;
    let (cluster, rest) = rest.split_first_chunk::<16>()?;
    let (node, rest) = rest.split_first_chunk::<8>()?;
    let (expires_at_s, rest) = rest.split_first_chunk::<8>()?;
    let (authority, address) = rest.split_first_chunk::<32>()?;
    Some(JoinToken {
        cluster: ClusterId(u128::from_be_bytes(*cluster)),
        node: NodeId(u64::from_be_bytes(*node)),
        address: String::from_utf8(address.to_vec()).ok().filter(|address| !address.is_empty())?,
        expires_at_s: u64::from_be_bytes(*expires_at_s),
        authority: AuthorityId(*authority),
        code: *code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(cluster: u128) -> Authority {
        Authority::create(ClusterId(cluster)).expect("an authority")
    }

    #[test]
    fn token_survives_being_written_down() {
        let token = JoinToken::new(&authority(7), NodeId(0xab), "10.0.0.1:7601".to_owned(), 100);
        let text = token.to_string();
        assert_eq!(text.parse(), Ok(token.clone()));
        assert_eq!(format!(" {} \n", text.to_ascii_uppercase().replace("RVJ1", "rvj1")).parse(), Ok(token));
    }

    #[test]
    fn every_changed_character_is_found() {
        let text = JoinToken::new(&authority(7), NodeId(1), "a:1".to_owned(), 100).to_string();
        for place in 0..text.len() {
            let other = if text.as_bytes()[place] == b'a' { "b" } else { "a" };
            let mut changed = text.clone();
            changed.replace_range(place..=place, other);
            assert_eq!(changed.parse::<JoinToken>(), Err(TokenError::Malformed), "{place}");
            assert_eq!(text[..place].parse::<JoinToken>(), Err(TokenError::Malformed), "{place}");
        }
    }

    #[test]
    fn token_of_another_cluster_and_forged_token_are_refused() {
        let (own, other) = (authority(7), authority(7));
        let token = JoinToken::new(&own, NodeId(1), "a:1".to_owned(), 100);
        assert_eq!(token.check(&own), Ok(()));
        assert_eq!(token.check(&other), Err(TokenError::Foreign));
        let forged = JoinToken { node: NodeId(2), ..token.clone() };
        assert_eq!(forged.check(&own), Err(TokenError::Foreign), "another id was not permitted");
        let prolonged = JoinToken { expires_at_s: 1_000, ..token };
        assert_eq!(prolonged.check(&own), Err(TokenError::Foreign));
    }

    #[test]
    fn debug_text_of_token_does_not_show_its_code() {
        let token = JoinToken::new(&authority(7), NodeId(1), "a:1".to_owned(), 100);
        assert_eq!(format!("{token:?}"), format!("JoinToken of node {} for cluster {}", NodeId(1), ClusterId(7)));
    }
}
