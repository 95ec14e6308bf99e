//! Plans and applies documents of campaigns, tenants and pools. Campaigns are drafted and never changed. Tenants and
//! pools are set as a whole.

use reveille_proto::admin::v1::{
    Campaign, CampaignState, CreateCampaignRequest, GetCampaignRequest, Pool, SetPoolRequest, SetTenantRequest, Tenant,
};

use super::step::{Plan, Step};
use crate::cli::client::RetrySafety;
use crate::cli::commands::{CommandContext, pool, tenant};
use crate::cli::failure::{Exit, Failure};
use crate::cli::manifest::difference::{Change, between};
use crate::cli::manifest::export;

fn planned(step: Step, changes: Vec<Change>) -> Plan {
    Plan { step, changes, notes: Vec::new() }
}

/// Plans a campaign document. A draft cannot change: an equal document changes nothing, and the cluster refuses a
/// different one and names the next step.
pub async fn plan_campaign(context: &CommandContext<'_>, asked: &CreateCampaignRequest) -> Result<Plan, Failure> {
    let (tenant, name) =
        asked.schedule.as_ref().map(|body| (body.tenant.clone(), body.name.clone())).unwrap_or_default();
    let request = GetCampaignRequest { tenant, name, ..GetCampaignRequest::default() };
    let known = match context.client.ask(RetrySafety::Read, request).await {
        Ok(answer) => answer.campaign,
        Err(failure) if failure.exit == Exit::NotFound => None,
        Err(failure) => return Err(failure),
    };
    let (_, warnings) = draft(context, CreateCampaignRequest { validate_only: true, ..asked.clone() }).await?;
    let Some(known) = known else {
        return Ok(Plan { step: Step::Create, changes: Vec::new(), notes: warnings });
    };
    let mut notes = Vec::new();
    if known.state() == CampaignState::Draft {
        notes.push(format!("it is a draft: reveille campaign launch {}", known.name));
    }
    Ok(Plan { step: Step::Nothing, changes: Vec::new(), notes })
}

/// Drafts the campaign. Returns it with the warnings for its owner.
pub async fn draft(
    context: &CommandContext<'_>,
    asked: CreateCampaignRequest,
) -> Result<(Campaign, Vec<String>), Failure> {
    let safety = if asked.validate_only { RetrySafety::Read } else { RetrySafety::Repeatable };
    let answer = context.client.ask(safety, asked).await?;
    Ok((answer.campaign.unwrap_or_default(), answer.warnings))
}

/// Plans a tenant document. A tenant without recorded limits is a creation, because no former values exist to compare.
pub async fn plan_tenant(context: &CommandContext<'_>, wanted: &Tenant) -> Result<Plan, Failure> {
    set_tenant(context, wanted, String::new(), true).await?;
    let former = match tenant::get(context, wanted.name.clone()).await {
        Ok((former, _)) if former.index > 0 => former,
        Ok(_) => return Ok(planned(Step::Create, Vec::new())),
        Err(failure) if failure.exit == Exit::NotFound => return Ok(planned(Step::Create, Vec::new())),
        Err(failure) => return Err(failure),
    };
    let changes = between(&export::tenant(&former), &export::tenant(wanted));
    let step = if changes.is_empty() { Step::Nothing } else { Step::Update(String::new()) };
    Ok(planned(step, changes))
}

/// Sets all limits of the tenant. With `validate_only` nothing is changed.
pub async fn set_tenant(
    context: &CommandContext<'_>,
    wanted: &Tenant,
    request_id: String,
    validate_only: bool,
) -> Result<(), Failure> {
    let request = SetTenantRequest {
        name: wanted.name.clone(),
        rate_per_second: Some(wanted.rate_per_second),
        concurrency: Some(wanted.concurrency),
        share: Some(wanted.share),
        request_id,
        validate_only,
    };
    context.client.ask(RetrySafety::Repeatable, request).await.map(|_| ())
}

/// Plans a pool document. A pool without recorded settings is a creation, because no former values exist to compare.
pub async fn plan_pool(context: &CommandContext<'_>, wanted: &Pool) -> Result<Plan, Failure> {
    set_pool(context, wanted, String::new(), true).await?;
    let former = match pool::get(context, wanted.name.clone()).await {
        Ok((former, _)) if former.index > 0 => former,
        Ok(_) => return Ok(planned(Step::Create, Vec::new())),
        Err(failure) if failure.exit == Exit::NotFound => return Ok(planned(Step::Create, Vec::new())),
        Err(failure) => return Err(failure),
    };
    let mut wanted = wanted.clone();
    if wanted.warm_up.is_empty() {
        wanted.warm_up.clone_from(&former.warm_up);
    }
    if wanted.first_day.is_empty() {
        wanted.first_day.clone_from(&former.first_day);
    }
    let changes = between(&export::pool(&former), &export::pool(&wanted));
    let step = if changes.is_empty() { Step::Nothing } else { Step::Update(String::new()) };
    Ok(planned(step, changes))
}

/// Sets the pool's settings. With `validate_only` nothing is changed.
pub async fn set_pool(
    context: &CommandContext<'_>,
    wanted: &Pool,
    request_id: String,
    validate_only: bool,
) -> Result<(), Failure> {
    let Pool { name, warm_up, first_day, reveille_headers, .. } = wanted.clone();
    let reveille_headers = Some(reveille_headers);
    let request = SetPoolRequest { name, warm_up, first_day, request_id, validate_only, reveille_headers };
    context.client.ask(RetrySafety::Repeatable, request).await.map(|_| ())
}
