//! Content and audiences, stored by hash.
//!
//! Both are validated before they arrive here: the admin API builds them, and `apply` checks only bounds that protect
//! the ledger. Their bytes never change: a run refers to them by hash, and an edit stores new ones.
//!
//! A small audience is stored in the ledger. For a large one the ledger has only its [`Seal`], which names the files
//! that hold the recipients. Attachments are files too: the ledger has their names, sizes and hashes (P20).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::fingerprint::fingerprint;
use crate::model::{CHUNK, Hash, LedgerLimits, TemplateUse};
use crate::storage::form;

/// Maximum number of parts of a sealed audience: 67 million recipients, in a seal of about 34 KiB.
pub const PARTS_MAX: usize = 1_024;
/// Maximum number of columns of a sealed audience.
pub const COLUMNS_MAX: usize = 64;

/// Sender, subject and body of an email, as minijinja templates. Nodes compile them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// `From` header, as given: an address, or `Name <address>`.
    pub sender: String,
    /// `Reply-To` header, as given. `None`: emails have no such header.
    pub reply_to: Option<String>,
    /// Mailboxes of the `Cc` header, as given. They are shown, and no email goes to them.
    pub cc: Vec<String>,
    /// Subject template.
    pub subject: String,
    /// Template of the plain text body.
    pub text: Option<String>,
    /// Template of the HTML body; its variables are escaped.
    pub html: Option<String>,
    /// Further header fields, in order; never a field that Reveille writes itself.
    pub headers: Vec<(String, String)>,
    /// Variables with the same value for each recipient, as name and value.
    pub variables: Vec<(String, String)>,
    /// True for bulk email: the headers let each recipient opt out (RFC 8058).
    pub bulk: bool,
    /// Files that each email carries, in order.
    pub attachments: Vec<Attachment>,
}

/// A file that emails carry. Nodes keep its bytes as they keep parts of audiences (P20).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// File name that recipients see.
    pub name: String,
    /// Media type, such as `application/pdf`.
    pub content_type: String,
    /// `Content-ID` of an image that the HTML shows (`cid:`), without angle brackets. `None`: the email lists the file.
    pub content_id: Option<String>,
    /// Number of bytes.
    pub size: u64,
    /// Name of the file on the nodes: a hash of its bytes.
    pub file: Hash,
}

/// The content of a schedule or a campaign, as given in a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentChoice {
    /// A content that it holds itself.
    Given(Content),
    /// A version of a template.
    Template(NamedTemplate),
}

/// A version of a template as the caller read it. `apply` compares it with the stored one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedTemplate {
    /// Name of the template.
    pub name: String,
    /// The version.
    pub version: u32,
    /// Hash of its content.
    pub content: Hash,
    /// True if the caller named no version, and the newest one was taken.
    pub newest: bool,
}

/// One recipient of an inline audience.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    /// The address as given; it is shown, and used on the wire.
    pub address: String,
    /// Address key, by which duplicates and opt-outs are found.
    pub key: String,
    /// Values of this recipient's variables, in the order of [`Audience::columns`].
    pub values: Vec<String>,
}

impl Recipient {
    /// The row of an erased person. Rows keep their numbers.
    pub fn erased() -> Recipient {
        Recipient { address: String::new(), key: String::new(), values: Vec::new() }
    }

    /// True if the person was erased: nothing is sent to this row.
    pub fn is_erased(&self) -> bool {
        self.key.is_empty()
    }
}

/// An immutable list of recipients without duplicates. A recipient's number is its position here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audience {
    /// Names of the variables that differ by recipient.
    pub columns: Vec<String>,
    /// The recipients, by number.
    pub recipients: Vec<Recipient>,
}

/// A large audience in the ledger: its recipients are in files on each node (P20).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Name under which it was sealed, so that runs that refer to it can show it.
    pub name: String,
    /// Names of the variables that differ by recipient.
    pub columns: Vec<String>,
    /// Total number of recipients. Each part but the last has 65,536.
    pub rows: u32,
    /// Hash of each part, in order: recipient `n` is in part `n / 65,536`.
    pub parts: Vec<Hash>,
}

/// An audience, as stored by hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipients {
    /// The complete list.
    Inline(Audience),
    /// The seal, which names the parts.
    Sealed(Seal),
}

/// The audience of a schedule, as given in a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AudienceChoice {
    /// A list that the schedule holds itself.
    Listed(Audience),
    /// A sealed audience.
    Sealed(NamedAudience),
}

