//! TLS between clients and nodes: the context that `cluster init` writes, `login`, and who is refused.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;

use crate::process::{Ended, Process, start, until, user};
use crate::unsubscribe;

const LOOPBACK: [&str; 3] = ["127.0.0.1:0"; 3];

/// Starts a node that makes a cluster, and waits for a leader.
fn founder(folder: &Path, addresses: [&str; 3], environment: &[(&str, &str)]) -> Process {
    let one = Process::listening_by(folder, "one", addresses, environment);
    until("a leader", || one.reveille("schedule list").code == Some(0));
    one
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or_default()
}

fn fingerprint(folder: &Path) -> String {
    let shown = Process::reveille_at(folder, "127.0.0.1:1", "context show -o json");
    let context: Value = serde_json::from_str(&shown.stdout).unwrap_or_else(|_| panic!("{shown:?}"));
    context["fingerprint"].as_str().expect("a fingerprint").to_owned()
}

/// Returns the token that `cluster init` stored in the context of its user.
fn first_token(folder: &Path) -> String {
    let contexts = std::fs::read_to_string(folder.join("client/reveille/contexts.toml")).expect("contexts");
    let token = contexts.split('"').find(|text| text.starts_with("rvt_"));
    token.expect("a token").to_owned()
}

#[test]
fn admin_port_refuses_plaintext_and_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path(), LOOPBACK, &[]);
    let stranger = tempfile::tempdir().expect("a folder");
    for endpoint in [one.admin.clone(), format!("http://{}", one.admin)] {
        let plain = Process::reveille_at(stranger.path(), &endpoint, "schedule list");
        assert_eq!(plain.code, Some(5), "{plain:?}");
        let next = format!("reveille login https://{}", one.admin);
        assert!(plain.stderr.contains("needs TLS") && plain.stderr.contains(&next), "{plain:?}");
    }
    let far = Process::reveille_at(stranger.path(), "http://192.0.2.1:7600", "schedule list");
    assert!(far.code == Some(2) && far.stderr.contains("in plaintext, over a network"), "{far:?}");

    // Plaintext HTTP/2, as a client without TLS speaks it.
    let mut plain = TcpStream::connect(&one.admin).expect("a connection");
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("written");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"\0\0"), "no HTTP/2 frame: {answer:?}");
    until("it is logged", || one.said().contains("a connection was refused listener=\"admin\""));
    let failed = "reveille_handshakes_failed_total{listener=\"admin\"}";
    assert!(one.get("/metrics").contains(failed), "health stays in plaintext on loopback");
}

#[test]
fn client_refuses_another_authority_another_name_and_plaintext() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut one = Process::listening_by(folder.path(), "one", ["0.0.0.0:0", "127.0.0.1:0", "127.0.0.1:0"], &[]);
    let elsewhere = tempfile::tempdir().expect("a folder");
    assert_eq!(Process::init(elsewhere.path(), "other", "").code, Some(0));
    let own = format!("127.0.0.1:{}", port(&one.admin));
    let foreign = Process::reveille_at(elsewhere.path(), &own, "schedule list");
    assert!(foreign.code == Some(5) && foreign.stderr.contains("of another authority"), "{foreign:?}");
    assert!(foreign.stderr.contains(&format!("reveille login https://{own} --ca FILE")), "{foreign:?}");

    let other_name = format!("127.0.0.2:{}", port(&one.admin));
    let other = Process::reveille_at(folder.path(), &other_name, "schedule list");
    assert!(other.code == Some(5) && other.stderr.contains("add 127.0.0.2 to tls_names"), "{other:?}");
    one.kill();
    let again = one.again_by(folder.path(), "one", &[("REVEILLE__TLS_NAMES", "127.0.0.2")]);
    let other_name = format!("127.0.0.2:{}", port(&again.admin));
    until("it has that name", || Process::reveille_at(folder.path(), &other_name, "schedule list").code == Some(0));

    // A peer's certificate is of the same authority, and for no address.
    let peer = format!("127.0.0.1:{}", port(&again.peers));
    let peer = Process::reveille_at(folder.path(), &peer, "schedule list");
    assert!(peer.code == Some(5) && peer.stderr.contains("is the peer port of a node"), "{peer:?}");
    let http = Process::reveille_at(folder.path(), &again.http, "schedule list");
    assert!(http.code == Some(5) && http.stderr.contains("does not speak TLS"), "{http:?}");
}

