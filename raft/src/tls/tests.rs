//! Attacks on the peer port: each is refused, and members still talk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;
use reveille_proto::peer::v1::peer_service_client::PeerServiceClient;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::authority::Authority;
use super::connection::{any_server, builder, calling};
use super::folder::TlsFolder;
use super::joining::channel;
use super::node_tls::public_key;
use super::pem::certificate;
use super::{ANY_NODE, KeyPin, NodeTls, ServerTls, node_name};
use crate::identity::ClusterId;
use crate::open_connections::JOINING_MAX;
use crate::peer::{Destination, GrpcTransport, Handler, PeerError, Rejection, Request, Response, Transport};

pub(crate) const CLUSTER: ClusterId = ClusterId(7);
const PATIENCE: Duration = Duration::from_secs(60);
/// The first bytes of a client of HTTP/2: the preface, and settings without an entry.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
pub(super) const SERVER: NodeId = NodeId(1);

/// Answers everything. It knows the key of one member.
#[derive(Default)]
struct Open {
    pinned: Option<(NodeId, KeyPin)>,
    removed: AtomicBool,
    ended: Notify,
}

#[async_trait]
impl Handler for Open {
    async fn handle(&self, _: Request) -> Result<Response, Rejection> {
        Ok(Response::ReadIndex(v1::ReadIndexResponse { index: 7 }))
    }

    fn pinned_key(&self, node: NodeId) -> Option<KeyPin> {
        self.pinned.filter(|(pinned, _)| *pinned == node).map(|(_, key)| key)
    }

    fn is_removed(&self, node: NodeId) -> bool {
        node == NodeId(2) && self.removed.load(Ordering::Relaxed)
    }

    fn connection_ended(&self, peer: NodeId) {
        assert_eq!(peer, NodeId(2));
        self.ended.notify_one();
    }
}

pub(crate) fn founder(folder: &Path) -> NodeTls {
    NodeTls::create(folder, CLUSTER, SERVER).expect("an authority")
}

/// Admits a node, as a member and a joining node do together.
pub(crate) fn member(founder: &NodeTls, folder: &Path, node: NodeId) -> NodeTls {
    let folder = TlsFolder::create(&folder.join(node.to_string())).expect("a folder");
    let key = folder.node_key().expect("a key");
    let token = founder.join_token(node, "127.0.0.1:1", u64::MAX).to_string();
    let point = public_key(&key).expect("a point").into_bytes();
    let joining = founder.check(&token, &point).expect("a good token");
    let answer = founder.issue_certificate(&joining, None).expect("a certificate").expect("no rotation");
    let authority = Authority::from_pem(CLUSTER, &answer.authority).expect("the authority");
    NodeTls::store(folder, node, (authority, None), answer.certificate).expect("a member")
}

pub(crate) fn transport(tls: &NodeTls) -> GrpcTransport {
    let transport = GrpcTransport::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    transport.with_certificates(tls)
}

/// Serves as the founder; returns its address. The server ends with the test's runtime.
pub(super) async fn serve(founder: &NodeTls, pinned: Option<(NodeId, KeyPin)>) -> String {
    serve_by(founder, Arc::new(Open { pinned, ..Open::default() })).await
}

async fn serve_by(founder: &NodeTls, handler: Arc<Open>) -> String {
    let server = transport(founder);
    let address = server.address().to_string();
    server.serve(handler, CancellationToken::new()).await.expect("it listens");
    address
}

