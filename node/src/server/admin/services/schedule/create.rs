//! Creates a schedule: validates it, compares it with an existing one, proposes it, and shows its instants.

use reveille_cluster::process::zones::Zones;
use reveille_ledger::command::{Command, ScheduleCreate};
use reveille_ledger::ids::{Hash, ScheduleId, Time};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{DEFAULT_TENANT, Ledger};
use reveille_proto::admin::v1::{self, CreateScheduleRequest, CreateScheduleResponse, Warning, WarningReason};
use tonic::Status;

use super::INSTANTS_SHOWN;
use super::notes::ScheduleNotes;
use crate::server::admin::attachments::BroughtFiles;
use crate::server::admin::validate::{self, CheckContext, CheckedSchedule, Fields};
use crate::server::admin::{Admin, ApiResult, Call, error_texts, views};

/// Creates a schedule.
pub async fn create(
    admin: &Admin,
    mut request: CreateScheduleRequest,
    call: &Call,
) -> ApiResult<CreateScheduleResponse> {
    let mut fields = Fields::default();
    let request_id = fields.request_id(&request.request_id);
    let files = files(admin, &mut fields, request.schedule.as_mut(), call).await?;
    fields.done(Some(()))?;
    let (known, of_campaign, now) = existing(admin, request.schedule.as_ref(), call).await?;
    let (body, exists) = (request.schedule, known.is_some());
    let requested = admin.blocking(move |node| validate::schedule(body, &CheckContext::of(node, now, exists)));
    let CheckedSchedule { mut create, content, duplicates } = requested.await??;
    if of_campaign && (request.validate_only || known.is_some()) {
        let taken = CommandRefusal::CampaignNameTaken(create.name);
        return Err(error_texts::refused(&taken));
    }
    create.request = request_id;
    if let Some((id, definition)) = known
        && definition != create.definition_hash()
    {
        // A repeat gets the first answer, whatever the schedule is by now.
        let command = Command::ScheduleCreate(Box::new(create.clone()));
        let refusal =
            match admin.context.replica.read(|ledger| ledger.check_repeat(&command).map(|first| first.is_some())) {
                Ok(true) => None,
                Ok(false) => Some(CommandRefusal::NameTaken(create.name.clone())),
                Err(reused) => Some(reused),
            };
        if let Some(refusal) = refusal {
            return Err(error_texts::refused(&refusal).index(id.index()));
        }
    }
    let warnings = warnings_of(admin, [&*create.pool], content.bulk);
    if request.validate_only {
        let schedule = match known {
            Some((id, _)) => admin.show_schedule(id, &create.name).await?,
            None => would_be(admin, &create, now).await?,
        };
        return Ok(CreateScheduleResponse { schedule: Some(schedule), created: false, duplicates, warnings });
    }
    admin.store_files(files, [&content]).await?;
    let name = create.name.clone();
    let reply = admin.write(Command::ScheduleCreate(Box::new(create)), call).await?;
    let CommandOutcome::Schedule(id) = reply.outcome else {
        return Err(error_texts::broken(format!("a creation was answered by {:?}", reply.outcome)));
    };
    let schedule = admin.show_schedule(id, &name).await?;
    Ok(CreateScheduleResponse { schedule: Some(schedule), created: !reply.is_repeat, duplicates, warnings })
}

/// Returns why every cluster would refuse this body. It needs no cluster.
pub fn validation_error(body: v1::ScheduleBody, now: Time, zones: &Zones) -> Option<Status> {
    validate::schedule(Some(body), &CheckContext::without_node(zones, now, false)).err().map(Status::from)
}

/// Returns warnings about what prevents the emails of a valid request from being sent.
pub fn warnings_of<'p>(admin: &Admin, pools: impl IntoIterator<Item = &'p str>, is_bulk: bool) -> Vec<Warning> {
    let mut warnings: Vec<Warning> =
        admin.context.replica.read(|ledger| pools.into_iter().flat_map(|pool| warnings(ledger, pool)).collect());
    warnings.extend(no_page(admin, is_bulk));
    warnings
}

/// Returns warnings about what prevents emails of a pool from being sent, although the request is valid.
pub fn warnings(ledger: &Ledger, pool: &str) -> Vec<Warning> {
    let no_relay = || Warning { reason: WarningReason::NoRelay.into(), pool: pool.to_owned(), ..Warning::default() };
    (!ledger.serves(pool)).then(no_relay).into_iter().collect()
}

/// Returns a warning if the emails are bulk email and this node cannot send it.
pub fn no_page(admin: &Admin, is_bulk: bool) -> Option<Warning> {
    let no_page = Warning { reason: WarningReason::NoUnsubscribe.into(), ..Warning::default() };
    (is_bulk && admin.context.unsubscribe.is_none()).then_some(no_page)
}

/// Takes the files out of a body.
pub async fn files(
    admin: &Admin,
    fields: &mut Fields,
    body: Option<&mut v1::ScheduleBody>,
    call: &Call,
) -> ApiResult<BroughtFiles> {
    let Some(body) = body else { return Ok(BroughtFiles::new()) };
    admin.catch_up_with_files(body.content.as_ref().filter(|_| !body.name.is_empty()), call).await?;
    Ok(caught_up_files(admin, fields, body))
}

/// As [`files`], after [`Admin::catch_up_with_files`].
pub fn caught_up_files(admin: &Admin, fields: &mut Fields, body: &mut v1::ScheduleBody) -> BroughtFiles {
    let (tenant, name) = tenant_and_name(body);
    let place = (tenant.to_owned(), name.to_owned());
    let Some(content) = &mut body.content else { return BroughtFiles::new() };
    admin.take_caught_up_files(fields, ("schedule.content", content), (&place.0, &place.1))
}

/// Returns the tenant and the name of a body.
pub fn tenant_and_name(body: &v1::ScheduleBody) -> (&str, &str) {
    let tenant = if body.tenant.is_empty() { DEFAULT_TENANT } else { &body.tenant };
    (tenant, &body.name)
}

/// Id and definition of a schedule.
type Known = Option<(ScheduleId, Hash)>;

/// Returns the existing schedule with that name, whether a campaign has the name, and the ledger time.
async fn existing(admin: &Admin, body: Option<&v1::ScheduleBody>, call: &Call) -> ApiResult<(Known, bool, Time)> {
    let (tenant, name) = body.map_or((DEFAULT_TENANT, ""), tenant_and_name);
    let query = admin.read_latest(call, |ledger| {
        let known = ledger.schedule_named(tenant, name).map(|(id, schedule)| (id, schedule.definition_hash()));
        (known, ledger.campaigns().contains(&(tenant.to_owned(), name.to_owned())), ledger.head().now)
    });
    let (known, of_campaign, now) = query.await?;
    Ok((known, of_campaign, admin.now(now)))
}

/// Returns the schedule in the form in which it would be created.
async fn would_be(admin: &Admin, create: &ScheduleCreate, now: Time) -> ApiResult<v1::Schedule> {
    let schedule = create.to_schedule((create.content.hash(), create.audience.hash()), 0, now);
    let id = ScheduleId::new(0, 0);
    let notes = ScheduleNotes::default();
    let at = notes.read_time(now);
    let shown = admin.blocking(move |node| views::schedule(id, &schedule, &node.zones, at, INSTANTS_SHOWN)).await?;
    Ok(v1::Schedule { etag: String::new(), ..notes.apply_to(shown) })
}
