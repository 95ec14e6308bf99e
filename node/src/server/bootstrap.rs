//! How a data folder becomes the one of a member: [`found`] makes a new cluster in it, and [`certificates`] has a
//! cluster admit it by a join token.
//!
//! Both change only a folder in which no node has run, and both may be repeated after an interruption. The file
//! `founder` says that the first start of this folder writes the first membership. It is removed afterwards, so that a
//! folder whose log was lost never founds the cluster a second time.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reveille_ledger::access::is_loopback;
use reveille_ledger::ids::NodeId;
use reveille_raft::files;
use reveille_raft::tls::{AcceptedJoin, JoinError, JoinToken, NodeTls, TlsError, TokenError};
use reveille_raft::{ClusterId, FatalError, assign_folder, cluster_of_folder, crash};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::config::{Config, JoinSource};
use super::node_identity::{NodeIdentityError, assign_node, new_node, node_of, write};

/// Mark of a folder whose first start founds its cluster.
const FOUNDER: &str = "founder";
/// Content of the mark if the cluster gets a test clock.
const TEST_CLOCK: &str = "test clock";
const REAL_CLOCK: &str = "real clock";
/// Content of the mark while a restore writes the folder.
const RESTORING: &str = "restore";
/// Limit of one request to join.
const REQUEST_LIMIT: Duration = Duration::from_secs(15);
/// Time for which a request without an answer is repeated.
const REPEAT_FOR: Duration = Duration::from_secs(60);
const REPEAT_EVERY: Duration = Duration::from_secs(2);

