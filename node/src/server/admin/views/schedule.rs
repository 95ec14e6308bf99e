//! Builds the message of a schedule, with its next instants in local time.

use jiff::tz::TimeZone;
use reveille_cluster::process::zones::Zones;
use reveille_ledger::calendar::{Firing, Pattern, Step, When, next_after, steps_after};
use reveille_ledger::causes::{BlockCause, PauseReason};
use reveille_ledger::command::NextInstant;
use reveille_ledger::content::{Attachment, AudienceChoice, Content, Recipient};
use reveille_ledger::etag::ANY_ETAG;
use reveille_ledger::ids::{ScheduleId, Time};
use reveille_ledger::planning::timing::{Calendar, Jitter};
use reveille_ledger::policy::Policies;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::restore::Restored;
use reveille_ledger::{Schedule, ScheduleState};
use reveille_proto::admin::v1::{self, when};

use super::run::pause;
use super::{duration, timestamp};
use crate::firing_remarks::firing_remarks;
use crate::server::admin::enums::OnWire;
use crate::server::admin::error_texts;

/// Maximum number of calendar steps that are tried to find the next instants. Local times that fall into gaps are steps
/// too.
const STEPS_MAX: usize = 4_096;

/// The time of a read, and the end of the time of which a former cluster may have sent any instant.
#[derive(Clone, Copy, Debug)]
pub struct ReadTime {
    now: Time,
    maybe_sent_through: Option<Time>,
}

impl ReadTime {
    /// Returns the time of a read at `now`, of a cluster with this last restore.
    pub fn new(now: Time, restored: Option<Restored>) -> ReadTime {
        ReadTime { now, maybe_sent_through: restored.map(|restored| restored.accepted_at.unwrap_or(now)) }
    }
}

/// Returns a schedule with at most `count` of its next instants.
pub fn schedule(id: ScheduleId, schedule: &Schedule, zones: &Zones, at: ReadTime, count: usize) -> v1::Schedule {
    let (pause, block) = stopped(&schedule.state);
    v1::Schedule {
        tenant: schedule.settings.tenant.to_string(),
        name: schedule.name.to_string(),
        number: id.0,
        state: schedule_state(&schedule.state).into(),
        pause,
        timing: Some(pattern(&schedule.timing.when)),
        zone: schedule.timing.zone.to_string(),
        start_time: schedule.timing.start.map(timestamp),
        end_time: schedule.timing.end.map(timestamp),
        max_runs: schedule.timing.max_runs,
        next_instants: next_instants(schedule, zones, at, count),
        recipients: schedule.recipients,
        content_hash: schedule.content.to_string(),
        audience_hash: schedule.audience.to_string(),
        policies: Some(policies(&schedule.settings.policies)),
        pool: schedule.settings.pool.to_string(),
        priority: u32::from(schedule.settings.priority),
        etag: etag(id, schedule),
        index: schedule.index,
        hashed_cron: match &schedule.timing.when {
            When::Hashed { expression, .. } => expression.to_string(),
            _ => String::new(),
        },
        waits_for: String::new(),
        of_campaign: false,
        labels: schedule.labels.clone().into(),
        read_time: Some(timestamp(at.now)),
        template: schedule.settings.template.as_ref().map(|template| template.to_string()).unwrap_or_default(),
        block,
        sender: String::new(),
        subject: String::new(),
    }
}

/// Returns true if the condition of a request fails: it names an etag, and the current one is another.
pub fn is_other_etag(condition: &str, etag: &str) -> bool {
    !condition.is_empty() && condition != ANY_ETAG && condition != etag
}

/// Returns the etag. It changes with each change of the schedule, but not when the schedule fires.
pub fn etag(id: ScheduleId, schedule: &Schedule) -> String {
    format!("{}.{}", id.0, schedule.plan.version)
}

