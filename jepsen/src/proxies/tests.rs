//! Real sockets: this process is node 0, whatever listens is node 1, a child that connects is node 2.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;

/// What must come comes within this.
const SOON: Duration = Duration::from_secs(20);
/// What must not come has not come after this.
const A_WHILE: Duration = Duration::from_millis(300);

struct Net {
    listener: TcpListener,
    proxies: Proxies,
}

impl Net {
    fn new() -> Net {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let behind = listener.local_addr().unwrap();
        // Nobody connects to the others.
        let proxies = Proxies::new(vec![behind; 3], 7).unwrap();
        proxies.seat(0).is_taken_by(std::process::id());
        listener.set_nonblocking(true).unwrap();
        Net { listener, proxies }
    }

    fn lay(&self, from: usize, to: usize, law: Law) {
        self.proxies.link(from, to).unwrap().lay(law);
    }

    fn count(&self, from: usize, to: usize, harm: Harm) -> u64 {
        self.proxies.link(from, to).unwrap().count(harm)
    }

    fn known(&self) -> SocketAddr {
        self.proxies.known(1).unwrap()
    }

    fn connect(&self) -> TcpStream {
        patient(TcpStream::connect(self.known()).unwrap())
    }

    /// Has a connection come out on the other side?
    fn accepted(&self, within: Duration) -> Option<TcpStream> {
        let mut accepted = None;
        comes(within, || {
            accepted = self.listener.accept().ok().map(|(stream, _)| stream);
            accepted.is_some()
        });
        let stream = accepted?;
        stream.set_nonblocking(false).unwrap();
        Some(patient(stream))
    }

    /// One connection, both ends, known to work both ways.
    fn pair(&self) -> (TcpStream, TcpStream) {
        let mut near = self.connect();
        let mut far = self.accepted(SOON).unwrap();
        assert!(says(&mut near, &mut far) && says(&mut far, &mut near));
        (near, far)
    }
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

fn comes(within: Duration, mut come: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + within;
    while Instant::now() < until {
        if come() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn says(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    from.write_all(b"hello").unwrap();
    hears(to, b"hello")
}

fn hears(to: &mut TcpStream, what: &[u8]) -> bool {
    let mut heard = vec![0; what.len()];
    to.read_exact(&mut heard).is_ok() && heard == what
}

/// Nothing comes for a while: no byte, no end, no reset.
fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(A_WHILE)).unwrap();
    let silent = matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(SOON)).unwrap();
    silent
}

fn is_reset(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::ConnectionReset)
}

const CUT: Law = Law { cut: true, lost_per_cent: 0, reset_per_mille: 0, kbit_per_second: None, delay: Duration::ZERO };

#[test]
fn what_one_says_the_other_hears_to_the_end() {
    let net = Net::new();
    let (mut near, mut far) = net.pair();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
    let told = sent.clone();
    let telling = std::thread::spawn(move || {
        near.write_all(&told).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).unwrap();
        answer
    });
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).unwrap();
    assert!(heard == sent, "{} bytes", heard.len());
    far.write_all(b"well heard").unwrap();
    drop(far);
    assert_eq!(telling.join().unwrap(), b"well heard");
}

