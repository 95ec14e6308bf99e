//! One look at a relay: connect, encrypt, greet, say who we are, leave. No mail is offered (P3): the session
//! that a lane would use is opened and closed, and what it found on the way is kept.

use std::time::Duration;

use reveille_cluster::relay::{Dial, Findings, Patience, Session, Stage, Target, Timeouts, Verdict};

/// Each step of the look; all of them end well before the caller's usual time-out.
const STEP: Duration = Duration::from_secs(3);
const FAREWELL: Duration = Duration::from_millis(500);

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Where and why it failed; empty when it did not.
    pub problem: String,
    /// What to do about it, where that is known and the problem does not say so itself.
    pub next: String,
    /// What was learned, up to there.
    pub findings: Findings,
}

/// Looks at a relay.
pub async fn probe(target: &Target, dialer: &dyn Dial) -> Found {
    let (connect, tls, banner, ehlo, auth) = (STEP, STEP, STEP, STEP, STEP);
    let timeouts = Timeouts { connect, tls, banner, ehlo, auth, quit: FAREWELL, ..Timeouts::default() };
    let mut findings = Findings::default();
    let opened = Session::open_noting(target, dialer, timeouts, &Patience::default(), &mut findings).await;
    let (problem, next) = match opened {
        Ok(session) => {
            session.quit().await;
            (String::new(), "")
        }
        Err(verdict) => in_words(&verdict),
    };
    Found { problem, next: next.to_owned(), findings }
}

/// Where and why a session did not open, and what to do.
fn in_words(verdict: &Verdict) -> (String, &'static str) {
    match verdict {
        Verdict::Refused { stage, code, text, .. } => (format!("refused at {stage:?}: {code} {text}"), next(*stage)),
        Verdict::Broken { stage: stage @ (Stage::Tls | Stage::Auth), cause } => {
            (format!("failed at {stage:?}: {cause}"), "")
        }
        Verdict::Broken { stage, cause } => (format!("failed at {stage:?}: {cause}"), next(*stage)),
        Verdict::InDoubt { cause } => (format!("failed: {cause}"), ""),
        Verdict::GateClosed(_) | Verdict::Accepted { .. } => {
            ("an answer to a mail that was not offered".to_owned(), "")
        }
    }
}

fn next(stage: Stage) -> &'static str {
    match stage {
        Stage::Connect => "check host and port, and that this node may reach them",
        Stage::Banner => "the relay may refuse this node's address; a port of implicit TLS greets nobody in the clear",
        Stage::Tls => "look into the relay's log; its TLS may not be set up",
        Stage::Auth => "check user and password behind the reference on this node, and that the relay knows them",
        _ => "look into the relay's log",
    }
}

#[cfg(test)]
mod tests {
    use reveille_cluster::relay::TcpDialer;
    use reveille_ledger::access::{Access, Tls, Trust};
    use reveille_sink::{Sink, SinkOptions};

    use super::*;

    async fn look(port: u16, access: &Access) -> Found {
        let target = Target::new("127.0.0.1", port, "node-1", access).expect("a target");
        probe(&target, &TcpDialer::default()).await
    }

    #[tokio::test]
    async fn a_relay_that_is_not_there_is_a_problem_in_words() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let found = look(port, &Access::default()).await;
        assert!(found.problem.starts_with("failed at Connect: no connection"), "{found:?}");
        assert!(found.next.contains("host and port"), "{found:?}");
    }

    #[tokio::test]
    async fn what_was_heard_before_a_failure_is_known_after_it() {
        let sink = Sink::start(SinkOptions::default()).expect("a mailbox");
        let access = Access { tls: Tls::StartTls(Trust::default()), auth: None };
        let found = look(sink.address().port(), &access).await;
        assert!(found.problem.starts_with("failed at Tls: the relay offers no STARTTLS here"), "{found:?}");
        assert!(!found.findings.banner.is_empty() && !found.findings.extensions.is_empty(), "{found:?}");
    }
}
