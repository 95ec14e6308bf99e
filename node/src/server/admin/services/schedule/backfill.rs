//! Backfill: determines which past occurrences open, and opens them. The response comes from the entry that opened
//! them, so a repeated request gets the same response.

use prost::Message;
use reveille_ledger::Ledger;
use reveille_ledger::command::{Backfill, Command, Opening};
use reveille_ledger::ids::{Hash, OccurrenceName, RunId, ScheduleId, Time};
use reveille_ledger::limits::LedgerLimits;
use reveille_ledger::planning::backfill::{BackfillRange, range};
use reveille_ledger::planning::timing::Calendar;
use reveille_ledger::reply::CommandOutcome;
use reveille_proto::admin::v1::{BackfillScheduleRequest, BackfillScheduleResponse};

use super::{Found, calendar_of};
use crate::server::admin::validate::Fields;
use crate::server::admin::views::timestamp;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, views};

/// Maximum number of instants that are checked under one read lock of the ledger.
const INSTANTS_AT_ONCE: usize = 64;

/// The parameters of the request as types.
struct BackfillParameters {
    from: Time,
    to: Time,
    most: usize,
    request: Option<String>,
    body_hash: Hash,
}

impl BackfillParameters {
    fn command(&self, schedule: ScheduleId, BackfillRange { openings, known, rest }: BackfillRange) -> Command {
        let (request, body_hash) = (self.request.clone(), self.body_hash);
        Command::Backfill(Backfill { request, body_hash, schedule, openings, known, rest })
    }
}

/// Opens occurrences that never opened.
pub async fn backfill(
    admin: &Admin,
    request: BackfillScheduleRequest,
    call: &Call,
) -> ApiResult<BackfillScheduleResponse> {
    let requested = read(&request, admin.limits())?;
    let found = admin.find_schedule((&request.tenant, &request.name), false, call).await?;
    admin.not_of_a_campaign(found.id)?;
    let (id, through) = (found.id, found.schedule.plan.fired_through);
    if requested.from > through {
        let message = format!("lies ahead: the schedule itself opens or explains what comes after {through}");
        return Err(ApiError::of_field("start_time", message));
    }
    if let Some(outcome) = stored(admin, id, &requested)? {
        return answered(admin, found, outcome).await;
    }
    let (range, response, found) = find_openings(admin, found, &requested).await?;
    if request.validate_only {
        return Ok(response);
    }
    if range.openings.is_empty() {
        // The same request may run twice at once, and the other one has opened them meanwhile (I7). Both get the same
        // response.
        return match stored(admin, id, &requested)? {
            Some(outcome) => answered(admin, found, outcome).await,
            None => Ok(response),
        };
    }
    let reply = admin.write(requested.command(id, range), call).await?;
    answered(admin, found, reply.outcome).await
}

/// Returns the stored answer to this request, if it was answered before.
fn stored(admin: &Admin, id: ScheduleId, requested: &BackfillParameters) -> ApiResult<Option<CommandOutcome>> {
    let command = requested.command(id, BackfillRange::default());
    let outcome =
        |ledger: &Ledger| ledger.check_repeat(&command).map(|answer| answer.map(|answer| answer.outcome.clone()));
    admin.context.replica.read(outcome).map_err(|refusal| error_texts::refused(&refusal))
}

fn read(request: &BackfillScheduleRequest, limits: &LedgerLimits) -> ApiResult<BackfillParameters> {
    let mut fields = Fields::default();
    let id = fields.request_id(&request.request_id);
    let mut instant = |field: &str, given: Option<prost_types::Timestamp>| match given {
        Some(given) => fields.instant(field, given),
        None => {
            fields.refuse(field, "is missing; give an instant");
            None
        }
    };
    let (from, to) = (instant("start_time", request.start_time), instant("end_time", request.end_time));
    if let (Some(from), Some(to)) = (from, to)
        && to < from
    {
        fields.refuse("end_time", format!("{to} is before {from}"));
    }
    let most = match request.max as usize {
        0 => limits.backfill_openings_max,
        most => most,
    };
    if most > limits.backfill_openings_max {
        fields.refuse("max", format!("is above {}; open the rest with another backfill", limits.backfill_openings_max));
    }
    let requested = BackfillScheduleRequest { request_id: String::new(), validate_only: false, ..request.clone() };
    let body_hash = Hash::of(&requested.encode_to_vec());
    fields.done(from.zip(to).map(|(from, to)| BackfillParameters { from, to, most, request: id, body_hash }))
}