/// Returns the request that would create the schedule in its current form. It names the template of the content, or has
/// the content.
pub fn body(schedule: &Schedule, content: &Content, audience: &AudienceChoice) -> v1::ScheduleBody {
    let recipient = |known: &Recipient| v1::Recipient { address: known.address.clone(), values: known.values.clone() };
    v1::ScheduleBody {
        tenant: schedule.settings.tenant.to_string(),
        name: schedule.name.to_string(),
        timing: Some(pattern(&schedule.timing.when)),
        zone: schedule.timing.zone.to_string(),
        start_time: schedule.timing.start.map(timestamp),
        end_time: schedule.timing.end.map(timestamp),
        max_runs: schedule.timing.max_runs,
        policies: Some(policies(&schedule.settings.policies)),
        pool: schedule.settings.pool.to_string(),
        priority: u32::from(schedule.settings.priority),
        paused: match &schedule.state {
            ScheduleState::Paused { reason, .. } => Some(reason.to_string()),
            ScheduleState::Active | ScheduleState::Blocked { .. } | ScheduleState::Done => None,
        },
        content: schedule.settings.template.is_none().then(|| mail(content)),
        audience: Some(match audience {
            AudienceChoice::Listed(audience) => v1::Audience {
                columns: audience.columns.clone(),
                recipients: audience.recipients.iter().filter(|one| !one.is_erased()).map(recipient).collect(),
                sealed: String::new(),
            },
            AudienceChoice::Sealed(named) => v1::Audience { sealed: named.name.clone(), ..v1::Audience::default() },
        }),
        labels: schedule.labels.clone().into(),
        template: schedule.settings.template.as_ref().map(|template| template.to_string()).unwrap_or_default(),
    }
}

/// Builds the message of a content.
pub fn mail(content: &Content) -> v1::Content {
    let field = |(name, value): &(String, String)| v1::Field { name: name.clone(), value: value.clone() };
    v1::Content {
        sender: content.sender.clone(),
        reply_to: content.reply_to.clone().unwrap_or_default(),
        cc: content.cc.clone(),
        subject: content.subject.clone(),
        text: content.text.clone(),
        html: content.html.clone(),
        headers: content.headers.iter().map(field).collect(),
        variables: content.variables.iter().map(field).collect(),
        bulk: content.bulk,
        attachments: content.attachments.iter().map(attachment).collect(),
    }
}

fn attachment(known: &Attachment) -> v1::Attachment {
    v1::Attachment {
        name: known.name.clone(),
        content_type: known.content_type.clone(),
        data: Vec::new(),
        content_id: known.content_id.clone().unwrap_or_default(),
        size: known.size,
        file_hash: known.file.to_string(),
    }
}

/// Returns the state.
pub fn schedule_state(state: &ScheduleState) -> v1::ScheduleState {
    match state {
        ScheduleState::Active => v1::ScheduleState::Active,
        ScheduleState::Paused { .. } => v1::ScheduleState::Paused,
        ScheduleState::Blocked { .. } => v1::ScheduleState::Blocked,
        ScheduleState::Done => v1::ScheduleState::Done,
    }
}

/// Returns why a schedule does not fire: its pause, or what blocks it.
pub fn stopped(state: &ScheduleState) -> (Option<v1::Pause>, Option<v1::ScheduleBlock>) {
    match state {
        ScheduleState::Active | ScheduleState::Done => (None, None),
        ScheduleState::Paused { reason, .. } => (Some(pause(&PauseReason::Operator(reason.to_string()))), None),
        ScheduleState::Blocked { cause } => (None, Some(block(cause))),
    }
}

/// Builds the message of what blocks a schedule.
pub fn block(cause: &BlockCause) -> v1::ScheduleBlock {
    let of = |cause: v1::BlockCause| v1::ScheduleBlock { cause: cause.into(), ..v1::ScheduleBlock::default() };
    match cause {
        BlockCause::Quarantined(text) => {
            v1::ScheduleBlock { text: text.to_string(), ..of(v1::BlockCause::Quarantined) }
        }
        BlockCause::FireRefused(refused) => {
            v1::ScheduleBlock { refusal: Some(refusal(refused)), ..of(v1::BlockCause::FireRefused) }
        }
    }
}

/// Builds the message of a refusal that the ledger has stored.
pub fn refusal(refusal: &CommandRefusal) -> v1::Refusal {
    v1::Refusal { reason: error_texts::refused(refusal).reason().into(), message: refusal.to_string() }
}

fn pattern(when: &When) -> v1::When {
    let pattern = match when {
        When::At { instant_ms } => when::Pattern::At(timestamp(Time(*instant_ms))),
        When::Every { period_ms, anchor_ms } => when::Pattern::Every(v1::Every {
            period: Some(duration(i64::try_from(*period_ms).unwrap_or(i64::MAX))),
            anchor_time: Some(timestamp(Time(*anchor_ms))),
        }),
        When::Daily { hour, minute, weekdays } => {
            let every_day = *weekdays == reveille_ledger::calendar::Weekdays::EVERY_DAY;
            let days = if every_day { String::new() } else { weekdays.to_string() };
            when::Pattern::Daily(v1::Daily { hour: u32::from(*hour), minute: u32::from(*minute), days })
        }
        When::Cron { expression } | When::Hashed { written: expression, .. } => {
            when::Pattern::Cron(expression.to_string())
        }
    };
    v1::When { pattern: Some(pattern) }
}

