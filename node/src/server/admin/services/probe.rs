//! Probes a relay: connect, TLS, EHLO, AUTH, QUIT. It offers no email (P3). It opens a session in the same way as a
//! worker, reports what it found, and closes the session.

use std::time::Duration;

use reveille_cluster::smtp::{
    Cause, Deadlines, Dial, DialogueResult, Fix, ProbeReport, Session, Stage, Target, Timeouts,
};
use reveille_ledger::access::Tls;
use reveille_ledger::command::Relay;
use reveille_proto::admin::v1::RelayStage;

use crate::server::admin::views::relay_stage;

/// Timeout of each step. All steps together end well before the usual timeout of callers.
const STEP: Duration = Duration::from_secs(3);
const QUIT_TIMEOUT: Duration = Duration::from_millis(500);

/// The result of a probe.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProbeResult {
    /// True if a server answered, even if a later step failed.
    pub reachable: bool,
    /// The step that failed and why. Empty if none failed.
    pub problem: String,
    /// What would make the relay usable, if that is known.
    pub fix: Option<Fix>,
    /// The step that failed.
    pub stage: RelayStage,
    /// What the probe learned before it ended.
    pub findings: ProbeReport,
}

/// Probes a relay.
pub async fn probe(relay: &Relay, target: &Target, dialer: &dyn Dial) -> ProbeResult {
    let timeouts = Timeouts { connect: STEP, tls: STEP, opening: STEP, quit: QUIT_TIMEOUT, ..Timeouts::default() };
    let mut findings = ProbeReport::default();
    let opened = Session::open_with_report(target, dialer, timeouts, &Deadlines::default(), &mut findings).await;
    match opened {
        Ok(session) => {
            session.quit().await;
            ProbeResult { reachable: true, findings, ..ProbeResult::default() }
        }
        Err(result) => ProbeResult {
            reachable: has_answered(&result, &relay.access.tls),
            problem: in_words(&result),
            fix: fix(&result),
            stage: stage(&result),
            findings,
        },
    }
}

/// Returns true if a server answered with an SMTP greeting or a TLS handshake.
fn has_answered(result: &DialogueResult, tls: &Tls) -> bool {
    match result {
        DialogueResult::Refused { stage, .. } => *stage != Stage::Banner,
        DialogueResult::Broken { stage: Stage::Connect | Stage::Banner, .. } => false,
        // With implicit TLS there is no greeting before the handshake, so a timeout does not prove that a server is
        // there.
        DialogueResult::Broken { stage: Stage::Tls, cause } => {
            matches!(tls, Tls::StartTls(_)) || matches!(cause, Cause::Tls(_))
        }
        _ => true,
    }
}

fn fix(result: &DialogueResult) -> Option<Fix> {
    match result {
        DialogueResult::Broken { cause: Cause::Tls(problem) | Cause::Credentials(problem), .. } => Some(problem.fix),
        _ => None,
    }
}

/// Returns the step that failed.
fn stage(result: &DialogueResult) -> RelayStage {
    match result {
        DialogueResult::Refused { stage, .. } | DialogueResult::Broken { stage, .. } => relay_stage(*stage),
        _ => RelayStage::Unspecified,
    }
}

/// Returns the step that failed and why.
fn in_words(result: &DialogueResult) -> String {
    match result {
        DialogueResult::Refused { stage, code, text, .. } => format!("refused at {}: {code} {text}", place(*stage)),
        DialogueResult::Broken { stage, cause } => format!("failed at {}: {cause}", place(*stage)),
        DialogueResult::InDoubt { cause } => format!("failed: {cause}"),
        DialogueResult::GateClosed | DialogueResult::NoSmtpUtf8 { .. } | DialogueResult::Accepted { .. } => {
            "an answer to an email that was not offered".to_owned()
        }
    }
}

fn place(stage: Stage) -> String {
    match stage {
        Stage::Connect => "the connection".to_owned(),
        Stage::Tls => "TLS".to_owned(),
        Stage::Banner => "the greeting".to_owned(),
        Stage::Ehlo => "EHLO".to_owned(),
        Stage::Auth => "the login".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use reveille_cluster::smtp::TcpDialer;
    use reveille_ledger::DEFAULT_POOL;
    use reveille_ledger::access::{Access, Trust};
    use reveille_sink::{Sink, SinkOptions};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn probe_port(port: u16, access: &Access) -> ProbeResult {
        let relay = Relay {
            name: "main".into(),
            pool: DEFAULT_POOL.into(),
            host: "127.0.0.1".into(),
            port,
            access: access.clone(),
            rate_milli: 0,
            max_sessions: 10,
            late_rate_milli: 0,
            weight: 1,
        };
        let target = Target::new(&relay.host, port, "node-1", access).expect("a target");
        probe(&relay, &target, &TcpDialer::default()).await
    }

    #[tokio::test]
    async fn relay_that_is_not_there_is_a_problem_in_words() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let found = probe_port(port, &Access::default()).await;
        assert!(found.problem.starts_with("failed at the connection: no connection"), "{found:?}");
        assert!(!found.reachable, "{found:?}");
        assert_eq!((found.stage, found.fix), (RelayStage::Connect, None), "{found:?}");
    }

    /// A caller of the API chooses where a node connects (SSRF). A server that does not speak SMTP gets no byte, and
    /// the caller sees at most the beginning of its first line.
    #[tokio::test]
    async fn probe_sends_nothing_to_another_server_and_shows_little_of_it() {
        let greetings = ["", "-ERR wrong password\r\nsecond line\r\n", &"HTTP/1.1 400 x\u{1b}[2J".repeat(2_000)];
        for greeting in greetings {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let serve = async {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let _ = stream.write_all(greeting.as_bytes()).await;
                let mut received = Vec::new();
                let _ = stream.read_to_end(&mut received).await;
                received
            };
            let access = Access::default();
            let (found, received) = tokio::join!(probe_port(port, &access), serve);
            assert_eq!(received, b"", "{greeting:.40}");
            assert!(!found.reachable && found.findings == ProbeReport::default(), "{found:?}");
            assert!(found.problem.len() < 200 && !found.problem.contains("second line"), "{found:?}");
            assert!(!found.problem.contains(char::is_control), "{found:?}");
        }
    }

    #[tokio::test]
    async fn probe_keeps_what_relay_sent_before_failure() {
        let sink = Sink::start(SinkOptions::default()).expect("a mailbox");
        let access = Access { tls: Tls::StartTls(Trust::default()), credentials: None };
        let found = probe_port(sink.address().port(), &access).await;
        assert!(found.problem.starts_with("failed at TLS: the relay offers no STARTTLS here"), "{found:?}");
        assert!(found.reachable, "{found:?}");
        assert_eq!((found.stage, found.fix), (RelayStage::Tls, Some(Fix::ImplicitTls)), "{found:?}");
        assert!(!found.findings.banner.is_empty() && !found.findings.extensions.is_empty(), "{found:?}");
    }
}
