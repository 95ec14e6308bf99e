//! The struct, the sample, the checks and the handbook must have the same keys. These tests find differences.

use toml::{Table, Value};

use super::*;

/// Returns the key names that `serde` lists when it refuses an unknown one.
fn fields(nested: &str) -> Vec<String> {
    let error = toml::from_str::<Settings>(&format!("{nested}no_such_key = 1")).expect_err("unknown").to_string();
    let names = error.split("expected").nth(1).expect("its names");
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_field_of_the_struct_is_a_key_with_its_reason() {
    let keys = keys();
    let sections = ["raft", "tls", "unsubscribe", "backup", "log", "credentials.ses", "replies.ses"];
    let tables = sections.map(|section| section.split('.').next().expect("a name"));
    let mut names: Vec<String> = fields("").into_iter().filter(|name| !tables.contains(&name.as_str())).collect();
    for section in sections {
        names.extend(fields(&format!("[{section}]\n")).into_iter().map(|name| format!("{section}.{name}")));
    }
    assert_eq!(keys.iter().map(|key| key.name.clone()).collect::<Vec<_>>(), names);
    assert!(keys.iter().all(|key| !key.why.is_empty()), "{keys:?}");
    let mut tables = tables;
    tables.sort_unstable();
    let found = Table::try_from(Settings::default()).expect("a table");
    assert_eq!(found.keys().collect::<Vec<_>>(), tables, "a new section wants a line in SECTIONS");
}

#[test]
fn sample_names_every_key_and_says_nothing_but_the_defaults() {
    let sample = sample();
    let uncommented: String = sample.lines().map(|line| uncommented(line) + "\n").collect();
    let everything = toml::from_str::<Table>(&uncommented).expect("TOML");
    for key in keys() {
        let mut names = key.name.split('.');
        let first = everything.get(names.next().expect("a name"));
        let value = names.fold(first, |value, name| value?.get(name));
        assert_eq!(value, Some(&key.value), "{}", key.name);
        assert!(sample.contains(&format!("# {}", key.why)), "{}", key.name);
    }
    let least = "name = \"a\"\ndata_dir = \"/var/lib/reveille\"\n";
    let defaults = load(least, &[], Settings::default());
    assert_eq!(load(&sample, &[], Settings::default()), defaults, "as it is written");
    let mut everything = load(&uncommented, &[], Settings::default()).expect("good");
    assert_eq!(std::mem::take(&mut everything.credentials).len(), 1, "the example is one");
    assert_eq!(std::mem::take(&mut everything.replies).len(), 1, "the example is one");
    assert_eq!(Ok(everything), defaults, "with everything said");
}

fn uncommented(line: &str) -> String {
    let said = line.strip_prefix('#').filter(|rest| !rest.starts_with(' '));
    said.unwrap_or(line).to_owned()
}

#[test]
fn words_about_defaults_and_bounds_are_true() {
    assert_eq!(keys().iter().filter(|key| bounds(&key.why).is_some()).count(), 7, "whose bounds are tried");
    for key in keys() {
        if let (Some(words), false) = (
            &key.default,
            key.name.contains("election") || ["advertise", "hello_name", "return_path"].contains(&key.name.as_str()),
        ) {
            assert_eq!(words, &key.value.as_str().map_or_else(|| key.value.to_string(), str::to_owned), "{}", key.name);
        }
        let Some((least, most)) = bounds(&key.why) else { continue };
        for (number, taken) in [(least, true), (most, true), (least - 1, false), (most + 1, false)] {
            let Ok(number) = u64::try_from(number) else { continue };
            let refused = refusal(&key.name, number);
            let out_of_range = refused.contains(&format!("{}: {number} is out of range", key.name));
            assert_eq!(out_of_range, !taken, "{} = {number}: {refused}", key.name);
        }
    }
}

/// Returns the bounds in a description such as `…; 10 to 10000`.
fn bounds(why: &str) -> Option<(i64, i64)> {
    let (before, after) = why.split_once(" to ")?;
    Some((before.rsplit(' ').next()?.parse().ok()?, after.parse().ok()?))
}

fn refusal(name: &str, number: u64) -> String {
    let (section, leaf) = name.rsplit_once('.').map_or((String::new(), name), |(s, l)| (format!("[{s}]\n"), l));
    load(&format!("{LEAST}{section}{leaf} = {number}\n"), &[], Settings::default()).err().unwrap_or_default()
}

#[test]
fn handbook_has_table_of_keys() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/configuration.md");
    let page = std::fs::read_to_string(page).expect("the handbook");
    for key in keys() {
        let row = row(&key);
        assert!(page.contains(&row), "docs/reference/configuration.md lacks this line of its table:\n{row}");
    }
}

fn row(key: &ConfigKey) -> String {
    let flag = key.flag.as_ref().map_or("-".to_owned(), |flag| format!("`{flag}`"));
    let default = key.default.as_deref().unwrap_or("none");
    format!("| `{}` | {flag} | {default} | {} |", key.name, key.why)
}

#[test]
fn each_value_tells_where_it_was_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r.toml");
    std::fs::write(&path, "name = \"a\"\n\ndata_dir = \"/data\" # here\n[raft]\nheartbeat_ms = 70\n").expect("written");
    let environment = [("REVEILLE__RAFT__SNAPSHOT_EVERY", "900"), ("REVEILLE__NAME", "b")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let flags = Settings { http: "127.0.0.1:9".parse().ok(), ..Settings::default() };
    let effective = ConfigLayer::read(Some(&path), environment, flags).expect("read").effective().expect("good");
    let value_and_origin = |wanted: &str| {
        let found = effective.iter().find(|(name, ..)| name == wanted).expect("a key");
        (found.1.clone(), found.2.to_string().replace(&path.display().to_string(), "FILE"))
    };
    assert_eq!(value_and_origin("name"), (Value::from("b"), "REVEILLE__NAME".into()), "it wins over the file");
    assert_eq!(value_and_origin("data_dir"), (Value::from("/data"), "FILE:3".into()));
    assert_eq!(value_and_origin("raft.heartbeat_ms"), (Value::from(70), "FILE:5".into()));
    assert_eq!(value_and_origin("raft.snapshot_every"), (Value::from(900), "REVEILLE__RAFT__SNAPSHOT_EVERY".into()));
    assert_eq!(value_and_origin("http"), (Value::from("127.0.0.1:9"), "--http".into()));
    assert_eq!(value_and_origin("listen"), (Value::from("127.0.0.1:7600"), "default".into()));
    assert_eq!(value_and_origin("insecure"), (Value::from(false), "default".into()));
    let named = |key: &&ConfigKey| key.name.starts_with("credentials.") || key.name.starts_with("replies.");
    let examples = keys().iter().filter(named).count();
    assert_eq!(effective.len(), keys().len() - examples, "no section with a name is said");
}

#[test]
fn hello_name_is_a_host_name_or_an_address_in_brackets() {
    let hello_name = |name: &str| Settings {
        name: Some("n1".to_owned()),
        data_dir: Some("/var/lib/reveille".into()),
        hello_name: Some(name.to_owned()),
        ..Settings::default()
    };
    let check = |name: &str| ConfigLayer::read(None, std::iter::empty(), hello_name(name)).expect("read").check();
    for name in ["mail-1.example.com", "localhost", "[192.0.2.1]", "[IPv6:2001:db8::1]"] {
        check(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for name in ["x..example", "-x.example", "x-.example", "192.0.2.7", "[192.0.2]", "a_b.example"] {
        let error = check(name).expect_err(name).to_string();
        assert!(error.contains("neither a host name nor an address in brackets"), "{name}: {error}");
    }
}
