//! Backups by real nodes, and new clusters that are made of them (P21).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::{Timestamp, ToSpan, Unit};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reveille_sink::{Sink, SinkOptions};
use tempfile::TempDir;

use crate::process::{Ended, Process, client, ports, until};
use crate::s3_server::{BUCKET, S3Server, SECRET};

const RECIPIENT: &str = "ann@example.net";
/// Nothing listens there.
const NO_RELAY: u16 = 1;
/// Recipients of a run that is at work when its cluster is backed up or lost.
const LARGE: usize = 200;

fn output(node: &Process, line: &str) -> String {
    let ended = node.reveille(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.stdout
}

/// Runs a command that asks no node.
fn offline(folder: &Path, line: &str) -> Ended {
    Process::reveille_at(folder, "127.0.0.1:1", line)
}

/// Opens a run to [`LARGE`] recipients, of which one a second gets its email. Returns its name.
fn begin_large(folder: &Path, node: &Process, port: u16) -> String {
    output(node, &format!("relay add main --host 127.0.0.1 --port {port} --tls none --rate-per-second 1 --replace"));
    let list = folder.join("list.csv");
    let rows: String = (0..LARGE).map(|row| format!("r{row}@example.net\n")).collect();
    std::fs::write(&list, format!("email\n{rows}")).expect("a list");
    let what = "--at 2040-01-01T00:00:00Z --zone UTC --sender a@example.net --subject s --inline-text t";
    output(node, &format!("schedule create large {what} --recipients {}", list.display()));
    output(node, "schedule trigger large -o name").lines().next().expect("a name").to_owned()
}

/// Lets a restored cluster send, closes what is in doubt of this run, and waits until an email of a new run arrives.
fn go_on(node: &Process, sink: &Sink, run: &str, recipient: &str) {
    output(node, "restore accept --former-cluster-is-dead --yes");
    output(node, &format!("in-doubt resolve {run} --all --sent --yes"));
    let what = format!("--daily 09:00 --zone UTC --to {recipient} --sender b@example.net --subject s");
    output(node, &format!("schedule create other {what} --inline-text t"));
    output(node, "schedule trigger other");
    until("a new run is sent", || accepts(sink).contains_key(recipient));
}

/// True if a file of opt-outs in this target has the address.
fn has_opt_out(target: &Path, address: &str) -> bool {
    let files = std::fs::read_dir(target.join("optouts")).into_iter().flatten().flatten();
    files.map(|file| file.path()).any(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains(address)))
}

/// Returns how many emails came for each recipient.
fn accepts(sink: &Sink) -> BTreeMap<String, usize> {
    let mut accepts = BTreeMap::new();
    sink.handle().emails().iter().for_each(|(_, one)| *accepts.entry(one.recipient.clone()).or_default() += 1);
    accepts
}