#[test]
fn plaintext_is_for_loopback_and_needs_no_context() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(Process::init(folder.path(), "one", "--insecure").code, Some(0));
    assert!(!folder.path().join("client/reveille").exists(), "there is nothing to know");
    let one = founder(folder.path(), LOOPBACK, &[("REVEILLE__INSECURE", "true")]);
    let elsewhere = tempfile::tempdir().expect("a folder");
    assert_eq!(Process::init(elsewhere.path(), "other", "").code, Some(0));
    let secured = Process::reveille_at(elsewhere.path(), &one.admin, "schedule list");
    let next = format!("--endpoint http://{}", one.admin);
    assert!(secured.code == Some(5) && secured.stderr.contains(&next), "{secured:?}");
    let plain = Process::reveille_at(elsewhere.path(), &format!("http://{}", one.admin), "schedule list");
    assert_eq!(plain.code, Some(0), "{plain:?}");

    let open =
        Ended::from(start(folder.path(), "two", &["--listen", "0.0.0.0:0", "--insecure"]).output().expect("it runs"));
    assert!(open.code == Some(2) && open.stderr.contains("insecure is plaintext"), "{open:?}");
}

#[test]
fn login_stores_a_context_after_the_fingerprint_is_confirmed() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path(), LOOPBACK, &[]);
    let fingerprint = fingerprint(folder.path());
    assert!(one.said().contains(&fingerprint), "the log shows it, too");
    let (home, token) = (tempfile::tempdir().expect("a folder"), first_token(folder.path()));
    let login = |more: &str| {
        let line = format!("login https://localhost:{} {more}", port(&one.admin));
        user(home.path()).args(line.split_whitespace()).env("SECRET", &token).output()
    };
    let login = |more: &str| Ended::from(login(more).expect("it runs"));
    let requested = login("");
    assert!(requested.code == Some(2) && requested.stderr.contains(&fingerprint), "{requested:?}");
    let wrong = login(&format!("--fingerprint {}", "0".repeat(64)));
    assert!(wrong.code == Some(6) && wrong.stderr.contains(&fingerprint), "{wrong:?}");
    let without = login(&format!("--fingerprint {fingerprint}"));
    assert!(without.code == Some(6) && without.stderr.contains("token"), "{without:?}");
    assert!(!home.path().join("client").exists(), "nothing is stored");

    let stored = login(&format!("--fingerprint {} --token env:SECRET", fingerprint.to_uppercase()));
    assert!(stored.code == Some(0) && !stored.stdout.contains(&token), "{stored:?}");
    let run = |line: &str| Ended::from(user(home.path()).args(line.split_whitespace()).output().expect("it runs"));
    assert!(stored.stderr.contains(&format!("context default is in use now ({}", home.path().display())), "{stored:?}");
    assert_eq!(run("schedule list").code, Some(0));
    // A known authority is not asked about, and its token is kept: so nodes that joined are added.
    let added = run(&format!("login https://localhost:{0} https://127.0.0.1:{0}", port(&one.admin)));
    assert!(
        added.code == Some(0) && added.stdout.contains("localhost:") && added.stdout.contains("127.0.0.1:"),
        "{added:?}"
    );
    assert_eq!(run("schedule list").code, Some(0));
    for line in ["context list -o json", "context show -o json", "context show", "context list"] {
        let shown = run(line);
        assert!(shown.code == Some(0) && shown.stdout.contains("default"), "{shown:?}");
        assert!(!shown.stdout.contains(&token), "a token is shown nowhere: {shown:?}");
    }
    // A token of one tenant is enough.
    let created = run("token create deploy --role editor --tenant acme -o name");
    let deploy = user(home.path())
        .args(["login", &format!("https://localhost:{}", port(&one.admin)), "--name", "acme", "--token", "env:DEPLOY"])
        .args(["--fingerprint", &fingerprint])
        .env("DEPLOY", &created.stdout)
        .output();
    let deploy = Ended::from(deploy.expect("it runs"));
    assert_eq!(deploy.code, Some(0), "{deploy:?}");
    assert!(deploy.stderr.contains("context acme is in use now"), "{deploy:?}");
    assert!(deploy.stderr.contains("the one before: reveille context use default"), "{deploy:?}");
    let own: Value = serde_json::from_str(&run("--context acme token show -o json").stdout).expect("a token");
    assert_eq!((&own["token"]["name"], &own["token"]["roles"][0]), (&"deploy".into(), &"ROLE_EDITOR".into()));
    let unknown = run("--context other schedule list -o json");
    assert!(unknown.code == Some(3) && unknown.stderr.contains("CONTEXT_NOT_FOUND"), "{unknown:?}");
    assert_eq!(run("context use default -o name").stdout, "default\n");
    assert_eq!(run("context remove default --yes").code, Some(0));
    assert_eq!(run("context show").code, Some(3));
}

