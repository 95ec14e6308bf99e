//! The environment of the node processes, in addition to loopback and folders: a network that can be broken, and a disk
//! and a clock for each node. Each part exists, or its error says why this machine cannot have it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Result;

use reveille_node_client::{ClientAccess, LaunchOptions, Ports, free_ports};

use crate::clocks::Clocks;
use crate::host_network::HostNetwork;
use crate::volume::Volume;
use crate::workspace::Workspace;

/// Admin, peer and HTTP port of a node with an address of its own.
const PORTS_OF_HOST: [u16; 3] = [7600, 7601, 7680];
/// Environment variable that sets the number of log entries between two snapshots of a node.
const SNAPSHOT_EVERY: &str = "REVEILLE__RAFT__SNAPSHOT_EVERY";
/// Environment variable that names the target of backups.
const BACKUP_TARGET: &str = "REVEILLE__BACKUP__TARGET";
/// Environment variable that sets the seconds from the end of a run to its archiving.
const ARCHIVE_AFTER: &str = "REVEILLE__ARCHIVE_AFTER_SECONDS";

/// Parts of the environment that a command needs. The default is loopback only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// True if the command breaks links between nodes.
    pub network: bool,
    /// True if each node needs a disk of its own.
    pub volumes: bool,
    /// True if each node needs a clock of its own.
    pub clocks: bool,
    /// Number of log entries between two snapshots. `None`: the default of 20,000. The log keeps the entries of two
    /// snapshots, so a node that was away for longer gets a snapshot.
    pub snapshot_every: Option<u64>,
    /// Seconds from the end of a run to its archiving. `None`: the default of a day.
    pub archive_after: Option<u64>,
    /// True if the cluster runs on one test clock, which the harness moves (P19).
    pub test_clock: bool,
    /// True if the nodes have a target for backups.
    pub backups: bool,
    /// Number of nodes that are prepared and join no cluster at first: they join later.
    pub spares: u8,
}

/// The parts of the environment that exist. Its fields are dropped in order of declaration.
pub struct Environment {
    /// Disks by node. An error says why there are no disks.
    pub volumes: Result<BTreeMap<String, Volume>, String>,
    /// The network. An error says why there is no network.
    pub network: Result<HostNetwork, String>,
    /// Clocks. An error says why there are no clocks.
    pub clocks: Result<Clocks, String>,
    /// The folder with the backups of all nodes. `None`: the nodes make none.
    pub backups: Option<PathBuf>,
    needs: Needs,
}

impl Environment {
    /// Creates the parts that are needed and possible on this machine. `data` is the folder of the nodes' folders.
    pub fn new(needs: Needs, workspace: &Workspace, data: &Path, names: &[String]) -> Environment {
        let network = || HostNetwork::new(workspace.token(), names);
        Environment {
            network: part(needs.network, HostNetwork::missing(), network),
            volumes: part(needs.volumes, Volume::missing(), || volumes(data, names)),
            clocks: part(needs.clocks, None, || Clocks::new(workspace.data(), names)),
            backups: needs.backups.then(|| data.join("backups")),
            needs,
        }
    }

    /// Returns the addresses for these nodes.
    ///
    /// # Errors
    /// Fails if no ports are free.
    pub fn ports(&self, names: &[String]) -> Result<Vec<Ports>> {
        let Ok(network) = &self.network else { return free_ports(names.len()) };
        let ports = |name: &String| {
            let address = network.address(name)?;
            Ok(PORTS_OF_HOST.map(|port| SocketAddr::from((address, port))))
        };
        names.iter().map(ports).collect()
    }

    /// Returns the address at which nodes reach this process.
    pub fn harness_address(&self) -> Ipv4Addr {
        self.network.as_ref().map_or(Ipv4Addr::LOCALHOST, HostNetwork::harness_address)
    }

    /// Returns the address at which nodes reach a relay of this process. Nodes on the test clock accept only relays on
    /// loopback, so each host forwards the relay's port of its loopback to this process.
    ///
    /// # Errors
    /// Fails if the forwarding rule is refused.
    pub fn relay_address(&self, relay: SocketAddr) -> Result<SocketAddr> {
        match &self.network {
            Ok(network) if self.needs.test_clock => {
                network.forward_loopback(relay.port())?;
                Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, relay.port())))
            }
            _ => Ok(relay),
        }
    }

    /// Returns how the process of a node is started, and how clients reach it.
    pub fn launch_options(&self, name: &str, access: &ClientAccess) -> LaunchOptions {
        // Ctrl-C is for the harness, which kills its nodes.
        let own_process_group = true;
        let (prefix, variables) = (self.command_prefix(name), self.variables(name));
        let own_volume = self.volumes.is_ok();
        LaunchOptions { prefix, variables, own_process_group, own_volume, access: access.clone() }
    }

    /// Returns the words before the command line of a node.
    fn command_prefix(&self, name: &str) -> Vec<String> {
        match &self.network {
            Ok(network) => vec!["nsenter".to_owned(), format!("--net=/run/netns/{}", network.namespace(name))],
            Err(_) => Vec::new(),
        }
    }

    /// Returns environment variables for the process of a node.
    fn variables(&self, name: &str) -> Vec<(&'static str, OsString)> {
        let mut all = self.clocks.as_ref().map(|clocks| clocks.environment(name)).unwrap_or_default();
        all.extend(self.needs.snapshot_every.map(|entries| (SNAPSHOT_EVERY, entries.to_string().into())));
        all.extend(self.backups.iter().map(|folder| (BACKUP_TARGET, folder.into())));
        all.extend(self.needs.archive_after.map(|seconds| (ARCHIVE_AFTER, seconds.to_string().into())));
        all
    }
}

/// Creates a part of the environment, or returns why it does not exist.
fn part<T>(is_needed: bool, missing: Option<String>, new: impl FnOnce() -> Result<T>) -> Result<T, String> {
    match missing {
        _ if !is_needed => Err("not requested".to_owned()),
        Some(why) => Err(why),
        None => new().map_err(|error| format!("{error:#}")),
    }
}

fn volumes(data: &Path, names: &[String]) -> Result<BTreeMap<String, Volume>> {
    names.iter().map(|name| Ok((name.clone(), Volume::new(data, name, &data.join(name))?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_environment_is_loopback_and_says_so() {
        let workspace = Workspace::new().unwrap();
        let names = ["n1".to_owned()];
        let environment = Environment::new(Needs::default(), &workspace, workspace.data(), &names);
        assert!(environment.network.is_err() && environment.volumes.is_err() && environment.clocks.is_err());
        assert!(environment.command_prefix("n1").is_empty() && environment.variables("n1").is_empty());
        assert!(environment.ports(&names).unwrap()[0].iter().all(|address| address.ip().is_loopback()));
    }
}
