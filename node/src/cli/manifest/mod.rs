//! Documents of `apply` and `diff`: what stands in them, and what exists as one of them.
//!
//! A document says what the flags of `schedule create` or `relay add` say, under the same names; it is read by
//! the same parser. So there is no second list of names, values and defaults that could differ.
//!
//! Called by `ask::apply`, and by `show --manifest`. Nothing here asks a cluster.
//!
//! Reading order: [`tree`] (YAML with lines), [`document`] (a tree becomes flags), [`export`] (what exists
//! becomes a tree), [`write`] (a tree becomes text), [`difference`] (two trees, key by key).

pub mod difference;
pub mod document;
pub mod export;
pub mod tree;
pub mod write;
