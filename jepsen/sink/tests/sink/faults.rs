//! Each fault at each stage, as a client sees it, and what the sink kept of the email.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reveille_sink::{DotAnswer, DotWatcher, FaultPlan, Sink, SinkOptions};

use crate::client::{Client, PATIENCE, message, until};

fn sink(spec: &str) -> Sink {
    Sink::start(SinkOptions { faults: spec.parse().unwrap(), ..SinkOptions::default() }).unwrap()
}

/// Sends one email as far as the sink accepts it. Returns every reply line after EHLO, and `end` if the connection
/// ended.
async fn dialogue(sink: &Sink) -> Vec<String> {
    let mut client = Client::connect(sink.address()).await;
    let mut heard = Vec::new();
    let body = message("a@x.test");
    let words = ["", "EHLO n\r\n", "MAIL FROM:<n@x.test>\r\n", "RCPT TO:<a@x.test>\r\n", "DATA\r\n", &body, "NOOP\r\n"];
    for words in words {
        client.say(words).await;
        let Some(reply) = client.reply().await else {
            heard.push("end".to_owned());
            break;
        };
        let code = reply.trim_end().get(..3).unwrap_or_default().to_owned();
        let went_on = matches!(code.as_bytes(), [b'2' | b'3', ..]);
        heard.push(if reply.len() == 5 { format!("{code} bare") } else { code });
        if !went_on {
            break;
        }
    }
    heard
}

#[tokio::test]
async fn refusal_takes_place_of_answer_at_every_stage_that_has_one() {
    for (spec, expected, accepted) in [
        ("banner:554", &["554"][..], 0),
        ("ehlo:550", &["220", "550"], 0),
        ("mail:454=4.7.0 Throttling failure", &["220", "250", "454"], 0),
        ("rcpt:550", &["220", "250", "250", "550"], 0),
        ("data:451", &["220", "250", "250", "250", "451"], 0),
        ("body:421", &["220", "250", "250", "250", "354", "421"], 0),
        ("before-commit:552", &["220", "250", "250", "250", "354", "552"], 0),
        ("between:421", &["220", "250", "250", "250", "354", "250", "421"], 1),
    ] {
        let sink = sink(spec);
        assert_eq!(dialogue(&sink).await, expected, "{spec}");
        assert_eq!(sink.accepted_count(), accepted, "{spec}");
        sink.stop().await;
    }
}

#[tokio::test]
async fn connection_can_end_at_every_stage() {
    for kind in ["close", "reset"] {
        for (stage, replies, accepted) in [
            ("connect", 0, 0),
            ("banner", 0, 0),
            ("ehlo", 1, 0),
            ("mail", 2, 0),
            ("rcpt", 3, 0),
            ("data", 4, 0),
            ("body", 5, 0),
            ("before-commit", 5, 0),
            ("after-commit", 5, 1),
            ("between", 6, 1),
        ] {
            let sink = sink(&format!("{stage}:{kind}"));
            let heard = dialogue(&sink).await;
            assert_eq!(
                (heard.len(), heard.last().unwrap().as_str()),
                (replies + 1, "end"),
                "{stage}:{kind}: {heard:?}"
            );
            assert_eq!(sink.accepted_count(), accepted, "{stage}:{kind}");
            assert_eq!(sink.fault_tally(), [1], "{stage}:{kind}");
            sink.stop().await;
        }
    }
}

#[tokio::test]
async fn reset_is_reset() {
    let sink = sink("ehlo:reset");
    let mut client = Client::connect(sink.address()).await;
    assert_eq!(client.code().await, 220);
    client.say("EHLO n\r\n").await;
    assert!(client.is_reset().await);
    sink.stop().await;
}

#[tokio::test]
async fn bare_replies_have_code_and_nothing_else() {
    for (stage, index) in [("banner", 0), ("ehlo", 1), ("mail", 2), ("rcpt", 3), ("data", 4), ("answer", 5)] {
        let sink = sink(&format!("{stage}:bare"));
        let heard = dialogue(&sink).await;
        let bare: Vec<_> = (0..heard.len()).filter(|index| heard[*index].ends_with("bare")).collect();
        assert_eq!(bare, [index], "{stage}: {heard:?}");
        assert_eq!(sink.accepted_count(), 1, "a bare reply is as good as another");
        sink.stop().await;
    }
}

