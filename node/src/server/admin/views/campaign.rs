//! Builds the message of a campaign: its own stage, and the state of its run once that has opened.

use reveille_ledger::campaign::{Campaign, CampaignStage};
use reveille_ledger::causes::MissedCause;
use reveille_ledger::command::CampaignName;
use reveille_ledger::content::Content;
use reveille_ledger::ids::Time;
use reveille_ledger::{Ledger, ScheduleState};
use reveille_proto::admin::v1::{self, CampaignState, RunState};

use super::forecast::{ForecastSubject, deadline_forecast};
use super::schedule::{mail, policies, refusal, stopped};
use super::{run_of, timestamp};
use crate::server::admin::validate::instant;

/// Returns the state of the campaign.
pub fn campaign_state(ledger: &Ledger, known: &Campaign) -> CampaignState {
    let created = known.stage.schedule().and_then(|schedule| ledger.run_of_campaign(schedule));
    stands(ledger, known, created.and_then(|id| run_of(ledger, id)).as_ref()).state
}

/// Returns the campaign in its current state.
pub fn campaign(ledger: &Ledger, named: &CampaignName, known: &Campaign) -> v1::Campaign {
    let created = known.stage.schedule().and_then(|schedule| ledger.run_of_campaign(schedule));
    let opened = created.and_then(|id| run_of(ledger, id));
    let sealed = ledger.audiences().get(&(named.tenant.clone(), known.audience.clone()));
    let Stands { state, pause, block, miss } = stands(ledger, known, opened.as_ref());
    let now = ledger.head().now;
    let finish_by_ms = finish_by_ms(ledger, &named.tenant, known, now);
    let subject =
        ForecastSubject { pool: &known.pool, audience: (&named.tenant, &known.audience), due: known.due, finish_by_ms };
    let finish_by = opened.as_ref().and_then(|run| run.finish_by_time);
    v1::Campaign {
        tenant: named.tenant.clone(),
        name: named.name.clone(),
        state: state.into(),
        pause,
        audience: known.audience.clone(),
        recipients: opened.as_ref().map(|run| run.audience).or(sealed.map(|sealed| sealed.rows)).unwrap_or_default(),
        send_time: Some(timestamp(known.due)),
        zone: known.zone.clone(),
        pool: known.pool.clone(),
        priority: u32::from(known.priority),
        labels: known.labels.clone().into(),
        content_hash: known.content.to_string(),
        template: of_template(known),
        policies: Some(policies(&known.policies)),
        launch_time: known.stage.launch().map(|launch| timestamp(launch.at)),
        finish_by_time: finish_by.or(Some(timestamp(known.due.plus_ms(finish_by_ms)))),
        forecast: deadline_forecast(ledger, &subject, now)
            .filter(|_| opened.is_none() && may_open(state))
            .map(|deadline_forecast| deadline_forecast.view()),
        progress: opened.as_ref().filter(|_| state == CampaignState::Open).and_then(|run| {
            let paused_ms = created.map_or(0, |id| ledger.paused_ms(id));
            progress(run, paused_ms, now, |left, rate_milli| {
                ledger.ends_within_caps(&known.pool, left, rate_milli, now)
            })
        }),
        run: opened,
        index: known.index,
        etag: ledger.campaign_etag(known),
        canary: known.policies.canary.map(|canary| v1::Canary {
            percent: f64::from(canary.share) / 100.0,
            hold_percent: Some(f64::from(canary.limit) / 100.0),
        }),
        block,
        miss,
    }
}

