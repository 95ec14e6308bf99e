//! Launches a campaign: checks whether it can be sent, by which pool, and until when.

use reveille_cluster::compose::Compiled;
use reveille_ledger::campaign::Campaign;
use reveille_ledger::command::{CampaignLaunch, CampaignName, Command};
use reveille_ledger::ids::Hash;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::{Activity, Ledger};
use reveille_proto::admin::v1::{LaunchCampaignRequest, LaunchCampaignResponse};

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
        let LaunchCampaignRequest { tenant, name, send_time: at, again, validate_only } = request;
        let (named, mut campaign, _) = self.find_campaign((&tenant, &name), call).await?;
        let mut fields = Fields::default();
        if let Some(due) = at.and_then(|at| fields.instant("send_time", at)) {
            campaign.due = due;
        }
        fields.done(Some(()))?;
        let checked = self.fits(&named, &campaign).await?;
        let tzdb = self.context.zones.version().to_owned();
        let launch = CampaignLaunch { campaign: named.clone(), due: campaign.due, checked, again, tzdb };
        let query = |ledger: &Ledger| {
            let repeats = ledger.may_launch(&launch, self.now(ledger.head().now)).map(|former| former.is_some());
            // A campaign that has opened already needs no warnings.
            let is_over = repeats == Ok(true) && campaign.due <= self.now(ledger.head().now);
            let mut warnings = if is_over { Vec::new() } else { self.in_its_way(ledger, &named, &campaign) };
            let blocked = blocked_by(ledger, &campaign);
            warnings.extend(blocked.iter().map(|cause| {
                format!("it is blocked, and no launch changes that: {cause}; reveille campaign resume {name}")
            }));
            (repeats, ledger.serves(&campaign.pool), warnings, blocked)
        };
        let (repeats, served, warnings, blocked) = self.context.replica.read(query);
        let refused = |refusal: &CommandRefusal| match refusal {
            // The instant of the campaign has passed. The operator can choose another one.
            CommandRefusal::NotPossible(_) => error_texts::not_possible(refusal.to_string())
                .next(format!("reveille campaign launch {} --at INSTANT", named.name)),
            refusal => match (refusal, &blocked) {
                (CommandRefusal::CampaignIs(_), Some(cause)) => {
                    error_texts::not_possible(format!("campaign {} is blocked: {cause}", named.name))
                        .next(format!("reveille campaign resume {}", named.name))
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
    pub(crate) fn in_its_way(&self, ledger: &Ledger, named: &CampaignName, campaign: &Campaign) -> Vec<String> {
        let Campaign { due, pool, audience, zone, .. } = campaign;
        let now = self.now(ledger.head().now);
        let finish_by_ms = views::finish_by_ms(ledger, &named.tenant, campaign, now);
        let subject = ForecastSubject { pool, audience: (&named.tenant, audience), due: *due, finish_by_ms };
        let mut warnings = create::warnings(ledger, pool);
        match deadline_forecast(ledger, &subject, now) {
            None => warnings.push(format!(
                "audience '{audience}' is not sealed: unless it is at {due}, the campaign does not fire"
            )),
            Some(deadline_forecast) => warnings.extend(deadline_forecast.warnings(zone, &self.context.zones)),
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
            error_texts::not_possible(message).next(format!("reveille audience show {}", campaign.audience))
        })
    }
}

/// Returns why the campaign's schedule is blocked until it is resumed. Returns `None` if it is not blocked.
fn blocked_by(ledger: &Ledger, campaign: &Campaign) -> Option<String> {
    match &ledger.schedules().get(&campaign.stage.schedule()?)?.activity {
        Activity::Blocked { cause } => Some(cause.to_string()),
        _ => None,
    }
}

/// Without a relay all emails would wait until they expire, so the launch is refused.
fn no_relay(name: &str, pool: &str) -> ApiError {
    error_texts::not_possible(format!(
        "no relay is in pool {pool}: campaign {name} was not launched, for nothing of it would be sent"
    ))
    .next(create::add_relay(pool))
}
