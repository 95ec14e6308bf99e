//! A cluster of real `reveille` processes, its environment and its administrator. The fault runs and the benchmarks use
//! it.
//!
//! It knows the product from outside only: the binary, its admin API and its HTTP pages. When a [`Cluster`] is dropped,
//! its processes end and its folders, mounts and network namespaces are removed. After a `kill -9` of the harness
//! itself they remain. Progress goes to standard error: only the commands of `reveille-jepsen` use this crate.
//!
//! Reading order: [`cluster`] (the processes), [`environment`] (their network, disks and clocks), [`workspace`] (their
//! folders), [`load`] (their schedules). The crate `reveille-node-client` has one process, and the client of its API.

pub mod clocks;
pub mod cluster;
pub mod environment;
pub mod host_network;
pub mod leader_watch;
pub mod load;
pub mod measure;
pub mod members;
pub mod report;
pub mod tool;
pub mod volume;
pub mod workspace;

pub use cluster::{Cluster, StartArgs};
pub use environment::{Environment, Needs};
pub use report::Report;
pub use reveille_node_client::node_process::{FORMER_LEVEL, LEVEL_VARIABLE, NEXT_LEVEL};
pub use reveille_node_client::{AdminClient, CallResult, admin, http, node_process, wait};
