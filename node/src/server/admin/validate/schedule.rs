//! Validates the body of a schedule, and turns it into the command that creates it.

use reveille_cluster::compose::{Compiled, check_proposed};
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::zones::Zones;
use reveille_ledger::calendar::When;
use reveille_ledger::command::ScheduleCreate;
use reveille_ledger::content::{Content, NamedAudience};
use reveille_ledger::ids::{Hash, Time};
use reveille_ledger::labels::{Labels, WrongLabel};
use reveille_ledger::limits::{LedgerLimits, limits};
use reveille_ledger::planning::timing::{self, Jitter};
use reveille_ledger::{DEFAULT_POOL, LEVEL, Ledger, ScheduleTiming};
use reveille_proto::admin::v1::{self, ErrorReason};

use super::audience::{CheckedAudience, audience};
use super::content::{CheckedContent, chosen_content};
use super::policies::policies;
use super::{Fields, SCHEDULE_NAME_MAX, when};
use crate::server::admin::{ApiError, ApiResult};

/// A schedule that can be created.
#[derive(Debug)]
pub struct CheckedSchedule {
    /// The command. The caller sets its `request`.
    pub create: ScheduleCreate,
    /// Its content, also if the command names a template.
    pub content: Content,
    /// Recipients that were removed because another has the same key.
    pub duplicates: Vec<v1::Duplicate>,
}

/// What the checks of a schedule read besides its body.
pub struct CheckContext<'a> {
    /// The ledger time that this node knows.
    pub now: Time,
    /// True if a schedule has the name already: then the ledger compares both, and a repeated request may name instants
    /// that have passed.
    pub exists: bool,
    /// The time zones.
    pub zones: &'a Zones,
    /// The node whose state has sealed audiences and templates. `None`: there are none.
    pub node: Option<&'a NodeContext>,
    /// Columns of a named audience that is not sealed yet. `None`: it must be sealed.
    pub columns_to_come: Option<Vec<String>>,
    /// The limits of the ledger.
    pub limits: &'static LedgerLimits,
}

