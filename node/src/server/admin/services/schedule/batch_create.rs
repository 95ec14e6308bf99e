//! Creates many schedules in few log entries: validates all, proposes the valid ones, and answers for each.

use std::collections::BTreeSet;

use reveille_ledger::command::{Command, ENTRY_BYTES_MAX, ScheduleCreate};
use reveille_ledger::form;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::{CommandOutcome, ScheduleCreation};
use reveille_proto::admin::v1::{
    BatchCreateResult, BatchCreateSchedulesRequest, BatchCreateSchedulesResponse, Refusal, ScheduleBody,
};

use super::create::{caught_up_files, tenant_and_name, warnings_of};
use crate::server::admin::attachments::BroughtFiles;
use crate::server::admin::validate::{self, CheckContext, CheckedSchedule, Fields};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts};

/// Schedules of one request at most.
const SCHEDULES_MAX: usize = 1_000;
/// Bytes of schedules in one entry. Below the limit, because the entry adds its own fields.
const ENTRY_BYTES: usize = ENTRY_BYTES_MAX / 2;

/// A valid schedule, and its position in the request.
struct Item {
    position: usize,
    create: ScheduleCreate,
}

/// Creates each schedule of the request that is valid.
pub async fn batch_create(
    admin: &Admin,
    request: BatchCreateSchedulesRequest,
    call: &Call,
) -> ApiResult<BatchCreateSchedulesResponse> {
    let mut bodies = request.schedules;
    if bodies.is_empty() || bodies.len() > SCHEDULES_MAX {
        let message = format!("has {} schedules; give 1 to {SCHEDULES_MAX}", bodies.len());
        return Err(ApiError::of_field("schedules", message));
    }
    let mut results = vec![BatchCreateResult::default(); bodies.len()];
    let (mut items, mut contents) = (Vec::with_capacity(bodies.len()), Vec::new());
    let (mut brought, mut is_bulk) = (BroughtFiles::new(), false);
    let mut unfit: Vec<Option<ApiError>> = Vec::with_capacity(bodies.len());
    let named = bodies.iter().filter(|body| !body.name.is_empty());
    admin.catch_up_with_files(named.filter_map(|body| body.content.as_ref()), call).await?;
    for body in &mut bodies {
        let mut fields = Fields::default();
        brought.extend(caught_up_files(admin, &mut fields, body));
        unfit.push(fields.done(Some(())).err());
    }
    for (position, checked) in check(admin, bodies, call).await?.into_iter().enumerate() {
        match unfit[position].take().map_or(checked, Err) {
            Ok(CheckedSchedule { create, content, .. }) => {
                contents.extend((!content.attachments.is_empty()).then(|| content.clone()));
                is_bulk |= content.bulk;
                items.push(Item { position, create });
            }
            Err(error) => results[position] = refused(position, error),
        }
    }
    let pools: BTreeSet<&str> = items.iter().map(|item| item.create.pool.as_str()).collect();
    let warnings = warnings_of(admin, pools, is_bulk);
    admin.store_files(brought, &contents).await?;
    for entry in entries(items) {
        let (positions, creates): (Vec<usize>, Vec<ScheduleCreate>) =
            entry.into_iter().map(|item| (item.position, item.create)).unzip();
        let reply = admin.write(Command::SchedulesCreate(creates), call).await?;
        let CommandOutcome::Schedules(created) = reply.outcome else {
            return Err(error_texts::broken(format!("a creation was answered by {:?}", reply.outcome)));
        };
        for (position, created) in positions.into_iter().zip(created) {
            results[position] = result(position, created);
        }
    }
    Ok(BatchCreateSchedulesResponse { results, warnings })
}

/// Validates each body. A body whose name exists may name instants that have passed: the ledger compares it.
async fn check(admin: &Admin, bodies: Vec<ScheduleBody>, call: &Call) -> ApiResult<Vec<ApiResult<CheckedSchedule>>> {
    let query = admin.read_latest(call, |ledger| {
        let exists = |body: &ScheduleBody| {
            let (tenant, name) = tenant_and_name(body);
            ledger.schedule_named(tenant, name).is_some()
        };
        (bodies.iter().map(exists).collect::<Vec<bool>>(), ledger.head().now)
    });
    let (known, now) = query.await?;
    let now = admin.now(now);
    let checked = admin.blocking(move |node| {
        let check = |(body, exists)| validate::schedule(Some(body), &CheckContext::of(node, now, exists));
        bodies.into_iter().zip(known).map(check).collect()
    });
    checked.await
}

/// Divides the schedules, in their order, so that each entry stays below its limit.
fn entries(items: Vec<Item>) -> Vec<Vec<Item>> {
    let mut entries: Vec<Vec<Item>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        let size = form::encoded_len(&item.create);
        bytes += size;
        match entries.last_mut() {
            Some(entry) if bytes <= ENTRY_BYTES => entry.push(item),
            _ => {
                bytes = size;
                entries.push(vec![item]);
            }
        }
    }
    entries
}

fn result(position: usize, created: Result<ScheduleCreation, CommandRefusal>) -> BatchCreateResult {
    match created {
        Ok(ScheduleCreation::Created(id)) => BatchCreateResult { number: id.0, created: true, refusal: None },
        Ok(ScheduleCreation::Existed(id)) => BatchCreateResult { number: id.0, created: false, refusal: None },
        Err(refusal) => refused(position, error_texts::refused(&refusal)),
    }
}

fn refused(position: usize, error: ApiError) -> BatchCreateResult {
    let in_request = |field: &str| match field.strip_prefix("schedule") {
        Some(rest) => format!("schedules[{position}]{rest}"),
        None => field.to_owned(),
    };
    let error = error.rename_fields(in_request);
    let refusal = Refusal { reason: error.reason().into(), message: error.to_string() };
    BatchCreateResult { refusal: Some(refusal), ..BatchCreateResult::default() }
}
