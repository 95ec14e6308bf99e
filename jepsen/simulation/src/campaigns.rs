//! Campaigns: drafted, launched by several callers before and after the instant, and sent once (P7). Violations that no
//! history shows are recorded in [`Known::violations`](crate::clients::Known): a campaign without its schedule, and a
//! run of a campaign that a trigger opened.

use reveille_check::events::{Answer, ObjectKind, Operation};
use reveille_ledger::campaign::CampaignStage;
use reveille_ledger::command::{CampaignCreate, CampaignLaunch, CampaignName, Command};
use reveille_ledger::ids::Time;
use reveille_ledger::labels::Labels;
use tokio::time::Duration;

use crate::clients::{Clients, Created};
use crate::history::CLOCK_ERROR_MS;
use crate::schedule::{LaunchKind, PlannedSchedule};

/// Time after its instant at which a campaign is launched again, when its run is open or finished.
const LAUNCHED_AFTER_MS: i64 = 5_000;

impl PlannedSchedule {
    /// Returns the only instant of a campaign.
    fn instant(&self) -> Time {
        self.rule.instants(i64::MIN, self.end.0).unwrap_or_default().first().map_or(self.end, |at| Time(*at))
    }

    fn campaign_name(&self) -> CampaignName {
        CampaignName { tenant: self.tenant.to_owned(), name: self.name.clone() }
    }

    fn draft(&self) -> CampaignCreate {
        CampaignCreate {
            request: Some(format!("draft-{}", self.name)),
            tenant: self.tenant.to_owned(),
            name: self.name.clone(),
            due: self.instant(),
            zone: self.zone.name().to_owned(),
            audience: self.name.clone(),
            content: self.content().into(),
            policies: self.policies(),
            finish_by_given: self.recipients.len().is_multiple_of(2),
            pool: self.pool.to_owned(),
            priority: 0,
            labels: Labels::default(),
        }
    }

    fn launch(&self, is_checked: bool) -> CampaignLaunch {
        CampaignLaunch {
            campaign: self.campaign_name(),
            due: self.instant(),
            checked: is_checked.then(|| self.seal().blob().hash),
            again: false,
            tzdb: "simulation".to_owned(),
            expected: None,
        }
    }
}

impl Clients {
    /// Drafts a campaign, lets two callers launch it at once, and launches it once more after its instant.
    pub(crate) async fn campaign(&self, planned: PlannedSchedule, launch: LaunchKind) {
        let operation = Operation::Write {
            kind: ObjectKind::Campaign,
            tenant: planned.tenant.to_owned(),
            name: planned.name.clone(),
            value: Some(planned.value()),
        };
        let asked = self.recorder.call_began("marketer", None, operation);
        let propose = async |what: &str, command: Command| self.ask(what, None, |_| Some(command.clone())).await;
        propose("draft", Command::CampaignCreate(Box::new(planned.draft()))).await;
        if launch == LaunchKind::Cancelled {
            propose("cancel a draft", Command::CampaignCancel(planned.campaign_name().into())).await;
        }
        if launch != LaunchKind::BeforeSeal {
            self.seal(&planned).await;
        }
        let command = || Command::CampaignLaunch(planned.launch(launch == LaunchKind::Checked));
        let (first, second) = tokio::join!(propose("launch", command()), propose("launch too", command()));
        if launch == LaunchKind::BeforeSeal {
            self.seal(&planned).await;
        }
        let ready = self.now();
        if first.or(second).is_none() {
            return;
        }
        let Some(stage) = self.stage_after_seal(&planned.campaign_name()).await else { return };
        self.recorder.call_answered(asked, Answer::at(None));
        self.record_stage(&planned, &stage, ready);
        if !matches!(stage, CampaignStage::Armed(_)) {
            return;
        }
        let wait_ms = planned.instant().plus_ms(LAUNCHED_AFTER_MS).since_ms(self.now());
        tokio::time::sleep(Duration::from_millis(wait_ms.max(0).unsigned_abs())).await;
        propose("launch again", command()).await;
    }

    /// Returns the stage of a campaign that no longer waits for its audience.
    async fn stage_after_seal(&self, named: &CampaignName) -> Option<CampaignStage> {
        for number in 0_usize.. {
            if let Some(context) = self.fresh_context(number).await
                && let Some(stage) =
                    context.replica.read(|ledger| Some(ledger.campaigns().get(&named.key())?.stage.clone()))
                && !matches!(stage, CampaignStage::Waiting(_))
            {
                return Some(stage);
            }
            self.try_later().await?;
        }
        None
    }

    /// Checks the stage of a campaign that was launched and whose audience was sealed by `ready`. The checker judges if
    /// its schedule fires.
    fn record_stage(&self, planned: &PlannedSchedule, stage: &CampaignStage, ready: Time) {
        let is_cancelled = planned.launch == Some(LaunchKind::Cancelled);
        let is_late = planned.instant().since_ms(ready) < CLOCK_ERROR_MS as i64;
        let mut known = self.known.lock();
        match stage {
            CampaignStage::Armed(armed) if !is_cancelled => {
                // A campaign fires even if it is launched late.
                let before = planned.instant().plus_ms(-1);
                let (planned, id) = (planned.clone(), armed.schedule);
                known.created.push(Created { planned, id, after_first: before, after_last: before });
            }
            CampaignStage::Cancelled { .. } if is_cancelled => known.never += 1,
            CampaignStage::Draft | CampaignStage::Missed { .. } if is_late && !is_cancelled => known.never += 1,
            other => known
                .violations
                .push(format!("P7: campaign {} was planned {:?} and is {other:?}", planned.name, planned.launch)),
        }
    }
}
