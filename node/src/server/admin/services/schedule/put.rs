//! Puts a schedule: creates it, or makes the existing one equal to the request. It decides by the state which of both
//! it is, and they decide the rest.

use reveille_ledger::etag::NO_ETAG;
use reveille_proto::admin::v1::{
    CreateScheduleRequest, CreateScheduleResponse, ErrorReason, PutScheduleRequest, PutScheduleResponse, ScheduleBody,
    UpdateScheduleRequest, UpdateScheduleResponse,
};

use super::create::{create, tenant_and_name};
use super::update::put as update;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, validate};

/// Maximum number of attempts, if the schedule is created or deleted during the put.
const TRIES: usize = 3;

/// Puts a schedule.
pub async fn put(admin: &Admin, request: PutScheduleRequest, call: &Call) -> ApiResult<PutScheduleResponse> {
    let PutScheduleRequest { schedule, etag, validate_only } = request;
    validate::etag(&etag)?;
    let body = schedule.ok_or_else(|| ApiError::of_field("schedule", "is missing"))?;
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt(admin, body.clone(), &etag, validate_only, call).await {
            Err(error) if tries < TRIES && is_overtaken(admin, &body, &error) => {}
            done => return done,
        }
    }
}

/// Returns true if the schedule was created or deleted since the attempt looked for it.
fn is_overtaken(admin: &Admin, body: &ScheduleBody, error: &ApiError) -> bool {
    let (tenant, name) = tenant_and_name(body);
    let exists = admin.context.replica.read(|ledger| ledger.schedule_named(tenant, name).is_some());
    matches!((error.reason(), exists), (ErrorReason::NameTaken, true) | (ErrorReason::ScheduleNotFound, false))
}

async fn attempt(
    admin: &Admin,
    body: ScheduleBody,
    etag: &str,
    validate_only: bool,
    call: &Call,
) -> ApiResult<PutScheduleResponse> {
    let (tenant, name) = tenant_and_name(&body);
    let exists = admin.read_latest(call, |ledger| ledger.schedule_named(tenant, name).is_some()).await?;
    if exists {
        let request = UpdateScheduleRequest {
            schedule: Some(ScheduleBody { paused: None, ..body }),
            etag: etag.to_owned(),
            validate_only,
            ..UpdateScheduleRequest::default()
        };
        let UpdateScheduleResponse { schedule, duplicates, warnings, .. } = update(admin, request, call).await?;
        return Ok(PutScheduleResponse { schedule, created: false, duplicates, warnings });
    }
    if !["", NO_ETAG].contains(&etag) {
        return Err(error_texts::stale_etag(name, format!("no schedule named '{name}', so no etag of it matches")));
    }
    let request = CreateScheduleRequest { schedule: Some(body), validate_only, ..CreateScheduleRequest::default() };
    let CreateScheduleResponse { schedule, created, duplicates, warnings } = create(admin, request, call).await?;
    Ok(PutScheduleResponse { schedule, created, duplicates, warnings })
}
