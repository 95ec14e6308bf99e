//! Tests of TLS and AUTH: a session has the configured security, or the opening fails with a cause. The gate is above
//! TLS.

use std::sync::Arc;

use reveille_ledger::access::{Access, Tls, Trust};

use super::certificates::Authority;
use super::server::{Counting, Exchange, Script, ServerAction, ServerStep, ServerTls, mail, script, when, willing};
use crate::process::secret::Secret;
use crate::smtp::cause::{Cause, Fix};
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::session::auth::Mechanism;
use crate::smtp::session::credentials::{Binding, Login};
use crate::smtp::session::deadlines::{Deadlines, Timeouts};
use crate::smtp::session::dialogue::Session;
use crate::smtp::session::probe_report::ProbeReport;
use crate::smtp::session::target::Target;
use crate::smtp::stage::Stage;

const HOST: &str = "relay.example.org";
const EHLO: &str = "EHLO node-1.example.org";

/// One relay with its CA, and the access that a test uses.
struct SecuredRelay {
    authority: Authority,
    exchange: Exchange,
    access: Access,
    host: &'static str,
    login: Login,
}

impl SecuredRelay {
    fn implicit(script: Script) -> SecuredRelay {
        let authority = Authority::new();
        let trust = Trust { ca: Some(authority.file()), name: None };
        let tls = ServerTls::Implicit(authority.server(HOST));
        let access = Access { tls: Tls::Implicit(trust), credentials: None };
        SecuredRelay {
            authority,
            exchange: Exchange { tls, ..Exchange::new(script) },
            access,
            host: HOST,
            login: Login::Password,
        }
    }

    fn start_tls(script: Script) -> SecuredRelay {
        let mut relay = SecuredRelay::implicit(script);
        relay.access.tls = Tls::StartTls(relay.access.tls.trust().cloned().unwrap_or_default());
        relay.exchange.tls = ServerTls::WhenAsked(relay.authority.server(HOST));
        relay
    }

    /// Returns the relay with a login as anna, whose password is in a file.
    fn logging_in(mut self) -> SecuredRelay {
        std::fs::write(self.authority.path("login"), "anna:hunter2\n").expect("written");
        self.access.credentials = Some("anna".to_owned());
        self
    }

    fn trust(&mut self) -> &mut Trust {
        match &mut self.access.tls {
            Tls::StartTls(trust) | Tls::Implicit(trust) => trust,
            Tls::None => panic!("this relay has TLS"),
        }
    }

    async fn open(&self) -> (Result<Session, Box<DialogueResult>>, ProbeReport) {
        self.open_by(true).await
    }

    /// Opens a session from a node whose configuration has anna's credentials for this relay, or for another one.
    async fn open_by(&self, bound_here: bool) -> (Result<Session, Box<DialogueResult>>, ProbeReport) {
        let anna = Binding {
            host: if bound_here { self.host } else { "another.example.org" }.to_owned(),
            port: 25,
            secret: Secret::File(self.authority.path("login").to_string_lossy().into_owned()),
            login: self.login,
        };
        let target = Target::new(self.host, 25, "node-1.example.org", &self.access).expect("a good target");
        let target = target.with_credentials(Arc::new([("anna".to_owned(), anna)].into_iter().collect()));
        let mut findings = ProbeReport::default();
        let (timeouts, deadlines) = (Timeouts::default(), Deadlines::default());
        let opened = Session::open_with_report(&target, &self.exchange, timeouts, &deadlines, &mut findings).await;
        (opened, findings)
    }

    /// Returns the fix, the stage and the message of an opening that must fail for TLS or a login.
    async fn fix(&self) -> (Fix, Stage, String) {
        match self.open().await.0.err().map(|result| *result) {
            Some(DialogueResult::Broken { stage, cause: Cause::Tls(problem) | Cause::Credentials(problem) }) => {
                (problem.fix, stage, problem.message)
            }
            other => panic!("it has to fail for that: {other:?}"),
        }
    }

    /// Returns the stage and the message of an opening that must fail.
    async fn fails(&self) -> (Stage, String) {
        match self.open().await.0.err().map(|result| *result) {
            Some(DialogueResult::Broken { stage, cause }) => (stage, cause.to_string()),
            Some(DialogueResult::Refused { stage, code, text, .. }) => (stage, format!("{code} {text}")),
            other => panic!("it has to fail: {other:?}"),
        }
    }
}

