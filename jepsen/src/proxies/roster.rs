//! Whose a connection is. The kernel knows: it lists each socket with its two addresses and its number, and each
//! process with the numbers of the sockets it has. To read that of one's own children takes no rights.
//!
//! Not told by what is said on the connection: that would take a proxy that understands the peers' protocol, and it
//! would hold only until the first byte is held back.

use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The list of all sockets of this network.
const SOCKETS: &str = "/proc/net/tcp";
/// Where a line of it has the number of the socket.
const NUMBER_AT: usize = 9;

/// Processes by the places of their nodes; 0: none so far.
#[derive(Clone)]
pub struct Roster(Arc<[AtomicU32]>);

/// The place of one node in it.
pub struct Seat {
    roster: Roster,
    place: usize,
}

impl Seat {
    /// From now on this is the process of the node.
    pub fn is_taken_by(&self, process: u32) {
        if let Some(seat) = self.roster.0.get(self.place) {
            seat.store(process, Ordering::Relaxed);
        }
    }
}

impl Roster {
    /// Of so many nodes, none of which runs.
    pub fn new(nodes: usize) -> Roster {
        Roster((0..nodes).map(|_| AtomicU32::new(0)).collect())
    }

    /// Where the process of a node is told of.
    pub fn seat(&self, place: usize) -> Seat {
        Seat { roster: self.clone(), place }
    }

    /// The place of the node whose end of a connection has this address; ours has the other. None where it is gone by now.
    pub fn whose(&self, its: SocketAddr, ours: SocketAddr) -> Option<usize> {
        let (SocketAddr::V4(its), SocketAddr::V4(ours)) = (its, ours) else { return None };
        let sockets = fs::read_to_string(SOCKETS).ok()?;
        let socket = format!("socket:[{}]", number_of(&sockets, its, ours)?);
        self.0.iter().position(|seat| has(seat.load(Ordering::Relaxed), Path::new(&socket)))
    }
}

fn has(process: u32, socket: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    open.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|target| target == socket))
}

/// The number of the socket between these, as `/proc/net/tcp` has it.
fn number_of(sockets: &str, near: SocketAddrV4, far: SocketAddrV4) -> Option<&str> {
    let (near, far) = (as_listed(near), as_listed(far));
    let line = sockets.lines().map(|line| line.split_whitespace());
    let mut found = line.filter(|fields| fields.clone().skip(1).take(2).eq([near.as_str(), far.as_str()]));
    // A socket that no process has any more has the number 0.
    found.next()?.nth(NUMBER_AT).filter(|number| *number != "0")
}

/// The kernel writes an address as its memory has it.
fn as_listed(address: SocketAddrV4) -> String {
    format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_socket_stands_in_the_line_of_its_two_addresses() {
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0 100 0 0 10 0\n   \
            1: 0100007F:0050 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 42 1 0 20 4 30 10 -1\n   \
            2: 0100007F:1F90 0100007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 43 1 0 20 4 30 10 -1\n   \
            3: 0100007F:0051 0100007F:1F90 06 00000000:00000000 03:00000F00 00000000     0        0 0 3 0\n";
        let at = |port| SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port);
        assert_eq!(number_of(sockets, at(80), at(8_080)), Some("42"));
        assert_eq!(number_of(sockets, at(8_080), at(80)), Some("43"));
        assert_eq!(number_of(sockets, at(81), at(8_080)), None, "nobody has it any more");
        assert_eq!(number_of(sockets, at(82), at(8_080)), None);
    }
}
