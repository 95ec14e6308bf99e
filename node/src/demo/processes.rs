//! The node processes: started, killed, started again, stopped. None survives the demo.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_node_client::{AdminClient, LaunchOptions, NodeProcess, form_cluster, free_ports};
use rustix::process::Signal;

/// Time after which a node that did not stop on SIGTERM is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of polls.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// All nodes of the demo.
pub struct Nodes(Vec<NodeProcess>);

impl Nodes {
    /// Makes `count` nodes with their data below `folder` and their journals in `journals`. None of them runs yet.
    pub fn new(folder: &Path, journals: &Path, count: usize) -> Result<Nodes> {
        let binary = std::env::current_exe().context("where this program is")?;
        let named = free_ports(count)?.into_iter().zip(1..).map(|(ports, number)| {
            NodeProcess::new(format!("n{number}"), ports, (&binary, folder, journals), LaunchOptions::default())
        });
        Ok(Nodes(named.collect()))
    }

    /// Starts all nodes, and waits until they form a cluster.
    pub async fn form_cluster(&mut self, admin: &AdminClient) -> Result<()> {
        form_cluster(&mut self.0, admin, false).await
    }

    /// Returns the admin addresses of all nodes.
    pub fn endpoints(&self) -> Vec<String> {
        self.0.iter().map(|node| node.admin.to_string()).collect()
    }

    /// Returns the node of that name.
    pub fn named(&mut self, name: &str) -> Option<&mut NodeProcess> {
        self.0.iter_mut().find(|node| node.name == name)
    }

    /// Returns the names of the nodes whose process runs.
    pub fn running(&self) -> Vec<String> {
        self.0.iter().filter(|node| node.process_id().is_some()).map(|node| node.name.clone()).collect()
    }

    /// Stops all processes, and kills those that do not stop in time.
    pub async fn stop(&mut self) {
        for node in &self.0 {
            // A node that is down needs no signal.
            let _ = node.signal(Signal::TERM);
        }
        let until = Instant::now() + STOP_TIMEOUT;
        for node in &mut self.0 {
            while node.process_id().is_some() && node.ended().is_none() && Instant::now() < until {
                tokio::time::sleep(POLL_EVERY).await;
            }
            // A process that has ended needs no kill, and a drop tries again.
            let _ = node.kill();
        }
    }
}
