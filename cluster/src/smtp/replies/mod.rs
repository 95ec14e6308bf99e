//! Classification of a relay's answers, by ordered rules in `replies.toml`.

pub(crate) mod classification;
pub mod dialogue_result;
