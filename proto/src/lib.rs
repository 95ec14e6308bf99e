//! Generated protobuf types: messages, clients and servers, and no logic.
//!
//! Two packages: `reveille.admin.v1` is the API of every node for operators and programs, `reveille.peer.v1` the API
//! between the nodes of one cluster. The `.proto` files are the specification; the code here is generated from them at
//! build time and never edited.
#![allow(missing_docs, clippy::doc_lazy_continuation, clippy::doc_overindented_list_items)]

mod generated {
    include!(concat!(env!("OUT_DIR"), "/generated.rs"));
}

pub use generated::reveille::*;

/// The descriptors of all packages, encoded as a `FileDescriptorSet`, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
