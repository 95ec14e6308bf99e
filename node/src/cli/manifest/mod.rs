//! Documents of `apply` and `diff`: how they are read, and how existing objects are written as documents.
//!
//! A document's keys are the flags of `schedule create`, `relay add` and similar commands, and the same parser reads
//! them. So no second list of names, values and defaults can differ.
//!
//! Called by `commands::apply` and `show --manifest`. Nothing here sends a request.
//!
//! Reading order: [`tree`] (YAML with line numbers), [`document`] (tree to flags), [`export`] (existing objects to
//! trees), [`write`] (tree to text), [`difference`] (comparison of two trees).

pub mod difference;
pub mod document;
pub mod export;
pub mod tree;
pub mod write;