/// Returns the template's version as `welcome@3`, or nothing.
fn of_template(known: &Campaign) -> String {
    known.template.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Returns the request that would create the campaign in its current form, without its canary. A `finish_by` that the
/// user did not give is left out, because it is forecast again.
pub fn campaign_body(named: &CampaignName, known: &Campaign, content: &Content) -> v1::ScheduleBody {
    let policies = policies(&known.policies);
    v1::ScheduleBody {
        tenant: named.tenant.clone(),
        name: named.name.clone(),
        timing: Some(v1::When { pattern: Some(v1::when::Pattern::At(timestamp(known.due))) }),
        zone: known.zone.clone(),
        policies: Some(v1::Policies { finish_by: policies.finish_by.filter(|_| known.finish_by_given), ..policies }),
        pool: known.pool.clone(),
        priority: u32::from(known.priority),
        content: known.template.is_none().then(|| mail(content)),
        template: of_template(known),
        audience: Some(v1::Audience { sealed: known.audience.clone(), ..v1::Audience::default() }),
        labels: known.labels.clone().into(),
        ..v1::ScheduleBody::default()
    }
}

/// Returns the time from the instant to the deadline, in milliseconds. Once the campaign is armed, it is fixed; before
/// that, it is forecast as of `now`.
pub fn finish_by_ms(ledger: &Ledger, tenant: &str, known: &Campaign, now: Time) -> i64 {
    let armed = match &known.stage {
        CampaignStage::Armed(armed) if ledger.missed_because(known, armed).is_none() => {
            ledger.schedules().get(&armed.schedule)
        }
        _ => None,
    };
    let sealed = ledger.audiences().get(&(tenant.to_owned(), known.audience.clone()));
    match (armed, sealed) {
        (Some(armed), _) => armed.settings.policies.finish_by_ms,
        (None, Some(sealed)) => ledger.finish_by_ms_of(tenant, known, sealed.rows, now),
        (None, None) => known.policies.finish_by_ms,
    }
}

/// Returns true if the campaign can still send, so that a forecast makes sense.
fn may_open(state: CampaignState) -> bool {
    use CampaignState::{Blocked, Draft, Launched, Paused, Waiting};
    matches!(state, Draft | Waiting | Launched | Paused | Blocked)
}

/// Returns the average speed since the run opened, without its pauses, and the expected end. Only recipients that a
/// relay was asked for count, because suppressed ones take no time. Returns `None` before the first. The end is `None`
/// if the rest would expire first. `capped` returns when so many emails are sent at a rate in thousandths per second,
/// if the pool has caps.
fn progress(
    run: &v1::Run,
    paused_ms: i64,
    now: Time,
    capped: impl FnOnce(u64, u64) -> Option<Time>,
) -> Option<v1::Progress> {
    let counts = run.counts?;
    let left = u64::from(counts.pending) + u64::from(counts.claimed);
    let attempted = [counts.sent, counts.dead, counts.in_doubt, counts.assumed].into_iter().map(u64::from).sum::<u64>();
    let took_ms = now.since_ms(run.open_time.and_then(instant)?).saturating_sub(paused_ms).max(1);
    let ends_ms = u128::from(left) * u128::from(took_ms.unsigned_abs());
    let ends = now.plus_ms(i64::try_from(ends_ms.checked_div(attempted.into())?).ok()?);
    let per_second = attempted as f64 * 1_000.0 / took_ms as f64;
    let ends = capped(left, (per_second * 1_000.0) as u64).map_or(ends, |capped| capped.max(ends));
    let in_time = run.finish_by_time.and_then(instant).is_none_or(|finish_by| ends <= finish_by);
    Some(v1::Progress { per_second, end_time: in_time.then(|| timestamp(ends)) })
}

/// The state, and why it has not opened if that is known.
struct Stands {
    state: CampaignState,
    pause: Option<v1::Pause>,
    block: Option<v1::ScheduleBlock>,
    miss: Option<v1::CampaignMiss>,
}

impl Stands {
    fn as_state(state: CampaignState) -> Stands {
        Stands { state, pause: None, block: None, miss: None }
    }

    fn missed(cause: &MissedCause) -> Stands {
        Stands { miss: Some(miss(cause)), ..Stands::as_state(CampaignState::Missed) }
    }
}

fn stands(ledger: &Ledger, known: &Campaign, opened: Option<&v1::Run>) -> Stands {
    if let Some(run) = opened {
        return Stands::as_state(match run.state() {
            RunState::Paused => CampaignState::Paused,
            RunState::Finished => CampaignState::Finished,
            RunState::Cancelled => CampaignState::Cancelled,
            RunState::Expired => CampaignState::Expired,
            RunState::Open | RunState::Unspecified => CampaignState::Open,
        });
    }
    let armed = match &known.stage {
        CampaignStage::Draft => return Stands::as_state(CampaignState::Draft),
        CampaignStage::Waiting(_) => return Stands::as_state(CampaignState::Waiting),
        CampaignStage::Missed { cause, .. } => return Stands::missed(cause),
        CampaignStage::Cancelled { .. } => return Stands::as_state(CampaignState::Cancelled),
        CampaignStage::Armed(armed) => armed,
    };
    let schedule = ledger.schedules().get(&armed.schedule).map(|schedule| &schedule.state);
    let (pause, block) = schedule.map(stopped).unwrap_or_default();
    let state = match schedule {
        Some(ScheduleState::Active) => CampaignState::Launched,
        Some(ScheduleState::Paused { .. }) => CampaignState::Paused,
        Some(ScheduleState::Blocked { .. }) => CampaignState::Blocked,
        Some(ScheduleState::Done) | None => match ledger.missed_because(known, armed) {
            Some(why) => return Stands::missed(&why),
            None => CampaignState::Finished,
        },
    };
    Stands { pause, block, ..Stands::as_state(state) }
}

/// Builds the message of why a campaign was missed. Its instant and its audience are those of the campaign.
fn miss(cause: &MissedCause) -> v1::CampaignMiss {
    let of = |cause: v1::MissedCause| v1::CampaignMiss { cause: cause.into(), ..v1::CampaignMiss::default() };
    match cause {
        MissedCause::TooLate { now, .. } => {
            v1::CampaignMiss { ready_time: Some(timestamp(*now)), ..of(v1::MissedCause::TooLate) }
        }
        MissedCause::Unfit(text) => v1::CampaignMiss { text: text.clone(), ..of(v1::MissedCause::Unfit) },
        MissedCause::NotSealed { .. } => of(v1::MissedCause::NotSealed),
        MissedCause::Refused(refused) => {
            v1::CampaignMiss { refusal: Some(refusal(refused)), ..of(v1::MissedCause::Refused) }
        }
        MissedCause::Restored(_) => of(v1::MissedCause::Restored),
    }
}
