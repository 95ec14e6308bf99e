//! Starts and kills node processes on this machine, and is a client of their admin API and HTTP pages. `reveille demo`
//! and the harness of the fault runs use it.

pub mod admin;
mod formation;
pub mod http;
pub mod node_process;

pub use admin::{AdminClient, CallResult};
pub use formation::form_cluster;
pub use node_process::{LaunchOptions, NodeProcess, Ports, free_ports};
