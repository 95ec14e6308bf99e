//! A cluster of real node processes. Dropping it kills the processes and then removes their folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use reveille_node_client::{AdminClient, ClientAccess, NodeProcess, form_cluster, form_of, http, wait};

use crate::environment::{Environment, Needs};
use crate::measure::{cpu_seconds, rounded};
use crate::workspace::Workspace;

/// All nodes are ready within this time after they were restarted.
const RESTARTED_WITHIN: Duration = Duration::from_secs(90);

/// Arguments of every command: how nodes are started.
#[derive(Clone, Debug, clap::Args)]
pub struct StartArgs {
    /// The binary to start as nodes [default: `reveille` beside this one]
    #[arg(long, global = true, value_name = "PATH")]
    pub reveille: Option<PathBuf>,
    /// The binary that nodes of the former level are started from. `None`: the same one.
    #[arg(skip)]
    pub former: Option<PathBuf>,
    /// Keep data and logs of the nodes in this empty folder [default: a temporary one, removed at the end]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
}

impl StartArgs {
    /// Returns the binary to start.
    pub fn binary(&self) -> Result<PathBuf> {
        binary(self.reveille.as_deref())
    }
}

/// A cluster. Its fields are dropped in order of declaration.
pub struct Cluster {
    nodes: Vec<NodeProcess>,
    founders: usize,
    admin: AdminClient,
    access: ClientAccess,
    /// The environment of the nodes, which a fault run breaks.
    pub environment: Environment,
    workspace: Workspace,
}

impl Cluster {
    /// Starts `count` nodes and forms a cluster of them. Returns when all of them are ready; spare nodes do not run.
    /// The environment has those parts of `needs` that this machine can have.
    pub async fn start(start: &StartArgs, count: u8, needs: Needs) -> Result<Cluster> {
        let binary = start.binary()?;
        let former =
            start.former.as_deref().map(|path| existing(path, "name another with --former PATH")).transpose()?;
        let workspace = Workspace::new()?;
        let data = match &start.keep {
            Some(folder) => empty(folder)?,
            None => workspace.data().to_owned(),
        };
        let journals = workspace.journals().map_or_else(|| data.join("journals"), Path::to_owned);
        let names: Vec<String> = (1..=count + needs.spares).map(|number| format!("n{number}")).collect();
        let environment = Environment::new(needs, &workspace, &data, &names);
        if let Some(backups) = &environment.backups {
            std::fs::create_dir_all(backups).with_context(|| format!("cannot make {}", backups.display()))?;
        }
        let ports = environment.ports(&names)?;
        let access = ClientAccess::by_context(data.join("client"));
        let node = |(name, ports): (String, _)| {
            let launch = environment.launch_options(&name, &access);
            let mut node = NodeProcess::new(name, ports, (&binary, &data, &journals), launch);
            node.former_release.clone_from(&former);
            node
        };
        let mut nodes: Vec<NodeProcess> = names.into_iter().zip(ports).map(node).collect();
        let endpoints = nodes.iter().map(|node| node.admin.to_string()).collect();
        let admin = AdminClient::new(binary.clone(), endpoints, access.clone())?;
        let founders = usize::from(count);
        let founding = nodes.get_mut(..founders).context("a cluster without nodes")?;
        form_cluster(founding, &admin, needs.test_clock).await.context("--keep FOLDER keeps the logs")?;
        eprintln!("{count} nodes of {} form a cluster", binary.display());
        Ok(Cluster { nodes, founders, admin, access, environment, workspace })
    }

    /// Restarts the nodes that formed the cluster, all at once, with an injected bug or without one. Returns when they
    /// are ready.
    ///
    /// # Errors
    /// Fails if they do not become ready, or their binary has no bugs.
    pub async fn restart(&mut self, bug: Option<&'static str>) -> Result<()> {
        let founders = self.nodes.get_mut(..self.founders).context("a cluster without nodes")?;
        founders.iter_mut().try_for_each(NodeProcess::kill)?;
        for node in &mut *founders {
            node.injected_bug = bug;
            node.start()?;
        }
        for node in &*founders {
            let is_ready = wait::until(RESTARTED_WITHIN, || http::is_ready(&node.http)).await;
            ensure!(is_ready, "{} was not ready after its start; --keep FOLDER keeps the logs", node.name);
            let has_bugs = node.has_logged("built with injected bugs");
            ensure!(bug.is_none() || has_bugs, "build the nodes with `--features reveille/injected-bugs`");
        }
        Ok(())
    }

    /// Loses all nodes at once: kills them, and deletes their data, their journals and the context of their cluster.
    ///
    /// # Errors
    /// Fails if a process or a file stays.
    pub fn lose(&mut self) -> Result<()> {
        self.nodes.iter_mut().try_for_each(NodeProcess::kill)?;
        self.nodes.iter().try_for_each(NodeProcess::delete_files)?;
        let folder = self.access.folder().context("a cluster without a context")?;
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot delete {}", folder.display()))?;
        self.access.forget();
        Ok(())
    }

