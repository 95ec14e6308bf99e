//! A cluster of real processes: made, asked, broken, and gone without a trace at the end.
//!
//! Every command starts with [`Cluster::start`]. Dropping the cluster kills its processes and removes its
//! folders, in this order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::admin::Admin;
use crate::footing::{Footing, Wanted};
use crate::grounds::Grounds;
use crate::measure::cpu_seconds;
use crate::node::Node;
use crate::pages;

/// A process must answer within this after its start, and a cluster must be whole again after a change.
const HEALTHY_WITHIN: Duration = Duration::from_secs(90);
/// How often a thing that is to come is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How nodes are started, for every command.
#[derive(Clone, Debug, clap::Args)]
pub struct Start {
    /// The binary to start as nodes [default: `reveille` beside this one]
    #[arg(long, global = true, value_name = "PATH")]
    pub reveille: Option<PathBuf>,
    /// Keep data and logs of the nodes in this empty folder [default: a temporary one, removed at the end]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
}

impl Start {
    /// The binary.
    pub fn binary(&self) -> Result<PathBuf> {
        binary(self.reveille.as_deref())
    }
}

/// Nodes of one cluster. The order of the fields is the order of their end.
pub struct Cluster {
    nodes: Vec<Node>,
    admin: Admin,
    footing: Footing,
    // What cannot be removed now is swept away by the next one that starts.
    grounds: Grounds,
}

impl Cluster {
    /// Starts `count` nodes and makes them one cluster; returns when all are ready.
    pub async fn start(start: &Start, count: u8) -> Result<Cluster> {
        Cluster::make(start, count, Wanted::default()).await
    }

    /// The same on hosts, disks and with clocks of their own, as far as they are wanted and this machine has them.
    pub async fn start_on(start: &Start, count: u8, wanted: Wanted) -> Result<Cluster> {
        Cluster::make(start, count, wanted).await
    }

    /// The same with a clock that is moved by hand.
    pub async fn start_with_test_clock(start: &Start, count: u8) -> Result<Cluster> {
        Cluster::make(start, count, Wanted { test_clock: true, ..Wanted::default() }).await
    }

    async fn make(start: &Start, count: u8, wanted: Wanted) -> Result<Cluster> {
        let binary = start.binary()?;
        let grounds = Grounds::new()?;
        let data = match &start.keep {
            Some(folder) => empty(folder)?,
            None => grounds.data().to_owned(),
        };
        let journals = grounds.journals().map_or_else(|| data.join("journals"), Path::to_owned);
        let names: Vec<String> = (1..=count).map(|number| format!("n{number}")).collect();
        let footing = Footing::new(wanted, &grounds, &data, &names)?;
        let ports = footing.ports(&names)?;
        let named = names.into_iter().zip(ports);
        let mut nodes: Vec<Node> = named
            .map(|(name, ports)| Node::new(name, ports, &binary, &data, &journals))
            .map(|node| node.standing_on(&footing))
            .collect();
        nodes.iter_mut().try_for_each(Node::start)?;
        let admin = Admin::new(nodes.iter().map(|node| node.admin.to_string()).collect())?;
        let mut cluster = Cluster { nodes, admin, footing, grounds };
        cluster.wait_until("every node answers", async |nodes| all_answer(nodes).await).await?;
        let peers = cluster.nodes.iter().skip(1).map(|node| node.peers.to_string()).collect();
        cluster.admin.init(peers, wanted.test_clock).await?;
        cluster.wait_until_healthy().await?;
        eprintln!("{count} nodes of {} are one cluster", binary.display());
        Ok(cluster)
    }

    /// The admin API of the cluster.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// What the nodes stand on.
    pub fn footing(&self) -> &Footing {
        &self.footing
    }

    /// What they stand on, to break it.
    pub fn footing_mut(&mut self) -> &mut Footing {
        &mut self.footing
    }

    /// A folder for whatever belongs to this cluster; it goes with it.
    pub fn folder(&self) -> &Path {
        self.grounds.data()
    }

    /// What all that was made for this cluster has in its name.
    pub fn token(&self) -> &str {
        self.grounds.token()
    }

    /// CPU of each node that runs, and of this process as `sink`: while mails arrive it does nothing else.
    pub fn cpu_seconds(&self) -> Result<BTreeMap<String, f64>> {
        let mut used = self.of_each(cpu_seconds)?;
        used.insert("sink".to_owned(), cpu_seconds(std::process::id())?);
        Ok(used)
    }

