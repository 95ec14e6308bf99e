//! No line of the log has an address, even if a relay's answer does.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use crate::process::{Process, until};

const CANARY: &str = "ann.canary";

/// A relay that refuses each email, with the address to which it forwards: that of the recipient is not even stored.
fn refuse(stream: &TcpStream) -> std::io::Result<()> {
    let mut answer = stream;
    write!(answer, "220 relay.example ESMTP\r\n")?;
    let (mut recipient, mut is_body) = (String::new(), false);
    for line in BufReader::new(stream).lines() {
        let line = line?;
        match line.split([' ', ':']).next().unwrap_or_default() {
            "." if is_body => {
                is_body = false;
                write!(answer, "550 5.7.1 {recipient}: refused\r\n")?;
            }
            _ if is_body => {}
            "EHLO" => write!(answer, "250 relay.example\r\n")?,
            "RCPT" => {
                let to = line.split_once(':').map(|(_, to)| to).unwrap_or_default();
                recipient = to.replace("@canary.", "@forward.");
                write!(answer, "250 2.1.5 Ok\r\n")?;
            }
            "DATA" => {
                is_body = true;
                write!(answer, "354 Go on\r\n")?;
            }
            "QUIT" => return write!(answer, "221 Bye\r\n"),
            _ => write!(answer, "250 Ok\r\n")?,
        }
    }
    Ok(())
}

#[test]
fn address_in_a_relays_answer_is_not_logged() {
    let relay = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = relay.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in relay.incoming().map_while(Result::ok) {
            std::thread::spawn(move || drop(refuse(&stream)));
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let ports = ["127.0.0.1:0"; 3];
    let node = Process::listening_by(folder.path(), "a", ports, &[("REVEILLE__LOG__FILTER", "trace,openraft=debug")]);
    let done = |line: &str| {
        let ended = node.reveille(line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        ended.stdout
    };
    until("a leader", || node.reveille("schedule list").code == Some(0));
    done(&format!("relay add main --host 127.0.0.1 --port {port} --tls none"));
    let to: Vec<String> = (0..12).map(|number| format!("--to {CANARY}{number}@canary.example")).collect();
    let create = "schedule create canary --at 2090-01-01T00:00:00Z --zone UTC --sender b@example.com --subject s";
    done(&format!("{create} --inline-text t {}", to.join(" ")));
    done("schedule trigger canary");
    until("the run is paused", || node.said().contains("is paused: "));

    assert!(done("run list -o json").contains(CANARY), "the operator sees the answer");
    let said = node.said();
    let line = said.lines().find(|line| line.contains("is paused: ")).expect("an alarm");
    assert!(line.contains("<…@forward.example>: refused"), "{line}");
    let leak = said.lines().find(|line| line.contains(CANARY));
    assert_eq!(leak, None);
}