impl<'a> CheckContext<'a> {
    /// Returns the context of a request to this node.
    pub fn of(node: &'a NodeContext, now: Time, exists: bool) -> CheckContext<'a> {
        let limits = node.replica.read(|ledger| ledger.limits());
        CheckContext { now, exists, zones: &node.zones, node: Some(node), columns_to_come: None, limits }
    }

    /// Returns the context without a cluster, by the limits of this release.
    pub fn without_node(zones: &'a Zones, now: Time, exists: bool) -> CheckContext<'a> {
        CheckContext { now, exists, zones, node: None, columns_to_come: None, limits: limits(LEVEL) }
    }

    /// Returns a sealed audience, or one to come, with the names of its recipients' variables.
    fn sealed(&self, tenant: &str, name: &str) -> Option<(NamedAudience, Vec<String>)> {
        let to_come = || {
            let named = NamedAudience { name: name.to_owned(), seal: Hash([0; 32]), rows: 1 };
            Some((named, self.columns_to_come.clone()?))
        };
        self.node.and_then(|node| node.sealed(tenant, name)).or_else(to_come)
    }
}

/// What is wrong with a pool that has no relay, and with one that the tenant may not name.
pub fn no_relay_of(pool: &str) -> String {
    format!("no relay of pool '{pool}' accepts email")
}

/// Checks a body.
pub fn schedule(body: Option<v1::ScheduleBody>, context: &CheckContext<'_>) -> ApiResult<CheckedSchedule> {
    let CheckContext { now, exists, zones, node, limits, .. } = *context;
    let mut fields = Fields::default();
    let body = body.ok_or_else(|| ApiError::of_field("schedule", "is missing"))?;
    let tenant = fields.name_or("schedule.tenant", &body.tenant, reveille_ledger::DEFAULT_TENANT);
    let name = fields.name("schedule.name", &body.name, SCHEDULE_NAME_MAX);
    let pool = fields.name_or("schedule.pool", &body.pool, DEFAULT_POOL);
    let is_refused = |ledger: &Ledger| !ledger.tenant(&tenant).may_use(&pool);
    if !exists && node.is_some_and(|node| node.replica.read(is_refused)) {
        fields.refuse("schedule.pool", no_relay_of(&pool));
    }
    let start = body.start_time.and_then(|start| fields.instant("schedule.start_time", start));
    let end = body.end_time.and_then(|end| fields.instant("schedule.end_time", end));
    if let (Some(start), Some(end)) = (start, end)
        && end < start
    {
        fields.refuse("schedule.end_time", format!("{end} is before the start, {start}"));
    }
    let pattern = when::pattern(&mut fields, body.timing, start, (&tenant, &name));
    let zone = when::zone(&mut fields, &body.zone, zones);
    let when = pattern.as_ref().map(|(when, _)| when);
    let named = body.audience.as_ref().map(|audience| audience.sealed.as_str()).filter(|name| !name.is_empty());
    let policies = policies(&mut fields, body.policies.unwrap_or_default(), when, named.is_some());
    if body.max_runs == Some(0) {
        fields.refuse("schedule.max_runs", "is zero; leave it out for no bound");
    }
    let priority = u8::try_from(body.priority);
    if priority.is_err() {
        fields.refuse("schedule.priority", format!("{} is above 255; give 0 to 255", body.priority));
    }
    let paused = body.paused.map(|reason| fields.reason("schedule.paused", &reason));
    let labels = Labels::new(body.labels).map_err(|wrong| fields.refuse(field_of(&wrong), wrong.to_string()));
    let chosen = (body.content, body.template.as_str());
    let content = chosen_content(&mut fields, "schedule.", chosen, (&tenant, node));
    let known = named.and_then(|name| context.sealed(&tenant, name));
    let audience = audience(&mut fields, body.audience, known, limits);
    if let (Some(content), Some(listed)) = (&content, &audience) {
        compile(&mut fields, content, listed, limits);
    }
    let next = pattern.as_ref().zip(zone.as_ref()).and_then(|((_, pattern), zone)| {
        let jitter = Jitter { tenant: &tenant, name: &name, window_ms: policies.jitter_ms };
        timing::first_instant_after(timing::Calendar { pattern, zone }, &policies.dst, now, (start, end), jitter)
    });
    if let (Some((when, _)), Some(_), None, false) = (&pattern, &zone, &next, exists) {
        refuse_past(&mut fields, when, now, end);
    }
    let parts = (pattern, zone, content, audience, priority, labels);
    let (Some((when, _)), Some(zone), Some(content), Some(audience), Ok(priority), Ok(labels)) = parts else {
        return fields.done(None);
    };
    let CheckedAudience { to: audience, duplicates, .. } = audience;
    let CheckedContent { choice, content } = content;
    let create = ScheduleCreate {
        request: None,
        tenant,
        name,
        timing: ScheduleTiming { when, zone: body.zone, start, end, max_runs: body.max_runs },
        policies,
        pool,
        priority,
        paused,
        content: choice,
        audience,
        after: now,
        next,
        tzdb: zone.tzdb,
        labels,
    };
    fields.done(Some(CheckedSchedule { create, content, duplicates }))
}

/// Returns the path of an invalid label. An invalid value is reported under its key.
fn field_of(wrong: &WrongLabel) -> String {
    match wrong {
        WrongLabel::Value { key, .. } => format!("schedule.labels.{key}"),
        WrongLabel::TooMany(_) | WrongLabel::Key(_) => "schedule.labels".to_owned(),
    }
}

/// Refuses a new schedule without an instant after `now`.
fn refuse_past(fields: &mut Fields, when: &When, now: Time, end: Option<Time>) {
    let (field, message) = match (when, end) {
        (When::At { instant_ms }, None) if *instant_ms <= now.0 => {
            let instant = Time(*instant_ms);
            ("schedule.timing.at", format!("{instant} is in the past: it is {now}; give an instant to come"))
        }
        (_, Some(end)) => {
            let between = format!("between now, {now}, and the end, {end}");
            ("schedule.timing", format!("has no instant {between}; give a later end"))
        }
        (_, None) => ("schedule.timing", format!("has no instant after now, {now}; give one to come")),
    };
    fields.refuse_as(ErrorReason::NeverFires, field, message);
}

/// Checks that the content fits this audience, so that the error comes now and not when the run opens.
pub fn compile(fields: &mut Fields, checked: &CheckedContent, listed: &CheckedAudience, limits: &LedgerLimits) {
    let content = &checked.content;
    let fits = check_proposed(content, &listed.columns, limits);
    let error = match fits.and_then(|()| Compiled::new(content, &listed.columns)) {
        Ok(compiled) => return listed.fit(fields, &compiled),
        Err(error) => error,
    };
    let message = match error.line {
        Some(line) => format!("line {line}: {}", error.message),
        None => error.message,
    };
    let (field, message) = match error.field.as_str() {
        "columns" => ("schedule.audience.columns".to_owned(), message),
        field => checked.place("schedule.", field, message),
    };
    fields.refuse(field, message);
}
