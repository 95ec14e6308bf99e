//! What is sent and to whom: content and inline audiences, as they are kept by hash.
//!
//! Both arrive here validated (the admin service builds them; `apply` checks only bounds that protect
//! the ledger itself). Their bytes are immutable: a run pins them by hash, an edit makes new ones.

use serde::{Deserialize, Serialize};

use crate::ids::Hash;

/// Bytes of one content, all parts together.
pub const CONTENT_BYTES_MAX: usize = 512 * 1024;
/// Recipients of an inline audience; larger lists never pass through the log (P20).
pub const INLINE_RECIPIENTS_MAX: usize = 10_000;
/// Bytes of an inline audience.
pub const INLINE_BYTES_MAX: usize = 1024 * 1024 - CONTENT_BYTES_MAX / 2;

/// Sender, subject and body of a mail: minijinja templates, compiled where they are used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// `From`, as given: an address, or `Name <address>`.
    pub sender: String,
    /// `Reply-To`, as given.
    pub reply_to: Option<String>,
    /// Subject template.
    pub subject: String,
    /// Plain text template.
    pub text: Option<String>,
    /// HTML template; its variables are escaped.
    pub html: Option<String>,
    /// Further header fields, in order; never one that Reveille writes itself.
    pub headers: Vec<(String, String)>,
    /// Variables with the same value for everybody.
    pub variables: Vec<(String, String)>,
}

/// One recipient of an inline audience.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    /// The address as given: shown, and on the wire.
    pub address: String,
    /// The key by which duplicates and opt-outs are known.
    pub key: String,
    /// Variables of this recipient, in the order of [`Audience::columns`].
    pub values: Vec<String>,
}

/// An immutable, deduplicated, numbered list of recipients. A recipient's number is its place here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audience {
    /// Names of the per-recipient variables.
    pub columns: Vec<String>,
    /// The recipients.
    pub recipients: Vec<Recipient>,
}

/// Bytes that are kept by hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Hash of the bytes.
    pub hash: Hash,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Content {
    /// The canonical bytes and their hash.
    pub fn blob(&self) -> Blob {
        blob(self)
    }

    /// Reads the canonical bytes.
    pub fn from_blob(bytes: &[u8]) -> Option<Content> {
        postcard::from_bytes(bytes).ok()
    }
}

impl Audience {
    /// The canonical bytes and their hash.
    pub fn blob(&self) -> Blob {
        blob(self)
    }

    /// Reads the canonical bytes.
    pub fn from_blob(bytes: &[u8]) -> Option<Audience> {
        postcard::from_bytes(bytes).ok()
    }
}

fn blob<T: Serialize>(value: &T) -> Blob {
    // Strings and lists of strings in memory: postcard has nothing to refuse there.
    let bytes = postcard::to_stdvec(value).unwrap_or_default();
    Blob { hash: Hash::of(&bytes), bytes }
}