pub(crate) fn policies(policies: &Policies) -> v1::Policies {
    v1::Policies {
        dst_gap: policies.dst.gap.wire().into(),
        dst_overlap: policies.dst.overlap.wire().into(),
        catch_up: policies.catch_up.wire().into(),
        start_within: Some(duration(policies.start_within_ms)),
        finish_by: Some(duration(policies.finish_by_ms)),
        in_doubt: policies.in_doubt.wire().into(),
        max_attempts: u32::from(policies.max_attempts),
        retention: Some(duration(policies.retention_ms)),
        overlap: policies.overlap.wire().into(),
        min_gap: Some(duration(policies.min_gap_ms)),
        jitter: Some(duration(policies.jitter_ms)),
    }
}

/// Returns the next instants. For an active schedule they begin with the planned one; for a paused schedule, after
/// `now`. None is one that a former cluster may have sent: it never opens by itself.
pub fn next_instants(schedule: &Schedule, zones: &Zones, at: ReadTime, count: usize) -> Vec<v1::Instant> {
    let Some(next) = &schedule.plan.next else { return Vec::new() };
    let after = match schedule.state {
        ScheduleState::Active => next.due.plus_ms(-1),
        ScheduleState::Paused { .. } => at.now.max(next.due.plus_ms(-1)),
        ScheduleState::Blocked { .. } | ScheduleState::Done => return Vec::new(),
    };
    let after = at.maybe_sent_through.map_or(after, |through| after.max(through));
    let (Ok(zone), Ok(pattern)) = (zones.get(&schedule.timing.zone), Pattern::compile(&schedule.timing.when)) else {
        return vec![without_zone(next)];
    };
    let left = schedule.timing.max_runs.map(|most| most.saturating_sub(schedule.plan.opened) as usize);
    let steps = steps_after(&pattern, &zone.rules, &schedule.settings.policies.dst, after.timestamp()).take(STEPS_MAX);
    let fires = steps.filter_map(|step| match step {
        Step::Fires(firing) => Some(firing),
        Step::Absent(_) => None,
    });
    let inside = fires
        .filter(|firing| schedule.timing.start.is_none_or(|start| Time::from(firing.instant) >= start))
        .take_while(|firing| schedule.timing.end.is_none_or(|end| Time::from(firing.instant) <= end));
    let shown = inside.take(left.map_or(count, |left| left.min(count)));
    let (jitter, calendar) = (Jitter::of(schedule), Calendar { pattern: &pattern, zone: &zone });
    let opens = |firing: &Firing| {
        let delay_ms = jitter.delay_ms(calendar, &schedule.settings.policies.dst, firing);
        (jitter.window_ms > 0).then(|| timestamp(Time::from(firing.instant).plus_ms(delay_ms)))
    };
    shown
        .map(|firing| v1::Instant {
            time: Some(timestamp(firing.instant.into())),
            local: firing.local_text(),
            remarks: firing_remarks(&firing),
            open_time: opens(&firing),
        })
        .collect()
}

fn without_zone(next: &NextInstant) -> v1::Instant {
    let remark = v1::InstantRemark { kind: v1::InstantRemarkKind::UnknownZone.into(), ..Default::default() };
    let opens = (next.jitter_ms > 0).then(|| timestamp(next.opens()));
    v1::Instant {
        time: Some(timestamp(next.due)),
        local: next.due.to_string(),
        remarks: vec![remark],
        open_time: opens,
    }
}

/// Returns one instant in local time, with a remark if a change of the clocks moved it.
pub fn instant_of(pattern: &Pattern, zone: &TimeZone, policies: &Policies, due: Time) -> v1::Instant {
    let firing = next_after(pattern, zone, &policies.dst, due.plus_ms(-1).timestamp());
    let firing = firing.filter(|firing| Time::from(firing.instant) == due);
    let at = due.timestamp();
    v1::Instant {
        time: Some(timestamp(due)),
        local: at.display_with_offset(zone.to_offset(at)).to_string(),
        remarks: firing.as_ref().map(firing_remarks).unwrap_or_default(),
        open_time: None,
    }
}
