//! Asks the cluster what a document would change, and makes the change.

use prost::Message as _;
use prost_types::FieldMask;
use reveille_ledger::ids::Hash;
use reveille_proto::admin::v1::{
    AddRelayRequest, CreateCampaignRequest, CreateScheduleRequest, Duplicate, GetRelayRequest, Relay, ScheduleBody,
    ScheduleState, UpdateScheduleRequest, UpdateScheduleResponse,
};

use super::beside;
use super::read::{Asked, Message};
use super::step::{Plan, Step};
use crate::cli::client::RetrySafety;
use crate::cli::commands::CommandContext;
use crate::cli::commands::schedule::read;
use crate::cli::failure::{Exit, Failure};
use crate::cli::manifest::difference::{Change, between};
use crate::cli::manifest::export;
use crate::format;

/// Fields that an update sets: all of them, so that a field missing in the document gets its default.
const WHOLE: [&str; 12] = [
    "when",
    "zone",
    "start_time",
    "end_time",
    "max_runs",
    "policies",
    "pool",
    "priority",
    "content",
    "template",
    "audience",
    "labels",
];

/// Returns what applying the document would change.
pub async fn plan(context: &CommandContext<'_>, asked: &Asked) -> Result<Plan, Failure> {
    match &asked.wish {
        Message::Schedule { body, .. } => plan_schedule(context, body).await,
        Message::Relay(relay) => plan_relay(context, relay).await,
        Message::Campaign(asked) => beside::plan_campaign(context, asked).await,
        Message::Tenant(tenant) => beside::plan_tenant(context, tenant).await,
        Message::Pool(pool) => beside::plan_pool(context, pool).await,
    }
}

/// Makes the planned change.
pub async fn make(context: &CommandContext<'_>, asked: &Asked, plan: &Plan) -> Result<(), Failure> {
    match (&asked.wish, &plan.step) {
        (_, Step::Nothing) => Ok(()),
        (Message::Schedule { body, .. }, Step::Create) => {
            let create = CreateScheduleRequest {
                schedule: Some((**body).clone()),
                request_id: request_id(context, "create", &body.encode_to_vec()),
                validate_only: false,
            };
            context.change(create).await.map(|_| ())
        }
        (Message::Schedule { body, .. }, Step::Update(etag)) => {
            let request_id = request_id(context, "update", &body.encode_to_vec());
            let change = UpdateScheduleRequest { etag: etag.clone(), request_id, ..change(body) };
            context.change(change).await.map(|_| ())
        }
        (Message::Campaign(asked), _) => {
            let request_id = request_id(context, "campaign", &asked.encode_to_vec());
            beside::draft(context, CreateCampaignRequest { request_id, ..(**asked).clone() }).await.map(|_| ())
        }
        (Message::Tenant(tenant), _) => {
            let request_id = request_id(context, "tenant", &tenant.encode_to_vec());
            beside::set_tenant(context, tenant, request_id, false).await
        }
        (Message::Pool(pool), _) => {
            let request_id = request_id(context, "pool", &pool.encode_to_vec());
            beside::set_pool(context, pool, request_id, false).await
        }
        (Message::Relay(relay), _) => {
            let request_id = request_id(context, "relay", &relay.encode_to_vec());
            let relay = Some((**relay).clone());
            let request = AddRelayRequest { relay, replace: true, request_id, validate_only: false };
            put(context, request).await.map(|_| ())
        }
    }
}

/// Derives the request id from the command's id and the request body. The same `--request-id` then never makes a change
/// twice.
fn request_id(context: &CommandContext<'_>, verb: &str, body: &[u8]) -> String {
    let named = [context.client.request_id().as_bytes(), b"\0", body].concat();
    format!("apply-{verb}-{}", Hash::of(&named))
}

fn change(body: &ScheduleBody) -> UpdateScheduleRequest {
    UpdateScheduleRequest {
        // A document never pauses or resumes a schedule; other commands do.
        schedule: Some(ScheduleBody { paused: None, ..body.clone() }),
        update_mask: Some(FieldMask { paths: WHOLE.map(str::to_owned).into() }),
        ..UpdateScheduleRequest::default()
    }
}

