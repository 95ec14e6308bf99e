//! The `Date` of an email: the time of its claim, not of the opening of its run.

use jiff::fmt::rfc2822;
use reveille_sink::{Sink, SinkOptions};
use tokio::runtime::Runtime;

use crate::process::{Process, until};

#[test]
fn date_is_the_time_of_the_claim() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Process::listening_by(folder.path(), "one", ["127.0.0.1:0"; 3], &[]);
    until("a leader", || node.reveille("schedule list").code == Some(0));
    let runtime = Runtime::new().expect("a runtime");
    let sink = runtime.block_on(async { Sink::start(SinkOptions::default()) }).expect("a mailbox");
    let relay = format!("relay add mailbox --host 127.0.0.1 --port {} --tls none", sink.address().port());
    assert_eq!(node.reveille(&relay).code, Some(0));
    // One claim every two seconds: the last one is long after the opening of the run.
    assert_eq!(node.reveille("tenant set default --rate-per-second 0.5").code, Some(0));
    let created = node.reveille(
        "schedule create news --cron @yearly --zone UTC --sender news@example.com --subject News --inline-text News \
         --to ann@example.com --to bob@example.com --to eve@example.com",
    );
    assert_eq!(created.code, Some(0), "{created:?}");
    assert_eq!(node.reveille("schedule trigger news --request-id once").code, Some(0));
    until("all arrive", || sink.accepted_count() == 3);
    let emails = sink.emails();
    let dates = emails.iter().map(|(number, _)| {
        let source = sink.text(number).expect("it is kept");
        let source = String::from_utf8_lossy(&source).into_owned();
        let date = source.lines().find_map(|line| line.strip_prefix("Date: ")).expect("a date");
        rfc2822::parse(date.trim()).expect("RFC 5322").timestamp()
    });
    let dates: Vec<_> = dates.collect();
    let (first, last) = (dates.iter().min().expect("a date"), dates.iter().max().expect("a date"));
    assert!(last.duration_since(*first).as_secs() >= 2, "{dates:?}");
    runtime.block_on(sink.stop());
}
