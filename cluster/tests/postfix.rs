//! The SMTP client against a real Postfix with TLS and SASL. Test servers of our own cannot prove this, because they
//! follow the same reading of the RFCs.
//!
//! The Postfix has its own configuration, queue, ports, certificate and users, in a temporary folder. It stops with the
//! test, even if the test fails. Without Postfix, Cyrus' sasldb or root rights the test is skipped with a message
//! (Debian: `postfix`, `sasl2-bin`, `libsasl2-modules`).

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reveille_cluster::process::secret::Secret;
use reveille_cluster::smtp::{
    Binding, Cause, Deadlines, DialogueResult, Dsn, Email, EmailText, Fix, Gate, GateAnswer, Login, Mechanism, Notify,
    ProbeReport, Session, Stage, Target, TcpDialer, Timeouts,
};
use reveille_ledger::access::{Access, Tls, Trust};
use tempfile::TempDir;

/// Name in the certificate, and realm of the users.
const NAME: &str = "relay.test";

struct Open;

impl Gate for Open {
    fn decide(&mut self) -> GateAnswer {
        GateAnswer::Pass
    }
}

/// A running Postfix.
struct Postfix {
    folder: TempDir,
    /// Port with STARTTLS and all mechanisms.
    submission: u16,
    /// Port with implicit TLS and LOGIN only.
    submissions: u16,
}

impl Postfix {
    /// Starts a Postfix. Returns `None` if this machine cannot run one, and prints why.
    fn start() -> Option<Postfix> {
        let lacks = |what: &str| {
            reveille_strict::skip(what);
            None
        };
        if !rustix::process::geteuid().is_root() {
            return lacks("only root can start a Postfix");
        }
        for program in ["postfix", "postconf", "saslpasswd2"] {
            if Command::new(program).arg("-h").output().is_err() {
                return lacks(&format!("{program} is not installed"));
            }
        }
        if !said(Command::new("postconf").arg("-a")).contains("cyrus") {
            return lacks("this Postfix knows no Cyrus SASL");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let postfix = Postfix { folder, submission: free_port(), submissions: free_port() };
        postfix.configure();
        // No pipes, because the daemons would keep them open.
        let quiet = || Stdio::null();
        let started = postfix.command("start").stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
        assert!(started.expect("postfix start").success(), "{}", postfix.log());
        Some(postfix)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("mail.log")).unwrap_or_default()
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new("postfix");
        command.arg("-c").arg(self.path("etc")).arg(verb);
        command
    }

