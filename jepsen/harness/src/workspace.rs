//! The two folders of a command. Their names and those of its network namespaces contain the same token. The end of the
//! command removes all of them, also after Ctrl-C. After a `kill -9` of the command itself they remain.

use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// File system in memory, for journals.
const MEMORY: &str = "/dev/shm";
const PREFIX: &str = "reveille-jepsen-";

/// Two folders with one token.
pub struct Workspace {
    token: String,
    data: TempDir,
    journals: Option<TempDir>,
}

impl Workspace {
    /// Creates the folders.
    pub fn new() -> Result<Workspace> {
        let token = format!("{:08x}", rand::random::<u32>());
        let data = folder(&std::env::temp_dir(), &token)?;
        let memory = Path::new(MEMORY);
        let journals = memory.is_dir().then(|| folder(memory, &token)).transpose()?;
        Ok(Workspace { token, data, journals })
    }

    /// Returns the token that all names contain: eight random digits.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the folder on a disk.
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// Returns the folder in memory. `None`: the machine has no file system in memory.
    pub fn journals(&self) -> Option<&Path> {
        self.journals.as_ref().map(TempDir::path)
    }
}

fn folder(parent: &Path, token: &str) -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix(&format!("{PREFIX}{token}")).rand_bytes(0).tempdir_in(parent);
    folder.with_context(|| format!("no folder can be made in {}", parent.display()))
}
