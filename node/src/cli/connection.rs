//! Opens connections to the admin API, and says why one cannot be opened.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use reveille_raft::tls::{ClientTls, HandshakeError, ShownAuthority, fetch_authority};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::either::Either;
use tonic::transport::{Channel, Endpoint as TonicEndpoint};

use super::endpoint::Endpoint;

/// Time limit of a connection attempt; a node on a reachable network accepts within it.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Interval of HTTP/2 pings on a silent connection, which is given up after [`ALIVE_WITHIN`].
const ALIVE_EVERY: Duration = Duration::from_secs(5);
const ALIVE_WITHIN: Duration = Duration::from_secs(10);

/// Reason why there is no connection.
#[derive(Clone, Debug)]
pub enum ConnectFailure {
    /// The machine or the port does not answer.
    Unreachable(String),
    /// It answers, and the handshake failed.
    Handshake(HandshakeError),
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectFailure::Unreachable(why) => f.write_str(why),
            ConnectFailure::Handshake(error) => write!(f, "{error}"),
        }
    }
}

impl Error for ConnectFailure {}

impl From<io::Error> for ConnectFailure {
    fn from(error: io::Error) -> ConnectFailure {
        ConnectFailure::Unreachable(error.to_string())
    }
}

/// Connects to a node; by TLS if `tls` is given.
pub async fn connect(endpoint: &Endpoint, tls: Option<&ClientTls>) -> Result<Channel, ConnectFailure> {
    let (address, host, tls) = (endpoint.address.clone(), endpoint.host().to_owned(), tls.cloned());
    let connecting = tower::service_fn(move |_| {
        let (address, host, tls) = (address.clone(), host.clone(), tls.clone());
        async move {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, ConnectFailure>(TokioIo::new(match tls {
                None => Either::Left(stream),
                Some(tls) => Either::Right(tls.connect(&host, stream).await.map_err(ConnectFailure::Handshake)?),
            }))
        }
    });
    let connected = TonicEndpoint::from_shared(format!("http://{endpoint}"))
        .map_err(|error| ConnectFailure::Unreachable(error.to_string()))?
        .connect_timeout(CONNECT_WITHIN)
        .http2_keep_alive_interval(ALIVE_EVERY)
        .keep_alive_timeout(ALIVE_WITHIN)
        .keep_alive_while_idle(true)
        .connect_with_connector(connecting)
        .await;
    connected.map_err(|error| of_tonic(&error))
}

/// Returns the failure in an error of `tonic`, whose own text says only "transport error".
fn of_tonic(error: &(dyn Error + 'static)) -> ConnectFailure {
    let mut error = error;
    loop {
        if let Some(failure) = error.downcast_ref::<ConnectFailure>() {
            return failure.clone();
        }
        match error.source() {
            Some(source) => error = source,
            None => return ConnectFailure::Unreachable(error.to_string()),
        }
    }
}

/// Returns the authority that a node shows. It is not checked.
pub async fn shown_authority(endpoint: &Endpoint) -> Result<ShownAuthority, ConnectFailure> {
    let shown = async {
        let stream = TcpStream::connect(&endpoint.address).await?;
        fetch_authority(endpoint.host(), stream).await.map_err(ConnectFailure::Handshake)
    };
    let late = || ConnectFailure::Unreachable("no connection in time".to_owned());
    timeout(CONNECT_WITHIN, shown).await.unwrap_or_else(|_| Err(late()))
}
