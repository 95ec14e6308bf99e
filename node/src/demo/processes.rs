//! The node processes: started, killed, started again, stopped. None survives the demo.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reveille_node_client::{LaunchOptions, NodeProcess, free_ports, http};
use rustix::process::Signal;

/// Time within which a node must answer its health page.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a node that did not stop on SIGTERM is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of polls.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// All nodes of the demo.
pub struct Nodes(Vec<NodeProcess>);

impl Nodes {
    /// Starts `count` nodes with their data below `folder` and their journals in `journals`, and waits until each
    /// one answers.
    pub async fn start(folder: &Path, journals: &Path, count: usize) -> Result<Nodes> {
        let binary = std::env::current_exe().context("where this program is")?;
        let named = free_ports(count)?.into_iter().zip(1..).map(|(ports, number)| {
            NodeProcess::new(format!("n{number}"), ports, (&binary, folder, journals), LaunchOptions::default())
        });
        let mut nodes: Vec<NodeProcess> = named.collect();
        nodes.iter_mut().try_for_each(NodeProcess::start)?;
        let until = Instant::now() + START_TIMEOUT;
        for node in &mut nodes {
            while !http::is_alive(node.http).await {
                if let Some(status) = node.ended() {
                    bail!("{} ended at its start ({status}):\n{}", node.name, node.log_end());
                }
                if Instant::now() > until {
                    bail!("{} does not answer:\n{}", node.name, node.log_end());
                }
                tokio::time::sleep(POLL_EVERY).await;
            }
        }
        Ok(Nodes(nodes))
    }

    /// Returns the admin addresses of all nodes.
    pub fn endpoints(&self) -> Vec<String> {
        self.0.iter().map(|node| node.admin.to_string()).collect()
    }

    /// Returns the peer addresses of all nodes but the first.
    pub fn peers(&self) -> Vec<String> {
        self.0.iter().skip(1).map(|node| node.peers.to_string()).collect()
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
