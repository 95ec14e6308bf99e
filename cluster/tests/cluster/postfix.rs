//! The SMTP client against a real Postfix with TLS and SASL. Test servers of our own cannot prove this, because they
//! follow the same reading of the RFCs.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::process::secret::Secret;
use reveille_cluster::smtp::{
    Binding, Cause, Deadlines, DialogueResult, Dsn, Email, EmailText, Fix, Gate, GateAnswer, Login, Mechanism, Notify,
    ProbeReport, Session, Stage, Target, TcpDialer, Timeouts,
};
use reveille_ledger::access::{Access, Tls, Trust};

use crate::support::postfix::Postfix;

/// Name in the certificate, and realm of the users.
const NAME: &str = "relay.test";

struct Open;

impl Gate for Open {
    fn decide(&mut self) -> GateAnswer {
        GateAnswer::Pass
    }
}

impl Postfix {
    fn for_test() -> Option<Postfix> {
        Postfix::start(NAME, Ipv4Addr::LOCALHOST.into(), [free_port(), free_port()])
    }

    fn trust(&self) -> Trust {
        Trust { ca: Some(text(&self.path("ca.pem"))), name: Some(NAME.to_owned()) }
    }

    fn login(&self, name: &str, content: &str) -> Option<Secret> {
        fs::write(self.path(name), content).expect("a login");
        Some(Secret::File(text(&self.path(name))))
    }

