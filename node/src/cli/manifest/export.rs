//! Converts existing objects to the documents that would create them.

use reveille_proto::admin::v1;

use super::tree::Node;
use crate::api_json::word;
use crate::cli::instant::{duration_ms, text};

/// Keys and values, in insertion order.
struct Keys(Vec<(String, Node)>);

impl Keys {
    fn add(&mut self, key: &str, value: impl Into<String>) {
        self.0.push((key.to_owned(), Node::text(value)));
    }

    /// Adds a number or a boolean. Leaves out zero, which means the default.
    fn plain(&mut self, key: &str, value: impl ToString) {
        let node = Node::plain(value);
        if node != Node::plain(0) {
            self.0.push((key.to_owned(), node));
        }
    }

    /// Adds a text, unless it is empty.
    fn some(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.add(key, value);
        }
    }

    fn pairs<'p>(&mut self, key: &str, pairs: impl Iterator<Item = (&'p String, &'p String)>) {
        let pairs: Vec<_> = pairs.map(|(name, value)| (name.clone(), Node::text(value.as_str()))).collect();
        if !pairs.is_empty() {
            self.0.push((key.to_owned(), Node::map(pairs)));
        }
    }
}

fn pair(field: &v1::Field) -> (&String, &String) {
    (&field.name, &field.value)
}

/// Returns the document of a schedule.
pub fn schedule(body: &v1::ScheduleBody) -> Node {
    let mut keys = Keys(Vec::new());
    keys.add("kind", "schedule");
    keys.add("name", body.name.as_str());
    keys.add("tenant", body.tenant.as_str());
    when(&mut keys, body.when.as_ref());
    keys.add("tz", body.zone.as_str());
    keys.some("start", text(body.start_time.as_ref()).unwrap_or_default());
    keys.some("end", text(body.end_time.as_ref()).unwrap_or_default());
    keys.plain("max_runs", body.max_runs.unwrap_or_default());
    keys.add("pool", body.pool.as_str());
    keys.0.push(("priority".to_owned(), Node::plain(body.priority)));
    keys.pairs("labels", body.labels.iter());
    if let Some(reason) = &body.paused {
        keys.plain("paused", true);
        keys.some("reason", reason.as_str());
    }
    policies(&mut keys, &body.policies.unwrap_or_default());
    content(&mut keys, body);
    recipients(&mut keys, body.audience.clone().unwrap_or_default());
    Node::map(keys.0)
}

fn content(keys: &mut Keys, body: &v1::ScheduleBody) {
    match body.template.as_str() {
        "" => mail(keys, body.content.clone().unwrap_or_default()),
        template => keys.add("template", template),
    }
}

fn mail(keys: &mut Keys, content: v1::Content) {
    keys.add("sender", content.sender);
    keys.some("reply_to", content.reply_to);
    keys.add("subject", content.subject);
    content.text.into_iter().for_each(|text| keys.add("inline_text", text));
    content.html.into_iter().for_each(|html| keys.add("inline_html", html));
    keys.pairs("var", content.variables.iter().map(pair));
    keys.pairs("header", content.headers.iter().map(pair));
    if content.bulk {
        keys.plain("bulk", true);
    }
}

/// Returns the document of a campaign.
pub fn campaign(body: &v1::ScheduleBody, canary: Option<&v1::Canary>) -> Node {
    let mut keys = Keys(Vec::new());
    keys.add("kind", "campaign");
    keys.add("name", body.name.as_str());
    keys.add("tenant", body.tenant.as_str());
    keys.add("audience", body.audience.as_ref().map(|audience| audience.sealed.clone()).unwrap_or_default());
    when(&mut keys, body.when.as_ref());
    keys.add("tz", body.zone.as_str());
    keys.add("pool", body.pool.as_str());
    keys.0.push(("priority".to_owned(), Node::plain(body.priority)));
    keys.pairs("labels", body.labels.iter());
    if let Some(canary) = canary {
        keys.plain("canary", canary.percent);
        canary.hold_percent.into_iter().for_each(|hold| keys.0.push(("canary_hold".to_owned(), Node::plain(hold))));
    }
    let policies = body.policies.unwrap_or_default();
    keys.some("start_within", length(policies.start_within.as_ref()));
    keys.some("finish_by", length(policies.finish_by.as_ref()));
    keys.add("in_doubt", word(policies.in_doubt().as_str_name()));
    keys.plain("max_attempts", policies.max_attempts);
    keys.some("retention", length(policies.retention.as_ref()));
    content(&mut keys, body);
    Node::map(keys.0)
}

/// Returns the document of a tenant's limits.
pub fn tenant(tenant: &v1::Tenant) -> Node {
    let mut keys = Keys(Vec::new());
    keys.add("kind", "tenant");
    keys.add("name", tenant.name.as_str());
    keys.plain("rate", tenant.rate_per_second);
    keys.plain("concurrency", tenant.concurrency);
    keys.plain("share", tenant.share);
    Node::map(keys.0)
}

