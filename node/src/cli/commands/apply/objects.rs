//! The calls of each kind: how an object is read as the spec that would make it, and how a document sets it.

use prost::{Message, Name};
use prost_types::FieldMask;
use reveille_proto::admin::v1::{
    AddRelayRequest, Campaign, CampaignState, CreateCampaignRequest, CreateScheduleRequest, Duplicate,
    GetCampaignRequest, GetPoolRequest, GetRelayRequest, GetScheduleRequest, GetTemplateRequest, GetTenantRequest,
    PutTemplateRequest, Relay, ScheduleBody, SetPoolRequest, SetTenantRequest, UpdateScheduleRequest, Warning,
};

use crate::cli::commands::{CommandContext, Exit, Failure, Kind, Unary, format};
use crate::cli::manifest::document::Document;
use crate::cli::manifest::tree::Node;
use crate::cli::view::warning;

/// Fields of a schedule that an update by a document leaves as they are: which schedule it is, and whether it is
/// paused.
const KEPT: [&str; 3] = ["tenant", "name", "paused"];

/// An object that exists.
pub struct Found {
    /// The spec that would make it.
    pub spec: Node,
    /// Its etag; empty for a campaign, which a document never changes, and for a schedule, whose plan has it.
    pub etag: String,
    /// A remark for the user.
    pub note: Option<String>,
}

impl Found {
    fn of(spec: Node) -> Found {
        Found { spec, etag: String::new(), note: None }
    }
}

/// Reads an object. A template's name may have a version (`NAME@3`).
///
/// # Errors
/// Fails with exit code "not found" if there is none, or if nothing is set of it.
pub async fn get(context: &CommandContext<'_>, kind: Kind, tenant: &str, name: &str) -> Result<Found, Failure> {
    let (tenant, name, stale) = (tenant.to_owned(), name.to_owned(), context.stale);
    let (found, freshness) = match kind {
        Kind::Schedule => {
            let answer = context.read(GetScheduleRequest { tenant, name, stale, with_body: true }).await?;
            (Found::of(kind.spec(&answer.body.unwrap_or_default())), answer.freshness)
        }
        Kind::Campaign => {
            let answer = context.read(GetCampaignRequest { tenant, name, stale, with_body: true }).await?;
            let campaign = answer.campaign.unwrap_or_default();
            let canary = campaign.canary;
            let spec = kind.spec(&CreateCampaignRequest { schedule: answer.body, canary, ..Default::default() });
            let note = format!("it is a draft: reveille campaign launch {}", campaign.name);
            let note = (campaign.state() == CampaignState::Draft).then_some(note);
            (Found { note, ..Found::of(spec) }, answer.freshness)
        }
        Kind::Relay => {
            let answer = context.read(GetRelayRequest { name, stale }).await?;
            let relay = answer.relay.unwrap_or_default();
            (Found { etag: relay.etag.clone(), ..Found::of(kind.spec(&relay)) }, answer.freshness)
        }
        Kind::Pool => {
            let answer = context.read(GetPoolRequest { name, stale }).await?;
            let pool = answer.pool.unwrap_or_default();
            is_set(kind, &pool.name, pool.index)?;
            let (warm_up, first_day, reveille_headers) = (pool.warm_up, pool.first_day, Some(pool.reveille_headers));
            let set = SetPoolRequest { name: pool.name, warm_up, first_day, reveille_headers, ..Default::default() };
            (Found { etag: pool.etag, ..Found::of(kind.spec(&set)) }, answer.freshness)
        }
        Kind::Tenant => {
            let answer = context.read(GetTenantRequest { name, stale }).await?;
            let tenant = answer.tenant.unwrap_or_default();
            is_set(kind, &tenant.name, tenant.index)?;
            let set = SetTenantRequest {
                name: tenant.name,
                rate_per_second: Some(tenant.rate_per_second),
                concurrency: Some(tenant.concurrency),
                share: Some(tenant.share),
                pools: tenant.pools,
                ..Default::default()
            };
            (Found { etag: tenant.etag, ..Found::of(kind.spec(&set)) }, answer.freshness)
        }
        Kind::Template => {
            let (name, version) = template_version(&name)?;
            let request = GetTemplateRequest { tenant: tenant.clone(), name: name.clone(), version, stale };
            let answer = context.read(request).await?;
            let etag = answer.template.unwrap_or_default().etag;
            let spec = kind.spec(&PutTemplateRequest { tenant, name, content: answer.content, ..Default::default() });
            (Found { etag, ..Found::of(spec) }, answer.freshness)
        }
    };
    context.note(freshness.as_ref());
    Ok(found)
}

/// Reads `NAME` or `NAME@VERSION`; version 0 is the newest one.
pub fn template_version(text: &str) -> Result<(String, u32), Failure> {
    let Some((name, version)) = text.split_once('@') else { return Ok((text.to_owned(), 0)) };
    let number = version.parse().ok().filter(|number| *number > 0);
    let wrong = || Failure::usage("NAME", format!("{version:?} is not a version"), "NAME, or NAME@3");
    Ok((name.to_owned(), number.ok_or_else(wrong)?))
}

