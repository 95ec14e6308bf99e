//! The words on the wire: generated messages, clients and servers, and no logic.
//!
//! Two packages: `reveille.admin.v1` is what operators and programs speak to any node, `reveille.peer.v1`
//! what the nodes of one cluster speak among themselves. The `.proto` files are the specification; the
//! code here is generated from them at build time and never edited.
#![allow(missing_docs, clippy::doc_lazy_continuation, clippy::doc_overindented_list_items)]

mod words {
    include!(concat!(env!("OUT_DIR"), "/words.rs"));
}

pub use words::reveille::*;

/// The descriptors of all packages, encoded as a `FileDescriptorSet`, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
