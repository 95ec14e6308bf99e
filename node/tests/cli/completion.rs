//! Completion scripts and manual pages contain all commands.

use prost::Message as _;
use reveille_proto::admin::v1;

use crate::fake::{Fake, one, unknown};
use crate::terminal::reveille;

#[tokio::test]
async fn each_shell_gets_a_script_that_knows_the_commands() {
    for (shell, mark) in [("bash", "complete -F"), ("zsh", "#compdef reveille"), ("fish", "complete -c reveille")] {
        let ended = reveille(&format!("completion {shell}")).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(ended.stdout.contains(mark), "{shell}");
        assert!(ended.stdout.contains("transfer-leader") && ended.stdout.contains("doctor"), "{shell}");
        assert!(ended.stdout.contains("request-id"), "{shell}");
        // The script calls the hidden command once, and does not offer it.
        assert_eq!(ended.stdout.matches("complete-names").count(), 1, "{shell}");
    }
    assert_eq!(reveille("completion tcsh").await.code, Some(2));
    assert!(!reveille("--help").await.stdout.contains("complete-names"));
}

/// Returns what bash completes at the end of this line, with the script of the binary.
async fn completed(endpoint: &str, line: &str) -> Vec<String> {
    const COMPLETE: &str = r#"
        source <(reveille completion bash)
        [[ $(complete -p reveille) == *' -F _reveille '* ]] || exit 3
        COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
        _reveille reveille "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_reveille"));
    let path =
        format!("{}:{}", binary.parent().expect("a folder").display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = tokio::process::Command::new("bash");
    bash.args(["-c", COMPLETE, "bash", "_"]).args(line.split(' ')).env("PATH", path).env("REVEILLE_URL", endpoint);
    bash.env_remove("REVEILLE_CONTEXT").env_remove("REVEILLE_TOKEN").env("XDG_CONFIG_HOME", "/nonexistent");
    let ended = crate::terminal::run(&mut bash).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{line}");
    ended.stdout.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn bash_completes_names_of_the_cluster_and_words_without_it() {
    let fake = Fake::start(|method, bytes| {
        let named = |name: &str| v1::Schedule { name: name.into(), ..v1::Schedule::default() };
        match method {
            "ListSchedules" => {
                let asked = v1::ListSchedulesRequest::decode(bytes).expect("a request");
                assert!(asked.stale, "any node may answer");
                let schedules = match (asked.tenant.as_str(), asked.page_token.as_str()) {
                    ("acme", _) => vec![named("more")],
                    (_, "") => vec![named("morning"), named("evening")],
                    _ => vec![named("mornings")],
                };
                let next_page_token = if asked.page_token.is_empty() { "next".into() } else { String::new() };
                one(v1::ListSchedulesResponse { schedules, next_page_token, ..Default::default() })
            }
            "ListRelays" => {
                let relays = vec![v1::Relay { name: "main".into(), ..v1::Relay::default() }];
                one(v1::ListRelaysResponse { relays, ..Default::default() })
            }
            _ => Err(unknown(method)),
        }
    })
    .await;
    let endpoint = fake.address().to_string();
    assert_eq!(completed(&endpoint, "reveille schedule show mor").await, ["morning", "mornings"]);
    assert_eq!(completed(&endpoint, "reveille schedule trigger --tenant = acme mor").await[0], "more");
    assert_eq!(completed(&endpoint, "reveille run list --schedule even").await, ["evening"]);
    assert_eq!(completed(&endpoint, "reveille relay show ").await, ["main"]);
    // Words of the language as before: where no object is named, and where the cluster cannot say.
    assert!(completed(&endpoint, "reveille sched").await.contains(&"schedule".to_owned()));
    assert_eq!(completed(&endpoint, "reveille compl").await, ["completion"]);
    assert!(completed(&endpoint, "reveille schedule show --man").await.contains(&"--manifest".to_owned()));
    assert!(completed(&endpoint, "reveille template show ").await.contains(&"--manifest".to_owned()));
    assert!(!fake.methods().iter().any(|method| method == "ListCampaigns"));
    // No node answers at this endpoint.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = silent.local_addr().expect("an address").to_string();
    let begun = std::time::Instant::now();
    let ended = crate::terminal::reveille(&format!("--endpoint {endpoint} complete-names -- schedule show m")).await;
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
    assert!(begun.elapsed().as_secs() < 20, "it waits for a second: {:?}", begun.elapsed());
}

#[tokio::test]
async fn names_are_bounded_and_contexts_need_no_cluster() {
    let fake = Fake::start(|method, _| {
        let schedule = |number| v1::Schedule { name: format!("s{number}"), ..v1::Schedule::default() };
        match method {
            "ListSchedules" => one(v1::ListSchedulesResponse {
                schedules: (0..1_000).map(schedule).collect(),
                next_page_token: "more".into(),
                ..Default::default()
            }),
            _ => Err(unknown(method)),
        }
    })
    .await;
    let ended = fake.reveille("complete-names -- schedule show s").await;
    assert_eq!(ended.stdout.lines().count(), 200);
    assert_eq!(fake.methods().len(), 1, "one page has enough");
    assert_eq!(fake.reveille("complete-names -- schedule show none").await.stdout, "");
    assert_eq!(fake.methods().len(), 6, "a search ends");

    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("reveille")).expect("made");
    let contexts = "[contexts.prod]\nendpoints = []\nca = \"\"\n[contexts.test]\nendpoints = []\nca = \"\"\n";
    std::fs::write(folder.path().join("reveille/contexts.toml"), contexts).expect("written");
    for (line, known) in [("context use ", "prod\ntest\n"), ("schedule list --context pr", "prod\n")] {
        let words = ["complete-names", "--"].into_iter().chain(line.split(' ')).collect::<Vec<_>>();
        let ended = crate::terminal::run(crate::terminal::command(&words).env("XDG_CONFIG_HOME", folder.path())).await;
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), (known, ""), "{line}");
    }
}

#[tokio::test]
async fn every_command_has_a_manual_page() {
    let first = reveille("man").await;
    assert!(first.stdout.contains(".TH reveille 1"), "{}", first.stdout);
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    let ended = reveille(&format!("man {} -o json", pages.display())).await;
    let said = ended.json();
    let names: Vec<&str> = said["pages"].as_array().expect("pages").iter().filter_map(|page| page.as_str()).collect();
    for name in ["reveille.1", "reveille-schedule-create.1", "reveille-doctor.1", "reveille-config-show.1"] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    for name in names {
        let page = std::fs::read_to_string(pages.join(name)).expect("written");
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    let refused = reveille("man /dev/null/man1 -o json").await;
    assert_eq!((refused.code, refused.error()["field"].as_str()), (Some(2), Some("/dev/null/man1")));
}
