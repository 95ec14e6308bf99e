//! What a relay's answer means, by ordered rules in `replies.toml`.

pub(crate) mod classification;
pub mod verdict;
pub(crate) mod words;
