//! Tests invalid requests and the error message of each.

use std::error::Error;

use prost_types::{Duration, Timestamp};
use reveille_cluster::process::zones::Zones;
use reveille_ledger::content::AudienceChoice;
use reveille_ledger::ids::Time;
use reveille_proto::admin::v1::{
    Audience, Content, Daily, ErrorReason, Every, Field, Policies, Recipient, Relay, ScheduleBody, When, when,
};

use super::{CheckContext, CheckedSchedule, relay, schedule, tenant};

/// 2026-11-20T12:00:00Z.
const NOW: Time = Time(1_795_176_000_000);

fn recipient(address: &str) -> Recipient {
    Recipient { address: address.to_owned(), values: vec!["Ada".to_owned()] }
}

fn every(seconds: i64) -> Option<When> {
    let period = Some(Duration { seconds, nanos: 0 });
    Some(When { pattern: Some(when::Pattern::Every(Every { period, anchor_time: None })) })
}

fn cron(expression: &str) -> Option<When> {
    Some(When { pattern: Some(when::Pattern::Cron(expression.to_owned())) })
}

fn daily(hour: u32, minute: u32, days: &str) -> Option<When> {
    Some(When { pattern: Some(when::Pattern::Daily(Daily { hour, minute, days: days.to_owned() })) })
}

fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

/// Returns a valid body.
fn body() -> ScheduleBody {
    ScheduleBody {
        name: "daily-report".to_owned(),
        timing: cron("30 9 * * mon-fri"),
        zone: "Europe/Berlin".to_owned(),
        content: Some(Content {
            sender: "Reports <reports@example.org>".to_owned(),
            subject: "Hello {{ name }}".to_owned(),
            text: Some("Dear {{ name }}".to_owned()),
            ..Content::default()
        }),
        audience: Some(Audience {
            columns: vec!["name".to_owned()],
            recipients: vec![recipient("ada@example.net")],
            sealed: String::new(),
        }),
        ..ScheduleBody::default()
    }
}

fn context(zones: &Zones, exists: bool) -> CheckContext<'_> {
    CheckContext::without_node(zones, NOW, exists)
}

fn requested(body: ScheduleBody) -> Result<CheckedSchedule, super::ApiError> {
    schedule(Some(body), &context(&Zones::bundled("2026x"), false))
}

fn content(change: impl FnOnce(&mut Content)) -> ScheduleBody {
    let mut body = body();
    body.content.as_mut().map(change).expect("a content");
    body
}

fn audience(change: impl FnOnce(&mut Audience)) -> ScheduleBody {
    let mut body = body();
    body.audience.as_mut().map(change).expect("an audience");
    body
}

fn policies(policies: Policies) -> ScheduleBody {
    ScheduleBody { policies: Some(policies), ..body() }
}

#[test]
fn valid_schedule_has_all_fields_and_first_instant() -> Result<(), Box<dyn Error>> {
    let requested = requested(body()).map_err(|fault| fault.to_string())?;
    let create = requested.create;
    assert_eq!((create.tenant.as_str(), create.pool.as_str(), create.after), ("default", "default", NOW));
    // 2026-11-20 is a Friday, and 09:30 has passed in Berlin.
    let next = create.next.ok_or("a next instant")?;
    assert_eq!(next.due.to_string(), "2026-11-23T08:30:00Z");
    assert_eq!((create.tzdb.as_str(), requested.duplicates.len()), ("2026x", 0));
    Ok(())
}

#[test]
fn recipients_with_one_key_are_one_and_the_others_are_reported() -> Result<(), Box<dyn Error>> {
    let body = audience(|audience| {
        audience.recipients = ["ada@example.net", "bob@example.net", "ADA@Example.net"].map(recipient).to_vec();
    });
    let requested = requested(body).map_err(|fault| fault.to_string())?;
    let AudienceChoice::Listed(listed) = requested.create.audience else { panic!("a list") };
    let kept: Vec<&str> = listed.recipients.iter().map(|one| one.address.as_str()).collect();
    assert_eq!(kept, ["ada@example.net", "bob@example.net"]);
    let pairs: Vec<(u32, u32)> = requested.duplicates.iter().map(|one| (one.recipient, one.same_as)).collect();
    assert_eq!(pairs, [(2, 0)]);
    Ok(())
}

