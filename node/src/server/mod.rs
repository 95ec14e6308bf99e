//! A node as a process: its configuration, its listeners, and what it is put together from.
//!
//! Called by `reveille start`, `dev` and `demo`. [`node`] is the table of contents: replica, actors, admin API, HTTP.
//!
//! Reading order: [`start`], [`config`], [`node_identity`], [`node`]; the listeners [`admin`] (gRPC), [`health`] with
//! [`metrics`], and [`unsubscribe`], over [`http`].

pub(crate) mod admin;
pub(crate) mod config;
mod fqdn;
mod health;
mod http;
pub(crate) mod logging;
mod metrics;
pub(crate) mod node;
pub(crate) mod node_identity;
mod service_manager;
pub(crate) mod start;
mod unsubscribe;
