//! The record file: there before the answer, whole after a crash, never silent about damage.

use std::fs;
use std::io::Write;
use std::path::Path;

use reveille_sink::{RecordFile, Sink, SinkOptions};
use tempfile::tempdir;

use crate::client::{Client, message};

fn sink(record: &Path, sync: bool) -> Sink {
    Sink::start(SinkOptions { record: Some(record.to_owned()), sync, ..SinkOptions::default() }).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn line_of_mail_is_in_file_when_its_250_is_read() {
    for sync in [true, false] {
        let folder = tempdir().unwrap();
        let path = folder.path().join("accepts.jsonl");
        let sink = sink(&path, sync);
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..8 {
            let (address, path) = (sink.address(), path.clone());
            clients.spawn(async move {
                let mut dialogue = Client::greeted(address).await;
                for mail in 0..10 {
                    let recipient = format!("{client}.{mail}@x.test");
                    dialogue.send_mail(&recipient).await;
                    assert_eq!(dialogue.code().await, 250);
                    let record = RecordFile::read(&path).unwrap();
                    assert_eq!(record.accepts.iter().filter(|accept| accept.recipient == recipient).count(), 1);
                }
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
        let handle = sink.handle();
        sink.stop().await;
        let record = RecordFile::read(&path).unwrap();
        let in_memory: Vec<_> = handle.emails().iter().map(|(_, accept)| accept.as_ref().clone()).collect();
        assert_eq!((record.torn, record.accepts.len()), (None, 80));
        assert_eq!(record.accepts, in_memory, "memory and file hold the same in the same order");
    }
}

/// fdatasync fails on `/dev/null`, writing to it does not: so a 250 there would be one that waited for no sync.
#[tokio::test]
async fn without_successful_sync_there_is_no_250_and_no_further_mail() {
    let sink = sink(Path::new("/dev/null"), true);
    let mut second = Client::greeted(sink.address()).await;
    let mut client = Client::greeted(sink.address()).await;
    client.send_mail("a@x.test").await;
    assert_eq!(client.rest().await, "", "whether the line survives is unknown, so nothing is said");
    assert_eq!(second.ask("MAIL FROM:<n@x.test>\r\n").await, 451);
    assert_eq!(sink.accepted_count(), 0);
    sink.stop().await;
}

#[tokio::test]
async fn torn_tail_is_named_by_reader_and_cut_by_next_sink() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("accepts.jsonl");
    for life in 1..=3 {
        let sink = sink(&path, true);
        let mut client = Client::greeted(sink.address()).await;
        client.send_mail(&format!("{life}@x.test")).await;
        assert_eq!(client.code().await, 250);
        sink.stop().await;
        let whole = fs::metadata(&path).unwrap().len();
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"message_id\":nul").unwrap();
        let record = RecordFile::read(&path).unwrap();
        let torn = record.torn.unwrap();
        assert_eq!((record.accepts.len(), torn.offset, torn.bytes), (life, whole, 17));
    }
    let recipients: Vec<_> =
        RecordFile::read(&path).unwrap().accepts.into_iter().map(|accept| accept.recipient).collect();
    assert_eq!(recipients, ["1@x.test", "2@x.test", "3@x.test"]);
}

#[tokio::test]
async fn every_cut_of_record_is_read_and_damage_in_its_middle_is_error() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("accepts.jsonl");
    let sink = sink(&path, false);
    let mut client = Client::greeted(sink.address()).await;
    for recipient in ["\"odd > one\"@x.test", "b@x.test"] {
        client.open_mail(recipient).await;
        client.say(&message("x")).await;
        assert_eq!(client.code().await, 250);
    }
    sink.stop().await;
    let whole = fs::read(&path).unwrap();
    let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let record = RecordFile::read(&path).unwrap();
        assert_eq!(record.accepts.len(), usize::from(cut >= first_line));
        assert_eq!(record.torn.is_some(), cut != 0 && cut != first_line);
    }
    let mut damaged = whole.clone();
    damaged[3] = 0;
    fs::write(&path, damaged).unwrap();
    let error = RecordFile::read(&path).unwrap_err();
    assert!(error.to_string().contains("is damaged in line 1, at byte 0"), "{error}");
    let refused = Sink::start(SinkOptions { record: Some(path), ..SinkOptions::default() }).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidData);
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
