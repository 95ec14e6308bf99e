//! A campaign as a message: its own stage, and from its instant on its run's state.

use reveille_ledger::campaign::{Campaign, Stage};
use reveille_ledger::command::CampaignName;
use reveille_ledger::ids::RunId;
use reveille_ledger::{Activity, Ledger};
use reveille_proto::admin::v1::{self, CampaignState, RunState};

use super::forecast::{Prospect, forecast};
use super::history::why_it_opened;
use super::schedule::policies;
use super::{run, summary, timestamp};

/// As it is in the ledger now.
pub fn campaign(ledger: &Ledger, named: &CampaignName, known: &Campaign) -> v1::Campaign {
    let opened = known.stage.schedule().and_then(|schedule| ledger.run_of_campaign(schedule));
    let opened = opened.and_then(|id| Some((id, told_run(ledger, id)?)));
    let (state, reason) = state(ledger, known, opened.as_ref());
    let opened = opened.map(|(_, run)| run);
    let sealed = ledger.audiences().get(&(named.tenant.clone(), known.audience.clone()));
    let finish_by_ms = match sealed {
        Some(sealed) => ledger.finish_by_ms_of(known, sealed.rows),
        None => known.policies.finish_by_ms,
    };
    let prospect =
        Prospect { pool: &known.pool, audience: (&named.tenant, &known.audience), due: known.due, finish_by_ms };
    let launch = match &known.stage {
        Stage::Waiting(launch) => Some(launch),
        stage => stage.armed().map(|armed| &armed.launch),
    };
    let finish_by = opened.as_ref().and_then(|run| run.finish_by);
    v1::Campaign {
        tenant: named.tenant.clone(),
        name: named.name.clone(),
        state: state.into(),
        reason,
        audience: known.audience.clone(),
        recipients: opened.as_ref().map(|run| run.audience).or(sealed.map(|sealed| sealed.rows)).unwrap_or_default(),
        at: Some(timestamp(known.due)),
        zone: known.zone.clone(),
        pool: known.pool.clone(),
        priority: u32::from(known.priority),
        labels: known.labels.as_map().clone(),
        content_hash: known.content.to_string(),
        policies: Some(policies(&known.policies)),
        launched_at: launch.map(|launch| timestamp(launch.at)),
        finish_by: finish_by.or(Some(timestamp(known.due.plus_ms(finish_by_ms)))),
        forecast: forecast(ledger, &prospect).filter(|_| opened.is_none()).map(|forecast| forecast.told()),
        run: opened,
        index: known.index,
        canary: known.policies.canary.map(|canary| v1::Canary {
            percent: f64::from(canary.share) / 100.0,
            hold_percent: Some(f64::from(canary.limit) / 100.0),
        }),
    }
}

fn told_run(ledger: &Ledger, id: RunId) -> Option<v1::Run> {
    if let Some(known) = ledger.summaries().get(&id) {
        return Some(summary(id, known));
    }
    let (_, page, place) = ledger.page_of(id)?;
    Some(run(id, page, page.runs.get(place)?))
}

fn state(ledger: &Ledger, known: &Campaign, opened: Option<&(RunId, v1::Run)>) -> (CampaignState, String) {
    if let Some((id, run)) = opened {
        let state = match run.state() {
            RunState::Paused => CampaignState::Paused,
            RunState::Finished => CampaignState::Finished,
            RunState::Cancelled => CampaignState::Cancelled,
            RunState::Expired => CampaignState::Expired,
            RunState::Open | RunState::Unspecified => CampaignState::Open,
        };
        let reasons = [run.reason.clone(), run.blocked.clone(), why_it_opened(ledger, *id)];
        return (state, reasons.into_iter().find(|reason| !reason.is_empty()).unwrap_or_default());
    }
    match &known.stage {
        Stage::Draft => (CampaignState::Draft, String::new()),
        Stage::Waiting(_) => (CampaignState::Waiting, format!("its audience '{}' is not sealed yet", known.audience)),
        Stage::Missed { cause, .. } => (CampaignState::Missed, cause.clone()),
        Stage::Cancelled { .. } => (CampaignState::Cancelled, String::new()),
        Stage::Armed(armed) => match ledger.schedules().get(&armed.schedule).map(|schedule| &schedule.activity) {
            Some(Activity::Active) => (CampaignState::Launched, String::new()),
            Some(Activity::Paused { reason, .. }) => (CampaignState::Paused, reason.clone()),
            Some(Activity::Blocked { cause }) => (CampaignState::Missed, cause.clone()),
            Some(Activity::Done) | None => match ledger.missed_because(known, armed) {
                Some(why) => (CampaignState::Missed, why),
                None => (CampaignState::Finished, String::new()),
            },
        },
    }
}