/// Reason why a data folder does not become the one of a member.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The folder is new, and there is no join token.
    #[error(
        "{} belongs to no cluster; make one with `reveille cluster init`, or join one with `reveille start --join file:/PATH`",
        .0.display()
    )]
    NoCluster(PathBuf),
    /// An earlier `cluster init` of this folder chose another clock.
    #[error("{} was prepared with another clock: repeat the same command, or give an empty folder", .0.display())]
    OtherClock(PathBuf),
    /// A node has run in the folder, and its certificates are gone.
    #[error("{}/tls is missing or not complete, and a node has used the folder: put it back as a whole", .0.display())]
    NoCertificates(PathBuf),
    /// The members could not reach the node.
    #[error(
        "the members cannot reach this node at {0}; give --peer-listen, or --advertise, an address of this machine"
    )]
    NotReachable(String),
    /// A node has run in the folder already.
    #[error("a node has used {} already; give an empty folder with --data-dir", .0.display())]
    Used(PathBuf),
    /// The folder has been prepared with another join token.
    #[error(
        "{} was prepared with another join token; use that one, or give an empty folder with --data-dir", .0.display()
    )]
    OtherToken(PathBuf),
    /// `cluster init` was interrupted.
    #[error("{} was not prepared completely; repeat: reveille cluster init", .0.display())]
    Unfinished(PathBuf),
    /// A restore was interrupted.
    #[error("a restore into {} was interrupted; empty the folder, and give the same command again", .0.display())]
    RestoreUnfinished(PathBuf),
    /// A restore writes into an empty folder only.
    #[error("{} is not empty; name a folder that is empty, or does not exist, with --data-dir", .0.display())]
    NotEmpty(PathBuf),
    /// The node was asked to stop.
    #[error("the node was asked to stop before it was admitted")]
    Stopped,
    /// The join token cannot be read.
    #[error("the join token in {from} {why}")]
    NoToken {
        /// Where it should be.
        from: String,
        /// What is wrong. The text does not contain the token.
        why: String,
    },
    /// The text is not a join token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// No member admits the node.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Keys or certificates cannot be read or written.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The ids in the folder cannot be read or written.
    #[error(transparent)]
    Node(#[from] NodeIdentityError),
    /// The folder belongs to another node or cluster.
    #[error(transparent)]
    Folder(#[from] FatalError),
}

impl BootstrapError {
    /// Returns the error of the data folder itself, if it is one: its advice differs.
    pub fn into_cause(self) -> anyhow::Error {
        match self {
            BootstrapError::Node(error) => error.into(),
            BootstrapError::Folder(error) => error.into(),
            error => error.into(),
        }
    }
}

/// Makes a new cluster whose only node has this data folder. Repeated before the first start, it has the same result.
/// With `test_clock` its time is moved by hand, for good (P19).
///
/// # Errors
/// [`BootstrapError`]; `Used` if the folder is not new.
pub fn found(data_dir: &Path, test_clock: bool) -> Result<NodeTls, BootstrapError> {
    let used = || BootstrapError::Used(data_dir.to_owned());
    let (known, prepared) = (node_of(data_dir)?, founder(data_dir)?);
    // A folder with a log was used by a node.
    if data_dir.join(files::LOG_FOLDER).exists() || (known.is_some() && prepared.is_none()) {
        return Err(used());
    }
    if prepared.is_some_and(|founder| founder.test_clock != test_clock) {
        return Err(BootstrapError::OtherClock(data_dir.to_owned()));
    }
    files::create_private_folder(data_dir)
        .map_err(|error| NodeIdentityError::Folder { path: data_dir.to_owned(), error })?;
    write(data_dir, FOUNDER, if test_clock { TEST_CLOCK } else { REAL_CLOCK })?;
    new_cluster(data_dir, known.unwrap_or_else(new_node))
}

/// Gives a folder the ids and the keys of the first node of a new cluster.
fn new_cluster(data_dir: &Path, node: NodeId) -> Result<NodeTls, BootstrapError> {
    assign_node(data_dir, node)?;
    let cluster = cluster_of_folder(data_dir, node)?.unwrap_or_else(|| ClusterId(Uuid::new_v4().as_u128()));
    assign_folder(data_dir, node, cluster)?;
    match NodeTls::read(data_dir, cluster, node)? {
        Some(tls) => Ok(tls),
        None => Ok(NodeTls::create(data_dir, cluster, node)?),
    }
}

/// Makes a new cluster whose only node has this data folder, and whose first state is about to be written there. Until
/// [`finish_restore`] no node starts with it.
///
/// # Errors
/// [`BootstrapError`]; `NotEmpty` if the folder has anything.
pub fn begin_restore(data_dir: &Path) -> Result<(NodeId, NodeTls), BootstrapError> {
    check_empty(data_dir)?;
    files::create_private_folder(data_dir)
        .map_err(|error| NodeIdentityError::Folder { path: data_dir.to_owned(), error })?;
    write(data_dir, FOUNDER, RESTORING)?;
    let node = new_node();
    Ok((node, new_cluster(data_dir, node)?))
}

/// Fails if a folder exists and is not empty.
///
/// # Errors
/// [`BootstrapError::NotEmpty`].
pub fn check_empty(data_dir: &Path) -> Result<(), BootstrapError> {
    match std::fs::read_dir(data_dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(BootstrapError::NotEmpty(data_dir.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(NodeIdentityError::Folder { path: data_dir.to_owned(), error }.into()),
    }
}

/// Lets a node start with a folder that is complete.
///
/// # Errors
/// [`BootstrapError::Node`].
pub fn finish_restore(data_dir: &Path) -> Result<(), BootstrapError> {
    Ok(write(data_dir, FOUNDER, REAL_CLOCK)?)
}

/// The first start of a folder writes the first membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Founder {
    /// True if the cluster gets a test clock.
    pub test_clock: bool,
}

/// Returns what the first start of this folder has to do. `None`: nothing, as in every folder but a founder's.
///
/// # Errors
/// [`BootstrapError::Node`] if the mark cannot be read.
pub fn founder(data_dir: &Path) -> Result<Option<Founder>, BootstrapError> {
    let path = data_dir.join(FOUNDER);
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim_end() == RESTORING => Err(BootstrapError::RestoreUnfinished(data_dir.to_owned())),
        Ok(text) => Ok(Some(Founder { test_clock: text.trim_end() == TEST_CLOCK })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(NodeIdentityError::Folder { path, error }.into()),
    }
}

/// Removes the mark of the founder: everything that it asks for is in the log.
///
/// # Errors
/// [`BootstrapError::Node`].
pub fn remove_mark(data_dir: &Path) -> Result<(), BootstrapError> {
    let path = data_dir.join(FOUNDER);
    let removed = std::fs::remove_file(&path).and_then(|()| File::open(data_dir)?.sync_all());
    removed.map_err(|error| NodeIdentityError::Folder { path, error }.into())
}

/// Returns keys and certificates of this node. A new folder joins the cluster of the join token first, unless
/// `requested` ends that. The members will reach the node at `address`.
///
/// # Errors
/// [`BootstrapError`].
pub async fn certificates(
    config: &Config,
    address: &str,
    wanted: &CancellationToken,
) -> Result<NodeTls, BootstrapError> {
    let data_dir = &config.data_dir;
    let known = node_of(data_dir)?;
    let cluster = known.map(|node| cluster_of_folder(data_dir, node)).transpose()?.flatten();
    let founder = founder(data_dir)?;
    if let Some((node, cluster)) = known.zip(cluster)
        && let Some(tls) = NodeTls::read(data_dir, cluster, node)?
    {
        return Ok(tls);
    }
    if founder.is_some() {
        return Err(BootstrapError::Unfinished(data_dir.clone()));
    }
    // A folder with a log was used by a node.
    if data_dir.join(files::LOG_FOLDER).exists() {
        return Err(BootstrapError::NoCertificates(data_dir.clone()));
    }
    let source = config.join.as_ref().ok_or_else(|| BootstrapError::NoCluster(data_dir.clone()))?;
    let token: JoinToken = read_token(source)?.parse()?;
    if is_loopback(host_of(address)) && !is_loopback(host_of(&token.address)) {
        return Err(BootstrapError::NotReachable(address.to_owned()));
    }
    if known.is_some_and(|node| node != token.node) {
        return Err(BootstrapError::OtherToken(data_dir.clone()));
    }
    let requested = wanted.run_until_cancelled(request(config, &token, address)).await;
    let accepted = requested.ok_or(BootstrapError::Stopped)??;
    assign_node(data_dir, token.node)?;
    assign_folder(data_dir, token.node, token.cluster)?;
    crash::point("join.before-store");
    let tls = accepted.store()?;
    tracing::info!(node = %token.node, cluster = %token.cluster, "this node was admitted to the cluster");
    Ok(tls)
}

/// Returns the host of an address `host:port`.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']'])
}

/// Asks to join until there is an answer, or [`REPEAT_FOR`] has passed.
async fn request(config: &Config, token: &JoinToken, address: &str) -> Result<AcceptedJoin, BootstrapError> {
    let until = Instant::now() + REPEAT_FOR;
    loop {
        let wanted = AcceptedJoin::request(&config.data_dir, token, &config.name, address, REQUEST_LIMIT).await;
        match wanted {
            Err(error @ JoinError::NoAnswer { .. }) if Instant::now() < until => {
                tracing::warn!(%error, "this node is not admitted yet: it asks again");
                tokio::time::sleep(REPEAT_EVERY).await;
            }
            wanted => return Ok(wanted?),
        }
    }
}

fn read_token(source: &JoinSource) -> Result<String, BootstrapError> {
    match source {
        JoinSource::Token(token) => Ok(token.clone()),
        JoinSource::Secret(secret) => {
            let no_token = |why: String| BootstrapError::NoToken { from: secret.to_string(), why };
            String::from_utf8(secret.read().map_err(no_token)?).map_err(|_| no_token("is not a text".to_owned()))
        }
    }
}
