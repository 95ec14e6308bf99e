//! A cluster of real `reveille` processes, its environment and its administrator. The fault runs and the benchmarks use it.
//!
//! It knows the product from outside only: the binary, its admin API and its HTTP pages. When a [`Cluster`] is dropped,
//! its processes end and its folders, mounts and network namespaces are removed. After a `kill -9` of the harness itself
//! the next start removes them.
//!
//! Reading order: [`cluster`] and [`node_process`] (the processes), [`environment`] (their network, disks and clocks),
//! [`workspace`] (their folders), [`admin`] and [`http`] (how they are asked), [`load`] (what they are given to do).

pub mod admin;
pub mod clocks;
pub mod cluster;
pub mod environment;
pub mod host_network;
pub mod http;
pub mod leader_watch;
pub mod load;
pub mod measure;
pub mod node_process;
pub mod report;
pub mod tool;
pub mod volume;
pub mod workspace;

pub use admin::{AdminClient, CallResult};
pub use cluster::{Cluster, StartArgs};
pub use environment::{Environment, Needs};
pub use node_process::{FORMER_LEVEL, LEVEL_VARIABLE, NEXT_LEVEL};
pub use report::Report;
