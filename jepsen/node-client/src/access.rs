//! How clients reach the nodes of a cluster: by the context that `cluster init` wrote, or in plaintext. Only this file
//! opens connections to nodes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use reveille_raft::tls::ClientTls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Path of the file of contexts below the folder of a user's configuration.
const FILE: &str = "reveille/contexts.toml";

/// A connection to a node.
pub trait NodeStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> NodeStream for T {}

/// A channel to the admin API of a node. Its requests have the token.
pub type AdminChannel = InterceptedService<Channel, ClientAccess>;

/// How clients of a cluster are secured. The default is plaintext.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("{:?}", self.folder())]
pub struct ClientAccess(Option<Arc<Context>>);

struct Context {
    folder: PathBuf,
    known: Mutex<Option<Known>>,
}

/// What the context has: it is read at the first use, because `cluster init` writes it.
#[derive(Clone)]
struct Known {
    tls: ClientTls,
    token: Option<MetadataValue<Ascii>>,
}

impl ClientAccess {
    /// Uses the context in this folder of a user's configuration, which need not exist yet.
    pub fn by_context(folder: PathBuf) -> ClientAccess {
        ClientAccess(Some(Arc::new(Context { folder, known: Mutex::default() })))
    }

    /// Returns the folder of the user's configuration. `None`: clients use plaintext.
    pub fn folder(&self) -> Option<&Path> {
        self.0.as_ref().map(|context| context.folder.as_path())
    }

    /// Returns a channel to the admin API at `address`. It connects at the first request, and each answer must come
    /// within `answer_within`.
    pub fn channel(&self, address: &str, answer_within: Duration) -> Result<AdminChannel> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let endpoint = endpoint.connect_timeout(CONNECT_WITHIN).timeout(answer_within);
        let (access, address) = (self.clone(), address.to_owned());
        let connecting = tower::service_fn(move |_| {
            let (access, address) = (access.clone(), address.clone());
            async move { Ok::<_, io::Error>(TokioIo::new(access.connect(&address).await?)) }
        });
        Ok(InterceptedService::new(endpoint.connect_with_connector_lazy(connecting), self.clone()))
    }

    /// Connects to a listener of a node for clients.
    pub(crate) async fn connect(&self, address: &str) -> io::Result<Box<dyn NodeStream>> {
        let known = self.known().map_err(io::Error::other)?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(Known { tls, .. }) = known else { return Ok(Box::new(stream)) };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let stream = tls.connect(host, stream).await.map_err(io::Error::other)?;
        if let Some(successor) = tls.successor() {
            self.succeed(&successor).map_err(io::Error::other)?;
        }
        Ok(Box::new(stream))
    }

    /// Returns the value of the header with the token. `None`: there is none, or no context yet.
    pub(crate) fn token(&self) -> Option<String> {
        let token = self.known().ok()??.token?;
        token.to_str().ok().map(str::to_owned)
    }

    /// Forgets the cluster: the next connection reads the context again.
    pub fn forget(&self) {
        if let Some(context) = &self.0 {
            *context.known.lock() = None;
        }
    }

    fn known(&self) -> Result<Option<Known>> {
        let Some(context) = &self.0 else { return Ok(None) };
        let mut known = context.known.lock();
        if known.is_none() {
            *known = Some(read(&context.folder.join(FILE))?);
        }
        Ok(known.clone())
    }

    /// Trusts the authority that succeeded the known one.
    fn succeed(&self, successor: &str) -> Result<()> {
        let tls = ClientTls::trusting(successor)?;
        if let Some(context) = &self.0
            && let Some(known) = context.known.lock().as_mut()
        {
            known.tls = tls;
        }
        Ok(())
    }
}

/// Reads the current context.
fn read(path: &Path) -> Result<Known> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let file: toml::Table = text.parse().with_context(|| path.display().to_string())?;
    let current = file.get("current").and_then(|name| name.as_str()).context("no current context")?;
    let context = file.get("contexts").and_then(|all| all.get(current)).context("no such context")?;
    let text = |key: &str| context.get(key).and_then(|value| value.as_str());
    let token = text("token").map(|token| format!("Bearer {token}").parse()).transpose()?;
    Ok(Known { tls: ClientTls::trusting(text("ca").context("no authority")?)?, token })
}

impl Interceptor for ClientAccess {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let known = self.known().map_err(|error| Status::unavailable(format!("{error:#}")))?;
        if let Some(token) = known.and_then(|known| known.token.clone()) {
            request.metadata_mut().insert("authorization", token);
        }
        Ok(request)
    }
}
