//! Rotations of the certificate authority: what a member, a client and a thief of the former key can do at each step.

use std::path::Path;
use std::time::{Duration, SystemTime};

use reveille_ledger::ids::NodeId;
use reveille_ledger::{AuthorityRotation, AuthorityState, RotationPhase};
use tokio::net::{TcpListener, TcpStream};

use super::tests::{CLUSTER, SERVER, Shown, ask, founder, member, serve, transport};
use super::{ClientTls, Followed, HandshakeError, NodeTls, ServerTls, TokenError};
use crate::peer::PeerError;

const TWO: NodeId = NodeId(2);

/// Begins a rotation on `by`. Returns the states of its three steps.
fn begin(by: &NodeTls) -> [AuthorityState; 3] {
    let (present, next) = by.prepare_next().expect("an authority");
    let at = |phase| AuthorityState { present, rotation: Some(AuthorityRotation { next, phase }) };
    [at(RotationPhase::Adding), at(RotationPhase::Using), AuthorityState { present: next, rotation: None }]
}

fn followed(node: &NodeTls, state: Option<&AuthorityState>) -> Followed {
    node.follow(state).expect("the folder can be written")
}

/// Lets both nodes follow a state.
fn follow(source: &NodeTls, other: &NodeTls, state: &AuthorityState) {
    assert_eq!(followed(source, Some(state)), Followed::Done);
    if let Followed::Lacks(id) = other.follow(Some(state)).expect("it follows") {
        other.store_next(id, &source.authority_file(id).expect("the source has it")).expect("stored");
    }
    assert_eq!(followed(other, Some(state)), Followed::Done);
}

fn again(folder: &Path) -> NodeTls {
    NodeTls::read(&folder.join(TWO.to_string()), CLUSTER, TWO).expect("a folder").expect("a member")
}

#[test]
fn member_keeps_each_step_of_a_rotation_over_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path());
    let mut two = member(&one, folder.path(), TWO);
    let before = two.report();
    let steps = begin(&one);
    for state in &steps {
        follow(&one, &two, state);
        let done = two.report();
        two = again(folder.path());
        assert_eq!(two.report(), done);
        // After a restart the ledger may be older for a moment.
        for older in [None, Some(&steps[0]), Some(&steps[1])] {
            if older.is_none_or(|older| state.rotation.is_none() || older == &steps[0]) {
                let _ = two.follow(older).expect("it follows");
                assert_eq!(two.report(), done, "{older:?} after {state:?}");
            }
        }
    }
    assert_eq!(two.report().trusts, [steps[2].present]);
    assert_ne!(two.report(), before);
    assert!(!folder.path().join(TWO.to_string()).join("tls/next-ca.pem").exists());
}

#[test]
fn authority_that_no_entry_names_is_discarded_unless_it_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path());
    let two = member(&one, folder.path(), TWO);
    let before = two.report();
    let [adding, using, _] = begin(&one);
    let next = adding.rotation.expect("a rotation").next;
    assert_eq!(followed(&one, None), Followed::Prepared, "its entry is on the way");
    assert_eq!(one.prepare_next().expect("the same"), (adding.present, next), "a repeat makes no second one");
    follow(&one, &two, &adding);
    let aborted = AuthorityState { rotation: None, ..adding };
    assert_eq!(followed(&two, Some(&aborted)), Followed::Surplus(next));
    two.discard_next(next).expect("discarded");
    assert_eq!(two.report(), before);
    follow(&one, &two, &using);
    two.discard_next(next).expect("nothing");
    assert_eq!(two.report().uses, next);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_talk_during_a_rotation_and_former_authority_is_shut_out_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path());
    let two = member(&one, folder.path(), TWO);
    // It was removed, and has the key of the former authority. Its connection is open.
    let thief = transport(&member(&one, folder.path(), NodeId(3)));
    let stolen = Shown::of(&folder.path().join("3"));
    let address = serve(&one, Some((TWO, two.pin()))).await;
    let client = transport(&two);
    let talks = async |when: &str| {
        let answer = ask(&client, TWO, SERVER, &address).await;
        assert!(answer.is_ok(), "{when}: {answer:?}");
    };
    talks("before").await;
    assert!(ask(&thief, NodeId(3), SERVER, &address).await.is_ok());
    assert!(stolen.is_answered(&address).await);
    let token = one.join_token(NodeId(4), &address, u64::MAX).to_string();
    let key = [4; 65];
    assert!(one.check(&token, &key).is_ok());
    for state in begin(&one) {
        if let Followed::Lacks(id) = two.follow(Some(&state)).expect("it follows") {
            two.store_next(id, &one.authority_file(id).expect("it has it")).expect("stored");
        }
        two.follow(Some(&state)).expect("it follows");
        talks("when this side is ahead").await;
        one.follow(Some(&state)).expect("it follows");
        talks("when both are there").await;
    }
    let begun = std::time::Instant::now();
    loop {
        let answer = ask(&thief, NodeId(3), SERVER, &address).await;
        if let Err(PeerError::Unreachable(_)) = &answer {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "its connection is still open: {answer:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!stolen.is_answered(&address).await, "a new connection, if only the server checks");
    talks("after").await;
    assert_eq!(one.check(&token, &key).map(drop), Err(TokenError::Foreign), "a token of the former authority");
}

async fn handshake(server: &ServerTls, client: &ClientTls) -> Result<(), HandshakeError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
    let accepting = async {
        let (accepted, _) = listener.accept().await.expect("a connection");
        let _ = server.acceptor(SystemTime::now()).accept(accepted).await;
    };
    let (connected, ()) = tokio::join!(client.connect("localhost", stream), accepting);
    connected.map(|_| ())
}

#[tokio::test]
async fn client_of_former_authority_learns_its_successor_and_no_later_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path());
    let server = ServerTls::new(one.clone(), vec!["localhost".to_owned()], &[]).expect("a certificate");
    let trusting = |pem: &str| ClientTls::trusting(pem).expect("trust");
    let first = trusting(one.authority().certificate_pem());
    let rotate = || begin(&one).iter().for_each(|state| assert_eq!(followed(&one, Some(state)), Followed::Done));
    assert_eq!((handshake(&server, &first).await, first.successor()), (Ok(()), None));
    rotate();
    assert_eq!(handshake(&server, &first).await, Ok(()));
    let successor = first.successor().expect("the new authority");
    assert_eq!(successor, one.authority().certificate_pem());
    let second = trusting(&successor);
    assert_eq!((handshake(&server, &second).await, second.successor()), (Ok(()), None));
    rotate();
    assert_eq!(handshake(&server, &second).await, Ok(()));
    assert_eq!(handshake(&server, &first).await, Err(HandshakeError::UnknownAuthority), "it missed one");
}