    /// Makes another cluster of the newest backup, of the nodes that formed the first one and at the same addresses.
    /// All nodes were lost before. Returns when all of them are ready; the cluster sends nothing yet.
    ///
    /// # Errors
    /// Fails if the backup cannot be restored, or the nodes do not become ready.
    pub async fn restore(&mut self) -> Result<()> {
        let from = self.environment.backups.as_deref().context("the nodes have no target for backups")?;
        // A node of the former release cannot read the state of a later one.
        let level = self.nodes.iter().map(|node| node.level).max().context("a cluster without nodes")?;
        let founders = self.nodes.get_mut(..self.founders).context("a cluster without nodes")?;
        founders.iter_mut().for_each(|node| node.level = level);
        form_of(founders, &self.admin, |first| first.restore(from)).await.context("--keep FOLDER keeps the logs")
    }

    /// Returns a client of the admin API.
    pub fn admin(&self) -> &AdminClient {
        &self.admin
    }

    /// Returns the nodes that formed the cluster.
    pub fn founders(&self) -> &[NodeProcess] {
        self.nodes.get(..self.founders).unwrap_or(&self.nodes)
    }

    /// Returns all nodes, spare ones included.
    pub fn nodes(&self) -> &[NodeProcess] {
        &self.nodes
    }

    /// Returns a folder that is removed with the cluster.
    pub fn folder(&self) -> &Path {
        self.workspace.data()
    }

    /// Returns the processor seconds of each running node, and those of this process under the name `sink`, since it
    /// does little else than the sink's work.
    pub fn cpu_seconds(&self) -> Result<BTreeMap<String, f64>> {
        let mut used = self.of_each(cpu_seconds)?;
        used.insert("sink".to_owned(), cpu_seconds(std::process::id())?);
        Ok(used)
    }

    /// Returns the processor seconds since the measurement `before`, rounded. The count of a restarted process begins
    /// at zero.
    pub fn cpu_seconds_since(&self, before: &BTreeMap<String, f64>) -> Result<BTreeMap<String, f64>> {
        let used = self.cpu_seconds()?.into_iter().map(|(name, after)| {
            let before = before.get(&name).filter(|before| **before <= after).unwrap_or(&0.0);
            (name, rounded(after - before))
        });
        Ok(used.collect())
    }

    /// Measures the process of each running node. Returns the results by node.
    pub fn of_each(&self, measure: impl Fn(u32) -> Result<f64>) -> Result<BTreeMap<String, f64>> {
        let running = self.nodes.iter().filter_map(|node| Some((node.name.clone(), node.process_id()?)));
        running.map(|(name, process)| Ok((name, measure(process)?))).collect()
    }

    /// Returns the name of the node whose own page says that it leads. If two pages say so, the higher epoch wins.
    pub async fn leader(&self) -> Option<String> {
        let mut found: Option<(u64, &String)> = None;
        for node in &self.nodes {
            found = found.max(http::epoch_led(&node.http).await.map(|epoch| (epoch, &node.name)));
        }
        found.map(|(_, name)| name.clone())
    }

    /// Returns the name of a follower among the nodes that formed the cluster.
    ///
    /// # Errors
    /// Fails without a leader or a follower.
    pub async fn follower(&self) -> Result<String> {
        let leader = self.leader().await.context("no node leads")?;
        let follower = self.founders().iter().map(|node| &node.name).find(|name| **name != leader);
        follower.cloned().context("no node follows")
    }

    /// Returns the node of this name.
    pub fn node(&self, name: &str) -> Result<&NodeProcess> {
        self.nodes.iter().find(|node| node.name == name).with_context(|| format!("there is no node {name}"))
    }

    /// Returns the node of this name, to be changed.
    pub fn node_mut(&mut self, name: &str) -> Result<&mut NodeProcess> {
        self.nodes.iter_mut().find(|node| node.name == name).with_context(|| format!("there is no node {name}"))
    }

    /// Returns the nodes whose processes ended by themselves, each with its exit status.
    pub fn ended(&mut self) -> Vec<(String, std::process::ExitStatus)> {
        self.nodes.iter_mut().filter_map(|node| Some((node.name.clone(), node.ended()?))).collect()
    }
}

/// Returns the binary to start. The error names the next step.
fn binary(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        Some(path) => existing(path, "name another with --reveille PATH"),
        None => {
            let own = std::env::current_exe().context("where this program is")?;
            let next = "build it with `cargo build --release -p reveille`, or name it with --reveille PATH";
            existing(&own.with_file_name("reveille"), next)
        }
    }
}

fn existing(binary: &Path, next: &str) -> Result<PathBuf> {
    if binary.is_file() { Ok(binary.to_owned()) } else { bail!("there is no binary {}; {next}", binary.display()) }
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
    fn missing_binary_is_refused_with_next_step() {
        let error = binary(None).unwrap_err().to_string();
        assert!(error.contains("cargo build --release -p reveille"), "{error}");
        let error = binary(Some(Path::new("/no/such/binary"))).unwrap_err().to_string();
        assert!(error.contains("/no/such/binary") && error.contains("--reveille"), "{error}");
    }

    #[test]
    fn kept_data_needs_empty_folder() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("kept");
        assert!(empty(&inside).is_ok());
        assert!(empty(folder.path()).unwrap_err().to_string().contains("not empty"));
    }
}
