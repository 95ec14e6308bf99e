//! Each test says what a person wrote, and what comes of it.

use std::io::Write;

use super::*;

mod keys;

fn load(file: &str, environment: &[(&str, &str)], flags: Settings) -> Result<Config, String> {
    let mut place = tempfile::NamedTempFile::with_prefix("reveille").expect("a file");
    place.write_all(file.as_bytes()).expect("written");
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let path = place.path().display().to_string();
    Config::load(Some(place.path()), environment, flags).map_err(|error| error.to_string().replace(&path, "FILE"))
}

fn refused(file: &str) -> String {
    load(file, &[], Settings::default()).map(|config| panic!("taken as {config:?}")).unwrap_or_else(|error| error)
}

const LEAST: &str = "name = \"a\"\ndata_dir = \"/data\"\n";

#[test]
fn name_and_a_folder_are_enough() {
    let config = load(LEAST, &[], Settings::default()).expect("enough");
    assert_eq!(config.listen.to_string(), "127.0.0.1:7600");
    assert_eq!(config.peer_listen.to_string(), "127.0.0.1:7601");
    assert_eq!(config.http.to_string(), "127.0.0.1:7680");
    assert_eq!(config.advertise, "127.0.0.1:7601");
    assert_eq!(config.journal_dir, PathBuf::from("/dev/shm"));
    assert_eq!(config.raft.election_ms, 250..500);
    assert_eq!((config.join, config.shutdown), (None, Duration::from_secs(30)));
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = format!(
        "{LEAST}listen = \"127.0.0.1:1\"\nhttp = \"127.0.0.1:2\"\njoin = \"file:/x\"\n[raft]\nheartbeat_ms = 20\n"
    );
    let environment = [
        ("REVEILLE__NAME", "7"),
        ("REVEILLE__HTTP", "127.0.0.1:3"),
        ("REVEILLE__JOIN", "env:TOKEN"),
        ("REVEILLE__INSECURE", "true"),
        ("REVEILLE__RAFT__SNAPSHOT_EVERY", "900"),
        ("REVEILLE_URL", "not a setting"),
        ("HOME", "/root"),
    ];
    let flags = Settings {
        name: Some("c".into()),
        peer_listen: "0.0.0.0:4".parse().ok(),
        advertise: Some("c:2".into()),
        ..Settings::default()
    };
    let config = load(&file, &environment, flags).expect("good");
    assert_eq!(config.name, "c", "flag over environment");
    assert_eq!(config.http.to_string(), "127.0.0.1:3", "environment over file");
    assert_eq!(config.listen.to_string(), "127.0.0.1:1", "file over default");
    assert_eq!(config.join, Some(JoinSource::Secret(Secret::Env("TOKEN".to_owned()))));
    assert_eq!((config.raft.heartbeat_ms, config.raft.snapshot_every), (20, 900));
    assert_eq!(config.raft.election_ms, 100..200, "follows the heartbeat");
    assert_eq!(load(LEAST, &[("REVEILLE__NAME", "7")], Settings::default()).map(|config| config.name), Ok("7".into()));
}

#[test]
fn unknown_key_is_named_with_its_place_and_the_nearest() {
    assert_eq!(
        refused("name = \"a\"\n  lisen = \"127.0.0.1:1\"\n"),
        "FILE:2:3: unknown key `lisen`; did you mean `listen`?\n  2 |   lisen = \"127.0.0.1:1\"\n    |   ^^^^^"
    );
    assert!(refused("[raft]\nheartbeat = 5\n").starts_with("FILE:2:1: unknown key `heartbeat`; "));
    assert!(
        refused("[raft]\nhartbeat_ms = 5\n")
            .starts_with("FILE:2:1: unknown key `hartbeat_ms`; did you mean `heartbeat_ms`?")
    );
    assert!(refused("\u{fc} = 1\n").starts_with("FILE:1:1: "));
}

#[test]
fn wrong_value_is_named_with_its_place() {
    assert!(refused("name = \"a\"\nlisten = \"here\"\n").starts_with("FILE:2:10: invalid socket address"));
    assert!(refused("name = 5\n").starts_with("FILE:1:8: invalid type"));
    assert!(refused("name = = 1\n").starts_with("FILE:1:8: "));
    assert!(refused("name = \"a\"\nname = \"b\"\n").starts_with("FILE:2:1: duplicate key"));
}