#[test]
fn while_links_are_cut_nothing_comes_and_then_all_of_it() {
    let net = Net::new();
    let (mut near, mut far) = net.pair();
    net.lay(0, 1, CUT);
    net.lay(1, 0, CUT);
    near.write_all(b"there").unwrap();
    far.write_all(b"back").unwrap();
    // An end is held back too.
    near.shutdown(Shutdown::Write).unwrap();
    assert!(is_silent(&mut near) && is_silent(&mut far));
    assert!(net.count(0, 1, Harm::Held) > 0 && net.count(1, 0, Harm::Held) > 0);
    net.lay(0, 1, Law::default());
    net.lay(1, 0, Law::default());
    assert!(hears(&mut near, b"back") && hears(&mut far, b"there"));
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_link_that_is_cut_one_way_goes_on_the_other_way_and_lets_no_new_connection_through() {
    let net = Net::new();
    let (mut near, mut far) = net.pair();
    net.lay(0, 1, CUT);
    near.write_all(b"there").unwrap();
    assert!(says(&mut far, &mut near) && is_silent(&mut far));
    let mut second = net.connect();
    second.write_all(b"first words").unwrap();
    assert!(net.accepted(A_WHILE).is_none() && is_silent(&mut second));
    net.lay(0, 1, Law::default());
    assert!(hears(&mut far, b"there"));
    assert!(hears(&mut net.accepted(SOON).unwrap(), b"first words"));
}

#[test]
fn a_connection_that_was_given_up_before_it_was_made_never_is() {
    let net = Net::new();
    net.lay(1, 0, CUT);
    let mut given_up = net.connect();
    given_up.write_all(b"too late").unwrap();
    assert!(comes(SOON, || net.count(1, 0, Harm::Held) > 0));
    drop(given_up);
    std::thread::sleep(A_WHILE);
    net.lay(1, 0, Law::default());
    let (mut near, mut far) = (net.connect(), net.accepted(SOON).unwrap());
    assert!(says(&mut near, &mut far), "the first that comes is the second");
}

#[test]
fn what_is_late_is_late_in_its_direction_until_it_is_no_more() {
    let net = Net::new();
    let (mut near, mut far) = net.pair();
    net.lay(0, 1, Law { delay: Duration::from_millis(400), ..Law::default() });
    let began = Instant::now();
    assert!(says(&mut near, &mut far) && began.elapsed() >= Duration::from_millis(200));
    assert_eq!(net.count(0, 1, Harm::Late), 1);
    net.lay(0, 1, Law { delay: Duration::from_secs(3_600), ..Law::default() });
    assert!(says(&mut far, &mut near));
    near.write_all(b"an hour").unwrap();
    assert!(comes(SOON, || net.count(0, 1, Harm::Late) == 2) && is_silent(&mut far));
    net.lay(0, 1, Law::default());
    assert!(hears(&mut far, b"an hour"));
}

#[test]
fn a_reset_is_seen_on_both_sides() {
    let net = Net::new();
    let (mut near, mut far) = net.pair();
    net.lay(0, 1, Law { reset_per_mille: 1_000, ..Law::default() });
    near.write_all(b"hello").unwrap();
    assert!(is_reset(&mut near) && is_reset(&mut far));
    assert_eq!((net.count(0, 1, Harm::Reset), net.count(1, 0, Harm::Reset)), (1, 0));
}

#[test]
fn a_narrow_cable_takes_its_time() {
    let net = Net::new();
    let (mut near, mut far) = net.pair();
    net.lay(0, 1, Law { kbit_per_second: Some(256), ..Law::default() });
    let (sent, began) = (vec![1; 32_000], Instant::now());
    near.write_all(&sent).unwrap();
    assert!(hears(&mut far, &sent) && began.elapsed() > Duration::from_millis(900), "{:?}", began.elapsed());
    assert!(net.count(0, 1, Harm::Waited) > 10);
}

#[test]
fn the_death_of_a_node_is_seen_unless_the_link_is_cut() {
    let net = Net::new();
    let ((mut one, far_one), (mut two, far_two)) = (net.pair(), net.pair());
    drop(far_one);
    assert_eq!(one.read(&mut [0]).unwrap(), 0);
    net.lay(1, 0, CUT);
    carry::reset(&tokio_stream(&net, far_two));
    assert!(is_silent(&mut two));
    net.lay(1, 0, Law::default());
    assert!(is_reset(&mut two));
    drop(net.listener);
    let mut refused = patient(TcpStream::connect(net.proxies.known(1).unwrap()).unwrap());
    assert!(is_reset(&mut refused), "as a node that is down");
}

/// As the proxies have it.
fn tokio_stream(net: &Net, stream: TcpStream) -> tokio::net::TcpStream {
    let _inside = net.proxies.runtime.as_ref().unwrap().enter();
    stream.set_nonblocking(true).unwrap();
    tokio::net::TcpStream::from_std(stream).unwrap()
}

/// A process that says `hello`, and holds its connection until it is killed.
struct Stranger(Child);

impl Stranger {
    fn new(to: SocketAddr) -> Option<Stranger> {
        let line = format!("sleep 0.3; exec 3<>/dev/tcp/{}/{}; printf hello >&3; read -r -n 1 <&3", to.ip(), to.port());
        let bash = Command::new("bash").args(["-c", &line]).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        match bash {
            Ok(child) => Some(Stranger(child)),
            Err(error) => {
                reveille_strict::skip(&format!("there is no `bash` on this machine: {error}"));
                None
            }
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn whose_a_connection_is_is_told_by_its_process() {
    let net = Net::new();
    net.lay(2, 1, CUT);
    let Some(other) = Stranger::new(net.known()) else { return };
    net.proxies.seat(2).is_taken_by(other.0.id());
    assert!(comes(SOON, || net.count(2, 1, Harm::Held) > 0), "it is known by its process");
    assert!(net.accepted(A_WHILE).is_none());
    drop(net.pair());
    net.lay(2, 1, Law::default());
    assert!(hears(&mut net.accepted(SOON).unwrap(), b"hello"));
}

#[test]
fn who_is_no_node_is_turned_away() {
    let net = Net::new();
    let Some(mut stranger) = Stranger::new(net.known()) else { return };
    assert!(comes(SOON, || stranger.0.try_wait().unwrap().is_some()), "its connection is reset");
    assert!(net.accepted(A_WHILE).is_none());
}

#[test]
fn nothing_is_left_when_they_end() {
    let net = Net::new();
    let (mut near, mut far) = net.pair();
    net.lay(0, 1, CUT);
    let known = net.known();
    drop(net.proxies);
    assert!(comes(SOON, || TcpStream::connect(known).is_err()));
    assert!(near.read(&mut [0]).map_or(true, |read| read == 0) && far.read(&mut [0]).map_or(true, |read| read == 0));
}