pub(super) async fn ask(by: &GrpcTransport, from: NodeId, to: NodeId, address: &str) -> Result<Response, PeerError> {
    let header = v1::Header { from: from.0, to: to.0, ..v1::Header::default() };
    let request = v1::ReadIndexRequest { header: Some(header), remaining_ms: 1_000 };
    let to = Destination { node: to, address: address.to_owned(), key: None };
    by.call(&to, Request::ReadIndex(request), PATIENCE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_talk_and_each_only_in_its_own_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let founder = founder(folder.path());
    let two = member(&founder, folder.path(), NodeId(2));
    let address = serve(&founder, Some((NodeId(2), two.pin()))).await;
    let client = transport(&two);
    assert!(ask(&client, NodeId(2), SERVER, &address).await.is_ok());
    let forged = ask(&client, NodeId(3), SERVER, &address).await;
    assert!(matches!(&forged, Err(PeerError::Rejected(Rejection::Unauthorized(_)))), "{forged:?}");
    assert!(ask(&client, NodeId(2), SERVER, &address).await.is_ok(), "the connection is still its own");
    // Another node listens at the address that belonged to node 3.
    let moved = ask(&client, NodeId(2), NodeId(3), &address).await;
    assert!(matches!(&moved, Err(PeerError::Unreachable(why)) if why.contains("certificate")), "{moved:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_certificate_for_the_id_of_a_member_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let founder = founder(folder.path());
    let two = member(&founder, folder.path(), NodeId(2));
    let address = serve(&founder, Some((NodeId(2), two.pin()))).await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let thief = member(&founder, elsewhere.path(), NodeId(2));
    let refused = ask(&transport(&thief), NodeId(2), SERVER, &address).await;
    assert!(matches!(&refused, Err(PeerError::Rejected(Rejection::Unauthorized(_)))), "{refused:?}");
}

/// A certificate, and a key that need not be the one in it.
pub(super) struct Shown(String, KeyPair);

impl Shown {
    /// Those of the node with this data folder.
    pub fn of(data_dir: &Path) -> Shown {
        let folder = TlsFolder::of(data_dir);
        Shown(folder.certificate().expect("a folder").expect("a certificate"), folder.node_key().expect("a key"))
    }

    /// Calls a server, whose certificate is not checked: only the server can refuse the caller. Returns true if the
    /// server answers the first bytes of HTTP/2, and false if it ends the connection before it sends a byte.
    pub async fn is_answered(&self, address: &str) -> bool {
        let config = builder().expect("settings").dangerous().with_custom_certificate_verifier(Arc::new(any_server()));
        let key = PrivateKeyDer::try_from(self.1.serialize_der()).expect("a key");
        let key = rustls::crypto::ring::sign::any_supported_type(&key).expect("a key");
        let chain = vec![certificate(&self.0).expect("a certificate")];
        let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let connector = calling(config.with_client_cert_resolver(Arc::new(shown)));
        let answered = async {
            let stream = TcpStream::connect(address).await?;
            let mut stream = connector.connect(ServerName::try_from(ANY_NODE).expect("a name"), stream).await?;
            stream.write_all(HTTP2).await?;
            stream.read_exact(&mut [0]).await
        };
        tokio::time::timeout(PATIENCE, answered).await.expect("answered or ended").is_ok()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_ends_connection_of_foreign_certificate_or_plaintext_before_it_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let founder = founder(folder.path());
    member(&founder, folder.path(), NodeId(2));
    let address = serve(&founder, None).await;
    let member = Shown::of(&folder.path().join("2"));
    assert!(member.is_answered(&address).await, "a member is");
    // Same cluster id and node id, another authority.
    let elsewhere = tempfile::tempdir().expect("a folder");
    NodeTls::create(elsewhere.path(), CLUSTER, NodeId(2)).expect("an authority");
    let foreign = Shown::of(elsewhere.path());
    assert!(!foreign.is_answered(&address).await, "another authority");
    // A certificate is no secret.
    let stolen = Shown(member.0, foreign.1);
    assert!(!stolen.is_answered(&address).await, "a member's certificate without its key");
    // Of this authority, but for the admin API.
    let names = [node_name(CLUSTER, NodeId(2)), ANY_NODE.to_owned()];
    let (certificate, key) = founder.authority().issue_to_server(&names, SystemTime::now()).expect("a certificate");
    let of_api = Shown(certificate, KeyPair::from_pem(&key).expect("a key"));
    assert!(!of_api.is_answered(&address).await, "a certificate for clients");
    let authority = founder.authority();
    let key = PrivatePkcs8KeyDer::from_pem_slice(authority.to_pem().as_bytes()).expect("a key");
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256).expect("a key");
    let of_authority = Shown(authority.certificate_pem().to_owned(), key);
    assert!(!of_authority.is_answered(&address).await, "the authority's own certificate (CA:TRUE)");

    let mut plain = TcpStream::connect(&address).await.expect("a connection");
    plain.write_all(HTTP2).await.expect("written");
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, plain.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "still open");
    // An alert of TLS, whose first byte is 21, is no answer.
    assert!(answer.first().is_none_or(|first| *first == 21), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_ends_connection_to_foreign_authority() {
    let (folder, elsewhere) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let two = member(&founder(folder.path()), folder.path(), NodeId(2));
    let address = serve(&founder(elsewhere.path()), None).await;
    let foreign = ask(&transport(&two), NodeId(2), SERVER, &address).await;
    assert!(
        matches!(&foreign, Err(PeerError::Unreachable(why)) if why.contains("invalid peer certificate")),
        "{foreign:?}"
    );
}

/// A node whose clock is wrong is no danger by itself, so no clock may lock a member out.
#[tokio::test]
async fn certificate_of_member_is_valid_at_every_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let founder = founder(folder.path());
    member(&founder, folder.path(), NodeId(2));
    let member = certificate(&Shown::of(&folder.path().join("2")).0).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate(founder.authority().certificate_pem()).expect("a certificate")).expect("an authority");
    let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
    let callers = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
    let (callers, called) = (callers.build(), WebPkiServerVerifier::builder_with_provider(roots, provider).build());
    let (callers, called) = (callers.expect("a verifier"), called.expect("a verifier"));
    let name = ServerName::try_from(node_name(CLUSTER, NodeId(2))).expect("a name");
    let now = UnixTime::now().as_secs();
    let days = |count: u64| count * 86_400;
    // A machine without a clock starts in 1970.
    for seconds in [now, now - days(400), now + days(400), now + days(36_500), 0] {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        callers.verify_client_cert(&member, &[], at).expect("it calls");
        called.verify_server_cert(&member, &[], &name, &[], at).expect("it is called");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_without_certificate_can_only_join() {
    let folder = tempfile::tempdir().expect("a folder");
    let founder = founder(folder.path());
    let address = serve(&founder, None).await;
    let mut stranger = PeerServiceClient::new(channel(&founder.join_token(NodeId(2), &address, 0)).expect("a channel"));
    let header = Some(v1::Header { from: 2, to: SERVER.0, ..v1::Header::default() });
    let refused = stranger.read_index(v1::ReadIndexRequest { header: header.clone(), remaining_ms: 1 }).await;
    assert_eq!(refused.map(drop).map_err(|status| status.code()), Err(tonic::Code::FailedPrecondition));
    let long = v1::JoinRequest { token: "a".repeat(5_000), ..v1::JoinRequest::default() };
    let refused = stranger.join(long).await;
    assert_eq!(refused.map(drop).map_err(|status| status.code()), Err(tonic::Code::InvalidArgument), "too long");
    // A forwarded request to join must come from a member.
    let forwarded = v1::JoinRequest { header, ..v1::JoinRequest::default() };
    let refused = stranger.join(forwarded).await;
    assert_eq!(refused.map(drop).map_err(|status| status.code()), Err(tonic::Code::FailedPrecondition));
}

/// Connects without a certificate, with sessions that may be resumed. Fails if the server sends a ticket for one.
async fn handshake(connector: &TlsConnector, address: &str) -> std::io::Result<HandshakeKind> {
    let name = ServerName::try_from(ANY_NODE).expect("a name");
    let mut stream = connector.connect(name, TcpStream::connect(address).await?).await?;
    // Tickets would arrive before the first byte.
    stream.write_all(HTTP2).await?;
    stream.read_exact(&mut [0]).await?;
    let (_, session) = stream.get_ref();
    assert_eq!(session.tls13_tickets_received(), 0, "a ticket could be stolen");
    session.handshake_kind().ok_or_else(|| std::io::Error::other("no handshake"))
}

/// Returns true if the other side has refused the version of TLS.
fn is_refused(handshake: &std::io::Result<HandshakeKind>) -> bool {
    let error = handshake.as_ref().err().and_then(std::io::Error::get_ref);
    let error = error.and_then(|error| error.downcast_ref::<rustls::Error>());
    error == Some(&rustls::Error::AlertReceived(AlertDescription::ProtocolVersion))
}

fn connector(founder: &NodeTls, version: &'static SupportedProtocolVersion) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authority = PemObject::from_pem_slice(founder.authority().certificate_pem().as_bytes()).expect("PEM");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).expect("a version");
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_never_resumed_and_old_tls_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let founder = founder(folder.path());
    let address = serve(&founder, None).await;
    let modern = connector(&founder, &TLS13);
    for _ in 0..2 {
        assert_eq!(handshake(&modern, &address).await.expect("TLS 1.3"), HandshakeKind::Full);
    }
    let old = handshake(&connector(&founder, &TLS12), &address).await;
    assert!(is_refused(&old), "{old:?}");

    let server = ServerTls::new(founder.clone(), vec![ANY_NODE.to_owned()], &["h2"]).expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = server.accept(stream).await else { continue };
            stream.write_all(b"x").await.expect("written");
            open.push(stream);
        }
    });
    for _ in 0..2 {
        assert_eq!(handshake(&modern, &address).await.expect("TLS 1.3"), HandshakeKind::Full, "of a client");
    }
    let old = handshake(&connector(&founder, &TLS12), &address).await;
    assert!(is_refused(&old), "{old:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_connection_of_a_removed_node_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let founder = founder(folder.path());
    let two = member(&founder, folder.path(), NodeId(2));
    let handler = Arc::new(Open::default());
    let address = serve_by(&founder, Arc::clone(&handler)).await;
    let client = transport(&two);
    let header = Some(v1::Header { from: 2, to: SERVER.0, ..v1::Header::default() });
    let append = Request::Append(v1::AppendRequest { header, ..v1::AppendRequest::default() });
    // Entries name the caller. The answer is none to them.
    let to = Destination { node: SERVER, address, key: None };
    let _ = client.call(&to, append, PATIENCE).await;
    let stays = tokio::time::timeout(Duration::from_secs(3), handler.ended.notified()).await;
    assert!(stays.is_err(), "a member's connection ended");
    handler.removed.store(true, Ordering::Relaxed);
    tokio::time::timeout(PATIENCE, handler.ended.notified()).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_callers_delay_no_member() {
    let folder = tempfile::tempdir().expect("a folder");
    let founder = founder(folder.path());
    let two = member(&founder, folder.path(), NodeId(2));
    let address = serve(&founder, None).await;
    let mut silent = Vec::new();
    for number in 0..600 {
        let mut stream = TcpStream::connect(&address).await.expect("a connection");
        if number % 2 == 0 {
            // The beginning of a ClientHello of 512 bytes.
            stream.write_all(&[22, 3, 1, 2, 0, 1]).await.expect("written");
        }
        silent.push(stream);
    }
    assert!(ask(&transport(&two), NodeId(2), SERVER, &address).await.is_ok());
    let is_open = |stream: &TcpStream| matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(silent.iter().any(is_open), "it was answered before the silent callers were given up");
    assert!(!is_open(&silent[0]), "the oldest one has ended for a new one");
    // A slow caller has no more time than a silent one.
    let slow = async {
        let mut stream = silent.swap_remove(598);
        while stream.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, slow).await.expect("it is disconnected before its ClientHello is complete");
    for mut stream in silent {
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "still open");
    }
}

/// A caller without a certificate may answer pings, and needs none of the few places of those that join.
#[tokio::test(flavor = "multi_thread")]
async fn idle_callers_without_certificate_keep_no_node_from_joining() {
    let folder = tempfile::tempdir().expect("a folder");
    let founder = founder(folder.path());
    let address = serve(&founder, None).await;
    let connector = connector(&founder, &TLS13);
    let mut idle = Vec::new();
    for _ in 0..=JOINING_MAX {
        let name = ServerName::try_from(ANY_NODE).expect("a name");
        let stream = TcpStream::connect(&address).await.expect("a connection");
        let mut stream = connector.connect(name, stream).await.expect("a handshake");
        stream.write_all(HTTP2).await.expect("written");
        stream.read_exact(&mut [0]).await.expect("it is served");
        idle.push(stream);
    }
    let mut joins = PeerServiceClient::new(channel(&founder.join_token(NodeId(2), &address, 0)).expect("a channel"));
    let long = v1::JoinRequest { token: "a".repeat(5_000), ..v1::JoinRequest::default() };
    let refused = joins.join(long).await;
    assert_eq!(refused.map(drop).map_err(|status| status.code()), Err(tonic::Code::InvalidArgument), "it is read");
}

mod fuzz {
    use proptest::prelude::*;
    use reveille_fuzz::{cases, damage, damaged, damaged_text};

    use super::*;
    use crate::tls::JoinToken;

    proptest! {
        #![proptest_config(cases(300))]

        #[test]
        fn token_reads_back_and_damaged_one_admits_no_node(
            node in any::<u64>(),
            address in "[a-z0-9.]{1,30}:[0-9]{1,5}",
            expires_at_s in any::<u64>(),
            in_text in prop::collection::vec(damage(), 1..4),
            in_key in prop::collection::vec(damage(), 0..3),
        ) {
            static FOLDER: std::sync::LazyLock<(tempfile::TempDir, NodeTls)> = std::sync::LazyLock::new(|| {
                let folder = tempfile::tempdir().expect("a folder");
                let founder = founder(folder.path());
                (folder, founder)
            });
            let founder = &FOLDER.1;
            let token = founder.join_token(NodeId(node), &address, expires_at_s);
            let text = token.to_string();
            prop_assert_eq!(text.parse(), Ok(token.clone()));
            let other = damaged_text(&text, &in_text);
            // The case of its letters and blanks around it do not matter.
            if let Ok(read) = other.parse::<JoinToken>() {
                prop_assert_eq!(read, token);
            }
            // The key of the joining node, of which a certificate is made.
            let own = rcgen::KeyPair::generate().expect("a key");
            let point = public_key(&own).expect("a point").into_bytes();
            let point = damaged(&point, &in_key);
            if let Ok(joining) = founder.check(&text, &point) {
                prop_assert_eq!((joining.node, point.len(), point[0]), (NodeId(node), 65, 4));
                let _ = founder.issue_certificate(&joining, None);
            }
        }
    }
}
