//! The first admin token of a cluster: made with it, and never sent over the network.
//!
//! `cluster init` makes it, and keeps its hash in the data folder. The first start proposes the hash to the ledger, and
//! removes the file. Both may be repeated after an interruption.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use data_encoding::HEXLOWER;
use reveille_ledger::command::Command;
use reveille_ledger::ids::{Hash, TokenId};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::token::{Rights, TenantScope, TokenCreate, TokenGrant};
use reveille_raft::Replica;

use super::admin::all_rights;
use super::node_identity::{NodeIdentityError, write};
use crate::token_text::TokenText;

const FILE: &str = "first-token";
const NAME: &str = "first";

/// Makes the first token of the cluster that was prepared in this folder. A repeat makes another one in its place.
///
/// # Errors
/// If the folder cannot be written.
pub fn make(data_dir: &Path) -> Result<TokenText, NodeIdentityError> {
    let token = TokenText::generate();
    let bytes = [&token.id.0.to_be_bytes()[..], &token.hash().0].concat();
    write(data_dir, FILE, &HEXLOWER.encode(&bytes))?;
    Ok(token)
}

/// Returns what the first token of a cluster permits: everything.
pub fn grant(hash: Hash) -> TokenGrant {
    let (name, rights, tenants) = (NAME.to_owned(), all_rights(), TenantScope::All);
    TokenGrant { name, hash, rights, tenants, expires_at: None }
}

/// Brings the first token into the ledger, if this folder has one.
///
/// # Errors
/// If the file cannot be read, or no leader takes the token until the deadline.
pub async fn propose(replica: &Replica, data_dir: &Path, deadline: Instant) -> Result<()> {
    let path = data_dir.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let (id, hash) = parse(text.trim_end()).with_context(|| format!("{} is damaged", path.display()))?;
    let create = Command::TokenCreate(Box::new(TokenCreate { id, grant: grant(hash), revokes: Rights::default() }));
    let created = replica.propose(&create, deadline).await.context("no leader yet")?;
    if let CommandOutcome::Refused(refusal) = created.outcome {
        bail!("the ledger does not take the first token: {refusal}");
    }
    std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
}

fn parse(text: &str) -> Option<(TokenId, Hash)> {
    let bytes = HEXLOWER.decode(text.as_bytes()).ok()?;
    let (id, hash) = bytes.split_first_chunk()?;
    Some((TokenId(u64::from_be_bytes(*id)), Hash(hash.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_has_id_and_hash_and_no_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let token = make(folder.path()).expect("made");
        let text = std::fs::read_to_string(folder.path().join(FILE)).expect("a file");
        assert_eq!(parse(text.trim_end()), Some((token.id, token.hash())));
        let secret = token.to_string();
        assert!(!text.contains(secret.split('_').nth(2).expect("a secret")));
        assert_ne!(make(folder.path()).expect("a repeat").id, token.id);
        assert_eq!(parse(&text[..20]), None);
    }
}
