//! Completion scripts and manual pages contain all commands.

use crate::terminal::reveille;

#[tokio::test]
async fn each_shell_gets_a_script_that_knows_the_commands() {
    for (shell, mark) in [("bash", "complete -F"), ("zsh", "#compdef reveille"), ("fish", "complete -c reveille")] {
        let ended = reveille(&format!("completion {shell}")).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(ended.stdout.contains(mark), "{shell}");
        assert!(ended.stdout.contains("transfer-leader") && ended.stdout.contains("doctor"), "{shell}");
    }
    assert_eq!(reveille("completion tcsh").await.code, Some(2));
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
