//! Where connections come from: the seam between the relays and the network.
//!
//! The pool asks a [`Dial`] for each new session. The real one is [`TcpDialer`]; a simulation or a
//! test brings its own. A dialer only connects: TLS, greetings and time-outs of a whole opening are
//! not its business.

use std::{io, net::SocketAddr, time::Duration};

use async_trait::async_trait;
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use super::{stream::Transport, tcp::Tcp};

/// Connects to relays.
#[async_trait]
pub trait Dial: Send + Sync {
    /// A connected stream to `host` (a name, or an address without brackets) and `port`. The caller
    /// bounds the whole call and may drop it at any time. See [`Transport`] for what its flush promises.
    ///
    /// # Errors
    /// When the name does not resolve or no address takes the connection: the last one's reason.
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Transport>>;
}

/// TCP with `TCP_NODELAY`: a mail ends with a write of three bytes, which Nagle's algorithm would
/// hold back until the peer's delayed ACK, 40 ms later, for each mail.
#[derive(Debug, Clone)]
pub struct TcpDialer {
    per_address: Duration,
}

impl TcpDialer {
    /// Tries the resolved addresses one after the other, each for at most `per_address`.
    pub fn new(per_address: Duration) -> TcpDialer {
        TcpDialer { per_address }
    }
}

impl Default for TcpDialer {
    /// Ten seconds an address: three of them fit into the default connect time-out.
    fn default() -> TcpDialer {
        TcpDialer::new(Duration::from_secs(10))
    }
}

#[async_trait]
impl Dial for TcpDialer {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Transport>> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in lookup_host((host, port)).await? {
            match timeout(self.per_address, connect(address)).await {
                Ok(Ok(stream)) => return Ok(Box::new(Tcp::new(stream))),
                Ok(Err(error)) => failure = error,
                Err(_) => failure = io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer")),
            }
        }
        Err(failure)
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_never_waits_for_a_delayed_ack() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        assert!(connect(address).await.expect("a connection").nodelay().expect("an option"));
    }

    #[tokio::test]
    async fn a_port_where_nobody_listens_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        assert!(TcpDialer::default().dial("127.0.0.1", port).await.is_err());
    }
}
