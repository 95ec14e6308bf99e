//! Tests docs/reference/limits.md: each limit in its table passes, and the next larger value is refused.

use prost_types::Duration;
use reveille_cluster::ops::zones::Zones;
use reveille_ledger::LEVEL;
use reveille_ledger::ids::Time;
use reveille_ledger::limits::{LedgerLimits, limits};
use reveille_proto::admin::v1::{
    Audience, Content, Every, Field, Policies, Recipient, Relay, ScheduleBody, SetPoolRequest, SetTenantRequest, When,
    when,
};

use super::{Fields, relay, schedule, tenant_bounds};

/// 2026-11-20T12:00:00Z.
const NOW: Time = Time(1_795_176_000_000);
const DAY: i64 = 86_400;
const LIMITS: &LedgerLimits = limits(LEVEL);

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/limits.md");
    std::fs::read_to_string(path).expect("the page of limits")
}

fn long(count: usize) -> String {
    "x".repeat(count)
}

fn recipients(count: usize) -> Vec<Recipient> {
    let one = |number: usize| Recipient { address: format!("a{number}@example.net"), values: Vec::new() };
    (0..count).map(one).collect()
}

/// Returns a valid body.
fn body() -> ScheduleBody {
    ScheduleBody {
        name: "daily-report".to_owned(),
        when: Some(When { pattern: Some(when::Pattern::Cron("30 9 * * *".to_owned())) }),
        zone: "Europe/Berlin".to_owned(),
        content: Some(Content {
            sender: "reports@example.org".to_owned(),
            subject: "Hello".to_owned(),
            text: Some("Hello".to_owned()),
            ..Content::default()
        }),
        audience: Some(Audience { columns: Vec::new(), recipients: recipients(1), sealed: String::new() }),
        ..ScheduleBody::default()
    }
}

fn of_content(change: impl FnOnce(&mut Content)) -> ScheduleBody {
    let mut body = body();
    body.content.as_mut().map(change).expect("a content");
    body
}

fn of_policies(change: impl FnOnce(&mut Policies)) -> ScheduleBody {
    let mut policies = Policies::default();
    change(&mut policies);
    ScheduleBody { policies: Some(policies), ..body() }
}

fn of_columns(columns: Vec<String>, value: String) -> ScheduleBody {
    let recipient = Recipient { address: "a@example.net".to_owned(), values: vec![value; columns.len()] };
    ScheduleBody { audience: Some(Audience { columns, recipients: vec![recipient], sealed: String::new() }), ..body() }
}

/// Returns a body whose recipients' values have `bytes` bytes together.
fn of_values(bytes: usize) -> ScheduleBody {
    const VALUE: usize = 16 * 1024;
    let mut recipients = recipients(bytes / VALUE);
    recipients.iter_mut().for_each(|recipient| recipient.values = vec![long(VALUE)]);
    ScheduleBody {
        audience: Some(Audience { columns: vec!["value".to_owned()], recipients, sealed: String::new() }),
        ..body()
    }
}

fn every(seconds: i64) -> ScheduleBody {
    let period = Some(Duration { seconds, nanos: 0 });
    ScheduleBody { when: Some(When { pattern: Some(when::Pattern::Every(Every { period, anchor: None })) }), ..body() }
}

fn lasting(seconds: i64, set: fn(&mut Policies, Option<Duration>)) -> ScheduleBody {
    of_policies(|policies| set(policies, Some(Duration { seconds, nanos: 0 })))
}

fn is_refused(body: ScheduleBody) -> Option<String> {
    schedule(Some(body), NOW, false, (&Zones::bundled("2026x"), &|_, _| None), LIMITS)
        .err()
        .map(|fault| fault.to_string())
}

/// A line of the table: two texts of it, bodies that pass, and bodies that are refused.
type Line = (&'static str, &'static str, Vec<ScheduleBody>, Vec<ScheduleBody>);

