//! The environment of the node processes beyond loopback and folders: a network that can be broken, a disk and a clock for
//! each node. Each part exists, or its error says why this machine cannot have it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Result;

use reveille_node_client::{LaunchOptions, Ports, free_ports};

use crate::clocks::Clocks;
use crate::host_network::HostNetwork;
use crate::volume::Volume;
use crate::workspace::Workspace;

/// Admin, peer and HTTP port of a node with an address of its own.
const PORTS_OF_HOST: [u16; 3] = [7600, 7601, 7680];
/// The variable that sets how often a node makes a snapshot.
const SNAPSHOT_EVERY: &str = "REVEILLE__RAFT__SNAPSHOT_EVERY";
/// The variable that sets how long after its end a run is archived.
const ARCHIVE_AFTER: &str = "REVEILLE__ARCHIVE_AFTER_SECONDS";

/// Parts of the environment that a command needs; the default is loopback only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// True for a network whose links between nodes can be broken.
    pub network: bool,
    /// True for a disk for each node.
    pub volumes: bool,
    /// True for a clock for each node.
    pub clocks: bool,
    /// Log entries between two snapshots; `None` for the default of 20,000. The log keeps the entries of two snapshots;
    /// a node that was away for longer gets a snapshot.
    pub snapshot_every: Option<u64>,
    /// Seconds from the end of a run to its archiving; `None` for the default of a day.
    pub archive_after: Option<u64>,
    /// True if the cluster runs on one test clock, which the harness moves (P19).
    pub test_clock: bool,
}

/// The parts of the environment that exist. Fields are dropped in this order.
pub struct Environment {
    /// Disks by node; an error says why there are none.
    pub volumes: Result<BTreeMap<String, Volume>, String>,
    /// The network; an error says why there is none.
    pub network: Result<HostNetwork, String>,
    /// Clocks; an error says why there are none.
    pub clocks: Result<Clocks, String>,
    snapshot_every: Option<u64>,
    archive_after: Option<u64>,
    test_clock: bool,
}

impl Environment {
    /// Creates the parts that are needed and possible on this machine. `data` is the folder of the nodes' folders.
    pub fn new(needs: Needs, workspace: &Workspace, data: &Path, names: &[String]) -> Environment {
        let network = || HostNetwork::new(workspace.token(), names);
        Environment {
            network: part(needs.network, HostNetwork::missing(), network),
            volumes: part(needs.volumes, Volume::missing(), || volumes(data, names)),
            clocks: part(needs.clocks, None, || Clocks::new(workspace.data(), names)),
            snapshot_every: needs.snapshot_every,
            archive_after: needs.archive_after,
            test_clock: needs.test_clock,
        }
    }

    /// Returns addresses for these nodes.
    ///
    /// # Errors
    /// No ports are free.
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

    /// Returns the address at which nodes reach a relay of this process. On the test clock they accept only relays on
    /// loopback, so each host forwards that port of its loopback to this process.
    ///
    /// # Errors
    /// The forwarding rule is refused.
    pub fn relay_address(&self, relay: SocketAddr) -> Result<SocketAddr> {
        match &self.network {
            Ok(network) if self.test_clock => {
                network.forward_loopback(relay.port())?;
                Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, relay.port())))
            }
            _ => Ok(relay),
        }
    }

    /// How the process of a node is started.
    pub fn launch_options(&self, name: &str) -> LaunchOptions {
        // Ctrl-C is for the harness, which kills its nodes.
        let own_process_group = true;
        LaunchOptions { prefix: self.command_prefix(name), variables: self.variables(name), own_process_group }
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
        all.extend(self.snapshot_every.map(|entries| (SNAPSHOT_EVERY, entries.to_string().into())));
        all.extend(self.archive_after.map(|seconds| (ARCHIVE_AFTER, seconds.to_string().into())));
        all
    }
}

/// A part of the environment, or why there is none.
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