#[test]
fn period_without_an_anchor_always_means_the_same_instants() -> Result<(), Box<dyn Error>> {
    let aligned = requested(ScheduleBody { timing: every(3_600), ..body() }).map_err(|fault| fault.to_string())?;
    let next = aligned.create.next.ok_or("a next instant")?;
    assert_eq!(next.due, NOW.plus_ms(3_600_000), "noon is an instant, and the next one is at one");
    let start = at(NOW.0 / 1_000 + 90);
    let from_start = requested(ScheduleBody { timing: every(3_600), start_time: start, ..body() })
        .map_err(|fault| fault.to_string())?;
    assert_eq!(from_start.create.next.ok_or("a next instant")?.due, NOW.plus_ms(90_000));
    Ok(())
}

#[test]
fn past_instant_of_known_schedule_is_left_to_the_ledger() {
    let past = || ScheduleBody { timing: Some(When { pattern: at(1_700_000_000).map(when::Pattern::At) }), ..body() };
    assert!(requested(past()).is_err());
    let repeat = schedule(Some(past()), &context(&Zones::bundled("2026x"), true));
    assert!(repeat.is_ok_and(|requested| requested.create.next.is_none()));
}

#[test]
fn bad_schedule_is_refused_with_field_cause_and_next_step() {
    let long = |count: usize| "x".repeat(count);
    let names = "use letters, digits, '-', '_' and '.', beginning with a letter or a digit";
    #[rustfmt::skip]
    let table: Vec<(ScheduleBody, ErrorReason, String)> = vec![
        (ScheduleBody { name: String::new(), ..body() }, ErrorReason::InvalidField, "schedule.name: is missing".into()),
        (ScheduleBody { name: "a b".into(), ..body() }, ErrorReason::InvalidField, format!("schedule.name: \"a b\" is not a name; {names}")),
        (ScheduleBody { name: ".a".into(), ..body() }, ErrorReason::InvalidField, format!("schedule.name: \".a\" is not a name; {names}")),
        (ScheduleBody { name: long(129), ..body() }, ErrorReason::InvalidField, "schedule.name: has 129 characters, more than 128".into()),
        (ScheduleBody { tenant: "ä".into(), ..body() }, ErrorReason::InvalidField, format!("schedule.tenant: \"ä\" is not a name; {names}")),
        (ScheduleBody { pool: long(65), ..body() }, ErrorReason::InvalidField, "schedule.pool: has 65 characters, more than 64".into()),
        (ScheduleBody { timing: None, ..body() }, ErrorReason::InvalidField, "schedule.timing: is missing; give one of cron, daily, every or at".into()),
        (ScheduleBody { timing: cron("0 9 31 2 *"), ..body() }, ErrorReason::NeverFires, "schedule.timing.cron: `0 9 31 2 *` never fires: no date matches its day and month; for the last day of each month write `L` as day of month".into()),
        (ScheduleBody { timing: cron("0 9 * *"), ..body() }, ErrorReason::InvalidField, "schedule.timing.cron: a cron expression has five fields (minute hour day-of-month month weekday), this one has 4; write `*` for a field that does not matter".into()),
        (ScheduleBody { timing: cron("H/75 9 * * *"), ..body() }, ErrorReason::InvalidField, "schedule.timing.cron: minute field `H/75` (position 1): `H/75`: a step of 75 is more than the 60 values; write `H`; it takes 0-59, lists `0,30`, ranges `0-29` and steps `*/15` or `5-59/15`".into()),
        (ScheduleBody { timing: cron("H H 31 2 *"), ..body() }, ErrorReason::NeverFires, "schedule.timing.cron: `H H 31 2 *` never fires: no date matches its day and month; for the last day of each month write `L` as day of month".into()),
        (ScheduleBody { timing: daily(24, 0, ""), ..body() }, ErrorReason::InvalidField, "schedule.timing.daily: 24:00 is not a time of day; give from 00:00 to 23:59".into()),
        (ScheduleBody { timing: daily(9, 300, ""), ..body() }, ErrorReason::InvalidField, "schedule.timing.daily: 09:300 is not a time of day; give from 00:00 to 23:59".into()),
        (ScheduleBody { timing: daily(9, 0, "montag"), ..body() }, ErrorReason::InvalidField, "schedule.timing.daily.days: `montag` is not a weekday; use mon, tue, wed, thu, fri, sat, sun, lists and ranges".into()),
        (ScheduleBody { timing: every(0), ..body() }, ErrorReason::InvalidField, "schedule.timing.every: the period is zero; give at least one second".into()),
        (ScheduleBody { timing: every(-1), ..body() }, ErrorReason::InvalidField, "schedule.timing.every.period: is missing or below zero; give from one second to ten years".into()),
        (ScheduleBody { timing: Some(When { pattern: at(1_700_000_000).map(when::Pattern::At) }), ..body() }, ErrorReason::NeverFires, "schedule.timing.at: 2023-11-14T22:13:20Z is in the past: it is 2026-11-20T12:00:00Z; give an instant to come".into()),
        (ScheduleBody { end_time: at(NOW.0 / 1_000 + 60), ..body() }, ErrorReason::NeverFires, "schedule.timing: has no instant between now, 2026-11-20T12:00:00Z, and the end, 2026-11-20T12:01:00Z; give a later end".into()),
        (ScheduleBody { start_time: at(i64::MAX), ..body() }, ErrorReason::InvalidField, "schedule.start_time: is not an instant between the years -9999 and 9999".into()),
        (ScheduleBody { start_time: at(2_000_000_000), end_time: at(1_900_000_000), ..body() }, ErrorReason::InvalidField, "schedule.end_time: 2030-03-17T17:46:40Z is before the start, 2033-05-18T03:33:20Z (and 1 more field)".into()),
        (ScheduleBody { zone: String::new(), ..body() }, ErrorReason::InvalidField, "schedule.zone: is missing; give an IANA name such as Europe/Berlin".into()),
        (ScheduleBody { zone: "Europe/Berlni".into(), ..body() }, ErrorReason::UnknownZone, "schedule.zone: unknown time zone 'Europe/Berlni'; did you mean Europe/Berlin, Europe/Jersey, Europe/Tirane?".into()),
        (ScheduleBody { max_runs: Some(0), ..body() }, ErrorReason::InvalidField, "schedule.max_runs: is zero; leave it out for no bound".into()),
        (ScheduleBody { priority: 256, ..body() }, ErrorReason::InvalidField, "schedule.priority: 256 is above 255; give 0 to 255".into()),
        (ScheduleBody { labels: [("team".into(), "a b".into())].into(), ..body() }, ErrorReason::InvalidField, "schedule.labels.team: \"a b\" is not the value of a label; use at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or a digit, or nothing".into()),
        (ScheduleBody { labels: [("te am".into(), "a".into())].into(), ..body() }, ErrorReason::InvalidField, "schedule.labels: \"te am\" is not the key of a label; use 1 to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or a digit".into()),
        (ScheduleBody { labels: (0..17).map(|key| (format!("k{key}"), String::new())).collect(), ..body() }, ErrorReason::InvalidField, "schedule.labels: 17 labels, at most 16".into()),
        (ScheduleBody { paused: Some("a\nb".into()), ..body() }, ErrorReason::InvalidField, "schedule.paused: holds a control character; write it on one line".into()),
        (policies(Policies { start_within: Some(Duration { seconds: 1, nanos: 0 }), ..Policies::default() }), ErrorReason::InvalidField, "schedule.policies.start_within: is 1 s; give from 1 min to 30 d".into()),
        (policies(Policies { finish_by: Some(Duration { seconds: -60, nanos: 0 }), ..Policies::default() }), ErrorReason::InvalidField, "schedule.policies.finish_by: is not a length of time; give from 1 min to 30 d".into()),
        (policies(Policies { max_attempts: 101, ..Policies::default() }), ErrorReason::InvalidField, "schedule.policies.max_attempts: is above 100; give 1 to 100".into()),
        (policies(Policies { catch_up: 17, ..Policies::default() }), ErrorReason::InvalidField, "schedule.policies.catch_up: is a value that this node does not know; leave it out, or ask a newer node".into()),
        (ScheduleBody { content: None, ..body() }, ErrorReason::InvalidField, "schedule.content: is missing; give a sender, a subject, and a text or html".into()),
        (content(|content| content.sender.clear()), ErrorReason::InvalidField, "schedule.content.sender: is missing; write ADDRESS or NAME <ADDRESS>".into()),
        (content(|content| content.text = None), ErrorReason::InvalidField, "schedule.content: has neither text nor html; give one of them, or both".into()),
        (content(|content| content.headers = vec![Field { name: "Bcc".into(), value: "x".into() }]), ErrorReason::InvalidField, "schedule.content.headers.Bcc: is written by Reveille or on the way; remove it".into()),
        (ScheduleBody { audience: None, ..body() }, ErrorReason::InvalidField, "schedule.audience.recipients: is empty; give at least one recipient".into()),
        (audience(|audience| audience.recipients = vec![recipient("a@example.net"); 10_001]), ErrorReason::TooLarge, "schedule.audience.recipients: 10001 recipients, at most 10000; split them over schedules".into()),
        (audience(|audience| audience.columns.clear()), ErrorReason::InvalidField, "schedule.audience.recipients[0].values: 1 values for 0 columns; give one each (and 1 more field)".into()),
        (audience(|audience| audience.recipients[0].values = vec!["a\0b".into()]), ErrorReason::InvalidField, "schedule.audience.recipients[0].values[0]: column `name` holds the control character U+0000, which no email carries; remove it".into()),
        (audience(|audience| audience.recipients.push(Recipient { address: "b@example.net".into(), values: vec!["a\nb".into()] })), ErrorReason::InvalidField, "schedule.audience.recipients[1].values[0]: column `name` holds a line end, and subject uses it, which is one line; take it out there or here".into()),
        (content(|content| content.text = Some("a\n\0".into())), ErrorReason::InvalidField, "schedule.content.text: line 2: holds the control character U+0000, which no email carries; remove it".into()),
        (audience(|audience| audience.columns = vec!["a\tb".into()]), ErrorReason::InvalidField, "schedule.audience.columns[0]: is not the name of a column; give 1 to 64 characters on one line (and 1 more field)".into()),
    ];
    for (body, reason, message) in table {
        let fault = requested(body).expect_err(&message);
        assert_eq!((fault.to_string(), fault.reason()), (message, reason));
    }
}