fn assert_none_twice(sink: &Sink) {
    let twice: Vec<_> = accepts(sink).into_iter().filter(|(_, count)| *count != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// A node with a target for backups, and a run of one email.
struct Former {
    folder: TempDir,
    target: PathBuf,
    node: Process,
}

impl Former {
    /// The relay is at this port of the machine.
    fn start(relay: u16) -> Former {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("backups");
        std::fs::create_dir(&target).expect("a target");
        let place = target.to_str().expect("a path").to_owned();
        let environment = [("REVEILLE__BACKUP__TARGET", place.as_str())];
        let node = Process::listening_by(folder.path(), "one", ["127.0.0.1:0"; 3], &environment);
        until("it leads", || node.reveille("schedule list").code == Some(0));
        output(&node, &format!("relay add main --host 127.0.0.1 --port {relay} --tls none"));
        let what = format!("--daily 09:00 --zone UTC --to {RECIPIENT} --sender b@example.net --subject s");
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
    let former = Former::start(NO_RELAY);
    output(&former.node, "optout add early@example.net");
    let name = former.backup();
    let listed = former.line("backup list -o name").stdout;
    assert!(listed.lines().any(|line| line == name), "{name} in {listed}");
    let verified = former.line(&format!("backup verify {name}"));
    assert_eq!(verified.code, Some(0), "{verified:?}");
    output(&former.node, "optout add late@example.net");
    until("the opt-out is at the target", || has_opt_out(&former.target, "late@example.net"));

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
    let held = "nothing is sent before `reveille restore accept`";
    assert!(output(&node, "schedule show daily").contains(held));
    assert!(output(&node, "schedule list").contains("not before restore accept"));
    let json = |line: &str| -> serde_json::Value { serde_json::from_str(&output(&node, line)).expect("JSON") };
    let upcoming = json("restore status -o json")["upcoming"][0]["dueTime"].clone();
    assert!(upcoming.is_string() && upcoming == json("schedule show daily -o json")["nextInstants"][0]["time"]);
    // Another authority: neither accepts the other's user.
    let foreign = Process::reveille_at(folder.path(), &former.node.admin, "cluster status");
    assert_ne!(foreign.code, Some(0), "{foreign:?}");

    node.kill();
    let node = node.again(folder.path(), "two");
    until("it leads again", || node.reveille("schedule list").code == Some(0));
    assert_eq!(sink.handle().accepted_count(), 0, "nothing was sent");
    output(&node, "restore accept --former-cluster-is-dead --yes");
    assert_eq!(node.reveille("schedule trigger daily").code, Some(4), "the doubt counts for min_gap");
    let what = format!("--daily 09:00 --zone UTC --to {RECIPIENT} --sender b@example.net --subject s");
    output(&node, &format!("schedule create other {what} --inline-text t"));
    let run = output(&node, "schedule trigger other -o name");
    let is_sent = || {
        output(&node, &format!("run show {} -o json", run.lines().next().unwrap_or_default())).contains("\"sent\": 1")
    };
    until("a new run is sent", is_sent);
    assert_eq!(sink.handle().accepted_count(), 1, "what was in doubt is not sent by itself");
    sink.stop().await;
}

/// The former cluster is not dead, as the operator believes. Both have the same relay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_cluster_and_living_former_one_send_no_email_twice() {
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let port = sink.handle().address().port();
    let former = Former::start(port);
    let run = begin_large(former.folder.path(), &former.node, port);
    until("emails arrive", || sink.handle().accepted_count() > 5);
    let due = (Timestamp::now() + 20.seconds()).round(Unit::Second).expect("an instant");
    let what = "--zone UTC --to soon@example.net --sender b@example.net --subject s --inline-text t --priority 9";
    output(&former.node, &format!("schedule create soon --at {due} {what}"));
    let name = former.backup();

    let folder = tempfile::tempdir().expect("a folder");
    let addresses = ports();
    let restored = former.restore(folder.path(), &format!("--backup {name} --peer-listen {}", addresses[1]));
    assert!(restored.code == Some(0) && !restored.stdout.contains("no emails in doubt"), "{restored:?}");
    let node = started(folder.path(), &sink, &addresses);
    until("the former cluster sends what fell due after the backup", || {
        accepts(&sink).contains_key("soon@example.net")
    });
    go_on(&node, &sink, &run, "new@example.net");
    let sent = || output(&former.node, &format!("run show {run} -o json")).contains(&format!("\"sent\": {LARGE}"));
    assert!(!sent(), "the former cluster is still sending");

    output(&former.node, &format!("relay add main --host 127.0.0.1 --port {port} --tls none --replace"));
    until("the former cluster has sent all", sent);
    assert_none_twice(&sink);
    assert_eq!(accepts(&sink).len(), LARGE + [RECIPIENT, "soon@example.net", "new@example.net"].len());
    sink.stop().await;
}

#[test]
fn damaged_backup_restores_nothing() {
    let mut former = Former::start(NO_RELAY);
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
    // Each older backup needs the files of opt-outs, too.
    for file in std::fs::read_dir(files.join("optouts")).expect("files").map(|entry| entry.expect("an entry").path()) {
        std::fs::write(&file, "damaged").expect("written");
    }
    let into = new.path().join("three").display().to_string();
    let line = format!("restore run --from {target} --name three --data-dir {into}");
    let refused = offline(&line, &[]);
    assert!(refused.code == Some(1) && refused.stderr.contains("with --without-opt-outs"), "{refused:?}");
    let restored = offline(&format!("{line} --without-opt-outs"), &[]);
    assert_eq!(restored.code, Some(0), "{restored:?}");

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
    // Another cluster: the last entries of two logs cannot be compared.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut foreign = Process::listening(elsewhere.path(), "one");
    until("it leads", || foreign.reveille("schedule list").code == Some(0));
    foreign.kill();
    let foreign = elsewhere.path().join("one").display().to_string();
    let mixed = format!("{} {foreign}", survivor.display());
    let cluster = |folder: &Path| {
        let identity = std::fs::read_to_string(folder.join("identity")).expect("an identity");
        identity.lines().find_map(|line| line.strip_prefix("cluster ")).expect("a cluster").to_owned()
    };
    for line in [format!("recover inspect {mixed} -o json"), format!("recover run {mixed} --name x --data-dir x --yes")]
    {
        let refused = offline(elsewhere.path(), &line);
        assert!(refused.code == Some(2) && !refused.stdout.contains("best"), "{refused:?}");
        for folder in [survivor.as_path(), Path::new(&foreign)] {
            let named = format!("{} is of cluster {}", folder.display(), cluster(folder));
            assert!(refused.stderr.contains(&named), "{named}: {refused:?}");
        }
    }
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

/// Four died before the others, so five has the newer state. Each choice of folders is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_choice_among_two_survivors_of_five_sends_nothing_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    let names = ["one", "two", "three", "four", "five"];
    let target = folder.path().join("backups");
    std::fs::create_dir(&target).expect("a target");
    let place = target.display().to_string();
    let environment = [("REVEILLE__BACKUP__TARGET", place.as_str())];
    let mut nodes = Process::cluster(folder.path(), names, &environment);
    let run = begin_large(folder.path(), &nodes[0], sink.handle().address().port());
    until("emails arrive", || sink.handle().accepted_count() > 5);
    nodes[3].kill();
    until("it is opted out", || nodes[4].reveille("optout add bob@example.net").code == Some(0));
    until("the opt-out is at the target", || has_opt_out(&target, "bob@example.net"));
    let before = sink.handle().accepted_count();
    until("more emails arrive", || sink.handle().accepted_count() > before + 5);
    nodes.iter_mut().for_each(Process::kill);
    until("its dialogues end", || sink.handle().connections().is_empty());
    let mut sent = sink.handle().accepted_count();
    assert!(sent < LARGE as u64, "the run was at work");

    let path = |name: &str| folder.path().join(name).display().to_string();
    let both = format!("{} {}", path("four"), path("five"));
    let inspected = offline(folder.path(), &format!("recover inspect {both} -o json"));
    let found: serde_json::Value = serde_json::from_str(&inspected.stdout).unwrap_or_else(|_| panic!("{inspected:?}"));
    let best: Vec<_> = found.as_array().expect("a list").iter().filter(|one| one["best"] == true).collect();
    assert!(best.len() == 1 && best[0]["name"] == "five", "{found}");
    assert!(!inspected.stderr.contains("majority"), "{inspected:?}");
    let recover = |new: &Path, from: &str, target: &Path, flags: &str| {
        let mut command = client(new, "127.0.0.1:1");
        let line = format!("recover run {from} --name two --data-dir {} --yes {flags}", new.join("two").display());
        command.env("REVEILLE__BACKUP__TARGET", target).args(line.split_whitespace());
        Ended::from(command.output().expect("it runs"))
    };
    let (new, empty) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    for unread in [folder.path().join("gone"), empty.path().to_owned()] {
        let refused = recover(new.path(), &both, &unread, "");
        assert!(refused.code == Some(1) && refused.stderr.contains("--without-opt-outs"), "{refused:?}");
    }
    // Four alone does not know of the opt-out.
    let chosen = [
        (both, "", true, "new@example.net"),
        (path("four"), "", true, "newer@example.net"),
        (path("four"), "--without-opt-outs", false, "newest@example.net"),
    ];
    for (survivors, flags, knows, recipient) in chosen {
        let new = tempfile::tempdir().expect("a folder");
        let addresses = ports();
        let flags = format!("--peer-listen {} {flags}", addresses[1]);
        let recovered = recover(new.path(), &survivors, &target, &flags);
        assert!(recovered.code == Some(0) && !recovered.stdout.contains("no emails in doubt"), "{recovered:?}");
        let node = started(new.path(), &sink, &addresses);
        assert_eq!(output(&node, "optout check bob@example.net").contains("yes"), knows, "{survivors}");
        assert_ne!(node.reveille("schedule trigger large").code, Some(0), "it is held");
        assert_eq!(sink.handle().accepted_count(), sent, "nothing was sent");
        go_on(&node, &sink, &run, recipient);
        sent += 1;
        assert_none_twice(&sink);
        assert_eq!(sink.handle().accepted_count(), sent, "what was in doubt is not sent by itself");
    }
    sink.stop().await;
}