/// A sealed audience as the caller read it. `apply` compares it with the stored one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedAudience {
    /// Name of the audience.
    pub name: String,
    /// Hash of its seal.
    pub seal: Hash,
    /// Number of its recipients.
    pub rows: u32,
}

/// A content or an audience, as stored by hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Fingerprint of the value. Unlike a hash of the bytes, it stays the same when a release adds a field.
    pub hash: Hash,
    /// The encoded value; it begins with the version of its form.
    pub bytes: Vec<u8>,
}

impl Content {
    /// Encodes it for storage.
    pub fn blob(&self) -> Blob {
        Blob { hash: fingerprint(self), bytes: form::encode(&self.kept()) }
    }

    /// Length of the stored bytes. Does not encode the content.
    pub fn encoded_len(&self) -> usize {
        form::encoded_len(&self.kept())
    }

    /// Decodes the stored bytes; `None` if they are invalid.
    pub fn from_blob(bytes: &[u8]) -> Option<Content> {
        match form::decode(bytes).ok()? {
            Decoded::Plain(content) | Decoded::WithFiles(content) => Some(content),
            Decoded::Inline(_) | Decoded::Sealed(_) => None,
        }
    }

    /// Returns the stored bytes of the empty content, which takes the place of this one when all of its recipients are
    /// erased. `None`: the stored bytes are empty already, or are no content.
    pub fn erased_bytes(bytes: &[u8]) -> Option<Box<[u8]>> {
        let empty = Content::default();
        let is_erased = Content::from_blob(bytes)? == empty;
        (!is_erased).then(|| empty.blob().bytes.into())
    }

    /// Returns the files that the stored bytes name, without repeats. Decodes only a content with attachments.
    pub fn files_of_blob(bytes: &[u8]) -> BTreeSet<Hash> {
        let content = (bytes.get(1) == Some(&WITH_FILES)).then(|| Content::from_blob(bytes)).flatten();
        content.iter().flat_map(|content| &content.attachments).map(|attachment| attachment.file).collect()
    }

    /// Returns the bytes of its attachments together.
    pub fn attached_bytes(&self) -> u64 {
        self.attachments.iter().fold(0, |sum, attachment| sum.saturating_add(attachment.size))
    }

    fn kept(&self) -> Kept<'_> {
        if self.attachments.is_empty() { Kept::Plain(self) } else { Kept::WithFiles(self) }
    }
}

impl ContentChoice {
    /// Returns the hash under which the content is stored.
    pub fn hash(&self) -> Hash {
        match self {
            ContentChoice::Given(content) => content.blob().hash,
            ContentChoice::Template(named) => named.content,
        }
    }

    /// Returns the version of the template; `None` for a content that was given.
    pub fn template(&self) -> Option<TemplateUse> {
        match self {
            ContentChoice::Given(_) => None,
            ContentChoice::Template(named) => Some(TemplateUse { name: named.name.clone(), version: named.version }),
        }
    }

    /// Returns what the caller asked for: without the version that was the newest one then. A repeated request is equal
    /// to the first one, even if the template has another version by now.
    pub fn requested(&self) -> ContentChoice {
        match self {
            ContentChoice::Template(named) if named.newest => {
                let named = NamedTemplate { version: 0, content: Hash::default(), ..named.clone() };
                ContentChoice::Template(named)
            }
            choice => choice.clone(),
        }
    }
}

impl From<Content> for ContentChoice {
    fn from(content: Content) -> ContentChoice {
        ContentChoice::Given(content)
    }
}

impl Audience {
    /// Empties the row of a person, and returns its number. `None`: the person is not in the list.
    pub(crate) fn erase(&mut self, key: &str) -> Option<u32> {
        let number = self.recipients.iter().position(|one| one.key == key && !one.is_erased())?;
        *self.recipients.get_mut(number)? = Recipient::erased();
        Some(number as u32)
    }

    /// True if all but the person of this address key are erased.
    pub fn has_no_other_person(&self, key: &str) -> bool {
        !self.recipients.is_empty() && self.recipients.iter().all(|one| one.is_erased() || one.key == key)
    }

    /// Encodes it for storage, as [`Recipients::Inline`].
    pub fn blob(&self) -> Blob {
        blob(&Kept::Inline(self))
    }

    /// Length of the stored bytes. Does not encode the audience.
    pub fn encoded_len(&self) -> usize {
        form::encoded_len(&Kept::Inline(self))
    }
}

