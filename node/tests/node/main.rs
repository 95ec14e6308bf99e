//! Tests of node processes: the binary is started as an operator starts it, and its errors are checked.

mod archive;
mod attachments;
mod audience;
#[cfg(feature = "next-level")]
mod audit;
mod backup;
mod client_tls;
mod date;
mod disk;
mod documents;
mod erase;
mod events;
mod expiry;
mod gap;
mod http_json;
mod http_routes;
mod http_streams;
mod http_writes;
mod log;
mod lost_parts;
mod membership;
mod messages;
mod metrics;
mod process;
mod quorum;
mod reload;
mod return_path;
mod rotation;
#[path = "../../../cluster/tests/cluster/support/s3_server.rs"]
mod s3_server;
mod scrub;
mod service;
#[path = "../../../raft/src/snapshot/tests/small_disk.rs"]
mod small_disk;
mod start;
mod tokens;
mod triggers;
mod unsubscribe;
#[cfg(feature = "next-level")]
mod upgrade;
mod wire;