#[test]
fn wrong_variable_is_named() {
    let refused = |name: &str, value: &str| {
        load(LEAST, &[(name, value)], Settings::default())
            .map(|config| panic!("{config:?}"))
            .unwrap_or_else(|error| error)
    };
    assert_eq!(
        refused("REVEILLE__LISEN", "127.0.0.1:1"),
        "environment variable REVEILLE__LISEN: unknown key `lisen`; did you mean `listen`?"
    );
    assert!(
        refused("REVEILLE__LISTEN", "here")
            .starts_with("environment variable REVEILLE__LISTEN: invalid socket address")
    );
    assert!(
        refused("REVEILLE__RAFT__SNAPSHOT_EVERY", "many")
            .starts_with("environment variable REVEILLE__RAFT__SNAPSHOT_EVERY: invalid type")
    );
}

#[test]
fn value_that_cannot_be_used_is_refused_with_a_way_out() {
    for (more, expected) in [
        ("insecure = true\nlisten = \"0.0.0.0:7600\"", "listen: 0.0.0.0:7600 can be reached by others"),
        ("insecure = true\nhttp = \"10.0.0.1:7680\"", "http: 10.0.0.1:7680 can be reached by others"),
        ("tls_names = [\"a.example.com\", \"b:7600\"]", "tls_names: 'b:7600' is neither a host name nor an address"),
        (
            "insecure = true\npeer_listen = \"0.0.0.0:7601\"",
            "advertise: it is not set, and no peer can connect to 0.0.0.0",
        ),
        ("http = \"127.0.0.1:7600\"", "http: 127.0.0.1:7600 is that of `listen` too"),
        ("join = \"rvj1_abc\"", "join: it is not a join token, or not a whole one (FILE:3); give the whole token"),
        ("advertise = \":7601\"", "advertise: ':7601' is not an address"),
        ("advertise = \"0.0.0.0:7601\"", "advertise: no peer can connect to 0.0.0.0"),
        ("advertise = \"[::]:7601\"", "advertise: no peer can connect to ::"),
        ("shutdown_seconds = 86400", "shutdown_seconds: 86400 is out of range (FILE:3); give a number from 10 to 3600"),
        ("[raft]\nheartbeat_ms = 200\nelection_min_ms = 300", "raft.election_min_ms: 300 ms is below 3 heartbeats"),
        (
            "[raft]\nelection_min_ms = 60000",
            "raft.election_min_ms: 60000 is out of range (FILE:4); give a number from 150",
        ),
        ("[raft]\nelection_min_ms = 700\nelection_max_ms = 700", "raft.election_max_ms: 700 ms is not above"),
    ] {
        let error = refused(&format!("{LEAST}{more}\n"));
        assert!(error.starts_with(expected), "{more}: {error}");
    }
    assert!(refused("data_dir = \"/data\"\n").starts_with("name: it is not set"));
    assert!(refused("name = \"a b\"\ndata_dir = \"/data\"\n").starts_with("name: 'a b' cannot be a name"));
    assert!(refused("name = \"a\"\n").starts_with("data_dir: it is not set"));
}