/// Why a seal is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum WrongSeal {
    /// The name of the audience or of a column is empty or too long.
    #[error("a name of an audience or of a column has 1 to {max} bytes")]
    Name {
        /// Longest name, in bytes.
        max: u32,
    },
    /// Too many columns.
    #[error("{given} columns are more than {max}")]
    Columns {
        /// Number of columns.
        given: u32,
        /// Largest number of columns.
        max: u32,
    },
    /// The seal has no recipient.
    #[error("an audience needs at least one recipient")]
    Empty,
    /// The seal has too many recipients.
    #[error("{given} recipients are more than {max}")]
    Rows {
        /// Number of recipients.
        given: u32,
        /// Largest number of recipients.
        max: u32,
    },
    /// The number of parts does not fit the number of recipients.
    #[error("{rows} recipients are in {parts} parts, not in {given}")]
    Parts {
        /// Number of recipients.
        rows: u32,
        /// Number of parts that these recipients need.
        parts: u32,
        /// Number of parts in the seal.
        given: u32,
    },
}

impl Seal {
    /// Encodes it for storage, as [`Recipients::Sealed`].
    pub fn blob(&self) -> Blob {
        blob(&Kept::Sealed(self))
    }

    /// Returns why the seal is invalid; `None` if it is valid.
    pub fn wrong(&self, limits: &LedgerLimits) -> Option<WrongSeal> {
        let most = limits.audience_name_bytes_max;
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

    /// Hash of its recipients, in order. It is equal if the same list was sealed under another name (P20).
    pub fn recipients_hash(&self) -> Hash {
        Hash::of(&self.parts.iter().flat_map(|part| part.0).collect::<Vec<u8>>())
    }

    /// Returns the part that holds a recipient, and the recipient's position in it. `None`: there is no such recipient.
    pub fn locate(&self, recipient: u32) -> Option<(Hash, u16)> {
        let part = self.parts.get((recipient / CHUNK) as usize).filter(|_| recipient < self.rows)?;
        Some((*part, (recipient % CHUNK) as u16))
    }
}

/// Second byte of a stored seal, after the version of the form.
const SEALED: u8 = 1;
/// Second byte of a stored content with attachments.
const WITH_FILES: u8 = 3;

/// What is stored by hash, with borrowed values, for encoding. A content with attachments has a variant of its own, so
/// that it is found without decoding all.
#[derive(Serialize)]
enum Kept<'a> {
    Inline(&'a Audience),
    Sealed(&'a Seal),
    Plain(&'a Content),
    WithFiles(&'a Content),
}

/// [`Kept`], decoded.
#[derive(Deserialize)]
enum Decoded {
    Inline(Audience),
    Sealed(Seal),
    Plain(Content),
    WithFiles(Content),
}

impl Recipients {
    /// Decodes the stored bytes; `None` if they are invalid.
    pub fn from_blob(bytes: &[u8]) -> Option<Recipients> {
        match form::decode(bytes).ok()? {
            Decoded::Inline(audience) => Some(Recipients::Inline(audience)),
            Decoded::Sealed(seal) => Some(Recipients::Sealed(seal)),
            Decoded::Plain(_) | Decoded::WithFiles(_) => None,
        }
    }

    /// Decodes the stored bytes if they are a seal. Does not decode a list.
    pub fn seal_from_blob(bytes: &[u8]) -> Option<Seal> {
        match (bytes.get(1) == Some(&SEALED)).then(|| Recipients::from_blob(bytes))?? {
            Recipients::Sealed(seal) => Some(seal),
            Recipients::Inline(_) => None,
        }
    }

    /// True for a stored list in which all but the person of this address key are erased. False for a seal: its rows
    /// are in files.
    pub fn has_no_other_person(key: &str, bytes: &[u8]) -> bool {
        matches!(Recipients::from_blob(bytes), Some(Recipients::Inline(list)) if list.has_no_other_person(key))
    }

    /// Returns the audience in the form that commands use; `hash` is the hash under which it is stored.
    pub fn into_choice(self, hash: Hash) -> AudienceChoice {
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
    /// Returns the hash under which the audience is stored.
    pub fn hash(&self) -> Hash {
        match self {
            AudienceChoice::Listed(audience) => audience.blob().hash,
            AudienceChoice::Sealed(named) => named.seal,
        }
    }

    /// Returns the number of its recipients.
    pub fn count(&self) -> u32 {
        match self {
            // `apply` limits a list to ten thousand recipients.
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
