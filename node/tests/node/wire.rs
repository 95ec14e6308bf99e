//! What an observer of the network sees of the traffic between clients, nodes and their peers: no recipient.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::process::{Process, ports, until};

const CANARY: &str = "canary-recipient";

/// Forwards connections, and keeps the bytes of both directions.
struct Tap {
    address: String,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    fn on(to: &str) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (address, seen) = (listener.local_addr().expect("an address").to_string(), Arc::default());
        let (to, kept) = (to.to_owned(), Arc::clone(&seen));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&to) else { continue };
                for [from, into] in [[&client, &server], [&server, &client]] {
                    let (from, into) = (from.try_clone().expect("a handle"), into.try_clone().expect("a handle"));
                    let kept = Arc::clone(&kept);
                    std::thread::spawn(move || copy(from, into, &kept));
                }
            }
        });
        Tap { address, seen }
    }

    fn has(&self, text: &str) -> bool {
        self.seen.lock().windows(text.len()).any(|window| window == text.as_bytes())
    }
}

fn copy(mut from: TcpStream, mut into: TcpStream, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        kept.lock().extend(&buffer[..count]);
        if into.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), into.shutdown(Shutdown::Both));
}

#[test]
fn traffic_of_clients_and_peers_shows_no_recipient() {
    let folder = tempfile::tempdir().expect("a folder");
    let peers = ports();
    let taps = [Tap::on(&peers[0]), Tap::on(&peers[1])];
    let created = Process::init(folder.path(), "one", &format!("--advertise {}", taps[0].address));
    assert_eq!(created.code, Some(0), "{created:?}");
    let started = |place: usize, name: &str, join: &[(&str, &str)]| {
        let environment: Vec<_> =
            [("REVEILLE__ADVERTISE", taps[place].address.as_str())].into_iter().chain(join.iter().copied()).collect();
        Process::listening_by(folder.path(), name, ["127.0.0.1:0", &peers[place], "127.0.0.1:0"], &environment)
    };
    let one = started(0, "one", &[]);
    let two = started(1, "two", &[("REVEILLE__JOIN", &one.join_token())]);
    until("both vote", || one.voters() == 2);
    let admin = Tap::on(&one.admin);
    let run = |line: &str| {
        let ended = Process::reveille_at(folder.path(), &admin.address, line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        ended.stdout
    };
    let what = "--at 2090-01-01T00:00:00Z --zone UTC --sender b@example.com --subject s --inline-text t";
    run(&format!("schedule create report {what} --to {CANARY}@example.com"));
    run(&format!("optout add {CANARY}@example.com"));
    assert!(run(&format!("optout check {CANARY}@example.com")).contains("yes"));
    until("the other one has it", || {
        two.reveille(&format!("optout check {CANARY}@example.com")).stdout.contains("yes")
    });
    for tap in taps.iter().chain([&admin]) {
        assert!(tap.seen.lock().len() > 2_000, "it went through here");
        assert!(!tap.has(CANARY) && !tap.has("schedule"), "{}", tap.address);
    }
    // Health is in plaintext on loopback. So a tap sees what is to be seen.
    let http = Tap::on(&one.http);
    Process::said_by(&http.address, "GET /livez HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    assert!(http.has("alive"));
}
