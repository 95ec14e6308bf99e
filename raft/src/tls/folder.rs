//! The folder `tls` in a node's data folder: key and certificate of the node, and the authorities with their keys.
//!
//! The node's key is written first, and a joining node that is interrupted uses it again. The node's certificate is
//! written last: a folder that has it is complete. A rotation adds a second authority, which takes the place of the
//! first in one step. All files are PEM, readable by their owner only. Neither the ledger nor a snapshot contains a
//! key.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};

use super::TlsError;
use super::authority::Authority;
use crate::files;
use crate::identity::ClusterId;

const FOLDER: &str = "tls";
const NODE_KEY: &str = "node.key";
const NODE_CERTIFICATE: &str = "node.crt";
/// Certificate and key of an authority are one file, so that a crash never leaves one without the other.
const PRESENT: &str = "ca.pem";
const NEXT: &str = "next-ca.pem";

/// The folder `tls`.
pub(super) struct TlsFolder(PathBuf);

impl TlsFolder {
    /// Returns the folder, which may not exist.
    pub fn of(data_dir: &Path) -> TlsFolder {
        TlsFolder(data_dir.join(FOLDER))
    }

    /// Creates the folder, if it does not exist.
    pub fn create(data_dir: &Path) -> Result<TlsFolder, TlsError> {
        let folder = TlsFolder::of(data_dir);
        let made = files::create_private_folder(&folder.0);
        // The key must survive a power cut: without it the node could not repeat its request.
        let synced = made.and_then(|()| File::open(data_dir)?.sync_all());
        synced.map_err(|error| TlsError::File { path: folder.0.clone(), error })?;
        Ok(folder)
    }

    /// Returns the node's key. Makes and stores it, if there is none.
    pub fn node_key(&self) -> Result<KeyPair, TlsError> {
        if let Some(pem) = self.read(NODE_KEY)? {
            return Ok(KeyPair::from_pem(&pem)?);
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        self.write(NODE_KEY, &key.serialize_pem())?;
        Ok(key)
    }

    /// Returns the node's certificate. `None`: the folder is not complete.
    pub fn certificate(&self) -> Result<Option<String>, TlsError> {
        self.read(NODE_CERTIFICATE)
    }

    /// Replaces the node's certificate.
    pub fn store_certificate(&self, pem: &str) -> Result<(), TlsError> {
        self.write(NODE_CERTIFICATE, pem)
    }

    /// Returns the authority that every member trusts.
    pub fn present(&self, cluster: ClusterId) -> Result<Authority, TlsError> {
        let missing = || self.failed(PRESENT, ErrorKind::NotFound.into());
        self.authority(PRESENT, cluster)?.ok_or_else(missing)
    }

    /// Stores the authority that every member trusts.
    pub fn store_present(&self, authority: &Authority) -> Result<(), TlsError> {
        self.write(PRESENT, &authority.to_pem())
    }

    /// Returns the authority of a rotation.
    pub fn next(&self, cluster: ClusterId) -> Result<Option<Authority>, TlsError> {
        self.authority(NEXT, cluster)
    }

    /// Stores the authority of a rotation.
    pub fn store_next(&self, authority: &Authority) -> Result<(), TlsError> {
        self.write(NEXT, &authority.to_pem())
    }

    /// Removes the authority of a rotation.
    pub fn remove_next(&self) -> Result<(), TlsError> {
        let removed = std::fs::remove_file(self.0.join(NEXT)).and_then(|()| self.sync());
        removed.map_err(|error| self.failed(NEXT, error))
    }

    /// Replaces the present authority by the one of the rotation, in one step.
    pub fn put_next_in_place(&self) -> Result<(), TlsError> {
        let renamed = std::fs::rename(self.0.join(NEXT), self.0.join(PRESENT)).and_then(|()| self.sync());
        renamed.map_err(|error| self.failed(NEXT, error))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn authority(&self, name: &str, cluster: ClusterId) -> Result<Option<Authority>, TlsError> {
        self.read(name)?.map(|text| Authority::from_pem(cluster, &text)).transpose()
    }

    fn read(&self, name: &str) -> Result<Option<String>, TlsError> {
        match std::fs::read_to_string(self.0.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), TlsError> {
        let replaced = files::replace(&self.0, name, text.as_bytes(), files::PRIVATE);
        replaced.map_err(|error| self.failed(name, error))
    }

    fn failed(&self, name: &str, error: io::Error) -> TlsError {
        TlsError::File { path: self.0.join(name), error }
    }
}
