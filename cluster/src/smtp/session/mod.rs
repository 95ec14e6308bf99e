//! One SMTP session with a relay: connect, TLS, login, then one email after the other, each until its answer.

pub(crate) mod auth;
pub(crate) mod credentials;
pub mod deadlines;
pub mod dialer;
pub mod dialogue;
pub(crate) mod dot_stuffing;
pub mod envelope;
pub mod lines;
pub(crate) mod opening;
pub mod probe_report;
pub mod stream;
pub mod target;
pub(crate) mod tcp;
pub(crate) mod tls;
pub(crate) mod tls_errors;