#[test]
fn credentials_are_bound_to_host_and_port() {
    let file = format!(
        "{LEAST}[credentials.ses]\nhost = \"smtp.example.com\"\nport = 587\nsecret = \"file:/etc/reveille/ses\"\n"
    );
    let environment = [("REVEILLE__CREDENTIALS__SES__PORT", "465"), ("REVEILLE__CREDENTIALS__MX__HOST", "mx")];
    let config = load(&file, &environment[..1], Settings::default()).expect("good");
    let found = &config.credentials["ses"];
    assert_eq!(found.secret.to_string(), "file:/etc/reveille/ses");
    let error = load(&file, &environment, Settings::default()).expect_err("one is not whole");
    assert!(error.starts_with("credentials.mx.port: it is not set; name the relay's port"), "{error}");
    for (more, expected) in [
        ("port = 587\nsecret = \"env:X\"", "credentials.ses.host: it is not set; name the relay that gets them"),
        ("host = \"h\"\nport = 0\nsecret = \"env:X\"", "credentials.ses.port: it is not set"),
        ("host = \"h\"\nport = 25", "credentials.ses.secret: it is not set; write secret = \"file:/etc"),
        ("host = \"a b\"\nport = 25\nsecret = \"env:X\"", "credentials.ses.host: 'a b' is not a host (FILE:4)"),
        (
            "host = \"h\"\nport = 25\nsecret = \"anna:hunter2\"",
            "credentials.ses.secret: is not a reference to a secret; give file:/absolute/path or env:NAME (FILE:6)",
        ),
        (
            "host = \"h\"\nport = 25\nsecret = \"env:X\"\nmechanism = \"cram\"",
            "credentials.ses.mechanism: 'cram' is not known (FILE:7); write \"password\" or \"xoauth2\"",
        ),
        ("user = \"x\"", "FILE:4:1: unknown key `user`; "),
    ] {
        let error = refused(&format!("{LEAST}[credentials.ses]\n{more}\n"));
        assert!(error.starts_with(expected) && !error.contains("hunter2"), "{more}: {error}");
    }
    let error = refused(&format!("{LEAST}[credentials.\"A B\"]\nport = 25\n"));
    assert!(error.starts_with("credentials.A B: 'A B' cannot be the name of credentials"), "{error}");
}

#[test]
fn reply_rules_belong_to_one_relay_and_errors_name_their_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules.toml");
    let file = format!("{LEAST}[replies.ses]\nfile = \"{}\"\n", rules.display());
    let environment = [("REVEILLE__REPLIES__MX__FILE", "/nowhere/rules.toml")];
    let config = load(&file, &environment, Settings::default()).expect("files are not read yet");
    assert_eq!(config.replies.keys().collect::<Vec<_>>(), ["mx", "ses"]);
    let error = config.reply_rules().expect_err("one is not there").to_string();
    assert!(error.starts_with("replies.mx.file: /nowhere/rules.toml cannot be read: No such file"), "{error}");

    let config = load(&file, &[], Settings::default()).expect("good");
    let classified = |text: &str| {
        std::fs::write(&rules, text).expect("written");
        let read = config.reply_rules().map(|rules| rules.keys().cloned().collect::<Vec<_>>());
        read.map_err(|error| error.to_string().replace(&rules.display().to_string(), "RULES"))
    };
    assert_eq!(classified("[[rule]]\ncode = [\"4xx\"]\nclass = \"throttle\"\n"), Ok(vec!["ses".to_owned()]));
    for (text, expected) in [
        ("[[rule]]\nclass = \"busy\"\n", "replies.ses.file: RULES:2:9: unknown variant `busy`"),
        (
            "[[rule]]\nclass = \"relay\"\ncod = [\"421\"]\n",
            "replies.ses.file: RULES:3:1: unknown key `cod`; did you mean `code`?",
        ),
        (
            "[[rule]]\ntext = [\"Too Many\"]\nclass = \"relay\"\n",
            "replies.ses.file: RULES:2:8: \"Too Many\" is empty or not in lower",
        ),
        ("[[rule]]\ncode = [\"421\"]\n", "replies.ses.file: RULES:1:1: missing field `class`"),
        ("", "replies.ses.file: RULES:1:1: missing field `rule`"),
    ] {
        let error = classified(text).expect_err(text);
        assert!(error.starts_with(expected) && error.contains("; correct that rule; "), "{text}: {error}");
    }
    let error = refused(&format!("{LEAST}[replies.ses]\n"));
    assert!(error.starts_with("replies.ses.file: it is not set; name the file of rules"), "{error}");
}

#[test]
fn others_may_reach_it_by_tls() {
    let config = load(&format!("{LEAST}listen = \"0.0.0.0:7600\"\n"), &[], Settings::default());
    assert_eq!(config.map(|config| config.listen.to_string()), Ok("0.0.0.0:7600".into()));
}