#[test]
fn bad_address_and_a_bad_template_name_their_place() {
    let fault = requested(audience(|audience| audience.recipients.push(recipient("bob")))).expect_err("no address");
    assert!(fault.to_string().starts_with("schedule.audience.recipients[1].address: "), "{fault}");
    let fault =
        requested(content(|content| content.text = Some("a\nb {{ unknown }}".to_owned()))).expect_err("no variable");
    assert!(fault.to_string().starts_with("schedule.content.text: line 2: "), "{fault}");
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let fault = requested(ScheduleBody::default()).expect_err("nothing is there");
    assert_eq!(fault.to_string(), "schedule.name: is missing (and 4 more fields)");
    assert_eq!(
        schedule(None, &context(&Zones::bundled("x"), false)).expect_err("no body").to_string(),
        "schedule: is missing"
    );
}

#[test]
fn relay_is_a_host_a_port_and_bounds() {
    let good = || Relay { name: "mx".into(), host: "::1".into(), port: 25, tls: 1, ..Relay::default() };
    let kept = relay(Some(Relay { rate_per_second: 2.5, late_rate_per_second: 0.5, ..good() })).expect("a relay");
    assert_eq!(
        (kept.pool.as_str(), kept.rate_milli, kept.late_rate_milli, kept.max_sessions),
        ("default", 2_500, 500, 10)
    );
    let secured =
        Relay { host: "mx.example".into(), tls: 2, ca: "/ca.pem".into(), credentials: "ses".into(), ..good() };
    let kept = relay(Some(secured)).expect("a relay");
    assert!(
        kept.access.credentials.is_some() && kept.access.tls.trust().is_some_and(|trust| trust.ca.is_some()),
        "{kept:?}"
    );
    #[rustfmt::skip]
    let table = [
        (Relay { name: "m x".into(), ..good() }, "relay.name: \"m x\" is not a name; use letters, digits, '-', '_' and '.', beginning with a letter or a digit"),
        (Relay { host: String::new(), ..good() }, "relay.host: is missing; give a name or an address"),
        (Relay { host: "[::1]".into(), ..good() }, "relay.host: \"[::1]\" is not a host; give a name or an address, IPv6 without brackets"),
        (Relay { host: "a\r\nQUIT".into(), ..good() }, "relay.host: \"a\\r\\nQUIT\" is not a host; give a name or an address, IPv6 without brackets"),
        (Relay { port: 0, ..good() }, "relay.port: 0 is not a port; give 1 to 65535"),
        (Relay { port: 65_536, ..good() }, "relay.port: 65536 is not a port; give 1 to 65535"),
        (Relay { tls: 0, ..good() }, "relay.tls: is missing; give none, starttls or implicit"),
        (Relay { tls: 7, ..good() }, "relay.tls: is a value that this node does not know; give none, starttls or implicit"),
        (Relay { ca: "/ca.pem".into(), ..good() }, "relay.ca: needs TLS; give starttls or implicit"),
        (Relay { tls_name: "a.example".into(), ..good() }, "relay.tls_name: needs TLS; give starttls or implicit"),
        (Relay { tls: 2, ca: "ca.pem".into(), ..good() }, "relay.ca: is not the absolute path of a file, which each node has to have"),
        (Relay { tls: 3, tls_name: "a b".into(), ..good() }, "relay.tls_name: no certificate can be for that name; give a DNS name or an address"),
        (Relay { credentials: "anna:hunter2".into(), ..good() }, "relay.credentials: is not the name of a section [credentials.NAME] of a node's configuration"),
        (Relay { host: "10.0.0.5".into(), credentials: "ses".into(), ..good() }, "relay.credentials: would cross the network in the clear; give starttls or implicit (in the clear only for a relay on this machine)"),
        (Relay { rate_per_second: -1.0, ..good() }, "relay.rate_per_second: -1 is not a rate; give 0.001 to 1000000, or 0 for no bound"),
        (Relay { rate_per_second: f64::NAN, ..good() }, "relay.rate_per_second: NaN is not a rate; give 0.001 to 1000000, or 0 for no bound"),
        (Relay { rate_per_second: 5.0, late_rate_per_second: 6.0, ..good() }, "relay.late_rate_per_second: 6 is above the rate of 5"),
        (Relay { late_rate_per_second: -1.0, ..good() }, "relay.late_rate_per_second: -1 is not a rate; give 0.001 to 1000000, or 0 for half of the rate"),
        (Relay { max_sessions: 1_001, ..good() }, "relay.max_sessions: 1001 is above 1000; give 1 to 1000"),
    ];
    for (requested, message) in table {
        assert_eq!(relay(Some(requested)).expect_err(message).to_string(), message);
    }
}

#[test]
fn no_tenant_means_the_default_one() {
    assert_eq!(tenant("").expect("the default"), "default");
    assert_eq!(tenant("acme").expect("a name"), "acme");
    assert!(tenant("a/b").is_err());
}
