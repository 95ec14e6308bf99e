//! Links between nodes where they have no hosts of their own: all of them on loopback, and between them a TCP proxy,
//! in this process, through which all that they say to each other goes.
//!
//! The members of a cluster have one address each, the same for all peers. So a node is known by the address of a
//! listener here, and each connection that comes in there is asked whose it is ([`roster`]). From then on it goes by two
//! links, one there and one back ([`link`]), each with a law of its own: cut, late, narrow, resets ([`carry`]).
//!
//! What it cannot show: the handshake of TCP is the kernel's and not ours. A connection to a node that is cut off is
//! taken, and then nothing comes of it; on a host of its own nothing would answer at all. And nothing is lost that TCP
//! would not bring in the end.

mod carry;
mod link;
mod roster;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use self::link::Cable;
pub use self::link::{Harm, Law, Link};
use self::roster::Roster;
pub use self::roster::Seat;

/// Connections to one node at once. A peer has two, and a new one every 2.5 s while nothing comes of the last; whoever
/// comes beyond this waits with the kernel.
const CONNECTIONS: usize = 256;
/// A machine without free descriptors is asked again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Whose a connection is, is read from files of the kernel; so many at once.
const READERS: usize = 4;

/// One listener a node, and all links between them. They end when this is dropped.
pub struct Proxies {
    lines: Arc<Lines>,
    /// None when it is being dropped. A runtime of its own: what carries bytes must not wait for what breaks nodes.
    runtime: Option<Runtime>,
}

struct Lines {
    roster: Roster,
    /// Where each node is known, and where it listens.
    known: Vec<SocketAddr>,
    behind: Vec<SocketAddr>,
    /// By sender and receiver; also from a node to itself, which nobody strikes.
    links: Vec<Vec<Link>>,
}

impl Proxies {
    /// Listens for nodes that listen here themselves; the seed decides what is late by how much, and reset.
    pub fn new(behind: Vec<SocketAddr>, seed: u64) -> Result<Proxies> {
        let bind = |_| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a listener between nodes");
        let listeners: Vec<std::net::TcpListener> = behind.iter().map(bind).collect::<Result<_>>()?;
        let known = listeners.iter().map(std::net::TcpListener::local_addr).collect::<Result<_, _>>()?;
        let nodes = behind.len();
        let links = (0..nodes).map(|from| {
            // What one node sends goes by one cable, whomever it is for.
            let cable = Arc::new(Cable::default());
            let seed_of = |to: usize| seed ^ ((from * nodes + to + 1) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (0..nodes).map(|to| Link::new(Arc::clone(&cable), seed_of(to))).collect()
        });
        let lines = Arc::new(Lines { roster: Roster::new(nodes), known, behind, links: links.collect() });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(READERS)
            .thread_name("links")
            .enable_all()
            .build()
            .context("threads for links")?;
        let inside = runtime.enter();
        for (to, listener) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            runtime.spawn(serve(TcpListener::from_std(listener)?, to, Arc::clone(&lines)));
        }
        drop(inside);
        Ok(Proxies { lines, runtime: Some(runtime) })
    }

    /// The address by which peers know the node of this place.
    pub fn known(&self, place: usize) -> Option<SocketAddr> {
        self.lines.known.get(place).copied()
    }

    /// Where the process of this place is told of.
    pub fn seat(&self, place: usize) -> Seat {
        self.lines.roster.seat(place)
    }

    /// The link from one place to another.
    pub fn link(&self, from: usize, to: usize) -> Option<&Link> {
        self.lines.link(from, to)
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Not the plain end of a runtime: that waits, and may not where others' tasks run.
            runtime.shutdown_background();
        }
    }
}

impl Lines {
    fn link(&self, from: usize, to: usize) -> Option<&Link> {
        self.links.get(from)?.get(to)
    }

    /// A connection to `to`. One of nobody we know is reset: a node that died meanwhile, or somebody who has no business.
    async fn take(self: Arc<Lines>, stream: TcpStream, its: SocketAddr, to: usize) {
        let lines = Arc::clone(&self);
        let asked = spawn_blocking(move || lines.roster.whose(its, *lines.known.get(to)?)).await;
        let from = asked.ok().flatten();
        let road = from.and_then(|from| Some((self.link(from, to)?, self.link(to, from)?)));
        match (road, self.behind.get(to)) {
            (Some((there, back)), Some(behind)) => carry::carry(stream, *behind, there, back).await,
            _ => carry::reset(&stream),
        }
    }
}

async fn serve(listener: TcpListener, to: usize, lines: Arc<Lines>) {
    let rooms = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(room) = Arc::clone(&rooms).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, its)) => {
                let taken = Arc::clone(&lines).take(stream, its, to);
                tokio::spawn(async move {
                    taken.await;
                    drop(room);
                });
            }
            Err(error) => {
                eprintln!("a connection between nodes could not be taken: {error}");
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    }
}