#[test]
fn silent_sockets_do_not_delay_other_clients_of_the_port() {
    let folder = tempfile::tempdir().expect("a folder");
    let environment = unsubscribe::environment(folder.path());
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let one = founder(folder.path(), LOOPBACK, &environment);
    let page = |address: &str| Process::said_by(address, "GET / HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    let ports: [(&str, &dyn Fn() -> bool); 4] = [
        (&one.admin, &|| one.reveille("schedule list").code == Some(0)),
        (&one.http, &|| one.get("/livez").contains("alive")),
        (&one.unsubscribe, &|| page(&one.unsubscribe).starts_with("HTTP/1.1 ")),
        // A request in plaintext gets a TLS alert.
        (&one.peers, &|| page(&one.peers).starts_with('\u{15}')),
    ];
    for (address, is_answered) in ports {
        let silent: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        assert!(is_answered(), "{address}: {}", one.said());
        let open = silent.iter().filter(|stream| {
            stream.set_nonblocking(true).expect("a socket");
            matches!((&**stream).read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        assert_eq!(open.count(), silent.len(), "{address}: it was answered before the silent sockets were closed");
    }
}

#[test]
fn pages_on_other_addresses_than_loopback_are_encrypted() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = founder(folder.path(), ["127.0.0.1:0", "127.0.0.1:0", "0.0.0.0:0"], &[]);
    let address = format!("127.0.0.1:{}", port(&one.http));
    let plain = Process::said_by(&address, "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n");
    assert!(!plain.contains("alive"), "{plain}");
    let ca = std::fs::read_to_string(folder.path().join("one/tls/ca.pem")).expect("a certificate");
    let tls = reveille_raft::tls::ClientTls::trusting(&ca).expect("a certificate");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let page = |path: &str, headers: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\n{headers}\r\n");
        runtime.block_on(async {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let stream = tokio::net::TcpStream::connect(&address).await.expect("a connection");
            let mut stream = tls.connect("localhost", stream).await.expect("TLS");
            stream.write_all(request.as_bytes()).await.expect("written");
            let mut page = String::new();
            // The server ends the connection without a last word of TLS.
            let _ = stream.read_to_string(&mut page).await;
            page
        })
    };
    assert!(page("/livez", "").contains("alive"));
    // Metrics tell what the cluster sends, so there they need a token.
    let create = |scope: &str| one.reveille(&format!("token create metrics --role viewer {scope} -o name")).stdout;
    let bearer = |token: &str| format!("Authorization: Bearer {}\r\n", token.trim());
    let viewer = create("--all-tenants");
    let metrics = page("/metrics", &bearer(&viewer));
    assert!(metrics.starts_with("HTTP/1.1 200 ") && metrics.contains("reveille_recipients_pending"), "{metrics}");
    for headers in [String::new(), bearer("rvt_1_2_3"), "Authorization: Basic YTpi\r\n".to_owned()] {
        let refused = page("/metrics", &headers);
        assert!(refused.starts_with("HTTP/1.1 401 ") && !refused.contains("reveille_"), "{refused}");
    }
    let refused = page("/metrics", &bearer(&create("--tenant acme")));
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    let denied = "reveille_calls_denied_total{reason=\"token_not_valid\"} 3";
    assert!(page("/metrics", &bearer(&viewer)).contains(denied));
    assert!(one.said().contains("a call was denied path=\"/metrics\""), "{}", one.said());
}

/// Writes a certificate of this authority and its key, as an operator's tool would.
fn issue(by: &CertifiedIssuer<'_, KeyPair>, folder: &Path) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::new(names).expect("names");
    parameters.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let certificate = parameters.signed_by(&key, by).expect("a certificate");
    std::fs::write(folder.join("own.key"), key.serialize_pem()).expect("written");
    std::fs::write(folder.join("own.crt"), certificate.pem()).expect("written");
}

#[test]
fn own_certificate_is_served_and_read_again_when_it_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut company = CertificateParams::new(Vec::new()).expect("parameters");
    company.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let company = CertifiedIssuer::self_signed(company, KeyPair::generate().expect("a key")).expect("an authority");
    let (ca, own) = (folder.path().join("company.pem"), |name: &str| folder.path().join(name).display().to_string());
    std::fs::write(&ca, company.pem()).expect("written");
    issue(&company, folder.path());
    let (certificate, key) = (own("own.crt"), own("own.key"));
    let environment = [("REVEILLE__TLS__CERTIFICATE", certificate.as_str()), ("REVEILLE__TLS__KEY", key.as_str())];
    let one = Process::listening_by(folder.path(), "one", LOOPBACK, &environment);
    let foreign = one.reveille("schedule list");
    assert!(foreign.code == Some(5) && foreign.stderr.contains("of another authority"), "{foreign:?}");

    let (home, token) = (tempfile::tempdir().expect("a folder"), first_token(folder.path()));
    let login = || {
        let line = format!("login https://{} --ca {} --token env:SECRET", one.admin, ca.display());
        let ended = user(home.path()).args(line.split_whitespace()).env("SECRET", &token).output();
        Ended::from(ended.expect("it runs"))
    };
    until("a leader", || login().code == Some(0));
    let value = |name: &str| {
        one.get("/metrics").lines().find_map(|line| line.strip_prefix(&format!("{name} ")).map(str::to_owned))
    };
    let metric = || value("reveille_certificate_files_failed");
    assert_eq!(metric().as_deref(), Some("0"));
    let expiry = value("reveille_certificate_files_expire_timestamp_seconds");
    assert_eq!(expiry.as_deref(), Some("4102444800"), "2100");

    std::fs::write(folder.path().join("own.crt"), "damaged").expect("written");
    until("it is noticed", || metric().as_deref() == Some("1"));
    assert!(one.said().contains("cannot be read again: the former one stays"), "{}", one.said());
    assert_eq!(login().code, Some(0), "the former one is served");
    issue(&company, folder.path());
    until("it is read", || one.said().contains("clients get another certificate"));
    assert_eq!((metric().as_deref(), login().code), (Some("0"), Some(0)));

    let broken = start(folder.path(), "two", &["--insecure"]).envs(environment).output().expect("it runs");
    let broken = Ended::from(broken);
    assert!(broken.code == Some(2) && broken.stderr.contains("tls.certificate"), "{broken:?}");
}