async fn delivers_once(relay: SecuredRelay) {
    let (opened, findings) = relay.open().await;
    let mut session = opened.expect("a session");
    let encryption = findings.encryption.expect("encrypted");
    assert_eq!((encryption.version.as_str(), encryption.subject.as_str()), ("TLS 1.3", "CN=relay.example.org"));
    assert!(encryption.expires_at_s > 7_000_000_000, "{encryption:?}");
    for round in 1..=2 {
        let mut gate = Counting::open(&relay.exchange);
        let result = session.run_transaction(&mail(b"hello\r\n.\r\n"), &mut gate, &Deadlines::default(), None).await;
        assert!(matches!(result, DialogueResult::Accepted { .. }), "{result:?}");
        assert_eq!(gate.times_met(), 1, "once an email");
        let written = relay.exchange.written.lock().bytes.clone();
        let (_, after) = written.split_at(gate.met.lock()[0]);
        // One record: a header of 5 bytes, the stuffed text with its final dot, one of type, 16 of authentication tag
        // (RFC 8446 5.2).
        let length = b"hello\r\n..\r\n.\r\n".len() + 17;
        assert_eq!((after.len(), &after[..5]), (length + 5, &[23, 3, 3, 0, length as u8][..]), "behind the gate");
        assert_eq!(relay.exchange.seen.lock().accepted.len(), round);
    }
}

#[tokio::test]
async fn implicit_tls_meets_gate_exactly_once_an_email() {
    delivers_once(SecuredRelay::implicit(willing())).await;
}

#[tokio::test]
async fn starttls_meets_gate_exactly_once_an_email() {
    delivers_once(SecuredRelay::start_tls(willing())).await;
}

#[tokio::test]
async fn closed_gate_writes_nothing_over_tls() {
    let relay = SecuredRelay::implicit(willing());
    let mut session = relay.open().await.0.expect("a session");
    let mut gate = Counting::closed(&relay.exchange);
    let result = session.run_transaction(&mail(b"hello\r\n"), &mut gate, &Deadlines::default(), None).await;
    assert!(matches!(result, DialogueResult::GateClosed), "{result:?}");
    assert_eq!(relay.exchange.written.lock().bytes.len(), gate.met.lock()[0], "not a byte behind the gate");
}

#[tokio::test]
async fn after_starttls_everything_is_said_anew() {
    let relay = SecuredRelay::start_tls(when(
        ServerStep::Ehlo,
        ServerAction::Reply("250-relay\r\n250-PIPELINING\r\n250 STARTTLS\r\n"),
    ));
    let (opened, findings) = relay.open().await;
    assert_eq!(relay.exchange.commands(), [EHLO, "STARTTLS", EHLO]);
    assert_eq!(findings.extensions, ["PIPELINING", "8BITMIME", "AUTH PLAIN LOGIN", "SMTPUTF8"]);
    assert_eq!(findings.banner, "relay ESMTP");
    assert!(opened.expect("a session").extensions().utf8, "offered under TLS only");
}

#[tokio::test]
async fn starttls_that_is_asked_for_is_never_done_without() {
    let not_offered =
        SecuredRelay::start_tls(when(ServerStep::Ehlo, ServerAction::Reply("250 relay\r\n"))).logging_in();
    let (fix, stage, words) = not_offered.fix().await;
    assert_eq!((fix, stage), (Fix::ImplicitTls, Stage::Tls));
    assert!(words.contains("offers no STARTTLS"), "{words}");
    let refused =
        SecuredRelay::start_tls(when(ServerStep::StartTls, ServerAction::Reply("454 4.7.0 TLS not available\r\n")))
            .logging_in();
    assert_eq!(refused.fails().await, (Stage::Tls, "454 4.7.0 TLS not available".to_owned()));
    for relay in [not_offered, refused] {
        assert!(!relay.exchange.commands().iter().any(|line| line.starts_with("AUTH") || line.starts_with("MAIL")));
    }
}

#[tokio::test]
async fn bytes_injected_after_starttls_close_the_session() {
    let words = "220 2.0.0 go ahead\r\n250-relay\r\n250 AUTH PLAIN\r\n";
    let relay = SecuredRelay::start_tls(when(ServerStep::StartTls, ServerAction::Reply(words))).logging_in();
    let result = relay.open().await.0.err().map(|result| *result);
    assert!(
        matches!(&result, Some(DialogueResult::Broken { stage: Stage::Tls, cause: Cause::OutOfStep(_) })),
        "CVE-2011-0411: {result:?}"
    );
    assert_eq!(relay.exchange.commands(), [EHLO, "STARTTLS"], "nothing was said after it");
}

