//! Launches a campaign: checks whether it can be sent, by which pool, and until when.

use reveille_cluster::compose::Compiled;
use reveille_ledger::campaign::Campaign;
use reveille_ledger::causes::BlockCause;
use reveille_ledger::command::{CampaignLaunch, CampaignName, Command};
use reveille_ledger::ids::Hash;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::{Ledger, ScheduleState};
use reveille_proto::admin::v1::{ErrorReason, LaunchCampaignRequest, LaunchCampaignResponse, Warning, WarningReason};

use super::content_of;
use crate::server::admin::services::schedule::create;
use crate::server::admin::validate::Fields;
use crate::server::admin::views::forecast::{ForecastSubject, deadline_forecast};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, views};

impl Admin {
    pub(crate) async fn launch_campaign(
        &self,
        request: LaunchCampaignRequest,
        call: &Call,
    ) -> ApiResult<LaunchCampaignResponse> {
        let LaunchCampaignRequest { tenant, name, send_time: at, again, validate_only, etag } = request;
        let (named, mut campaign, _) = self.find_campaign((&tenant, &name), call).await?;
        let mut fields = Fields::default();
        if let Some(due) = at.and_then(|at| fields.instant("send_time", at)) {
            campaign.due = due;
        }
        let expected = fields.etag(&etag);
        fields.done(Some(()))?;
        let checked = self.fits(&named, &campaign).await?;
        let tzdb = self.context.zones.version().to_owned();
        let launch = CampaignLaunch { campaign: named.clone(), due: campaign.due, checked, again, tzdb, expected };
        let query = |ledger: &Ledger| {
            let repeats = ledger.may_launch(&launch, self.now(ledger.head().now)).map(|former| former.is_some());
            // A campaign that has opened already needs no warnings.
            let is_over = repeats == Ok(true) && campaign.due <= self.now(ledger.head().now);
            let mut warnings = if is_over { Vec::new() } else { self.in_its_way(ledger, &named, &campaign) };
            let blocked = blocked_by(ledger, &campaign);
            warnings.extend(blocked.iter().map(|cause| Warning {
                reason: WarningReason::CampaignBlocked.into(),
                block: Some(views::block(cause)),
                ..Warning::default()
            }));
            let may_use = ledger.tenant(&named.tenant).may_use(&campaign.pool);
            (repeats, may_use && ledger.serves(&campaign.pool), warnings, blocked)
        };
        let (repeats, served, warnings, blocked) = self.context.replica.read(query);
        let refused = |refusal: &CommandRefusal| match refusal {
            // The instant of the campaign has passed. The operator can choose another one.
            CommandRefusal::NotPossible(_) => {
                error_texts::of_campaign(ErrorReason::InstantPassed, &named.name, refusal.to_string())
            }
            refusal => match (refusal, &blocked) {
                (CommandRefusal::CampaignIs(_), Some(cause)) => {
                    let message = format!("campaign {} is blocked: {cause}", named.name);
                    error_texts::of_campaign(ErrorReason::CampaignBlocked, &named.name, message)
                }
                _ => error_texts::refused_of_campaign(&named.name, refusal),
            },
        };
        // A repeated launch gets the same answer, even if the relay has been removed since.
        if !served && repeats == Ok(false) {
            return Err(no_relay(&named.name, &campaign.pool));
        }
        if validate_only {
            repeats.map_err(|refusal| refused(&refusal))?;
            let shown = self.context.replica.read(|ledger| views::campaign(ledger, &named, &campaign));
            return Ok(LaunchCampaignResponse { campaign: Some(shown), warnings });
        }
        let written = self.try_write(Command::CampaignLaunch(launch), call).await;
        written.map_err(|error| error.worded(refused))?;
        Ok(LaunchCampaignResponse { campaign: Some(self.campaign(&named)?), warnings })
    }

    /// Returns warnings about what may prevent the campaign from being sent, as far as it is known now.
    pub(crate) fn in_its_way(&self, ledger: &Ledger, named: &CampaignName, campaign: &Campaign) -> Vec<Warning> {
        let Campaign { due, pool, audience, .. } = campaign;
        let now = self.now(ledger.head().now);
        let finish_by_ms = views::finish_by_ms(ledger, &named.tenant, campaign, now);
        let subject = ForecastSubject { pool, audience: (&named.tenant, audience), due: *due, finish_by_ms };
        let mut warnings = create::warnings(ledger, pool);
        match deadline_forecast(ledger, &subject, now) {
            None => warnings.push(Warning {
                reason: WarningReason::AudienceNotSealed.into(),
                audience: audience.clone(),
                due_time: Some(views::timestamp(*due)),
                ..Warning::default()
            }),
            Some(deadline_forecast) => warnings.extend(deadline_forecast.warnings()),
        }
        warnings
    }

    /// Checks that the content fits the audience. Returns the seal that was checked, or `None` if the audience is not
    /// sealed.
    async fn fits(&self, named: &CampaignName, campaign: &Campaign) -> ApiResult<Option<Hash>> {
        let content = self.context.replica.read(|ledger| content_of(ledger, named, campaign));
        let Some((sealed, columns)) = self.context.sealed(&named.tenant, &campaign.audience) else { return Ok(None) };
        let content = content?;
        let compiled = self.blocking(move |_| Compiled::new(&content, &columns).map(drop)).await?;
        compiled.map(|()| Some(sealed.seal)).map_err(|error| {
            let message =
                format!("audience '{}' does not fit the {}: {}", campaign.audience, error.field, error.message);
            error_texts::precondition(ErrorReason::UnfitContent, message).about("audience", &campaign.audience)
        })
    }
}

/// Returns why the campaign's schedule is blocked until it is resumed. Returns `None` if it is not blocked.
fn blocked_by(ledger: &Ledger, campaign: &Campaign) -> Option<BlockCause> {
    match &ledger.schedules().get(&campaign.stage.schedule()?)?.state {
        ScheduleState::Blocked { cause } => Some(cause.clone()),
        _ => None,
    }
}

/// Without a relay all emails would wait until they expire, so the launch is refused.
fn no_relay(name: &str, pool: &str) -> ApiError {
    error_texts::no_relay_in(pool, &format!("campaign {name} was not launched, for nothing of it would be sent"))
}
