//! Generated protobuf types: messages, clients and servers, and no logic. [`Unary`] and [`Listing`] name the methods of
//! the admin API by the types of their requests.
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

/// A request of the admin API that has one response.
pub trait Unary: prost::Message {
    /// The response.
    type Response: prost::Message + Default;
    /// Path of the method.
    const PATH: &'static str;
}

/// A request for one page of a list.
pub trait Listing: Unary + Clone {
    /// A row of the list.
    type Item;
    /// Returns the request for another page.
    fn at(self, stale: bool, page_size: i32, page_token: String) -> Self;
    /// Returns the page of the response.
    fn page(answer: Self::Response) -> ListPage<Self::Item>;
}

/// One page of a list.
pub struct ListPage<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Token of the next page; empty on the last one.
    pub next: String,
    /// Freshness of the read.
    pub freshness: Option<admin::v1::Freshness>,
    /// True if rows of the page are lost.
    pub incomplete: bool,
    /// Hashes of the parts of audiences that were not searched, because they are lost.
    pub lost_parts: Vec<String>,
}

include!(concat!(env!("OUT_DIR"), "/calls.rs"));

impl std::fmt::Debug for peer::v1::JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JoinRequest of {} at {}", self.name, self.address)
    }
}

impl std::fmt::Debug for peer::v1::JoinResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinResponse")
    }
}

impl std::fmt::Debug for admin::v1::CreateTokenResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CreateTokenResponse of {:?}", self.token)
    }
}

impl std::fmt::Debug for admin::v1::ResetTokensResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResetTokensResponse of {:?}", self.token)
    }
}