#[tokio::test]
async fn non_tls_peer_is_reported_as_such() {
    let mut relay = SecuredRelay::implicit(willing());
    relay.exchange.tls = ServerTls::Never;
    let (fix, stage, words) = relay.fix().await;
    assert_eq!((fix, stage), (Fix::StartTls, Stage::Tls));
    assert!(words.contains("does not speak TLS here"), "{words}");
}

#[tokio::test]
async fn untrusted_certificate_is_reported_with_cause_and_advice() {
    let mut unknown = SecuredRelay::implicit(willing());
    let other = Authority::new();
    unknown.trust().ca = Some(other.file());
    let mut unknown_here = SecuredRelay::start_tls(willing());
    unknown_here.trust().ca = None;
    let mut mismatched = SecuredRelay::implicit(willing());
    mismatched.host = "smtp.example.org";
    let mut expired = SecuredRelay::implicit(willing());
    expired.exchange.tls = ServerTls::Implicit(expired.authority.server_until(HOST, 2021));
    let mut no_file = SecuredRelay::implicit(willing());
    no_file.trust().ca = Some("/nowhere/ca.pem".to_owned());
    let mut no_certificate = SecuredRelay::implicit(willing()).logging_in();
    let login = no_certificate.authority.path("login").to_string_lossy().into_owned();
    no_certificate.trust().ca = Some(login);
    let table = [
        (unknown, Fix::Ca, ["not signed by the CA in", "name the one that did"]),
        (unknown_here, Fix::Ca, ["signed by no CA that this system trusts", "name its CA"]),
        (mismatched, Fix::TlsName, ["is for relay.example.org, not for smtp.example.org", "name what it is for"]),
        (expired, Fix::Relay, ["expired at 2021-12-31T00:00:00Z", "renew it"]),
        (no_file, Fix::CaFile, ["the CA file /nowhere/ca.pem cannot be read on this node", "No such file"]),
        (no_certificate, Fix::CaFile, ["login", "has no certificate"]),
    ];
    for (relay, expected, parts) in table {
        let (fix, stage, words) = relay.fix().await;
        assert_eq!((fix, stage), (expected, Stage::Tls), "{words}");
        assert!(parts.iter().all(|part| words.contains(part)), "{words}");
    }
}

#[tokio::test]
async fn another_name_can_be_believed() {
    let mut relay = SecuredRelay::implicit(willing());
    relay.host = "127.0.0.1";
    relay.trust().name = Some(HOST.to_owned());
    assert!(relay.open().await.0.is_ok());
}

#[tokio::test]
async fn auth_plain_is_used_where_offered_and_login_otherwise() {
    let relay = SecuredRelay::start_tls(willing()).logging_in();
    assert_eq!(relay.open().await.1.mechanism, Some(Mechanism::Plain));
    assert_eq!(relay.exchange.commands(), [EHLO, "STARTTLS", EHLO, "AUTH PLAIN AGFubmEAaHVudGVyMg=="]);
    let login = when(ServerStep::SecureEhlo, ServerAction::Reply("250-relay\r\n250 AUTH CRAM-MD5 LOGIN\r\n"));
    let relay = SecuredRelay::implicit(login).logging_in();
    assert_eq!(relay.open().await.1.mechanism, Some(Mechanism::Login));
    assert_eq!(relay.exchange.commands(), [EHLO, "AUTH LOGIN", "YW5uYQ==", "aHVudGVyMg=="]);
}

#[tokio::test]
async fn token_is_sent_by_xoauth2_and_its_refusal_is_reported() {
    let offers = (ServerStep::SecureEhlo, ServerAction::Reply("250-relay\r\n250 AUTH LOGIN XOAUTH2\r\n"));
    let by_token = |script| {
        let mut relay = SecuredRelay::implicit(script).logging_in();
        relay.login = Login::Xoauth2;
        relay
    };
    let relay = by_token(when(offers.0, offers.1.clone()));
    assert_eq!(relay.open().await.1.mechanism, Some(Mechanism::Xoauth2));
    let line = "AUTH XOAUTH2 dXNlcj1hbm5hAWF1dGg9QmVhcmVyIGh1bnRlcjIBAQ==";
    assert_eq!(relay.exchange.commands(), [EHLO, line]);
    let relay = by_token(willing());
    let (stage, words) = relay.fails().await;
    assert!(stage == Stage::Auth && words == "the relay offers no AUTH XOAUTH2 here", "{words}");
}

