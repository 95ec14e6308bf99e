//! What nodes stand on beyond processes on loopback: links, disks and clocks of their own. Each is there, or says
//! in words why it is not; nothing is left out in silence.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::grounds::Grounds;
use crate::node::{Ports, free_ports};
use crate::proxies::Seat;
use crate::volume::Volume;
use crate::wires::{Ground, Wires};

/// Where libraries lie.
const LIBRARIES: [&str; 3] = ["/usr/lib", "/usr/lib64", "/usr/local/lib"];
const UNWANTED: &str = "nobody asked for it";
/// A clock that is right, in the words of libfaketime. Without its rate one that drifted would go on to.
pub const RIGHT: &str = "+0 x1";
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";
/// How the lengths of logs are told to a node.
const LOGS: [&str; 2] = ["REVEILLE__RAFT__SNAPSHOT_EVERY", "REVEILLE__RAFT__LOG_KEEP"];

/// What a command wants; the default is loopback and nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Links between nodes that can be broken, and by what.
    pub links: Option<Ground>,
    /// What chance such links have of their own.
    pub seed: u64,
    /// A disk for each node.
    pub volumes: bool,
    /// A clock for each node.
    pub clocks: bool,
    /// Entries between two snapshots, and entries kept in the log, where the default is 20,000 and 5,000: so few that nodes
    /// which were away come back by a snapshot.
    pub short_logs: Option<(u64, u64)>,
    /// One clock for all that is moved by hand (P19).
    pub test_clock: bool,
}

/// What there is. The order of the fields is the order of their end.
pub struct Footing {
    /// Disks by the names of their nodes, or why there are none.
    pub volumes: Result<BTreeMap<String, Volume>, String>,
    /// Links between nodes that can be broken, or why there are none.
    pub wires: Result<Wires, String>,
    /// Clocks, or why there are none.
    pub clocks: Result<Clocks, String>,
    short_logs: Option<(u64, u64)>,
    test_clock: bool,
}

impl Footing {
    /// Makes what is wanted and can be made. `data` is where the nodes' folders lie.
    pub fn new(wanted: Wanted, grounds: &Grounds, data: &Path, names: &[String]) -> Result<Footing> {
        let wires = match wanted.links {
            None => Err(UNWANTED.to_owned()),
            Some(ground) => Wires::new(ground, grounds.token(), names, wanted.seed),
        };
        let volumes = match (wanted.volumes, Volume::missing()) {
            (false, _) => Err(UNWANTED.to_owned()),
            (true, Some(why)) => Err(why),
            (true, None) => volumes(grounds, data, names).map_err(|error| format!("{error:#}")),
        };
        let clocks = if wanted.clocks { Clocks::new(grounds.data(), names)? } else { Err(UNWANTED.to_owned()) };
        Ok(Footing { volumes, wires, clocks, short_logs: wanted.short_logs, test_clock: wanted.test_clock })
    }

    /// Where each node listens.
    pub fn ports(&self, names: &[String]) -> Result<Vec<Ports>> {
        match &self.wires {
            Ok(wires) => wires.ports(names),
            Err(_) => free_ports(names.len() as u8),
        }
    }

    /// By which address peers know a node that is reached by way of this process, and where its process is told of.
    pub fn behind(&self, name: &str) -> Option<(SocketAddr, Seat)> {
        self.wires.as_ref().ok()?.behind(name)
    }

    /// The address at which nodes reach this process.
    pub fn ours(&self) -> Ipv4Addr {
        self.wires.as_ref().map_or(Ipv4Addr::LOCALHOST, Wires::ours)
    }

    /// The address by which nodes know a relay of this process. With a test clock they take none that is not on loopback:
    /// hosts of their own lead what goes there to this process.
    pub fn reach(&self, relay: SocketAddr) -> Result<SocketAddr> {
        match &self.wires {
            Ok(Wires::Hosts(hosts)) if self.test_clock => {
                hosts.lead_from_loopback(relay.port())?;
                Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, relay.port())))
            }
            _ => Ok(relay),
        }
    }

    /// How a process is started there: what comes before its command line.
    pub fn prefix(&self, name: &str) -> Vec<String> {
        match &self.wires {
            Ok(Wires::Hosts(hosts)) => {
                vec!["nsenter".to_owned(), format!("--net=/run/netns/{}", hosts.namespace(name))]
            }
            _ => Vec::new(),
        }
    }

    /// And what its environment says.
    pub fn environment(&self, name: &str) -> Vec<(&'static str, OsString)> {
        let mut all = self.clocks.as_ref().map(|clocks| clocks.environment(name)).unwrap_or_default();
        if let Some((every, keep)) = self.short_logs {
            all.extend(LOGS.into_iter().zip([every, keep].map(|entries| entries.to_string().into())));
        }
        all
    }
}

