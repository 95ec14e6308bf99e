//! The commands that the sink accepts as an ESMTP server, and what it refuses.

use std::time::Duration;

use reveille_sink::{Sink, SinkOptions};

use crate::client::{Client, PATIENCE, message};

fn sink(options: SinkOptions) -> Sink {
    Sink::start(options).unwrap()
}

#[tokio::test]
async fn ehlo_offers_extensions() {
    let sink = sink(SinkOptions::default());
    let mut client = Client::connect(sink.address()).await;
    assert!(client.reply().await.unwrap().starts_with("220 sink.test ESMTP"));
    client.say("EHLO node-1.test\r\n").await;
    let offer = client.reply().await.unwrap();
    for word in ["PIPELINING", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "SIZE 20971520"] {
        assert!(offer.contains(word), "{word} in {offer}");
    }
    assert!(!offer.contains("CHUNKING"));
    assert_eq!(client.ask("BDAT 1 LAST\r\n").await, 502);
    assert_eq!(client.ask("NOOP\r\n").await, 250);
    assert_eq!(client.ask("QUIT\r\n").await, 221);
    assert_eq!(client.rest().await, "");
    sink.stop().await;
}

#[tokio::test]
async fn pipelined_dialogue_is_answered_in_order_and_each_recipient_is_accept() {
    let sink = sink(SinkOptions::default());
    let mut client = Client::greeted(sink.address()).await;
    client.say("MAIL FROM:<>\r\nRCPT TO:<a@x.test>\r\nRCPT TO:<b@x.test>\r\nDATA\r\n").await;
    let codes = [client.code().await, client.code().await, client.code().await, client.code().await];
    assert_eq!(codes, [250, 250, 250, 354]);
    // The commands of the next email are in the packet of the final dot.
    client.say(&(message("a") + "MAIL FROM:<n@x.test>\r\nRCPT TO:<a@x.test>\r\nDATA\r\n")).await;
    let codes = [client.code().await, client.code().await, client.code().await, client.code().await];
    assert_eq!(codes, [250, 250, 250, 354]);
    client.say(&(message("a") + "QUIT\r\n")).await;
    assert_eq!([client.code().await, client.code().await], [250, 221]);

    let emails = sink.emails();
    let caught: Vec<_> = emails.iter().map(|(number, mail)| (number, mail.recipient.as_str())).collect();
    assert_eq!(caught, [(1, "a@x.test"), (2, "b@x.test"), (3, "a@x.test")], "nothing is deduplicated");
    let first = emails.get(1).unwrap();
    assert_eq!(first.message_id.as_deref(), Some("<a.run-7@reveille.test>"));
    assert_eq!(first.fence.as_deref(), Some("1.17.99.3"));
    assert_eq!(first.headers.get("x-reveille-run").map(String::as_str), Some("7"));
    assert_eq!((first.sender.as_str(), first.ehlo.as_str(), first.connection), ("", "node-1.test", 1));
    assert_eq!(first.body_blake3, blake3::hash(b"Hello a\r\n").to_string());
    assert!(first.data_monotonic_us <= first.accept_monotonic_us);
    assert_eq!(sink.find(|mail| mail.recipient == "a@x.test").len(), 2);
    sink.wait_for(3, PATIENCE).await.unwrap();
    let still_waiting = sink.wait_for(4, Duration::from_millis(1)).await.unwrap_err();
    assert_eq!((still_waiting.accepted, still_waiting.wanted), (3, 4));
    sink.stop().await;
}

#[tokio::test]
async fn stuffed_dots_are_undone_even_when_every_byte_comes_alone() {
    let sink = sink(SinkOptions::default());
    let mut client = Client::greeted(sink.address()).await;
    client.open_mail("a@x.test").await;
    for byte in b"Subject: x\r\n\r\n..one\r\n...\r\nmid.dle\r\n.\r\n" {
        client.say_bytes(&[*byte]).await;
    }
    assert_eq!(client.code().await, 250);
    assert_eq!(&*sink.text(1).unwrap(), b"Subject: x\r\n\r\n.one\r\n..\r\nmid.dle\r\n");
    sink.stop().await;
}

#[tokio::test]
async fn bare_line_feed_is_refused_anywhere() {
    let sink = sink(SinkOptions::default());
    for smuggled in ["Subject: x\n\r\n.\r\n", "x\r\n\n.\r\n", "x\n.\nMAIL FROM:<evil@x.test>\r\n", "x\r.\r\n.\r\n"] {
        let mut client = Client::greeted(sink.address()).await;
        client.open_mail("a@x.test").await;
        client.say(smuggled).await;
        assert_eq!(client.code().await, 521, "{smuggled:?}");
        assert_eq!(client.rest().await, "", "nothing after it is read as a command");
    }
    let mut client = Client::greeted(sink.address()).await;
    assert_eq!(client.ask("NOOP\n").await, 521);
    assert_eq!(sink.accepted_count(), 0);
    sink.stop().await;
}

