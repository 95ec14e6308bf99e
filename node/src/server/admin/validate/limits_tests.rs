//! Tests docs/reference/limits.md: each limit in its table passes, and the next larger value is refused.

use prost_types::Duration;
use reveille_cluster::process::zones::Zones;
use reveille_ledger::LEVEL;
use reveille_ledger::ids::Time;
use reveille_ledger::limits::{LedgerLimits, limits};
use reveille_proto::admin::v1::{
    Audience, Content, Every, Field, Policies, Recipient, Relay, ScheduleBody, SetPoolRequest, SetTenantRequest, When,
    when,
};

use super::{CheckContext, Fields, relay, schedule, tenant_bounds};

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
        timing: Some(When { pattern: Some(when::Pattern::Cron("30 9 * * *".to_owned())) }),
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
    ScheduleBody {
        timing: Some(When { pattern: Some(when::Pattern::Every(Every { period, anchor_time: None })) }),
        ..body()
    }
}

fn lasting(seconds: i64, set: fn(&mut Policies, Option<Duration>)) -> ScheduleBody {
    of_policies(|policies| set(policies, Some(Duration { seconds, nanos: 0 })))
}

fn is_refused(body: ScheduleBody) -> Option<String> {
    let zones = Zones::bundled("2026x");
    let context = CheckContext { limits: LIMITS, ..CheckContext::without_node(&zones, NOW, false) };
    schedule(Some(body), &context).err().map(|fault| fault.to_string())
}

/// A row of the table on the page, with bodies that pass and bodies that are refused.
struct LimitRow {
    what: &'static str,
    limit: &'static str,
    passing: Vec<ScheduleBody>,
    refused: Vec<ScheduleBody>,
}

/// Makes the row of a limit: `body` returns a body with a value.
fn row<T: Copy>(
    what: &'static str,
    limit: &'static str,
    body: impl Fn(T) -> ScheduleBody,
    passing: &[T],
    refused: &[T],
) -> LimitRow {
    let bodies = |values: &[T]| values.iter().map(|value| body(*value)).collect();
    LimitRow { what, limit, passing: bodies(passing), refused: bodies(refused) }
}

fn rows() -> Vec<LimitRow> {
    let to = |count| ScheduleBody {
        audience: Some(Audience { columns: Vec::new(), recipients: recipients(count), sealed: String::new() }),
        ..body()
    };
    let columns = |count: usize| of_columns((0..count).map(|number| format!("c{number}")).collect(), String::new());
    let headers = |count| {
        of_content(|content| {
            let field = |number| Field { name: format!("X-{number}"), value: "x".to_owned() };
            content.headers = (0..count).map(field).collect();
        })
    };
    let cc = |count| of_content(|content| content.cc = vec!["a@example.net".to_owned(); count]);
    let labels = |count: usize| ScheduleBody {
        labels: (0..count).map(|number| (format!("k{number}"), String::new())).collect(),
        ..body()
    };
    let label = |(key, value)| ScheduleBody { labels: [(long(key), long(value))].into(), ..body() };
    let text = |bytes| of_content(|content| content.text = Some(long(bytes)));
    // A rendered line has a smaller bound, so that most of the template is a comment.
    let subject = |bytes: usize| of_content(|content| content.subject = format!("x{{#{}#}}", long(bytes - 5)));
    let tenant_and_pool = |(tenant, pool)| ScheduleBody { tenant: long(tenant), pool: long(pool), ..body() };
    let start_within = |seconds| lasting(seconds, |policies, length| policies.start_within = length);
    let finish_by = |seconds| lasting(seconds, |policies, length| policies.finish_by = length);
    let retention = |seconds| lasting(seconds, |policies, length| policies.retention = length);
    let min_gap = |seconds| lasting(seconds, |policies, length| policies.min_gap = length);
    let jitter = |seconds| lasting(seconds, |policies, length| policies.jitter = length);
    let attempts = |attempts| of_policies(|policies| policies.max_attempts = attempts);
    let (values_max, content_max) = (LIMITS.inline_bytes_max, LIMITS.content_bytes_max);
    vec![
        row("recipients of a schedule, or of a trigger", "10,000", to, &[10_000], &[10_001]),
        row("recipients and their values together", "768 KiB", of_values, &[values_max - 16 * 1024], &[values_max]),
        row("columns of recipients", "64", columns, &[64], &[65]),
        row("name of a column", "64 characters", |length| of_columns(vec![long(length)], "x".to_owned()), &[64], &[65]),
        row(
            "value of one variable",
            "64 KiB",
            |bytes| of_columns(vec!["value".to_owned()], long(bytes)),
            &[64 * 1024],
            &[64 * 1024 + 1],
        ),
        row("content, all its parts and variables together", "512 KiB", text, &[content_max - 1_024], &[content_max]),
        row("template of the subject or of a header", "4,096 bytes", subject, &[4_096], &[4_097]),
        row("header fields of one's own", "64", headers, &[64], &[65]),
        row("addresses in `cc`", "10", cc, &[10], &[11]),
        row(
            "name of a schedule or audience",
            "128 characters",
            |length| ScheduleBody { name: long(length), ..body() },
            &[128],
            &[129],
        ),
        row("name of a tenant, pool or relay", "64 characters", tenant_and_pool, &[(64, 64)], &[(65, 64), (64, 65)]),
        row(
            "reason of a pause",
            "500 characters",
            |length| ScheduleBody { paused: Some(long(length)), ..body() },
            &[500],
            &[501],
        ),
        row("labels of a schedule", "16", labels, &[16], &[17]),
        row("key or value of a label", "63 characters", label, &[(63, 63)], &[(64, 63), (63, 64)]),
        row("`--priority`", "255", |priority| ScheduleBody { priority, ..body() }, &[255], &[256]),
        row("`--max-attempts`", "100", attempts, &[100], &[101]),
        row("`--start-within`", "1 min to 30 d", start_within, &[60, 30 * DAY], &[59, 30 * DAY + 1]),
        row("`--finish-by`", "1 min to 30 d", finish_by, &[60, 30 * DAY], &[59, 30 * DAY + 1]),
        row("`--retention`", "1 d to 3650 d", retention, &[DAY, 3_650 * DAY], &[DAY - 1, 3_650 * DAY + 1]),
        row("`--min-gap`", "as long as the retention", min_gap, &[0, 1, 90 * DAY], &[90 * DAY + 1]),
        row("`--jitter`", "1 s to 1 d", jitter, &[1, DAY], &[DAY + 1]),
        row("`--every`", "1 s to 10 years", every, &[1, 3_660 * DAY], &[0, 3_660 * DAY + 1]),
    ]
}

