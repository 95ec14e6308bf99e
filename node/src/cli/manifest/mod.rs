//! Documents of `apply`, `diff` and `edit`: how they are read, and how existing objects are written as documents.
//!
//! A document is `kind` and `spec`. The spec is a message of the API in its JSON form, read and written by the API's
//! descriptors: a new field of the API needs nothing here.
//!
//! Called by `commands::apply` and `commands::edit`. Nothing here sends a request.
//!
//! Reading order: [`tree`] (YAML with line numbers), [`kind`] (kinds and their messages), [`document`] (tree to
//! message), [`write`] (tree to text), [`difference`] (comparison of two trees).

pub mod difference;
pub mod document;
pub mod kind;
pub mod tree;
pub mod write;
