//! Templates: a content under a name, in versions.
//!
//! A schedule or a campaign that names a template keeps the version that it was made of, and counts as its user. A
//! version with users is not removed. A run refers to its content by hash, so it needs no version.

use serde::{Deserialize, Serialize};

use crate::model::{Hash, Time};

/// A template; stored by tenant and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// Its versions, oldest first; never empty.
    pub versions: Vec<TemplateVersion>,
}

/// One version of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateVersion {
    /// Its number, from 1. Numbers only grow as long as the template exists.
    pub version: u32,
    /// Hash of the content.
    pub content: Hash,
    /// Log index of the entry that stored it.
    pub index: u64,
    /// Ledger time of that entry.
    pub at: Time,
    /// Number of schedules and campaigns that were made of it.
    pub users: u64,
}

/// The version of a template that a schedule or a campaign was made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, derive_more::Display)]
#[display("{name}@{version}")]
pub struct TemplateUse {
    /// Name of the template.
    pub name: String,
    /// The version.
    pub version: u32,
}

impl Template {
    /// The newest version; `None` only before the first one is stored.
    pub fn newest(&self) -> Option<&TemplateVersion> {
        self.versions.last()
    }

    /// Returns a version by its number, or the newest one. `None`: there is none, or it was removed.
    pub fn version(&self, number: Option<u32>) -> Option<&TemplateVersion> {
        match number {
            None => self.newest(),
            Some(number) => self.versions.iter().find(|known| known.version == number),
        }
    }

    pub(crate) fn version_mut(&mut self, number: u32) -> Option<&mut TemplateVersion> {
        self.versions.iter_mut().find(|known| known.version == number)
    }

    /// Position of the oldest version without users; `None` if each has some.
    pub(crate) fn oldest_unused(&self) -> Option<usize> {
        self.versions.iter().position(|known| known.users == 0)
    }
}