    /// Waits until this many emails have arrived, and the log has `words` at least `times` times.
    async fn until(&self, arrived: usize, (words, times): (&str, usize)) {
        let limit = Instant::now() + Duration::from_secs(60);
        while self.arrived() < arrived || self.log().matches(words).count() < times {
            assert!(Instant::now() < limit, "{} of {arrived} arrived\n{}", self.arrived(), self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

async fn open(port: u16, tls: Tls, secret: Option<Secret>) -> (Result<Session, DialogueResult>, ProbeReport) {
    let access = Access { tls, credentials: secret.is_some().then(|| "login".to_owned()) };
    let binding =
        |secret| ("login".to_owned(), Binding { host: "127.0.0.1".to_owned(), port, secret, login: Login::Password });
    let target = Target::new("127.0.0.1", port, "node-1.test", &access).expect("a target");
    let target = target.with_credentials(Arc::new(secret.map(binding).into_iter().collect()));
    let mut findings = ProbeReport::default();
    let (dialer, timeouts, deadlines) = (TcpDialer::default(), Timeouts::default(), Deadlines::default());
    let opened = Session::open_with_report(&target, &dialer, timeouts, &deadlines, &mut findings).await;
    (opened.map_err(|result| *result), findings)
}

fn email_text(data: &str) -> EmailText {
    EmailText::new(data.as_bytes().to_vec()).expect("a good text")
}

fn email(subject: &str) -> Email {
    let data = format!("From: news@example.org\r\nTo: anna@example.net\r\nSubject: {subject}\r\n\r\n.\r\nHello.\r\n");
    let (from, to) = ("news@example.org".to_owned(), "anna@example.net".to_owned());
    Email { from, to, text: email_text(&data), dsn: None }
}

async fn send(session: &mut Session, subject: &str, next: Option<&str>) -> DialogueResult {
    let next = next.map(email);
    session.run_transaction(&email(subject), &mut Open, &Deadlines::default(), next.as_ref()).await
}

#[tokio::test]
async fn postfix_accepts_tls_and_credentials() {
    let Some(postfix) = Postfix::for_test() else { return };
    let anna = postfix.login("anna", "anna:hunter2\n");

    let (opened, findings) = open(postfix.submission, Tls::StartTls(postfix.trust()), anna.clone()).await;
    let mut session = opened.unwrap_or_else(|result| panic!("{result:?}\n{}", postfix.log()));
    assert_eq!(findings.mechanism, Some(Mechanism::Plain));
    assert_eq!(findings.encryption.expect("encrypted").version, "TLS 1.3");
    for (subject, next) in [("one", Some("two")), ("two", None)] {
        let result = send(&mut session, subject, next).await;
        assert_eq!(session.has_announced(), next.is_some(), "Postfix offers PIPELINING");
        assert!(matches!(result, DialogueResult::Accepted { .. }), "{result:?}\n{}", postfix.log());
    }
    session.quit().await;

    let (opened, findings) = open(postfix.submissions, Tls::Implicit(postfix.trust()), anna).await;
    let mut session = opened.unwrap_or_else(|result| panic!("{result:?}\n{}", postfix.log()));
    assert_eq!(findings.mechanism, Some(Mechanism::Login), "{:?}", findings.extensions);
    let result = send(&mut session, "three", None).await;
    assert!(matches!(result, DialogueResult::Accepted { .. }), "{result:?}\n{}", postfix.log());
    session.quit().await;

    let stranger = postfix.login("stranger", "anna:hunter3\n");
    let (opened, _) = open(postfix.submission, Tls::StartTls(postfix.trust()), stranger).await;
    let Err(DialogueResult::Refused { stage: Stage::Auth, code: 535, text, .. }) = opened else {
        panic!("a wrong password is refused\n{}", postfix.log())
    };
    assert!(!text.contains("hunter3"), "{text}");

    let (opened, _) = open(postfix.submission, Tls::StartTls(postfix.trust()), None).await;
    let result = send(&mut opened.expect("TLS without AUTH"), "four", None).await;
    assert!(matches!(result, DialogueResult::Refused { stage: Stage::Rcpt, code: 554, .. }), "{result:?}");

    let trust = Trust { name: Some("other.test".to_owned()), ..postfix.trust() };
    let (opened, _) = open(postfix.submission, Tls::StartTls(trust), None).await;
    let Err(DialogueResult::Broken { stage: Stage::Tls, cause: Cause::Tls(why) }) = opened else {
        panic!("another name is not believed")
    };
    assert!(why.message.contains("is for relay.test, not for other.test"), "{why}");
    assert_eq!(why.fix, Fix::TlsName);

    postfix.until(3, ("", 0)).await;
}

#[tokio::test]
async fn postfix_bounce_names_envelope_id_and_is_suppressed_on_request() {
    let Some(postfix) = Postfix::for_test() else { return };
    let anna = postfix.login("anna", "anna:hunter2\n");
    let (opened, _) = open(postfix.submission, Tls::StartTls(postfix.trust()), anna).await;
    let mut session = opened.unwrap_or_else(|result| panic!("{result:?}\n{}", postfix.log()));
    assert!(session.extensions().dsn);
    for (notify, fence) in [(Notify::Never, "1.9.1050.4"), (Notify::Failure, "1.9.1051.0")] {
        let mail = Email {
            from: "bounce+token@example.net".to_owned(),
            // Postfix accepts the recipient, and finds out later that it cannot deliver.
            to: "ann@example.org".to_owned(),
            text: email_text("From: news@example.org\r\nTo: ann@example.org\r\n\r\nHello.\r\n"),
            dsn: Some(Dsn { envelope_id: fence.to_owned(), notify }),
        };
        let result = session.run_transaction(&mail, &mut Open, &Deadlines::default(), None).await;
        assert!(matches!(result, DialogueResult::Accepted { .. }), "{result:?}\n{}", postfix.log());
    }
    session.quit().await;
    // Two emails and one bounce are removed from the queue.
    postfix.until(1, (": removed", 3)).await;
    assert_eq!(postfix.log().matches("status=bounced").count(), 2, "{}", postfix.log());
    assert!(postfix.log().contains("from=<bounce+token@example.net>"), "{}", postfix.log());
    let bounces = fs::read_dir(postfix.path("mail/all/new")).expect("a mailbox").flatten();
    let bounces: Vec<String> = bounces.map(|file| fs::read_to_string(file.path()).expect("an email")).collect();
    assert_eq!(bounces.len(), 1, "{bounces:?}");
    assert!(bounces[0].contains("Original-Envelope-Id: 1.9.1051.0\n"), "{}", bounces[0]);
    assert!(bounces[0].contains("\nTo: bounce+token@example.net\n"), "{}", bounces[0]);
}