#[tokio::test]
async fn failed_auth_is_the_relays_problem_and_reveals_no_secret() {
    static LOGIN_ONLY: [(ServerStep, ServerAction); 2] = [
        (ServerStep::SecureEhlo, ServerAction::Reply("250-relay\r\n250 AUTH LOGIN\r\n")),
        (ServerStep::Auth, ServerAction::Reply("535 5.7.8 no: aHVudGVyMg==\r\n")),
    ];
    let table = [
        (when(ServerStep::Auth, ServerAction::Reply("535 5.7.8 bad credentials\r\n")), "535 5.7.8 bad credentials"),
        (
            when(ServerStep::Auth, ServerAction::Reply("535 no: AGFubmEAaHVudGVyMg==\r\n")),
            "535 (not shown: it repeats the credentials)",
        ),
        (when(ServerStep::Auth, ServerAction::Reply("454 4.7.0 temporary failure\r\n")), "454 4.7.0 temporary failure"),
        (when(ServerStep::Auth, ServerAction::Reply("334 more\r\n")), "334 more"),
        (when(ServerStep::Auth, ServerAction::Reply("?AGFubmEAaHVudGVyMg==\r\n")), "not shown"),
        (script(&LOGIN_ONLY), "535 (not shown: it repeats the credentials)"),
        (
            when(ServerStep::SecureEhlo, ServerAction::Reply("250-relay\r\n250 AUTH XOAUTH2\r\n")),
            "neither AUTH PLAIN nor AUTH LOGIN",
        ),
    ];
    for (script, expected) in table {
        let relay = SecuredRelay::implicit(script).logging_in();
        let (stage, words) = relay.fails().await;
        assert_eq!(stage, Stage::Auth, "{words}");
        assert!(words.contains(expected), "{words}");
        assert!(!words.contains("hunter2") && !words.contains("aHVudGVyMg"), "{words}");
    }
}

#[tokio::test]
async fn auth_that_is_offered_only_after_starttls_is_reported() {
    let clear = |words: &'static str| {
        let mut relay = SecuredRelay::start_tls(when(ServerStep::Ehlo, ServerAction::Reply(words))).logging_in();
        // A password may be sent in the clear to this machine only.
        (relay.access.tls, relay.host) = (Tls::None, "127.0.0.1");
        relay
    };
    let (fix, stage, words) = clear("250-relay\r\n250 STARTTLS\r\n").fix().await;
    assert_eq!((fix, stage), (Fix::LoginAfterStartTls, Stage::Auth));
    assert!(words.ends_with("may after STARTTLS"), "{words}");
    let (fix, _, words) = clear("250-relay\r\n250 PIPELINING\r\n").fix().await;
    assert!(fix == Fix::NoLogin && words.ends_with("nor AUTH LOGIN here"), "{fix:?} {words}");
}

#[tokio::test]
async fn credentials_bound_to_another_relay_are_never_sent() {
    let relay = SecuredRelay::implicit(willing()).logging_in();
    let (opened, _) = relay.open_by(false).await;
    let Err(result) = opened else { panic!("it logged in") };
    let DialogueResult::Broken { stage: Stage::Auth, cause: Cause::Credentials(problem) } = *result else {
        panic!("{result:?}")
    };
    assert!(problem.message.contains("are for another.example.org port 25 alone"), "{}", problem.message);
    assert!(!relay.exchange.commands().iter().any(|line| line.starts_with("AUTH")));
}

#[tokio::test]
async fn credentials_that_are_missing_are_missed_before_anything_is_said() {
    let relay = SecuredRelay::implicit(willing()).logging_in();
    std::fs::remove_file(relay.authority.path("login")).expect("removed");
    let (fix, stage, words) = relay.fix().await;
    assert_eq!((fix, stage), (Fix::Reference, Stage::Auth));
    assert!(words.contains("login cannot be read"), "{words}");
    assert!(!relay.exchange.commands().iter().any(|line| line.starts_with("AUTH")));
}