    /// What is measured of the process of each node that runs.
    pub fn of_each(&self, measure: impl Fn(u32) -> Result<f64>) -> Result<BTreeMap<String, f64>> {
        let running = self.nodes.iter().filter_map(|node| Some((node.name.clone(), node.process_id()?)));
        running.map(|(name, process)| Ok((name, measure(process)?))).collect()
    }

    /// Name and epoch of the leader, by its own word; the higher epoch where two say so.
    pub async fn leader(&self) -> Option<(String, u64)> {
        let mut found: Option<(String, u64)> = None;
        for node in &self.nodes {
            if let Some(epoch) = pages::epoch_led(node.http).await
                && found.as_ref().is_none_or(|(_, known)| *known < epoch)
            {
                found = Some((node.name.clone(), epoch));
            }
        }
        found
    }

    /// `kill -9` of the named node.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        self.named(name)?.kill()
    }

    /// Deletes the journals of the named node, which must be down.
    pub fn delete_journals(&mut self, name: &str) -> Result<()> {
        self.named(name)?.delete_journals()
    }

    /// Starts the named node again on its data.
    pub fn restart(&mut self, name: &str) -> Result<()> {
        self.named(name)?.start()
    }

    /// A node.
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.nodes.iter().find(|node| node.name == name).with_context(|| format!("there is no node {name}"))
    }

    /// Nodes that ended by themselves since this was last asked, each with how.
    pub fn ended(&mut self) -> Vec<(String, std::process::ExitStatus)> {
        self.nodes.iter_mut().filter_map(|node| Some((node.name.clone(), node.ended()?))).collect()
    }

    /// Waits until every node follows or leads.
    pub async fn wait_until_healthy(&mut self) -> Result<()> {
        self.wait_until("every node is ready", async |nodes| {
            for node in nodes {
                if !pages::is_ready(node.http).await {
                    return false;
                }
            }
            true
        })
        .await
    }

    async fn wait_until(&mut self, what: &str, holds: impl AsyncFn(&[Node]) -> bool) -> Result<()> {
        let until = Instant::now() + HEALTHY_WITHIN;
        while !holds(&self.nodes).await {
            for node in &mut self.nodes {
                if let Some(status) = node.ended() {
                    bail!("{} ended by itself ({status}); its last words:\n{}", node.name, node.last_words());
                }
            }
            if Instant::now() > until {
                bail!("waited {} s until {what}; --keep FOLDER keeps the logs", HEALTHY_WITHIN.as_secs());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// A node, to do something to it.
    pub fn named(&mut self, name: &str) -> Result<&mut Node> {
        self.nodes.iter_mut().find(|node| node.name == name).with_context(|| format!("there is no node {name}"))
    }
}

async fn all_answer(nodes: &[Node]) -> bool {
    for node in nodes {
        if !pages::is_alive(node.http).await {
            return false;
        }
    }
    true
}

/// The binary that is judged.
fn binary(named: Option<&Path>) -> Result<PathBuf> {
    let (path, next) = match named {
        Some(path) => (path.to_owned(), "name another with --reveille PATH"),
        None => {
            let own = std::env::current_exe().context("where this program is")?;
            let next = "build it with `cargo build --release -p reveille`, or name it with --reveille PATH";
            (own.with_file_name("reveille"), next)
        }
    };
    if path.is_file() { Ok(path) } else { bail!("there is no binary {}; {next}", path.display()) }
}

fn empty(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    if std::fs::read_dir(folder)?.next().is_some() {
        bail!("{} is not empty; give an empty folder with --keep", folder.display());
    }
    Ok(std::fs::canonicalize(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_binary_is_refused_with_the_next_step() {
        let error = binary(None).unwrap_err().to_string();
        assert!(error.contains("cargo build --release -p reveille"), "{error}");
        let error = binary(Some(Path::new("/no/such/binary"))).unwrap_err().to_string();
        assert!(error.contains("/no/such/binary") && error.contains("--reveille"), "{error}");
    }

    #[test]
    fn data_is_kept_in_an_empty_folder_only() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("kept");
        assert!(empty(&inside).is_ok());
        assert!(empty(folder.path()).unwrap_err().to_string().contains("not empty"));
    }
}