fn lines() -> Vec<Line> {
    let names = |count| (0..count).map(|number| format!("c{number}")).collect();
    let headers = |count| {
        of_content(|content| {
            let field = |number| Field { name: format!("X-{number}"), value: "x".to_owned() };
            content.headers = (0..count).map(field).collect();
        })
    };
    let to = |count| ScheduleBody {
        audience: Some(Audience { columns: Vec::new(), recipients: recipients(count), sealed: String::new() }),
        ..body()
    };
    let subject = |count| of_content(|content| content.subject = long(count));
    let text = |bytes| of_content(|content| content.text = Some(long(bytes)));
    let column = |length| of_columns(vec![long(length)], "x".to_owned());
    let value = |bytes| of_columns(vec!["value".to_owned()], long(bytes));
    let named = |length| ScheduleBody { name: long(length), ..body() };
    let (tenant, pool) = (
        |length| ScheduleBody { tenant: long(length), ..body() },
        |length| ScheduleBody { pool: long(length), ..body() },
    );
    let paused = |length| ScheduleBody { paused: Some(long(length)), ..body() };
    let labels = |count: usize| ScheduleBody {
        labels: (0..count).map(|number| (format!("k{number}"), String::new())).collect(),
        ..body()
    };
    let label = |key, value| ScheduleBody { labels: [(long(key), long(value))].into(), ..body() };
    let start_within = |seconds| lasting(seconds, |policies, length| policies.start_within = length);
    let finish_by = |seconds| lasting(seconds, |policies, length| policies.finish_by = length);
    let retention = |seconds| lasting(seconds, |policies, length| policies.retention = length);
    let min_gap = |seconds| lasting(seconds, |policies, length| policies.min_gap = length);
    let jitter = |seconds| lasting(seconds, |policies, length| policies.jitter = length);
    vec![
        ("recipients of a schedule", "10,000", vec![to(10_000)], vec![to(10_001)]),
        (
            "recipients and their values together",
            "768 KiB",
            vec![of_values(LIMITS.inline_bytes - 16 * 1024)],
            vec![of_values(LIMITS.inline_bytes)],
        ),
        (
            "columns of recipients",
            "64",
            vec![of_columns(names(64), String::new())],
            vec![of_columns(names(65), String::new())],
        ),
        ("name of a column", "64 characters", vec![column(64)], vec![column(65)]),
        ("value of one variable", "64 KiB", vec![value(64 * 1024)], vec![value(64 * 1024 + 1)]),
        (
            "content, all its parts and variables together",
            "512 KiB",
            vec![text(LIMITS.content_bytes - 1_024)],
            vec![text(LIMITS.content_bytes)],
        ),
        ("template of the subject or of a header", "4,096 bytes", vec![subject(900)], vec![subject(4_097)]),
        ("header fields of one's own", "64", vec![headers(64)], vec![headers(65)]),
        ("name of a schedule", "128 characters", vec![named(128)], vec![named(129)]),
        ("name of a tenant, pool or relay", "64 characters", vec![tenant(64), pool(64)], vec![tenant(65), pool(65)]),
        ("reason of a pause", "500 characters", vec![paused(500)], vec![paused(501)]),
        ("labels of a schedule", "16", vec![labels(16)], vec![labels(17)]),
        ("key or value of a label", "63 characters", vec![label(63, 63)], vec![label(64, 63), label(63, 64)]),
        (
            "`--priority`",
            "255",
            vec![ScheduleBody { priority: 255, ..body() }],
            vec![ScheduleBody { priority: 256, ..body() }],
        ),
        (
            "`--max-attempts`",
            "100",
            vec![of_policies(|policies| policies.max_attempts = 100)],
            vec![of_policies(|policies| policies.max_attempts = 101)],
        ),
        (
            "`--start-within`",
            "1 min to 30 d",
            vec![start_within(60), start_within(30 * DAY)],
            vec![start_within(59), start_within(30 * DAY + 1)],
        ),
        (
            "`--finish-by`",
            "1 min to 30 d",
            vec![finish_by(60), finish_by(30 * DAY)],
            vec![finish_by(59), finish_by(30 * DAY + 1)],
        ),
        (
            "`--retention`",
            "1 d to 3650 d",
            vec![retention(DAY), retention(3_650 * DAY)],
            vec![retention(DAY - 1), retention(3_650 * DAY + 1)],
        ),
        (
            "`--min-gap`",
            "as long as the retention",
            vec![min_gap(0), min_gap(1), min_gap(90 * DAY)],
            vec![min_gap(90 * DAY + 1)],
        ),
        ("`--jitter`", "1 s to 1 d", vec![jitter(1), jitter(DAY)], vec![jitter(DAY + 1)]),
        ("`--every`", "1 s to 10 years", vec![every(1), every(3_660 * DAY)], vec![every(0), every(3_660 * DAY + 1)]),
    ]
}