fn is_set(kind: Kind, name: &str, index: u64) -> Result<(), Failure> {
    if index > 0 {
        return Ok(());
    }
    let kind = kind.word();
    let message = format!("nothing is set of {kind} {name}");
    Err(Failure::new(Exit::NotFound, "NOT_FOUND", message, format!("reveille {kind} set --help")))
}

/// How an object is set.
pub struct Call {
    /// Checks the document, and changes nothing.
    pub validate_only: bool,
    /// Etag of the object that is changed. `None` if it is created.
    pub etag: Option<String>,
    /// Id under which the change may be repeated; empty for a check.
    pub request_id: String,
}

/// Sets an object as a document says. Returns the spec that would make it as it is then, and the warnings.
pub async fn put(
    context: &CommandContext<'_>,
    document: &Document,
    Call { validate_only, etag, request_id }: Call,
) -> Result<(Node, Vec<String>), Failure> {
    let kind = document.kind;
    let mut warnings = Vec::new();
    let spec = match (kind, etag) {
        (Kind::Schedule, etag) => {
            let body: ScheduleBody = message(document)?;
            let spec = kind.spec(&body);
            warnings = match etag {
                None => {
                    let create = CreateScheduleRequest { schedule: Some(body), request_id, validate_only };
                    let answer = ask(context, create, validate_only).await?;
                    notes(&answer.duplicates, &answer.warnings)
                }
                Some(etag) => {
                    let update = UpdateScheduleRequest { etag, request_id, validate_only, ..whole(body) };
                    let answer = ask(context, update, validate_only).await?;
                    notes(&answer.duplicates, &answer.warnings)
                }
            };
            spec
        }
        (Kind::Campaign, _) => {
            let requested: CreateCampaignRequest = message(document)?;
            let spec = kind.spec(&requested);
            let answer = ask(context, CreateCampaignRequest { request_id, validate_only, ..requested }, validate_only);
            let answer = answer.await?;
            warnings = sentences(&answer.warnings, answer.campaign.as_ref()).collect();
            spec
        }
        (Kind::Relay, etag) => {
            let (relay, etag): (Relay, _) = (message(document)?, etag.unwrap_or_default());
            let request = AddRelayRequest { relay: Some(relay), replace: true, request_id, validate_only, etag };
            kind.spec(&ask(context, request, validate_only).await?.relay.unwrap_or_default())
        }
        // A document says all of a pool and a tenant. Without a warm-up or its first day, a pool keeps its present one.
        (Kind::Pool, etag) => {
            let mut requested: SetPoolRequest = message(document)?;
            requested.reveille_headers.get_or_insert(true);
            let spec = kind.spec(&requested);
            let etag = etag.unwrap_or_default();
            ask(context, SetPoolRequest { request_id, validate_only, etag, ..requested }, validate_only).await?;
            spec
        }
        (Kind::Tenant, etag) => {
            let mut requested: SetTenantRequest = message(document)?;
            requested.rate_per_second.get_or_insert_default();
            requested.concurrency.get_or_insert_default();
            requested.share.get_or_insert(1);
            let spec = kind.spec(&requested);
            requested.all_pools = requested.pools.is_empty();
            let etag = etag.unwrap_or_default();
            ask(context, SetTenantRequest { request_id, validate_only, etag, ..requested }, validate_only).await?;
            spec
        }
        (Kind::Template, etag) => {
            let requested: PutTemplateRequest = message(document)?;
            let spec = kind.spec(&requested);
            let etag = etag.unwrap_or_default();
            ask(context, PutTemplateRequest { etag, validate_only, ..requested }, validate_only).await?;
            spec
        }
    };
    Ok((spec, warnings))
}

fn sentences(warnings: &[Warning], campaign: Option<&Campaign>) -> impl Iterator<Item = String> {
    warnings.iter().map(move |warning| warning::sentence(warning, campaign))
}

async fn ask<Q: Unary + Name>(
    context: &CommandContext<'_>,
    request: Q,
    is_check: bool,
) -> Result<Q::Response, Failure> {
    if is_check { context.read(request).await } else { context.change(request).await }
}

/// Returns the update that sets all of a schedule, so that a field missing in the document gets its default.
pub fn whole(body: ScheduleBody) -> UpdateScheduleRequest {
    let fields = Kind::Schedule.message();
    let paths = fields.fields().map(|field| field.name().to_owned()).filter(|name| !KEPT.contains(&name.as_str()));
    UpdateScheduleRequest {
        update_mask: Some(FieldMask { paths: paths.collect() }),
        schedule: Some(ScheduleBody { paused: None, ..body }),
        ..UpdateScheduleRequest::default()
    }
}

/// Returns the spec as the message that it is.
pub fn message<M: Message + Default>(document: &Document) -> Result<M, Failure> {
    document.spec.transcode_to().map_err(|error| {
        let next = "report this as an error of reveille, with the document";
        Failure::general(format!("{}: the document cannot be sent: {error}", document.place), next)
    })
}

/// Returns notes about recipients that are left out, and the warnings about a schedule.
pub fn notes(duplicates: &[Duplicate], warnings: &[Warning]) -> Vec<String> {
    let words = || format!("{} left out", format::counted(duplicates.len() as u64, "duplicate"));
    (!duplicates.is_empty()).then(words).into_iter().chain(sentences(warnings, None)).collect()
}