#[tokio::test]
async fn close_in_answer_sends_half_answer_and_email_is_accepted() {
    let sink = sink("answer:close");
    let mut client = Client::greeted(sink.address()).await;
    client.send_mail("a@x.test").await;
    let half = client.rest().await;
    assert!(half.starts_with("250 ") && !half.contains('\n'), "{half:?}");
    assert_eq!(sink.accepted_count(), 1);
    sink.stop().await;
}

#[tokio::test]
async fn late_answer_comes_late_and_is_whole() {
    for spec in ["after-commit:stall=300ms", "answer:stall=300ms", "before-commit:stall=300ms", "body:stall=300ms"] {
        let sink = sink(spec);
        let mut client = Client::greeted(sink.address()).await;
        client.open_mail("a@x.test").await;
        let asked = std::time::Instant::now();
        client.say(&message("a@x.test")).await;
        assert!(client.reply().await.unwrap().starts_with("250 2.0.0 accepted and recorded\r\n"), "{spec}");
        assert!(asked.elapsed() >= Duration::from_millis(300), "{spec}");
        sink.stop().await;
    }
}

#[tokio::test]
async fn stalled_dialogue_is_silent_until_its_client_leaves() {
    for (stage, accepted) in [("before-commit", 0), ("after-commit", 1)] {
        let sink = sink(&format!("{stage}:stall"));
        let mut client = Client::greeted(sink.address()).await;
        client.send_mail("a@x.test").await;
        client.expect_silence().await;
        let dialogues = sink.connections();
        let [dialogue] = dialogues.as_slice() else { panic!("one dialogue, not {dialogues:?}") };
        assert_eq!(dialogue.emails, 0);
        assert_eq!(dialogue.unanswered[0].fence.as_deref(), Some("1.17.99.3"));
        drop(client);
        crate::client::until(|| sink.connections().is_empty()).await;
        assert_eq!(sink.accepted_count(), accepted, "{stage}");
        sink.stop().await;
    }
}

#[tokio::test]
async fn email_is_committed_although_client_is_lost_after_dot() {
    let sink = sink("before-commit:stall=500ms");
    let mut client = Client::greeted(sink.address()).await;
    client.send_mail("a@x.test").await;
    drop(client);
    sink.wait_for(1, PATIENCE).await.unwrap();
    sink.stop().await;
}

#[tokio::test]
async fn huge_banner_is_huge_and_then_dialogue_goes_on() {
    let sink = sink("banner:huge=1000000");
    let mut client = Client::connect(sink.address()).await;
    let banner = client.reply().await.unwrap();
    assert!(banner.len() >= 1_000_000 && banner.lines().all(|line| line.starts_with("220") && line.len() < 512));
    assert_eq!(client.ask("EHLO n\r\n").await, 250);
    sink.stop().await;
}

#[tokio::test]
async fn relay_closes_session_after_its_number_of_emails() {
    let sink = sink("between:close-after=3");
    let mut client = Client::greeted(sink.address()).await;
    for _ in 0..3 {
        client.send_mail("a@x.test").await;
        assert_eq!(client.code().await, 250);
    }
    assert_eq!(client.rest().await, "");
    assert_eq!(sink.accepted_count(), 3);
    sink.stop().await;
}

#[tokio::test]
async fn another_plan_takes_over_while_dialogue_runs() {
    let sink = sink("rcpt:450#1");
    let mut client = Client::greeted(sink.address()).await;
    assert_eq!(client.ask("MAIL FROM:<n@x.test>\r\n").await, 250);
    assert_eq!(client.ask("RCPT TO:<a@x.test>\r\n").await, 450);
    assert_eq!(client.ask("RCPT TO:<a@x.test>\r\n").await, 250);
    assert_eq!(sink.fault_tally(), [1]);
    sink.set_faults("data:451".parse().unwrap());
    assert_eq!(client.ask("DATA\r\n").await, 451);
    sink.set_faults(FaultPlan::default());
    client.send_mail("a@x.test").await;
    assert_eq!(client.code().await, 250);
    sink.stop().await;
}