#[test]
fn each_limit_of_a_schedule_is_where_the_page_says() {
    let page = page();
    for LimitRow { what, limit, passing, refused } in rows() {
        assert!(page.contains(&format!("| {what} | {limit} |")), "docs/reference/limits.md lacks `{what}`: {limit}");
        for body in passing {
            assert_eq!(is_refused(body), None, "{what}: {limit}");
        }
        for body in refused {
            assert!(is_refused(body).is_some(), "{what}: beyond {limit}");
        }
    }
}

#[test]
fn each_other_limit_is_where_the_page_says() {
    let page = page();
    let holds = |what: &str, most: &str| assert!(page.contains(&format!("| {what} | {most} |")), "{what}");
    let good = || Relay { name: "mx".into(), host: "::1".into(), port: 25, tls: 1, ..Relay::default() };
    holds("`--max-sessions` of a relay", "1,000");
    assert!(relay(Some(Relay { max_sessions: 1_000, ..good() })).is_ok());
    assert!(relay(Some(Relay { max_sessions: 1_001, ..good() })).is_err());
    holds("`--rate-per-second` of a relay", "0.001 to 1,000,000 a second");
    for (rate_per_second, passes) in [(0.001, true), (1_000_000.0, true), (0.000_9, false), (1_000_001.0, false)] {
        assert_eq!(relay(Some(Relay { rate_per_second, ..good() })).is_ok(), passes, "{rate_per_second}");
    }
    assert!(relay(Some(Relay { name: long(64), ..good() })).is_ok());
    assert!(relay(Some(Relay { name: long(65), ..good() })).is_err());
    holds("request id, or key of a message", "128 characters");
    for (length, passes) in [(128, true), (129, false)] {
        let mut fields = Fields::default();
        fields.request_id(&long(length));
        assert_eq!(fields.done(Some(())).is_ok(), passes, "{length}");
    }
    let tenant = || SetTenantRequest { name: "acme".into(), ..SetTenantRequest::default() };
    holds("`--rate-per-second` of a tenant", "0.001 to 1,000,000 a second");
    for (rate, passes) in [(0.001, true), (1_000_000.0, true), (0.000_9, false), (1_000_001.0, false)] {
        let requested = SetTenantRequest { rate_per_second: Some(rate), ..tenant() };
        assert_eq!(tenant_bounds(requested, LIMITS).is_ok(), passes, "{rate}");
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
    holds("name of a template", "64 characters");
    for (length, passes) in [(64, true), (65, false)] {
        let mut fields = Fields::default();
        fields.name("name", &long(length), super::NAME_MAX);
        assert_eq!(fields.done(Some(())).is_ok(), passes, "{length}");
    }
    holds("templates of a tenant", "1,000");
    holds("versions of a template", "100; of more, the oldest that nothing uses goes");
    assert_eq!((LIMITS.tenant_templates_max, LIMITS.template_versions_max), (1_000, 100));
    holds("occurrences of one backfill", "1,000");
    assert_eq!(LIMITS.backfill_openings_max, 1_000);
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
