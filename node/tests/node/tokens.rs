//! Tokens in a cluster of processes: how a revocation reaches all nodes, and that secrets and addresses reach no log.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use data_encoding::BASE32_NOPAD;

use crate::process::{Ended, Process, client, until};

/// Returns the answer of a node to a command with this token.
fn with_token(folder: &Path, node: &Process, token: &str, line: &str) -> Ended {
    let mut command = client(folder, &node.admin);
    command.args(line.split_whitespace()).env("REVEILLE_TOKEN", token).output().expect("it runs").into()
}

#[test]
fn revoked_token_is_refused_by_all_nodes() {
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = Process::cluster(folder.path(), ["one", "two", "three"], &[]);
    let created = nodes[0].reveille("token create deploy --role editor --role viewer --all-tenants -o name");
    let token = created.stdout.trim();
    for node in &nodes {
        until("it is known", || with_token(folder.path(), node, token, "schedule list").code == Some(0));
    }
    let id = token.split('_').nth(1).expect("an id");
    assert_eq!(nodes[0].reveille(&format!("token revoke {id} --yes")).code, Some(0));
    let begun = Instant::now();
    // A read waits until the node has applied what was answered before. So the first one is refused.
    for node in &nodes {
        let read = with_token(folder.path(), node, token, "schedule list");
        assert_eq!(read.code, Some(6), "{read:?}");
        let write = with_token(folder.path(), node, token, "optout add ann@example.net");
        assert_eq!(write.code, Some(6), "{write:?}");
    }
    for node in &nodes {
        until("stale reads end", || with_token(folder.path(), node, token, "schedule list --stale").code == Some(6));
    }
    println!("refused by all, in nine calls, after {:?}", begun.elapsed());
}

/// A relay that takes every login, and refuses every recipient with its address in the text.
fn relay() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    stream.write_all(b"220 relay\r\n")?;
    while let Some(line) = lines.next().transpose()? {
        let reply = match line.to_ascii_uppercase().split([' ', ':']).next().unwrap_or_default() {
            "EHLO" => "250-relay\r\n250 AUTH PLAIN".to_owned(),
            "AUTH" => "235 2.7.0 welcome".to_owned(),
            "RCPT" => format!("550 5.1.1 unknown: {line}"),
            "DATA" => "354 go on".to_owned(),
            "QUIT" => "221 bye".to_owned(),
            _ => "250 2.0.0 ok".to_owned(),
        };
        stream.write_all(format!("{reply}\r\n").as_bytes())?;
    }
    Ok(())
}

/// Returns the forms of a secret in which it must not be found.
fn forms(name: &'static str, text: &str) -> Vec<(&'static str, Vec<u8>)> {
    let raw = BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).unwrap_or_default();
    [text.as_bytes().to_vec(), raw].into_iter().filter(|form| form.len() >= 16).map(|form| (name, form)).collect()
}

fn contains(bytes: &[u8], form: &[u8]) -> bool {
    bytes.windows(form.len()).any(|window| window == form)
}

/// Checks that no file below this folder has a secret.
fn check_files(folder: &Path, secrets: &[(&str, Vec<u8>)]) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().expect("a kind"))).expect("an entry");
        if kind.is_dir() {
            check_files(&path, secrets);
        } else if kind.is_file() {
            let bytes = fs::read(&path).expect("a file");
            for (name, form) in secrets {
                assert!(!contains(&bytes, form), "{name} is in {}", path.display());
            }
        }
    }
}