#[test]
fn file_that_is_not_there_is_named() {
    let missing = Path::new("/nowhere/reveille.toml");
    let error = Config::load(Some(missing), [], Settings::default()).expect_err("no file").to_string();
    assert!(error.starts_with("/nowhere/reveille.toml cannot be read: "), "{error}");
}

#[test]
fn settings_are_flags_too() {
    #[derive(clap::Parser)]
    struct Start {
        #[command(flatten)]
        settings: Settings,
    }
    let line = "start --name a --data-dir /d --listen 127.0.0.1:1 --join file:/token --insecure --shutdown-seconds 15";
    let start = <Start as clap::Parser>::try_parse_from(line.split(' ')).expect("flags");
    assert_eq!((start.settings.insecure, start.settings.shutdown_seconds), (Some(true), Some(15)));
    assert_eq!(start.settings.join, Some("file:/token".to_owned()));
    assert_eq!(start.settings.http, None);
    let nothing = <Start as clap::Parser>::try_parse_from(["start"]).expect("no flags");
    assert_eq!(nothing.settings, Settings::default());
}

#[test]
fn bucket_is_reached_by_an_endpoint_and_credentials() {
    let section = |lines: &str| format!("{LEAST}[backup]\ntarget = \"s3://bucket/a\"\n{lines}");
    let endpoint = "endpoint = \"https://s3.example.com\"\n";
    let whole = section(&format!("{endpoint}credentials = \"env:KEY\"\n"));
    let config = load(&whole, &[], Settings::default()).expect("good");
    assert!(config.backup.open().is_ok_and(|target| target.is_some()));
    let error = config.backup.check_credentials().expect_err("there is no such variable").to_string();
    assert!(error.starts_with("backup.credentials: env:KEY is not set"), "{error}");
    for (lines, lacks) in [("", "backup.endpoint: it is not set"), (endpoint, "backup.credentials: it is not set")] {
        let config = load(&section(lines), &[], Settings::default()).expect("each value is good");
        let error = config.backup.open().err().expect("it is not whole").to_string();
        assert!(error.starts_with(lacks), "{error}");
    }
    let plain = refused(&section("endpoint = \"http://s3.example.com\"\n"));
    assert!(plain.contains("plaintext, and allowed on loopback only"), "{plain}");
    let secret = refused(&section("credentials = \"AKID:verysecret\"\n"));
    assert!(secret.contains("is not a reference to a secret") && !secret.contains("verysecret"), "{secret}");
    assert!(load(&format!("{LEAST}[backup]\ntarget = \"/mnt\"\n"), &[], Settings::default()).is_ok());
}

mod fuzz {
    use proptest::prelude::*;
    use reveille_fuzz::{cases, text};

    use super::*;

    #[rustfmt::skip]
    const FRAGMENTS: &[&str] = &[
        "name = \"a\"\n", "data_dir = \"/data\"\n", "listen = \"127.0.0.1:1\"\n", "advertise = \"h:1\"\n",
        "insecure = true\n", "[raft]\n", "heartbeat_ms = 50\n", "election_ms = 9\n", "[credentials.ses]\n",
        "host = \"h\"\n", "port = 587\n", "secret = \"env:X\"\n", "[unsubscribe]\n", "url = \"https://h/u\"\n",
        "keys = [\"file:/k\"]\n", "[backup]\n", "every = \"1h\"\n", "[log]\n", "filter = \"info\"\n", "=", "[", "]",
        "\"", "'", "{", "}", ".", "-1", "1e9", "\n", "\r\n", "#", "é", "\0", "\t",
    ];

    proptest! {
        #![proptest_config(cases(300))]

        #[test]
        fn configuration_is_refused_or_reads_back(text in text(FRAGMENTS, 12), with_least in any::<bool>()) {
            let file = if with_least { format!("{LEAST}{text}") } else { text };
            match load(&file, &[], Settings::default()) {
                // What `config show` prints has the same meaning.
                Ok(config) => {
                    let shown = key::values(&config.clone().into());
                    let shown: String = shown.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
                    prop_assert_eq!(load(&shown, &[], Settings::default()), Ok(config), "{}", shown);
                }
                Err(error) => prop_assert!(!error.is_empty()),
            }
        }
    }
}
