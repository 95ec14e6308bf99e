//! The fencing token of a claim, as emails and the ledger show it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `group.epoch.index.place`: unique for each claim and increasing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display)]
#[serde(try_from = "String", into = "String")]
#[display("{group}.{epoch}.{index}.{place}")]
pub struct Fence {
    /// Raft group.
    pub group: u32,
    /// Log index of the leadership's first entry.
    pub epoch: u64,
    /// Log index of the claim.
    pub index: u64,
    /// Position in that entry.
    pub place: u32,
}

/// Error: the text is not a fence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a fence; expected group.epoch.index.place, for example 1.9.1050.4")]
pub struct NotAFence(String);

impl FromStr for Fence {
    type Err = NotAFence;

    fn from_str(text: &str) -> Result<Fence, NotAFence> {
        read(text).ok_or_else(|| NotAFence(text.to_owned()))
    }
}

fn read(text: &str) -> Option<Fence> {
    let mut parts = text.split('.');
    let fence = Fence {
        group: parts.next()?.parse().ok()?,
        epoch: parts.next()?.parse().ok()?,
        index: parts.next()?.parse().ok()?,
        place: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(fence)
}

impl TryFrom<String> for Fence {
    type Error = NotAFence;

    fn try_from(text: String) -> Result<Fence, NotAFence> {
        text.parse()
    }
}

impl From<Fence> for String {
    fn from(fence: Fence) -> String {
        fence.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_is_read_as_printed_and_other_text_is_refused() {
        let fence = Fence { group: 1, epoch: 9, index: 1050, place: 4 };
        assert_eq!("1.9.1050.4".parse(), Ok(fence));
        assert_eq!(fence.to_string(), "1.9.1050.4");
        for bad in ["", "1.9", "1.9.1050.4.5", "1.x.1050.4"] {
            assert!(bad.parse::<Fence>().is_err(), "{bad}");
        }
    }
}