/// Compares a body with the schedule of its name, paused or not. Returns the cluster's answer and the changes.
pub async fn compared(
    context: &CommandContext<'_>,
    body: &ScheduleBody,
) -> Result<(UpdateScheduleResponse, Vec<Change>), Failure> {
    let preview_request = UpdateScheduleRequest { validate_only: true, with_bodies: true, ..change(body) };
    let answer = context.client.ask(RetrySafety::Read, preview_request).await?;
    let (Some(former), Some(wanted)) = (&answer.former_body, &answer.body) else {
        return Err(read::older(read::NO_BODY));
    };
    let changes = between(&export::schedule(former), &export::schedule(wanted));
    Ok((answer, changes))
}

async fn plan_schedule(context: &CommandContext<'_>, body: &ScheduleBody) -> Result<Plan, Failure> {
    let (answer, changes) = match compared(context, body).await {
        Ok(compared) => compared,
        Err(failure) if failure.exit == Exit::NotFound => return plan_creation(context, body).await,
        Err(failure) => return Err(failure),
    };
    let was = answer.former.unwrap_or_default();
    let mut notes = duplicates(&answer.duplicates);
    let count = |number: u32| format::counted(number.into(), "instant");
    if answer.opens_count > 0 {
        notes.push(format!("{} of the former timing, due by now, still opens as it was", count(answer.opens_count)));
    }
    if answer.explained_count > 0 {
        notes.push(format!("{} of the former timing will not open: see the history", count(answer.explained_count)));
    }
    match (body.paused.is_some(), was.state()) {
        (true, ScheduleState::Active) => {
            notes.push(format!("it is active and stays so: reveille schedule pause {}", body.name));
        }
        (false, ScheduleState::Paused) => {
            notes.push(format!("it is paused and stays so: reveille schedule resume {}", body.name));
        }
        _ => {}
    }
    let step = if changes.is_empty() { Step::Nothing } else { Step::Update(was.etag) };
    Ok(Plan { step, changes, notes })
}

async fn plan_creation(context: &CommandContext<'_>, body: &ScheduleBody) -> Result<Plan, Failure> {
    let preview_request =
        CreateScheduleRequest { schedule: Some(body.clone()), request_id: String::new(), validate_only: true };
    let answer = context.client.ask(RetrySafety::Read, preview_request).await?;
    Ok(Plan { step: Step::Create, changes: Vec::new(), notes: duplicates(&answer.duplicates) })
}

fn duplicates(duplicates: &[Duplicate]) -> Vec<String> {
    let words = || format!("{} left out", format::counted(duplicates.len() as u64, "duplicate"));
    if duplicates.is_empty() { Vec::new() } else { vec![words()] }
}

async fn plan_relay(context: &CommandContext<'_>, relay: &Relay) -> Result<Plan, Failure> {
    let preview_request =
        AddRelayRequest { relay: Some(relay.clone()), replace: true, request_id: String::new(), validate_only: true };
    let wanted = put(context, preview_request).await?;
    let request = GetRelayRequest { name: relay.name.clone(), stale: false };
    let former = match context.client.ask(RetrySafety::Read, request).await {
        Ok(answer) => answer.relay.unwrap_or_default(),
        Err(failure) if failure.exit == Exit::NotFound => {
            return Ok(Plan { step: Step::Create, changes: Vec::new(), notes: Vec::new() });
        }
        Err(failure) => return Err(failure),
    };
    let changes = between(&export::relay(&former), &export::relay(&wanted));
    let step = if changes.is_empty() { Step::Nothing } else { Step::Update(String::new()) };
    Ok(Plan { step, changes, notes: Vec::new() })
}

/// Adds or replaces the relay. Returns it as the cluster stores it.
async fn put(context: &CommandContext<'_>, request: AddRelayRequest) -> Result<Relay, Failure> {
    let safety = if request.validate_only { RetrySafety::Read } else { RetrySafety::Repeatable };
    Ok(context.client.ask(safety, request).await?.relay.unwrap_or_default())
}
