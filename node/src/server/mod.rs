//! A node process: configuration, listeners, and the wiring of its parts.
//!
//! `reveille start`, `dev` and `demo` call it. [`node`] starts the replica, the actors, the admin API and HTTP.
//!
//! Reading order: [`start`], [`config`], [`reload`], [`node_identity`], [`node`]; the listeners [`admin`] (gRPC),
//! [`health`] with [`metrics`], and [`unsubscribe`], over [`http`].

pub(crate) mod admin;
pub(crate) mod bootstrap;
mod client_tls;
pub(crate) mod config;
pub mod first_token;
mod fqdn;
mod health;
mod http;
pub(crate) mod logging;
mod metrics;
pub(crate) mod node;
pub(crate) mod node_identity;
mod reload;
mod service_manager;
pub(crate) mod start;
mod unsubscribe;
