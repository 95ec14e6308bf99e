//! `template render`: the email for one recipient, or where the template fails.

use crate::terminal::{Ended, command, keys, run};

async fn render(folder: &tempfile::TempDir, arguments: &[&str]) -> Ended {
    // No process listens on port 1. The command sends no request.
    let mut command = command(&[&["--endpoint", "127.0.0.1:1", "template", "render"], arguments].concat());
    run(command.current_dir(folder.path())).await
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("people.csv", "email,name\nann@example.com,Ann\nbob@example.com,B\u{f6}b & Co\n");
    write("body.txt", "Hello {{ name }} of {{ city }},\nbye\n");
    write("body.html", "<p>{{ name }}</p>\n");
    write("wrong.txt", "Hello\n{{ nmae }}\n");
    write("broken.txt", "Hello\n\n{% if %}\n");
    folder
}

#[tokio::test]
async fn rendered_email_is_shown_decoded() {
    let folder = folder();
    let flags =
        ["--subject", "Hi {{ name }}", "--text", "body.txt", "--recipients", "people.csv", "--variable", "city=Rome"];
    let ended = render(&folder, &flags).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let mail = "From: sender@example.com\nTo: ann@example.com\nSubject: Hi Ann\n\nHello Ann of Rome,\nbye\n";
    assert_eq!(ended.stdout, mail);

    let copied = ["--cc", "Team <team@example.com>", "--cc", "boss@example.com"];
    let copied = render(&folder, &[flags.as_slice(), &copied].concat()).await;
    assert!(
        copied.stdout.contains("\nSubject: Hi Ann\nCc: Team <team@example.com>, boss@example.com\n\n"),
        "{copied:?}"
    );
    let more = ["--row", "2", "--html", "body.html", "--header", "X-City={{ city }}", "-o", "json"];
    let json = render(&folder, &[flags.as_slice(), &more].concat()).await.json();
    assert_eq!(keys(&json), "headers html raw recipient replyTo sender subject text");
    assert_eq!((&json["recipient"], &json["subject"]), (&"bob@example.com".into(), &"Hi B\u{f6}b & Co".into()));
    assert_eq!(json["html"], "<p>B\u{f6}b &amp; Co</p>", "escaped");
    assert_eq!(json["headers"], serde_json::json!([{ "name": "X-City", "value": "Rome" }]));
    let raw = render(&folder, &[flags.as_slice(), &["--raw"]].concat()).await.stdout;
    assert!(raw.contains("X-Reveille-Fence: 1.0.0.0\r\n") && raw.contains("\r\n\r\nHello Ann of Rome,\r\n"), "{raw}");
}

#[tokio::test]
async fn without_recipients_the_variables_are_those_that_are_said() {
    let ended = render(&folder(), &["--inline-text", "{{ name }}, {{ recipient }}", "--variable", "name=Ann"]).await;
    assert!(ended.stdout.ends_with("\n\nAnn, recipient@example.com\n"), "{ended:?}");
}

#[tokio::test]
async fn rendering_error_names_file_and_line() {
    for (arguments, place) in [
        (vec!["--text", "wrong.txt", "--recipients", "people.csv"], "wrong.txt:2"),
        (vec!["--text", "broken.txt"], "broken.txt:3"),
        (vec!["--inline-text", "a\n{{ b }}"], "--inline-text:2"),
        (vec!["--text", "nowhere.txt"], "nowhere.txt"),
        (vec!["--inline-text", "a", "--recipients", "people.csv", "--row", "3"], "--row"),
        (vec!["--inline-text", "a", "--sender", "postmaster"], "--sender"),
        (vec!["--inline-text", "a", "--cc", "postmaster"], "--cc"),
        (vec!["--subject", "a"], "--text or --html"),
    ] {
        let ended = render(&folder(), &[arguments.as_slice(), &["-o", "json"]].concat()).await;
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert_eq!(ended.error()["field"], place, "{arguments:?}: {ended:?}");
    }
}
