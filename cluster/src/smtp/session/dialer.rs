//! Opens connections to relays. [`Dial`] is the interface between the relays and the network.
//!
//! [`Session::open`](super::dialogue::Session::open) calls a [`Dial`] for each new session. The real one is
//! [`TcpDialer`]; simulations and tests bring their own. A dialer only connects: it does not do TLS or read the
//! greeting, and the caller sets the time-out.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use super::stream::ByteStream;
use super::tcp::Tcp;

/// Delay between the attempts for two addresses (RFC 8305 section 5).
const NEXT_ATTEMPT_AFTER: Duration = Duration::from_millis(250);
/// Maximum number of addresses of one name that are tried: each one needs a socket.
const ADDRESSES_MAX: usize = 16;
/// Maximum number of relays whose last good address is remembered.
const REMEMBERED_MAX: usize = 1_024;
/// Idle time before the first keep-alive probe. Further probes follow every [`KEEPALIVE_EVERY`].
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);
/// Time without an acknowledgement of sent data after which a connection ends. So a vanished relay is noticed before
/// the ten minutes of the final dot are over. Equals the time-out of one block of text (RFC 5321 4.5.3.2.5).
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(180);

/// A connection to a relay.
pub struct Connected {
    /// The byte stream.
    pub transport: Box<dyn ByteStream>,
    /// This node's address on the connection, for the address literal in EHLO. `None` if it has no address.
    pub local: Option<IpAddr>,
}

impl<T: ByteStream + 'static> From<T> for Connected {
    /// Returns a connection without an address.
    fn from(transport: T) -> Connected {
        Connected { transport: Box::new(transport), local: None }
    }
}

/// Connects to relays.
#[async_trait]
pub trait Dial: Send + Sync {
    /// Returns a connected stream to `host` (a name, or an address without brackets) and `port`. The caller limits the
    /// whole call and may drop it at any time. See [`ByteStream`] for what its flush guarantees.
    ///
    /// # Errors
    /// Fails if the name does not resolve or no address accepts the connection. The error is that of the last address.
    async fn dial(&self, host: &str, port: u16) -> io::Result<Connected>;
}

/// TCP with Happy Eyeballs (RFC 8305): the address families alternate, and the next address is tried after 250 ms, or
/// at once when one refuses. The first connection wins, and its address is tried first the next time.
///
/// `TCP_NODELAY` is set: an email ends with a write of three bytes. Nagle's algorithm would hold it back until the
/// peer's delayed ACK, 40 ms later, for each email.
#[derive(Debug, Clone, Default)]
pub struct TcpDialer {
    /// The address that connected last, by host and port.
    good: Arc<Mutex<BTreeMap<(String, u16), SocketAddr>>>,
}

#[async_trait]
impl Dial for TcpDialer {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Connected> {
        let resolved: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
        let key = (host.to_owned(), port);
        let good = self.good.lock().get(&key).copied();
        let (address, stream) = race(in_order(resolved, good), connect).await?;
        if good != Some(address) {
            let mut known = self.good.lock();
            if known.len() >= REMEMBERED_MAX {
                known.clear();
            }
            known.insert(key, address);
        }
        let local = stream.local_addr().ok().map(|address| address.ip());
        Ok(Connected { transport: Box::new(Tcp::new(stream)), local })
    }
}

/// Returns the addresses in the order of the attempts. The good address comes first, if it is still one of them. Then
/// the families alternate, beginning with the family of the resolver's first answer.
fn in_order(resolved: Vec<SocketAddr>, good: Option<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = resolved.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = resolved.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut ordered = Vec::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            break;
        }
        ordered.extend(pair.into_iter().flatten());
    }
    if let Some(index) = good.and_then(|good| ordered.iter().position(|address| *address == good)) {
        ordered[..=index].rotate_right(1);
    }
    ordered.truncate(ADDRESSES_MAX);
    ordered
}

/// Connects to the first address that answers. The other attempts are dropped, which closes them.
///
/// # Errors
/// Returns the error of the last attempt.
async fn race<T, F>(addresses: Vec<SocketAddr>, connect: impl Fn(SocketAddr) -> F) -> io::Result<(SocketAddr, T)>
where
    F: Future<Output = io::Result<T>>,
{
    let mut addresses = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = addresses.next() {
            let attempt = connect(address);
            attempts.push(async move { (address, attempt.await) });
        }
        let ended = match addresses.len() {
            0 => attempts.next().await,
            _ => match timeout(NEXT_ATTEMPT_AFTER, attempts.next()).await {
                Ok(ended) => ended,
                Err(_) => continue,
            },
        };
        match ended {
            Some((address, Ok(connected))) => return Ok((address, connected)),
            Some((address, Err(error))) => failure = io::Error::new(error.kind(), format!("{address}: {error}")),
            None => return Err(failure),
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_EVERY)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_user_timeout(&stream, u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(u32::MAX))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[tokio::test]
    async fn connection_has_nodelay_keepalive_and_user_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = connect(address).await.expect("a connection");
        assert!(stream.nodelay().expect("an option"));
        assert!(sockopt::socket_keepalive(&stream).expect("an option"));
        assert_eq!(sockopt::tcp_user_timeout(&stream).expect("an option"), 180_000);
    }

    #[tokio::test]
    async fn closed_port_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        assert!(TcpDialer::default().dial("127.0.0.1", port).await.is_err());
    }

    #[tokio::test]
    async fn connection_knows_its_own_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let connected = TcpDialer::default().dial("127.0.0.1", port).await.expect("a connection");
        assert_eq!(connected.local, "127.0.0.1".parse().ok());
    }

    #[test]
    fn attempts_alternate_families_and_begin_with_good_address() {
        let resolved = addresses(&["[::1]:25", "[::2]:25", "[::3]:25", "1.0.0.1:25", "1.0.0.2:25"]);
        let plain = addresses(&["[::1]:25", "1.0.0.1:25", "[::2]:25", "1.0.0.2:25", "[::3]:25"]);
        assert_eq!(in_order(resolved.clone(), None), plain);
        assert_eq!(in_order(resolved.clone(), "9.9.9.9:25".parse().ok()), plain, "it is not among them any more");
        let begins = addresses(&["1.0.0.2:25", "[::1]:25", "1.0.0.1:25", "[::2]:25", "[::3]:25"]);
        assert_eq!(in_order(resolved, "1.0.0.2:25".parse().ok()), begins);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_first_address_costs_250_ms_and_refused_one_nothing() {
        let order = addresses(&["1.0.0.1:25", "1.0.0.2:25", "1.0.0.3:25"]);
        let (silent, refuses) = (order[0], order[1]);
        let begun = Instant::now();
        let (address, ()) = race(order.clone(), |address| async move {
            match address {
                address if address == silent => std::future::pending().await,
                address if address == refuses => Err(io::ErrorKind::ConnectionRefused.into()),
                _ => Ok(()),
            }
        })
        .await
        .expect("a connection");
        assert_eq!((address, begun.elapsed()), (order[2], Duration::from_millis(250)));
    }

    #[tokio::test]
    async fn all_addresses_refused_is_error_of_last() {
        let refuse = |_| async { Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionRefused)) };
        let error = race(addresses(&["1.0.0.1:25", "1.0.0.2:25"]), refuse).await.expect_err("nothing answers");
        assert_eq!(
            (error.kind(), error.to_string().starts_with("1.0.0.2:25: ")),
            (io::ErrorKind::ConnectionRefused, true)
        );
        assert_eq!(race(Vec::new(), refuse).await.expect_err("no address").kind(), io::ErrorKind::NotFound);
    }
}
