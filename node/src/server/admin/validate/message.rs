//! Validates messages, test emails and the recipients of a trigger. Their parts are checked like those of a schedule.

use reveille_cluster::process::context::NodeContext;
use reveille_ledger::command::{KeyRule, ScheduleCreate};
use reveille_ledger::content::{Audience, AudienceChoice, Content};
use reveille_ledger::ids::Time;
use reveille_ledger::limits::LedgerLimits;
use reveille_ledger::policy::{DAY_MS, Policies};
use reveille_proto::admin::v1;

use super::audience::{CheckedAudience, audience, refuse_differing};
use super::schedule::{CheckContext, CheckedSchedule, compile, schedule};
use super::{FieldViolation, Fields};
use crate::server::admin::{ApiError, ApiResult, views};

/// Maximum number of recipients of a message.
const RECIPIENTS_MAX: usize = 1_000;
const LIST_THEM: &str = "is named; list the recipients";
/// Maximum distance of a send time. Milliseconds.
const AHEAD_MS_MAX: i64 = 366 * DAY_MS;

/// The parts of a message that are checked like those of a schedule.
pub struct CheckedMessage {
    pub tenant: String,
    pub content: Content,
    pub audience: Audience,
    pub pool: String,
    pub priority: u8,
    pub policies: Policies,
    pub duplicates: Vec<v1::Duplicate>,
}

/// Checks the tenant, the content or the template, the recipients, the policies and the priority of a body. It need have
/// nothing else. Does not check whether the tenant may name the pool.
pub fn message_parts(node: &NodeContext, body: v1::ScheduleBody, now: Time) -> ApiResult<CheckedMessage> {
    // Fields that a message does not have get placeholder values.
    let body = v1::ScheduleBody {
        name: "message".to_owned(),
        timing: Some(v1::When { pattern: Some(v1::when::Pattern::At(views::timestamp(now.plus_ms(60_000)))) }),
        zone: "UTC".to_owned(),
        ..body
    };
    // The ledger checks the pool after it has looked for the key: a repeat must get the first answer.
    let CheckedSchedule { create, content, duplicates } = schedule(Some(body), &CheckContext::of(node, now, true))?;
    let mut fields = Fields::default();
    refuse_differing(&mut fields, "schedule.audience.recipients", &duplicates);
    fields.done(Some(()))?;
    let ScheduleCreate { tenant, policies, pool, priority, audience, .. } = create;
    Ok(CheckedMessage { tenant, content, audience: listed(audience)?, pool, priority, policies, duplicates })
}

/// What a `SendMessageRequest` says about its key and its recipients, and what it must not say.
pub fn message_fields(fields: &mut Fields, request: &v1::SendMessageRequest, now: Time) -> Option<Time> {
    fields.key("key", &request.key);
    if request.key.is_empty() {
        fields.refuse("key", "is missing; it names the message, so that asking again sends no second one");
    }
    let listed = request.audience.as_ref().map_or(0, |audience| audience.recipients.len());
    if !request.to.is_empty() && request.audience.is_some() {
        fields.refuse("audience", "is given, and so is `to`; choose one");
    }
    let (field, given) =
        if request.audience.is_some() { ("audience.recipients", listed) } else { ("to", request.to.len()) };
    if !(1..=RECIPIENTS_MAX).contains(&given) {
        let next = "for more, trigger a schedule or launch a campaign";
        fields.refuse(field, format!("{given} recipients are given; give 1 to {RECIPIENTS_MAX}; {next}"));
    }
    if let Some(policies) = &request.policies {
        let v1::Policies { finish_by, in_doubt, max_attempts, retention, .. } = *policies;
        let own = v1::Policies { finish_by, in_doubt, max_attempts, retention, ..v1::Policies::default() };
        let others = [
            ("dst_gap", policies.dst_gap != own.dst_gap),
            ("dst_overlap", policies.dst_overlap != own.dst_overlap),
            ("catch_up", policies.catch_up != own.catch_up),
            ("start_within", policies.start_within.is_some()),
            ("overlap", policies.overlap != own.overlap),
            ("min_gap", policies.min_gap.is_some()),
            ("jitter", policies.jitter.is_some()),
        ];
        for (name, _) in others.into_iter().filter(|(_, is_given)| *is_given) {
            fields.refuse(format!("policies.{name}"), "is a policy of schedules; a message has none");
        }
    }
    let send_at = request.send_time.and_then(|time| fields.instant("send_time", time));
    if send_at.is_some_and(|at| at.since_ms(now) > AHEAD_MS_MAX) {
        fields.refuse("send_time", "is more than a year ahead");
    }
    send_at
}

/// Checks the rule for repeats.
pub fn key_rule(fields: &mut Fields, rule: i32) -> KeyRule {
    match v1::KeyRule::try_from(rule) {
        Ok(v1::KeyRule::Unspecified | v1::KeyRule::Strict) => KeyRule::Strict,
        Ok(v1::KeyRule::FirstWins) => KeyRule::FirstWins,
        Err(_) => {
            fields.refuse("key_rule", "is a value that this node does not know; leave it out, or ask a newer node");
            KeyRule::Strict
        }
    }
}

/// Checks the recipients that a trigger brings, without the content of its schedule.
pub fn list_of_trigger(requested: v1::Audience, limits: &LedgerLimits) -> ApiResult<CheckedAudience> {
    let mut fields = Fields::default();
    if !requested.sealed.is_empty() {
        fields.refuse("schedule.audience.sealed", LIST_THEM);
        return fields.done(None);
    }
    let checked = audience(&mut fields, Some(requested), None, limits);
    if let Some(checked) = &checked {
        refuse_differing(&mut fields, "schedule.audience.recipients", &checked.duplicates);
    }
    fields.done(checked)
}

/// Checks recipients of [`list_of_trigger`] against the content of the schedule.
pub fn list_fits(content: &Content, list: &CheckedAudience, limits: &LedgerLimits) -> ApiResult<()> {
    let (mut fields, mut of_content) = (Fields::default(), Fields::default());
    compile(&mut of_content, &content.clone().into(), list, limits);
    for FieldViolation { field, message, reason } in of_content.wrong {
        // The content is that of the schedule, so the request can only change its columns.
        match field.strip_prefix("schedule.content") {
            Some(part) => {
                let message = format!("do not fit the content of the schedule{}: {message}", part.replace('.', ", "));
                fields.refuse_as(reason, "schedule.audience.columns", message);
            }
            None => fields.refuse_as(reason, field, message),
        }
    }
    fields.done(Some(()))
}

/// Returns the name of a field in a request without `schedule`.
pub fn without_schedule(field: &str) -> String {
    field.strip_prefix("schedule.").unwrap_or(field).to_owned()
}

/// Returns the listed recipients; a sealed audience is refused.
pub fn listed(audience: AudienceChoice) -> ApiResult<Audience> {
    match audience {
        AudienceChoice::Listed(audience) => Ok(audience),
        AudienceChoice::Sealed(_) => Err(ApiError::of_field("schedule.audience.sealed", LIST_THEM)),
    }
}