#[tokio::test]
async fn dot_watcher_gets_each_answer() {
    for (spec, answer) in [
        ("", DotAnswer::Accepted),
        ("answer:bare", DotAnswer::Accepted),
        ("before-commit:451", DotAnswer::Refused),
        ("before-commit:421", DotAnswer::Refused),
        ("before-commit:close", DotAnswer::Nothing),
        ("after-commit:reset", DotAnswer::AcceptedUnanswered),
        ("answer:close", DotAnswer::AcceptedUnanswered),
        ("body:reset", DotAnswer::Cut),
        ("body:close", DotAnswer::Cut),
        ("body:421", DotAnswer::Cut),
    ] {
        let answers = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&answers);
        let note = move |accept: &reveille_sink::Accepted, answer| {
            notes.lock().unwrap().push((accept.recipient.clone(), answer));
        };
        let dots = Some(DotWatcher::new(note));
        let options = SinkOptions { faults: spec.parse().unwrap(), dots, ..SinkOptions::default() };
        let sink = Sink::start(options).unwrap();
        dialogue(&sink).await;
        sink.stop().await;
        assert_eq!(*answers.lock().unwrap(), [("a@x.test".to_owned(), answer)], "{spec}");
    }
}

#[tokio::test]
async fn dot_watcher_gets_malformed_message() {
    let (sender, answers) = std::sync::mpsc::channel();
    let note = move |accept: &reveille_sink::Accepted, answer| {
        // After a failed test there is no receiver.
        let _ = sender.send((accept.fence.clone(), answer));
    };
    let dots = Some(DotWatcher::new(note));
    let sink = Sink::start(SinkOptions { dots, ..SinkOptions::default() }).unwrap();
    let mut client = Client::greeted(sink.address()).await;
    client.open_mail("a@x.test").await;
    client.say("X-Reveille-Fence: 1.17.99.3\r\n\r\none\n.\r\n").await;
    assert_eq!(client.code().await, 521);
    sink.stop().await;
    assert_eq!(answers.try_iter().collect::<Vec<_>>(), [(Some("1.17.99.3".to_owned()), DotAnswer::Malformed)]);
}

#[tokio::test]
async fn dot_watcher_gets_whole_lines_of_cut_message() {
    for (came, fence) in
        [("", None), ("X-Reveille-Fence: 1.1", None), ("X-Reveille-Fence: 1.17.99.3\r\nX-Rev", Some("1.17.99.3"))]
    {
        let (sender, answers) = std::sync::mpsc::channel();
        let note = move |accept: &reveille_sink::Accepted, answer| {
            // After a failed test there is no receiver.
            let _ = sender.send((accept.fence.clone(), answer));
        };
        let dots = Some(DotWatcher::new(note));
        let sink = Sink::start(SinkOptions { faults: "body:reset".parse().unwrap(), dots, ..SinkOptions::default() });
        let sink = sink.unwrap();
        let mut client = Client::greeted(sink.address()).await;
        client.open_mail("a@x.test").await;
        client.say(&format!("Subject: Hello\r\n{came}")).await;
        assert!(client.is_reset().await);
        sink.stop().await;
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [(fence.map(str::to_owned), DotAnswer::Cut)], "{came}");
    }
    // A client that leaves by itself was not cut off.
    let (sender, answers) = std::sync::mpsc::channel();
    let dots = Some(DotWatcher::new(move |_: &_, answer| {
        let _ = sender.send(answer);
    }));
    let sink =
        Sink::start(SinkOptions { faults: "body:reset".parse().unwrap(), dots, ..SinkOptions::default() }).unwrap();
    let mut client = Client::greeted(sink.address()).await;
    client.open_mail("a@x.test").await;
    drop(client);
    until(|| sink.connections().is_empty()).await;
    sink.stop().await;
    assert_eq!(answers.try_iter().count(), 0);
}