/// Returns the document of a pool's settings.
pub fn pool(pool: &v1::Pool) -> Node {
    let mut keys = Keys(Vec::new());
    keys.add("kind", "pool");
    keys.add("name", pool.name.as_str());
    if !pool.warm_up.is_empty() {
        keys.0.push(("warm_up".to_owned(), Node::list(pool.warm_up.iter().map(Node::plain).collect())));
    }
    keys.some("first_day", pool.first_day.as_str());
    keys.plain("reveille_headers", pool.reveille_headers);
    Node::map(keys.0)
}

fn when(keys: &mut Keys, when: Option<&v1::When>) {
    use v1::when::Pattern;
    match when.and_then(|when| when.pattern.as_ref()) {
        None => {}
        Some(Pattern::Cron(expression)) => keys.add("cron", expression.as_str()),
        Some(Pattern::At(instant)) => keys.add("at", text(Some(instant)).unwrap_or_default()),
        Some(Pattern::Daily(daily)) => {
            keys.add("daily", format!("{:02}:{:02}", daily.hour, daily.minute));
            keys.some("days", daily.days.as_str());
        }
        Some(Pattern::Every(every)) => {
            keys.add("every", length(every.period.as_ref()));
            keys.some("anchor", text(every.anchor_time.as_ref()).unwrap_or_default());
        }
    }
}

/// Formats a duration so that parsing returns the same value.
fn length(length: Option<&prost_types::Duration>) -> String {
    const UNITS: [(i64, &str); 5] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let mut left = length.map(duration_ms).unwrap_or_default();
    let mut parts = Vec::new();
    for (unit, letter) in UNITS {
        if left >= unit {
            parts.push(format!("{}{letter}", left / unit));
            left %= unit;
        }
    }
    parts.join(" ")
}

fn some_or_none(gap: &prost_types::Duration) -> String {
    let gap = length(Some(gap));
    if gap.is_empty() { "none".to_owned() } else { gap }
}

fn policies(keys: &mut Keys, policies: &v1::Policies) {
    keys.add("dst_gap", word(policies.dst_gap().as_str_name()));
    keys.add("dst_overlap", word(policies.dst_overlap().as_str_name()));
    keys.add("catch_up", word(policies.catch_up().as_str_name()));
    keys.some("start_within", length(policies.start_within.as_ref()));
    keys.some("finish_by", length(policies.finish_by.as_ref()));
    keys.add("overlap", word(policies.overlap().as_str_name()));
    keys.add("in_doubt", word(policies.in_doubt().as_str_name()));
    keys.plain("max_attempts", policies.max_attempts);
    keys.some("retention", length(policies.retention.as_ref()));
    // A missing gap means that a default may apply.
    policies.min_gap.iter().for_each(|gap| keys.add("min_gap", some_or_none(gap)));
    keys.some("jitter", length(policies.jitter.as_ref()));
}

/// Adds addresses as `to`, or as `recipients` if they have variables.
fn recipients(keys: &mut Keys, audience: v1::Audience) {
    let v1::Audience { columns, recipients, sealed } = audience;
    if !sealed.is_empty() {
        return keys.add("audience", sealed);
    }
    if columns.is_empty() {
        let addresses = recipients.into_iter().map(|recipient| Node::text(recipient.address)).collect();
        return keys.0.push(("to".to_owned(), Node::list(addresses)));
    }
    let row = |recipient: v1::Recipient| {
        let values = columns.iter().cloned().zip(recipient.values.into_iter().map(Node::text));
        let email = ("email".to_owned(), Node::text(recipient.address));
        Node::map(std::iter::once(email).chain(values).collect())
    };
    keys.0.push(("recipients".to_owned(), Node::list(recipients.into_iter().map(row).collect())));
}

/// Returns the document of a relay.
pub fn relay(relay: &v1::Relay) -> Node {
    let mut keys = Keys(Vec::new());
    keys.add("kind", "relay");
    keys.add("name", relay.name.as_str());
    keys.add("host", relay.host.as_str());
    keys.plain("port", relay.port);
    keys.add("tls", word(relay.tls().as_str_name()));
    keys.some("ca", relay.ca.as_str());
    keys.some("tls_name", relay.tls_name.as_str());
    keys.some("credentials", relay.credentials.as_str());
    keys.add("pool", relay.pool.as_str());
    keys.plain("rate", relay.rate_per_second);
    keys.plain("late_rate", relay.late_rate_per_second);
    keys.plain("sessions", relay.max_sessions);
    keys.plain("weight", relay.weight);
    Node::map(keys.0)
}