/// Returns the occurrences that would open, and the response that describes them.
async fn find_openings(
    admin: &Admin,
    found: Found,
    requested: &BackfillParameters,
) -> ApiResult<(BackfillRange, BackfillScheduleResponse, Found)> {
    let (span, most) = ((requested.from, requested.to), requested.most);
    let computed = admin.blocking(move |node| {
        let schedule = &found.schedule;
        let (pattern, zone) = calendar_of(&schedule.timing, &node.zones)?;
        let calendar = Calendar { pattern: &pattern, zone: &zone };
        // The lock is taken for each name, so that entries do not wait for the whole calendar computation.
        let is_known = |name: &OccurrenceName| {
            let name = (found.id, name.clone());
            node.replica.read(|ledger| ledger.has_opened(&name))
        };
        let range = range(schedule, calendar, span, most, found.now, is_known);
        // The instants are checked in small batches, so that entries do not wait for a thousand of them.
        let (mut opens, mut inside) = (Vec::new(), Vec::new());
        let mut batch = node.replica.read(|ledger| ledger.backfill_batch(found.id));
        for some in range.openings.chunks(INSTANTS_AT_ONCE) {
            node.replica.read(|ledger| {
                let may_open = |opening: &&Opening| ledger.may_backfill(&mut batch, opening.due);
                let (open, closed): (Vec<&Opening>, Vec<&Opening>) = some.iter().partition(may_open);
                opens.extend(open);
                inside.extend(closed);
            });
        }
        let inside_gap = inside.len() as u32;
        let instant = |due: Time| views::instant_of(&pattern, &zone.rules, &schedule.settings.policies, due);
        let response = BackfillScheduleResponse {
            opened: opens.len() as u32,
            opened_before: range.known,
            first: opens.first().map(|opening| instant(opening.due)),
            last: opens.last().map(|opening| instant(opening.due)),
            rest_time: range.rest.map(timestamp),
            inside_gap,
            ..BackfillScheduleResponse::default()
        };
        Ok((range, response, found))
    });
    computed.await?
}

/// Builds the response from the ledger's outcome: some occurrences may have opened between the check and the entry.
async fn answered(admin: &Admin, found: Found, outcome: CommandOutcome) -> ApiResult<BackfillScheduleResponse> {
    let CommandOutcome::Backfilled { opened, first, last, known, rest, inside_gap } = outcome else {
        return Err(error_texts::broken(format!("a backfill was answered by {outcome:?}")));
    };
    let (first_due, last_due) = (due_of(admin, first).await?, due_of(admin, last).await?);
    let instants = admin.blocking(move |node| {
        let schedule = &found.schedule;
        let calendar = calendar_of(&schedule.timing, &node.zones).ok();
        let instant = |due: Option<Time>| {
            let ((pattern, zone), due) = calendar.as_ref().zip(due)?;
            Some(views::instant_of(pattern, &zone.rules, &schedule.settings.policies, due))
        };
        (instant(first_due), instant(last_due))
    });
    let (first_instant, last_instant) = instants.await?;
    let name = |run: Option<RunId>| run.map(|run| run.to_string()).unwrap_or_default();
    Ok(BackfillScheduleResponse {
        opened,
        opened_before: known,
        first: first_instant,
        last: last_instant,
        first_run: name(first),
        last_run: name(last),
        rest_time: rest.map(timestamp),
        inside_gap,
    })
}

/// Returns when a run was due. A repeated request may name archived runs.
async fn due_of(admin: &Admin, run: Option<RunId>) -> ApiResult<Option<Time>> {
    let Some(run) = run else { return Ok(None) };
    admin.read_run(run, |at| at.own.summary_of(run).map(|run| run.due)).await
}
