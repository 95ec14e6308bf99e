//! Content and audiences, as they are kept by hash.
//!
//! Both arrive here validated (the admin service builds them; `apply` checks only bounds that protect
//! the ledger itself). Their bytes are immutable: a run pins them by hash, an edit makes new ones.
//!
//! A small audience is kept whole. Of a large one the ledger keeps its [`Seal`], which names files that hold
//! the recipients (P20); it never sees a recipient of it.

use serde::{Deserialize, Serialize};

use crate::fingerprint::fingerprint;
use crate::model::{CHUNK, Hash, Limits};
use crate::storage::form;

/// Parts of a sealed audience: 67 million recipients, in a seal of some 34 KiB.
pub const PARTS_MAX: usize = 1_024;
/// Columns of a sealed audience.
pub const COLUMNS_MAX: usize = 64;

/// Sender, subject and body of a mail: minijinja templates, compiled where they are used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// `From`, as given: an address, or `Name <address>`.
    pub sender: String,
    /// `Reply-AudienceChoice`, as given.
    pub reply_to: Option<String>,
    /// Subject template.
    pub subject: String,
    /// Plain text template.
    pub text: Option<String>,
    /// HTML template; its variables are escaped.
    pub html: Option<String>,
    /// Further header fields, in order; never one that Reveille writes itself.
    pub headers: Vec<(String, String)>,
    /// Variables with the same value for each recipient.
    pub variables: Vec<(String, String)>,
    /// Bulk mail: each recipient's way to opt out stands in its header (RFC 8058).
    pub bulk: bool,
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

/// What the ledger knows of a large audience: its recipients are in files that each node has for itself (P20).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// The name under which it was sealed, so that runs that pin it can still show it.
    pub name: String,
    /// Names of the per-recipient variables.
    pub columns: Vec<String>,
    /// Recipients in all. All parts but the last hold as many as a chunk has slots.
    pub rows: u32,
    /// Hash of each part, in order: recipient `n` is in part `n / 65,536`.
    pub parts: Vec<Hash>,
}

/// An audience as it is kept by hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipients {
    /// All of it.
    Inline(Audience),
    /// What names its parts.
    Sealed(Seal),
}

/// The audience of a schedule, as a command names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AudienceChoice {
    /// A list of its own.
    Listed(Audience),
    /// A sealed audience.
    Sealed(NamedAudience),
}

/// A sealed audience as the caller knows it: compared when the command is applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedAudience {
    /// Its name.
    pub name: String,
    /// Hash of its seal.
    pub seal: Hash,
    /// Its recipients.
    pub rows: u32,
}

/// A content or a list as it is kept by hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Fingerprint of the value: unlike the bytes, it stays the same when a release adds a field.
    pub hash: Hash,
    /// The bytes, in a form that begins with its version.
    pub bytes: Vec<u8>,
}

impl Content {
    /// The stored bytes and the fingerprint.
    pub fn blob(&self) -> Blob {
        blob(self)
    }

    /// Reads the stored bytes.
    pub fn from_blob(bytes: &[u8]) -> Option<Content> {
        form::decode(bytes).ok()
    }
}

impl Audience {
    /// The stored bytes and the fingerprint: those of [`Recipients::Inline`].
    pub fn blob(&self) -> Blob {
        blob(&Kept::Inline(self))
    }
}

/// What is wrong with a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum WrongSeal {
    /// Name of the audience or of a column.
    #[error("a name of an audience or of a column has 1 to {max} bytes")]
    Name {
        /// Bytes at most.
        max: u32,
    },
    /// Too many columns.
    #[error("{given} columns are more than {max}")]
    Columns {
        /// How many.
        given: u32,
        /// At most.
        max: u32,
    },
    /// No recipient.
    #[error("an audience needs at least one recipient")]
    Empty,
    /// Too many recipients.
    #[error("{given} recipients are more than {max}")]
    Rows {
        /// How many.
        given: u32,
        /// At most.
        max: u32,
    },
    /// Another number of parts than the recipients need.
    #[error("{rows} recipients are in {parts} parts, not in {given}")]
    Parts {
        /// Recipients.
        rows: u32,
        /// Parts that these need.
        parts: u32,
        /// Parts that are named.
        given: u32,
    },
}