#[tokio::test]
async fn commands_out_of_order_and_too_large_things_are_refused() {
    let sink = sink(SinkOptions::default());
    let mut client = Client::connect(sink.address()).await;
    assert_eq!(client.code().await, 220);
    assert_eq!(client.ask("MAIL FROM:<a@x.test>\r\n").await, 503);
    assert_eq!(client.ask("EHLO n\r\n").await, 250);
    assert_eq!(client.ask("RCPT TO:<a@x.test>\r\n").await, 503);
    assert_eq!(client.ask("DATA\r\n").await, 503);
    assert_eq!(client.ask("MAIL FROM:<a@x.test> SIZE=20971521\r\n").await, 552);
    assert_eq!(client.ask("MAIL FROM:<\u{fc}@x.test>\r\n").await, 553);
    assert_eq!(client.ask("MAIL FROM:<\u{fc}@x.test> SMTPUTF8 BODY=8BITMIME SIZE=20971520\r\n").await, 250);
    assert_eq!(client.ask("MAIL FROM:<a@x.test>\r\n").await, 503);
    assert_eq!(client.ask("DATA\r\n").await, 554);
    for _ in 0..1_000 {
        assert_eq!(client.ask("RCPT TO:<\u{f6}@x.test>\r\n").await, 250);
    }
    assert_eq!(client.ask("RCPT TO:<b@x.test>\r\n").await, 452);
    assert_eq!(client.ask("DATA\r\n").await, 354);
    assert_eq!(client.ask(&"too large\r\n".repeat(2_000_000)).await, 552);
    let mut client = Client::greeted(sink.address()).await;
    assert_eq!(client.ask("MAIL FROM:<a@x.test>\r\n").await, 250);
    assert_eq!(client.ask("RSET\r\n").await, 250);
    assert_eq!(client.ask("DATA\r\n").await, 503);
    assert_eq!(client.ask(&format!("NOOP {}\r\n", "x".repeat(2_000))).await, 521);
    assert_eq!(client.rest().await, "");
    assert_eq!(sink.accepted_count(), 0);
    sink.stop().await;
}

#[tokio::test]
async fn connection_beyond_maximum_is_refused() {
    let sink = sink(SinkOptions { max_connections: 1, ..SinkOptions::default() });
    let _first = Client::greeted(sink.address()).await;
    let mut second = Client::connect(sink.address()).await;
    assert_eq!(second.code().await, 421);
    assert_eq!(second.rest().await, "");
    sink.stop().await;
}

#[tokio::test]
async fn client_that_only_makes_mistakes_is_sent_away() {
    let sink = sink(SinkOptions::default());
    let mut client = Client::greeted(sink.address()).await;
    client.say(&"GET / HTTP/1.1\r\n".repeat(50)).await;
    let replies = client.rest().await;
    assert!(replies.lines().last().unwrap().starts_with("421 "), "{replies}");
    sink.stop().await;
}

#[tokio::test]
async fn stop_ends_open_dialogues_and_keeps_emails_readable() {
    let sink = sink(SinkOptions::default());
    let mut client = Client::greeted(sink.address()).await;
    client.send_mail("a@x.test").await;
    assert_eq!(client.code().await, 250);
    let handle = sink.handle();
    sink.stop().await;
    assert_eq!(client.rest().await, "");
    assert_eq!((handle.accepted_count(), handle.connections().len()), (1, 0));
}

#[tokio::test]
async fn accept_keeps_start_of_body_and_names_repeated_identity_headers() {
    let sink = Sink::start(SinkOptions { excerpt_bytes: 6, ..SinkOptions::default() }).unwrap();
    let mut client = Client::greeted(sink.address()).await;
    client.say("MAIL FROM:<n@x.test>\r\nRCPT TO:<a@x.test>\r\nDATA\r\n").await;
    assert_eq!([client.code().await, client.code().await, client.code().await], [250, 250, 354]);
    client.say("X-Reveille-Run: r1.0\r\nx-reveille-run: r2.0\r\nMessage-ID: <1@x>\r\n\r\nbody of it\r\n.\r\n").await;
    assert_eq!(client.code().await, 250);
    let emails = sink.emails();
    let accept = emails.get(1).unwrap();
    assert_eq!(
        (accept.repeated.as_slice(), accept.excerpt.as_deref()),
        (["X-Reveille-Run".to_owned()].as_slice(), Some("body o"))
    );
    sink.stop().await;
}