    fn configure(&self) {
        let here = self.folder.path();
        let uid = |which| said(Command::new("id").args([which, "postfix"])).trim().parse::<u32>().expect("a number");
        let (user, group) = (uid("-u"), uid("-g"));
        // The user of Postfix must be able to read this folder.
        fs::set_permissions(here, fs::Permissions::from_mode(0o755)).expect("a mode");
        for name in ["etc", "etc/sasl", "queue", "data", "mail"] {
            fs::create_dir(self.path(name)).expect(name);
            fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).expect(name);
        }
        for name in ["data", "mail"] {
            chown(self.path(name), Some(user), Some(group)).expect(name);
        }
        self.certify();
        self.enlist("anna", "hunter2", user);
        let shown = here.display();
        let main = format!(
            "compatibility_level = 3.6\nqueue_directory = {shown}/queue\ndata_directory = {shown}/data\n\
             mail_owner = postfix\nsetgid_group = postdrop\ninet_interfaces = 127.0.0.1\ninet_protocols = ipv4\n\
             myhostname = {NAME}\nmydestination =\nmynetworks =\nalias_maps =\n\
             virtual_mailbox_domains = example.net\nvirtual_mailbox_base = {shown}/mail\n\
             virtual_mailbox_maps = static:all/\nvirtual_minimum_uid = 1\nvirtual_uid_maps = static:{user}\n\
             virtual_gid_maps = static:{group}\nmaillog_file = {shown}/mail.log\nmaillog_file_prefixes = {shown}\n\
             smtpd_tls_cert_file = {shown}/relay.pem\nsmtpd_tls_key_file = {shown}/relay.key\n\
             smtpd_tls_security_level = may\nsmtpd_tls_auth_only = yes\nsmtpd_sasl_auth_enable = yes\n\
             smtpd_sasl_type = cyrus\nsmtpd_sasl_path = smtpd\ncyrus_sasl_config_path = {shown}/etc/sasl\n\
             smtpd_sasl_local_domain = {NAME}\nsmtpd_relay_restrictions = permit_sasl_authenticated, reject\n\
             smtpd_reject_unlisted_recipient = no\ndefault_transport = error:5.1.1 no such user\n"
        );
        fs::write(self.path("etc/main.cf"), main).expect("main.cf");
        let (submission, submissions) = (self.submission, self.submissions);
        let master = format!(
            "127.0.0.1:{submission} inet n - n - - smtpd\n\
             127.0.0.1:{submissions} inet n - n - - smtpd\n  -o smtpd_tls_wrappermode=yes\n\
             \x20 -o smtpd_sasl_mechanism_filter=login\n\
             cleanup unix n - n - 0 cleanup\nqmgr unix n - n 300 1 qmgr\ntlsmgr unix - - n 1000? 1 tlsmgr\n\
             rewrite unix - - n - - trivial-rewrite\nbounce unix - - n - 0 bounce\ndefer unix - - n - 0 bounce\n\
             trace unix - - n - 0 bounce\nproxymap unix - - n - - proxymap\nerror unix - - n - - error\n\
             retry unix - - n - - error\nvirtual unix - n n - - virtual\nanvil unix - - n - 1 anvil\n\
             postlog unix-dgram n - n - 1 postlogd\n"
        );
        fs::write(self.path("etc/master.cf"), master).expect("master.cf");
    }

    /// Creates a CA, and a certificate for [`NAME`] that it signs.
    fn certify(&self) {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![NAME.to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &ca).expect("a certificate");
        fs::write(self.path("ca.pem"), ca.pem()).expect("ca.pem");
        fs::write(self.path("relay.pem"), certificate.pem()).expect("relay.pem");
        fs::write(self.path("relay.key"), key.serialize_pem()).expect("relay.key");
    }

    /// Adds a user of the relay to a sasldb that the user of Postfix can read.
    fn enlist(&self, user: &str, password: &str, reader: u32) {
        let users = self.path("users");
        // Debian reads the configuration's folder `sasl`, whatever `cyrus_sasl_config_path` says.
        let conf = format!(
            "pwcheck_method: auxprop\nauxprop_plugin: sasldb\nmech_list: PLAIN LOGIN\nsasldb_path: {}\n",
            users.display()
        );
        fs::write(self.path("etc/sasl/smtpd.conf"), conf).expect("smtpd.conf");
        let mut command = Command::new("saslpasswd2");
        command.args(["-p", "-c", "-u", NAME, "-f"]).arg(&users).arg(user).stdin(Stdio::piped());
        let mut running = command.spawn().expect("saslpasswd2");
        running.stdin.take().expect("a pipe").write_all(password.as_bytes()).expect("written");
        assert!(running.wait().expect("an end").success());
        chown(&users, Some(reader), None).expect("a reader");
    }

    fn trust(&self) -> Trust {
        Trust { ca: Some(text(&self.path("ca.pem"))), name: Some(NAME.to_owned()) }
    }

    fn login(&self, name: &str, content: &str) -> Option<Secret> {
        fs::write(self.path(name), content).expect("a login");
        Some(Secret::File(text(&self.path(name))))
    }

    /// Returns the number of emails in the mailbox.
    fn arrived(&self) -> usize {
        fs::read_dir(self.path("mail/all/new")).map_or(0, Iterator::count)
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

impl Drop for Postfix {
    fn drop(&mut self) {
        let stopped = self.command("stop").stdin(Stdio::null()).output();
        if !stopped.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("postfix did not stop: {stopped:?}");
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

fn said(command: &mut Command) -> String {
    String::from_utf8_lossy(&command.output().expect("a program that runs").stdout).into_owned()
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
    let Some(postfix) = Postfix::start() else { return };
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
    let Some(postfix) = Postfix::start() else { return };
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