fn volumes(grounds: &Grounds, data: &Path, names: &[String]) -> Result<BTreeMap<String, Volume>> {
    grounds.will_mount(&names.iter().map(|name| data.join(name)).collect::<Vec<_>>())?;
    let one = |name: &String| Ok((name.clone(), Volume::new(data, name, &data.join(name))?));
    names.iter().map(one).collect()
}

/// Wall clocks that can be moved, one a node, by a library between the process and the C library. Only what asks
/// the C library for civil time sees it: CLOCK_BOOTTIME and CLOCK_MONOTONIC, by which nodes measure, stay true.
pub struct Clocks {
    library: PathBuf,
    folder: PathBuf,
}

impl Clocks {
    fn new(folder: &Path, names: &[String]) -> Result<Result<Clocks, String>> {
        let Some(library) = LIBRARIES.into_iter().map(Path::new).find_map(faketime_in) else {
            return Ok(Err("there is no libfaketime on this machine".to_owned()));
        };
        let folder = folder.join("clocks");
        fs::create_dir_all(&folder).context("a folder for clocks")?;
        let clocks = Clocks { library, folder };
        names.iter().try_for_each(|name| clocks.set(name, RIGHT))?;
        Ok(Ok(clocks))
    }

    /// Moves the clock of a node, in the words of libfaketime: `+61`, `-3600`, `+0 x1.1`.
    pub fn set(&self, name: &str, offset: &str) -> Result<()> {
        // Never half a word: it may be read at any moment.
        let (unseen, file) = (self.folder.join(format!("{name}.new")), self.folder.join(name));
        fs::write(&unseen, format!("{offset}\n"))?;
        fs::rename(unseen, file).with_context(|| format!("the clock of {name}"))
    }

    /// What the library leaves in memory of a process that was killed.
    pub fn forget(process: u32) {
        for file in [format!("faketime_shm_{process}"), format!("sem.faketime_sem_{process}")] {
            // There is none where the process had no such clock.
            let _ = fs::remove_file(Path::new("/dev/shm").join(file));
        }
    }

    fn environment(&self, name: &str) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone().into_os_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.folder.join(name).into_os_string()),
            // Seconds after which the file is read again; at each question would cost more than the question.
            ("FAKETIME_CACHE_DURATION", "1".into()),
            // Older versions know the one name, later ones the other.
            ("DONT_FAKE_MONOTONIC", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

/// Some systems keep their libraries in a folder by the machine's architecture.
fn faketime_in(folder: &Path) -> Option<PathBuf> {
    let own = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = std::iter::once(folder.to_owned()).chain(own).map(|folder| folder.join(FAKETIME));
    found.into_iter().find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn what_is_not_wanted_is_not_made_and_says_so() {
        let grounds = Grounds::new().unwrap();
        let names = ["n1".to_owned()];
        let footing = Footing::new(Wanted::default(), &grounds, grounds.data(), &names).unwrap();
        assert!(footing.wires.is_err() && footing.volumes.is_err() && footing.clocks.is_err());
        assert!(footing.prefix("n1").is_empty() && footing.environment("n1").is_empty());
        assert!(footing.ports(&names).unwrap()[0].iter().all(|address| address.ip().is_loopback()));
    }

    /// One that drifts goes on to, if only its offset is taken back.
    #[test]
    fn a_clock_that_drifted_is_right_again() {
        let folder = tempfile::tempdir().unwrap();
        let name = "n1".to_owned();
        let Ok(clocks) = Clocks::new(folder.path(), std::slice::from_ref(&name)).unwrap() else {
            reveille_strict::skip("there is no libfaketime on this machine");
            return;
        };
        // A shell that lives on and tells its time whenever it is asked. (Bash answers for the environment itself, so the
        // library does not hear of its cache and looks every ten seconds.)
        let mut shell = Command::new("bash")
            .args(["-c", "while read -r _; do echo $EPOCHREALTIME; done"])
            .envs(clocks.environment(&name))
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut asks, mut says) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let mut offset = || {
            let mut said = String::new();
            asks.write_all(b"?\n").unwrap();
            says.read_line(&mut said).unwrap();
            said.trim().parse::<f64>().unwrap() - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
        };
        let mut comes_to = |wanted: &dyn Fn(f64) -> bool| {
            let until = Instant::now() + Duration::from_secs(120);
            while !wanted(offset()) {
                assert!(Instant::now() < until, "it is off by {} s", offset());
                std::thread::sleep(Duration::from_millis(100));
            }
        };
        comes_to(&|offset| offset.abs() < 2.0);
        clocks.set(&name, "+0 x9").unwrap();
        comes_to(&|offset| offset > 10.0);
        clocks.set(&name, RIGHT).unwrap();
        comes_to(&|offset| offset.abs() < 2.0);
        shell.kill().unwrap();
        shell.wait().unwrap();
        Clocks::forget(shell.id());
    }
}
