//! Backups by real nodes, and new clusters that are made of them (P21).

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reveille_sink::{Sink, SinkOptions};
use tempfile::TempDir;

use crate::process::{Ended, Process, client, ports, until};
use crate::s3_server::{BUCKET, S3Server, SECRET};

const RECIPIENT: &str = "ann@example.net";

fn output(node: &Process, line: &str) -> String {
    let ended = node.reveille(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.stdout
}

/// Runs a command that asks no node.
fn offline(folder: &Path, line: &str) -> Ended {
    Process::reveille_at(folder, "127.0.0.1:1", line)
}

/// A node with a target for backups, and a run whose only email waits for a relay that cannot be reached.
struct Former {
    folder: TempDir,
    target: PathBuf,
    node: Process,
}

impl Former {
    fn start() -> Former {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("backups");
        std::fs::create_dir(&target).expect("a target");
        let place = target.to_str().expect("a path").to_owned();
        let environment = [("REVEILLE__BACKUP__TARGET", place.as_str())];
        let node = Process::listening_by(folder.path(), "one", ["127.0.0.1:0"; 3], &environment);
        until("it leads", || node.reveille("schedule list").code == Some(0));
        // Nothing listens there.
        output(&node, "relay add main --host 127.0.0.1 --port 1 --tls none");
        let what = format!("--daily 09:00 --tz UTC --to {RECIPIENT} --sender b@example.net --subject s");
        output(&node, &format!("schedule create daily {what} --inline-text t"));
        output(&node, "schedule trigger daily");
        Former { folder, target, node }
    }

    fn backup(&self) -> String {
        let created = output(&self.node, "backup create -o name");
        created.trim().to_owned()
    }

    fn line(&self, command: &str) -> Ended {
        offline(self.folder.path(), &format!("{command} --target {}", self.target.display()))
    }

    fn restore(&self, into: &Path, flags: &str) -> Ended {
        let (from, data) = (self.target.display(), into.join("two"));
        offline(into, &format!("restore run --from {from} --name two --data-dir {} {flags}", data.display()))
    }

    /// Returns the files of the target in this folder.
    fn files(&self, folder: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.target.join(folder)).into_iter().flatten();
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

/// Starts the restored node with a sink as its relay. The addresses must be those given to `restore run`.
fn started(folder: &Path, sink: &Sink, addresses: &[String; 3]) -> Process {
    let node = Process::listening_by(folder, "two", addresses.each_ref().map(String::as_str), &[]);
    until("it leads", || node.reveille("schedule list").code == Some(0));
    let port = sink.handle().address().port();
    output(&node, &format!("relay add main --host 127.0.0.1 --port {port} --tls none --replace"));
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_becomes_another_cluster_that_sends_nothing_before_it_is_accepted() {
    let former = Former::start();
    output(&former.node, "optout add early@example.net");
    let name = former.backup();
    let listed = former.line("backup list -o name").stdout;
    assert!(listed.lines().any(|line| line == name), "{name} in {listed}");
    let verified = former.line(&format!("backup verify {name}"));
    assert_eq!(verified.code, Some(0), "{verified:?}");
    output(&former.node, "optout add late@example.net");
    let streamed = || {
        former
            .files("optouts")
            .iter()
            .any(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains("late@example.net")))
    };
    until("the opt-out is at the target", streamed);

    // The former cluster still runs beside the restored one.
    let folder = tempfile::tempdir().expect("a folder");
    let addresses = ports();
    let restored = former.restore(folder.path(), &format!("--backup {name} --peer-listen {}", addresses[1]));
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert!(restored.stdout.contains("1 email in doubt"), "{restored:?}");
    let again = former.restore(folder.path(), "");
    assert!(again.code == Some(1) && again.stderr.contains("is not empty"), "{again:?}");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let mut node = started(folder.path(), &sink, &addresses);
    for recipient in ["early@example.net", "late@example.net"] {
        assert!(output(&node, &format!("optout check {recipient}")).contains("yes"), "{recipient}");
    }
    assert_eq!(output(&node, "schedule list -o name"), output(&former.node, "schedule list -o name"));
    assert!(output(&node, "in-doubt list -o json").contains(RECIPIENT));
    assert_eq!(node.reveille("schedule trigger daily").code.filter(|code| *code == 0), None, "it is held");
    // Another authority: neither accepts the other's user.
    let foreign = Process::reveille_at(folder.path(), &former.node.admin, "cluster status");
    assert_ne!(foreign.code, Some(0), "{foreign:?}");

    node.kill();
    let node = node.again(folder.path(), "two");
    until("it leads again", || node.reveille("schedule list").code == Some(0));
    assert_eq!(sink.handle().accepted_count(), 0, "nothing was sent");
    output(&node, "restore accept --former-cluster-is-dead --yes");
    assert_eq!(node.reveille("schedule trigger daily").code, Some(4), "the doubt counts for min_gap");
    let what = format!("--daily 09:00 --tz UTC --to {RECIPIENT} --sender b@example.net --subject s");
    output(&node, &format!("schedule create other {what} --inline-text t"));
    let run = output(&node, "schedule trigger other -o name");
    let is_sent = || {
        output(&node, &format!("run show {} -o json", run.lines().next().unwrap_or_default())).contains("\"sent\": 1")
    };
    until("a new run is sent", is_sent);
    assert_eq!(sink.handle().accepted_count(), 1, "what was in doubt is not sent by itself");
    sink.stop().await;
}

#[test]
fn damaged_backup_restores_nothing() {
    let mut former = Former::start();
    former.backup();
    // The node makes a first backup by itself, which may name other blocks. So all are cut, after it is dead.
    former.node.kill();
    let folder = tempfile::tempdir().expect("a folder");
    let blocks = former.files("blocks");
    for block in &blocks {
        let whole = std::fs::read(block).expect("a block");
        std::fs::write(block, &whole[..whole.len() / 2]).expect("it is cut");
    }
    let names = || blocks.iter().filter_map(|block| block.file_name()?.to_str());
    for refused in [former.line("backup verify"), former.restore(folder.path(), "")] {
        let is_named = names().any(|name| refused.stderr.contains(name));
        assert!(refused.code == Some(1) && is_named, "{refused:?}");
    }
    assert!(!folder.path().join("two").exists(), "nothing was written");
}

/// Writes a certificate for 127.0.0.1, its key, and the authority that issued it: `ca.pem`, `server.pem`, `server.key`.
fn certify(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &ca).expect("a certificate");
    for (name, text) in [("ca.pem", ca.pem()), ("server.pem", certificate.pem()), ("server.key", key.serialize_pem())] {
        std::fs::write(folder.join(name), text).expect("written");
    }
}

#[test]
fn bucket_keeps_backups_over_tls_and_its_secret_is_shown_nowhere() {
    let folder = tempfile::tempdir().expect("a folder");
    certify(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    let tls = ["--cert".to_owned(), path("server.pem"), "--key".to_owned(), path("server.key")];
    let Some(server) = S3Server::start(folder.path(), &tls.each_ref().map(String::as_str)) else { return };
    let target = format!("s3://{BUCKET}/cluster-1");
    let (endpoint, credentials) =
        (format!("https://{}", server.address), format!("file:{}", server.credentials.display()));
    let environment = [
        ("REVEILLE__BACKUP__TARGET", target.as_str()),
        ("REVEILLE__BACKUP__ENDPOINT", &endpoint),
        ("REVEILLE__BACKUP__CREDENTIALS", &credentials),
        ("SSL_CERT_FILE", &path("ca.pem")),
    ];
    let node = Process::listening_by(folder.path(), "one", ["127.0.0.1:0"; 3], &environment);
    until("it leads", || node.reveille("schedule list").code == Some(0));
    let name = output(&node, "backup create -o name").trim().to_owned();
    output(&node, "optout add late@example.net");
    let files = folder.path().join("files").join(BUCKET).join("cluster-1");
    let streamed = || {
        let files = std::fs::read_dir(files.join("optouts")).into_iter().flatten().flatten();
        files
            .map(|file| file.path())
            .any(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains("late@example.net")))
    };
    until("the opt-out is in the bucket", streamed);
    let offline = |line: &str, more: &[(&str, &str)]| {
        let mut command = client(folder.path(), "127.0.0.1:1");
        let run = command.envs(environment).envs(more.iter().copied()).args(line.split_whitespace()).output();
        let ended = Ended::from(run.expect("it runs"));
        assert!(!ended.stdout.contains(SECRET) && !ended.stderr.contains(SECRET), "{ended:?}");
        ended
    };
    let listed = offline("backup list -o name", &[]);
    assert!(listed.stdout.lines().any(|line| line == name), "{name} in {listed:?}");
    for line in [format!("backup verify {name}"), "backup prune --keep 1".to_owned()] {
        let done = offline(&line, &[]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let shown = offline(&format!("config show --name one --data-dir {}", path("one")), &[]);
    assert!(shown.code == Some(0) && shown.stdout.contains(&credentials), "{shown:?}");

    // A service with another certificate gets no request.
    let elsewhere = tempfile::tempdir().expect("a folder");
    certify(elsewhere.path());
    let foreign = elsewhere.path().join("ca.pem").to_str().expect("a path").to_owned();
    let refused = offline("backup list", &[("SSL_CERT_FILE", &foreign)]);
    assert!(refused.code == Some(1) && refused.stderr.contains("certificate"), "{refused:?}");
    let wrong = elsewhere.path().join("credentials").to_str().expect("a path").to_owned();
    std::fs::write(&wrong, "AKIDEXAMPLE:another-secret").expect("written");
    let refused = offline("backup list", &[("REVEILLE__BACKUP__CREDENTIALS", &format!("file:{wrong}"))]);
    assert!(refused.code == Some(1) && refused.stderr.contains("answered 403"), "{refused:?}");
    assert!(!refused.stderr.contains("another-secret"), "{refused:?}");

    let new = tempfile::tempdir().expect("a folder");
    let into = new.path().join("two").display().to_string();
    let restored = offline(&format!("restore run --from {target} --name two --data-dir {into}"), &[]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert!(restored.stderr.contains("opt-outs until"), "{restored:?}");

    // One bit of each file.
    for block in std::fs::read_dir(files.join("blocks")).expect("blocks").map(|entry| entry.expect("an entry").path()) {
        let mut bytes = std::fs::read(&block).expect("a block");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&block, bytes).expect("it is damaged");
    }
    let found = offline(&format!("backup verify {name}"), &[]);
    let is_named = found.stderr.contains(&format!("{target}/blocks/")) && found.stderr.contains("is damaged");
    assert!(found.code == Some(1) && is_named, "{found:?}");
    assert!(!node.said().contains(SECRET));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_survivor_of_three_becomes_another_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let [mut one, mut two, mut three] = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    output(&two, "optout add ann@example.net");
    [&mut one, &mut two, &mut three].into_iter().for_each(Process::kill);
    let survivor = folder.path().join("three");
    let before =
        std::fs::read(survivor.join("wal").read_dir().expect("a log").next().expect("a segment").expect("it").path())
            .expect("bytes");
    let inspected = offline(folder.path(), &format!("recover inspect {} -o json", survivor.display()));
    assert!(inspected.code == Some(0) && inspected.stdout.contains("\"best\": true"), "{inspected:?}");
    assert!(
        inspected.stderr.contains("reveille recover run") && !inspected.stderr.contains("majority"),
        "{inspected:?}"
    );
    let both = format!("recover inspect {} {}", survivor.display(), folder.path().join("one").display());
    let both = offline(folder.path(), &both);
    assert!(both.code == Some(0) && both.stderr.contains("2 of 3 voters are here, a majority"), "{both:?}");
    let new = tempfile::tempdir().expect("a folder");
    let data = new.path().join("two");
    let addresses = ports();
    let into = format!("--name two --data-dir {} --peer-listen {}", data.display(), addresses[1]);
    let recovered = offline(new.path(), &format!("recover run {} {into} --yes", survivor.display()));
    assert_eq!(recovered.code, Some(0), "{recovered:?}");
    assert!(recovered.stderr.contains("context default is in use now"), "{recovered:?}");
    let after =
        std::fs::read(survivor.join("wal").read_dir().expect("a log").next().expect("a segment").expect("it").path())
            .expect("bytes");
    assert_eq!(before, after, "the old folder is as it was");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let node = started(new.path(), &sink, &addresses);
    assert!(output(&node, "optout check ann@example.net").contains("yes"));
    assert_eq!(node.voters(), 1);
    // Others join as usual.
    let token = node.join_token();
    let other = Process::listening_by(new.path(), "four", ["127.0.0.1:0"; 3], &[("REVEILLE__JOIN", token.as_str())]);
    until("it votes", || other.voters() == 2);
    sink.stop().await;
}