#[test]
fn each_limit_of_a_schedule_is_where_the_page_says() {
    let page = page();
    for (what, most, fine, beyond) in lines() {
        assert!(page.contains(&format!("| {what} | {most} |")), "docs/reference/limits.md lacks `{what}`: {most}");
        for body in fine {
            assert_eq!(is_refused(body), None, "{what}: {most}");
        }
        for body in beyond {
            assert!(is_refused(body).is_some(), "{what}: beyond {most}");
        }
    }
}

#[test]
fn each_other_limit_is_where_the_page_says() {
    let page = page();
    let holds = |what: &str, most: &str| assert!(page.contains(&format!("| {what} | {most} |")), "{what}");
    let good = || Relay { name: "mx".into(), host: "::1".into(), port: 25, tls: 1, ..Relay::default() };
    holds("`--sessions` of a relay", "1,000");
    assert!(relay(Some(Relay { max_sessions: 1_000, ..good() })).is_ok());
    assert!(relay(Some(Relay { max_sessions: 1_001, ..good() })).is_err());
    holds("`--rate` of a relay", "0.001 to 1,000,000 a second");
    for (rate_per_second, passes) in [(0.001, true), (1_000_000.0, true), (0.000_9, false), (1_000_001.0, false)] {
        assert_eq!(relay(Some(Relay { rate_per_second, ..good() })).is_ok(), passes, "{rate_per_second}");
    }
    assert!(relay(Some(Relay { name: long(64), ..good() })).is_ok());
    assert!(relay(Some(Relay { name: long(65), ..good() })).is_err());
    holds("request id", "128 characters");
    for (length, passes) in [(128, true), (129, false)] {
        let mut fields = Fields::default();
        fields.request_id(&long(length));
        assert_eq!(fields.done(Some(())).is_ok(), passes, "{length}");
    }
    let tenant = || SetTenantRequest { name: "acme".into(), ..SetTenantRequest::default() };
    holds("`--rate` of a tenant", "0.001 to 1,000,000 a second");
    for (rate, passes) in [(0.001, true), (1_000_000.0, true), (0.000_9, false), (1_000_001.0, false)] {
        let asked = SetTenantRequest { rate_per_second: Some(rate), ..tenant() };
        assert_eq!(tenant_bounds(asked, LIMITS).is_ok(), passes, "{rate}");
    }
    holds("`--share` of a tenant", "1 to 16");
    for (share, passes) in [(1, true), (16, true), (0, false), (17, false)] {
        assert_eq!(
            tenant_bounds(SetTenantRequest { share: Some(share), ..tenant() }, LIMITS).is_ok(),
            passes,
            "{share}"
        );
    }
    let pool =
        |days: usize, cap: u32| SetPoolRequest { name: "bulk".into(), warm_up: vec![cap; days], ..Default::default() };
    holds("days of a warm-up", "400");
    for (days, cap, passes) in [(1, 1, true), (400, 1, true), (401, 1, false), (0, 1, false), (3, 0, false)] {
        assert_eq!(super::pool(pool(days, cap), LIMITS).is_ok(), passes, "{days} days of {cap}");
    }
    holds("occurrences of one backfill", "1,000");
    assert_eq!(LIMITS.backfill, 1_000);
}

/// Returns the names in backquotes that follow the words `behind` in the section about templates.
fn listed(behind: &str) -> Vec<String> {
    let page = page();
    let list = page.split(behind).nth(1).and_then(|rest| rest.split('.').next()).expect("a list");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn template_may_use_what_the_page_lists() {
    let text = |text: String| of_content(|content| content.text = Some(text));
    let filters = listed("and these filters: ");
    assert!(filters.len() > 10, "{filters:?}");
    for filter in &filters {
        assert_eq!(is_refused(text(format!("{{{{ recipient|{filter} }}}}"))), None, "{filter}");
    }
    for test in listed("Behind `is`: ") {
        assert_eq!(is_refused(text(format!("{{% if recipient is {test} %}}a{{% endif %}}"))), None, "{test}");
    }
    for template in ["{{ recipient|replace('a', 'aa') }}", "{% set a = 1 %}", "{{ unknown }}", "{{ recipient * 9 }}"] {
        assert!(is_refused(text(template.to_owned())).is_some(), "{template}");
    }
}
