//! Who may call what: the only table of rights, the layer that authenticates each call, and the check of its tenant.
//!
//! [`table`] says which rights a call needs, and what it reaches. [`layer`] reads the token, and refuses every path
//! that is not in the table. [`subject`] finds the tenant in the message. The result is a [`Call`], with which handlers
//! read and write: reads check it again against the state that they read, and `apply` checks each entry.

mod call;
mod layer;
mod rights;
mod subject;
mod table;
#[cfg(test)]
pub(crate) mod tests;

pub use call::{Call, authorise};
pub use layer::{Authenticator, ListenerKind, authenticate, authenticate_page};
pub use rights::{ADMIN, PII, ROLES, all_rights, roles_of};
pub use subject::{Subject, visit_body};
#[cfg(test)]
pub use table::Reach;
pub use table::{BodyPart, HttpRequest, METHODS, NON_IDEMPOTENT};