impl Seal {
    /// The stored bytes and the fingerprint: those of [`Recipients::Sealed`].
    pub fn blob(&self) -> Blob {
        blob(&Kept::Sealed(self))
    }

    /// Why it cannot be one.
    pub fn wrong(&self, limits: &Limits) -> Option<WrongSeal> {
        let most = limits.audience_name_bytes;
        let named = |name: &String| !name.is_empty() && name.len() <= most;
        if !named(&self.name) || !self.columns.iter().all(named) {
            return Some(WrongSeal::Name { max: most as u32 });
        }
        if self.columns.len() > COLUMNS_MAX {
            return Some(WrongSeal::Columns { given: self.columns.len() as u32, max: COLUMNS_MAX as u32 });
        }
        if self.rows == 0 {
            return Some(WrongSeal::Empty);
        }
        let (rows, parts) = (self.rows, self.rows.div_ceil(CHUNK));
        if parts as usize > PARTS_MAX {
            return Some(WrongSeal::Rows { given: rows, max: PARTS_MAX as u32 * CHUNK });
        }
        let given = self.parts.len();
        (given != parts as usize).then_some(WrongSeal::Parts { rows, parts, given: given as u32 })
    }

    /// Hash of its recipients, in their order: equal where the same list was sealed under another name (P20).
    pub fn people(&self) -> Hash {
        Hash::of(&self.parts.iter().flat_map(|part| part.0).collect::<Vec<u8>>())
    }

    /// The part that holds a recipient, and the recipient's place in it.
    pub fn place(&self, recipient: u32) -> Option<(Hash, u16)> {
        let part = self.parts.get((recipient / CHUNK) as usize).filter(|_| recipient < self.rows)?;
        Some((*part, (recipient % CHUNK) as u16))
    }
}

/// [`Recipients`], borrowed.
#[derive(Serialize)]
enum Kept<'a> {
    Inline(&'a Audience),
    Sealed(&'a Seal),
}

impl Recipients {
    /// Reads the stored bytes.
    pub fn from_blob(bytes: &[u8]) -> Option<Recipients> {
        form::decode(bytes).ok()
    }

    /// Reads them as a seal, without reading a list.
    pub fn seal_from_blob(bytes: &[u8]) -> Option<Seal> {
        match bytes.first() {
            Some(1) => match Recipients::from_blob(bytes)? {
                Recipients::Sealed(seal) => Some(seal),
                Recipients::Inline(_) => None,
            },
            _ => None,
        }
    }

    /// As a command says it that takes hold of what is kept under this hash.
    pub fn to(self, hash: Hash) -> AudienceChoice {
        match self {
            Recipients::Inline(audience) => AudienceChoice::Listed(audience),
            Recipients::Sealed(seal) => {
                AudienceChoice::Sealed(NamedAudience { name: seal.name, seal: hash, rows: seal.rows })
            }
        }
    }

    /// Names of the per-recipient variables.
    pub fn columns(&self) -> &[String] {
        match self {
            Recipients::Inline(audience) => &audience.columns,
            Recipients::Sealed(seal) => &seal.columns,
        }
    }
}

impl AudienceChoice {
    /// The hash under which the audience is kept.
    pub fn hash(&self) -> Hash {
        match self {
            AudienceChoice::Listed(audience) => audience.blob().hash,
            AudienceChoice::Sealed(named) => named.seal,
        }
    }

    /// Its recipients.
    pub fn count(&self) -> u32 {
        match self {
            // Bounded to ten thousand where it is applied.
            AudienceChoice::Listed(audience) => audience.recipients.len() as u32,
            AudienceChoice::Sealed(named) => named.rows,
        }
    }
}

impl From<Audience> for AudienceChoice {
    fn from(audience: Audience) -> AudienceChoice {
        AudienceChoice::Listed(audience)
    }
}

fn blob<T: Serialize>(value: &T) -> Blob {
    Blob { hash: fingerprint(value), bytes: form::encode(value) }
}