#[test]
fn secrets_and_addresses_are_in_no_log_and_secrets_in_no_data() {
    const PASSWORD: &str = "canary-password-of-the-relay";
    const ADDRESS: &str = "canary-recipient";
    let folder = tempfile::tempdir().expect("a folder");
    let relay = relay();
    let (port, login) = (relay.port().to_string(), format!("canary-user:{PASSWORD}"));
    let environment = [
        ("REVEILLE__LOG__FILTER", "trace,openraft=trace,h2=trace,tonic=trace"),
        ("RELAY_LOGIN", login.as_str()),
        ("REVEILLE__CREDENTIALS__MAIN__HOST", "127.0.0.1"),
        ("REVEILLE__CREDENTIALS__MAIN__PORT", port.as_str()),
        ("REVEILLE__CREDENTIALS__MAIN__SECRET", "env:RELAY_LOGIN"),
    ];
    let one = Process::listening_by(folder.path(), "one", ["127.0.0.1:0"; 3], &environment);
    let (spent, unused) = (one.join_token(), one.join_token());
    let joining: Vec<_> = environment.iter().copied().chain([("REVEILLE__JOIN", spent.as_str())]).collect();
    let two = Process::listening_by(folder.path(), "two", ["127.0.0.1:0"; 3], &joining);
    until("both vote", || one.voters() == 2);
    let mut created = String::new();
    until("the token is created", || {
        let ended = one.reveille("token create deploy --role editor,sender,pii --all-tenants -o name");
        created = ended.stdout;
        ended.code == Some(0)
    });
    let deploy = created.trim();
    let reset = folder.path().join("one");
    let reset = one.reveille(&format!("token reset --data-dir {} --keep -o name", reset.display())).stdout;
    let unknown = format!("{}{}", &deploy[..24], deploy[24..].chars().rev().collect::<String>());

    let mut said = String::new();
    let mut run = |node: &Process, token: &str, line: &str, code: i32| {
        let ended = with_token(folder.path(), node, token, line);
        assert_eq!(ended.code, Some(code), "{line}: {ended:?}");
        said.push_str(&ended.stderr);
        ended.stdout
    };
    let admin = reset.trim();
    until("it is known", || with_token(folder.path(), &two, deploy, "schedule list").code == Some(0));
    let add = format!("relay add main --host 127.0.0.1 --port {port} --tls none --credentials main");
    until("the relay is taken", || with_token(folder.path(), &one, admin, &add).code == Some(0));
    run(&one, admin, "relay test main", 0);
    let create = format!(
        "schedule create report --at 2090-01-01T00:00:00Z --zone UTC --to {ADDRESS}@example.com --sender b@example.com \
         --subject s --inline-text t -vv"
    );
    run(&two, deploy, &create, 0);
    run(&two, deploy, &create.replace("--subject s", "--subject other"), 4);
    run(&one, deploy, "schedule trigger report", 0);
    until("it is refused", || one.reveille("dead-letter list -o json").stdout.contains(ADDRESS));
    run(&one, deploy, &format!("optout add {ADDRESS}@example.com"), 0);
    run(&one, deploy, &format!("optout check {ADDRESS}@example.com"), 0);
    run(&two, deploy, &format!("explain report@1 {ADDRESS}@example.com"), 3);
    for token in [&unknown, "no token", &deploy.replace('_', "-")] {
        run(&two, token, &format!("optout check {ADDRESS}@example.com"), 6);
    }
    run(&two, deploy, "token list", 6);
    let login = format!("login https://{} --fingerprint {} --token env:REVEILLE_TOKEN", one.admin, "0".repeat(64));
    run(&one, deploy, &login, 6);

    let mut secrets = vec![("the password", PASSWORD.as_bytes().to_vec())];
    for token in [deploy, admin] {
        secrets.extend(forms("a token", token.split('_').nth(2).expect("a secret")));
    }
    for token in [&spent, &unused] {
        // The code of a join token is its first 32 bytes.
        let text = token.strip_prefix("rvj1_").expect("a join token");
        secrets.extend(forms("a join token", text).into_iter().map(|(name, form)| (name, form[..32].to_vec())));
    }
    let logs = [one.said(), two.said(), one.get("/metrics"), two.get("/metrics"), said.clone()];
    assert!(logs[0].contains("TRACE") && logs[1].contains("TRACE"), "the most verbose level");
    for log in &logs {
        for (name, form) in &secrets {
            assert!(!contains(log.as_bytes(), form), "{name} is in a log");
        }
    }
    for log in &logs[..4] {
        let line = log.lines().find(|line| line.contains(ADDRESS));
        assert_eq!(line, None, "an address is in a log");
    }
    for node in ["one", "two", "journal"] {
        check_files(&folder.path().join(node), &secrets);
    }
}
