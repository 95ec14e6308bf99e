//! Starts and kills node processes on this machine, and is a client of their admin API and HTTP pages. `reveille demo`
//! and the harness of the fault runs use it.

mod access;
pub mod admin;
mod formation;
pub mod http;
pub mod node_process;
pub mod wait;

pub use access::ClientAccess;
pub use admin::{AdminClient, CallResult};
pub use formation::{form_cluster, form_of};
pub use http::HttpAddress;
pub use node_process::{LaunchOptions, NodeProcess, Ports, free_ports};
