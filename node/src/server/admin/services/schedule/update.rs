//! Updates a schedule: applies the fields of the mask, validates the result like a new schedule, and proposes the
//! difference as one edit.
//!
//! A request can be repeated with its id. If another client changed the schedule meanwhile, a request with an etag
//! fails; one without is applied on top. A fire does not count as such a change.

use std::sync::Arc;

use reveille_cluster::process::context::NodeContext;
use reveille_ledger::command::{Command, ExplainedRange, ScheduleCreate, ScheduleEdit, TimingChange};
use reveille_ledger::content::{AudienceChoice, Content, Recipients};
use reveille_ledger::etag::NO_ETAG;
use reveille_ledger::ids::{Hash, OccurrenceName, ScheduleId, Time};
use reveille_ledger::planning::catch_up::plan_last_fire_of_old_timing;
use reveille_ledger::planning::edit::{TimingEdit, plan_timing_change};
use reveille_ledger::planning::timing::Calendar;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{Schedule, ScheduleState};
use reveille_proto::admin::v1::{self, ErrorReason, UpdateScheduleRequest, UpdateScheduleResponse};

use super::create::{files, warnings_of};
use super::notes::ScheduleNotes;
use super::{INSTANTS_SHOWN, calendar_of};
use crate::server::admin::attachments::BroughtFiles;
use crate::server::admin::field_mask::Mask;
use crate::server::admin::lookup::schedule_named;
use crate::server::admin::validate::{self, CheckContext, CheckedSchedule, Fields, tenant};
use crate::server::admin::writes::WriteError;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, views};

/// Bound on the difference of the voters' clocks (P18), in milliseconds. This node's time minus it is hardly in the
/// leader's future. Ledger time may be further behind for hours, because it follows a clock change at the rate of a
/// thousandth.
const CLOCKS_MS: i64 = 2_000;
/// Maximum number of attempts, if the plan changes during the update. Of several concurrent updates one succeeds in each
/// round; the others try again.
const TRIES: usize = 32;

/// The time up to which the old timing applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// About now. For example, an instant of the new timing that has passed today first opens tomorrow.
    Now,
    /// The last applied ledger time, for when ledger time differs from this node's clock.
    Applied,
}

/// A checked request.
struct Edit {
    requested: v1::ScheduleBody,
    mask: Mask,
    /// Hash of the fields that the mask names, by which a repeated request is recognized.
    body_hash: Hash,
    request_id: Option<String>,
    /// True if it says all of the schedule. Then an etag counts only if something changes, so that a repeat is answered
    /// like the first request, which has made the etag another one.
    is_put: bool,
}

impl Edit {
    /// Returns the edit of this request, without a change.
    fn of_nothing(&self, id: ScheduleId, schedule: &Schedule) -> ScheduleEdit {
        ScheduleEdit {
            request: self.request_id.clone(),
            body_hash: self.body_hash,
            schedule: id,
            plan_version: schedule.plan.version,
            timing: None,
            policies: None,
            pool: None,
            priority: None,
            content: None,
            audience: None,
            labels: None,
        }
    }
}

/// A schedule with everything that an edit of it needs.
struct Present {
    id: ScheduleId,
    schedule: Schedule,
    content: Content,
    audience: AudienceChoice,
    /// True if the request was answered before.
    is_repeat: bool,
    notes: ScheduleNotes,
    /// Ledger time: that of the last applied entry, and `now` by this node's clock.
    applied: Time,
    now: Time,
}

/// An edit that can be proposed.
struct Planned {
    edit: ScheduleEdit,
    /// The content and audience after the edit.
    content: Content,
    audience: AudienceChoice,
    duplicates: Vec<v1::Duplicate>,
}

/// Updates a schedule.
pub async fn update(admin: &Admin, request: UpdateScheduleRequest, call: &Call) -> ApiResult<UpdateScheduleResponse> {
    change(admin, request, false, call).await
}

/// Makes a schedule equal to the body of the request.
pub async fn put(admin: &Admin, request: UpdateScheduleRequest, call: &Call) -> ApiResult<UpdateScheduleResponse> {
    let update_mask = Some(Mask::of_all());
    change(admin, UpdateScheduleRequest { update_mask, ..request }, true, call).await
}

async fn change(
    admin: &Admin,
    mut request: UpdateScheduleRequest,
    is_put: bool,
    call: &Call,
) -> ApiResult<UpdateScheduleResponse> {
    let mut fields = Fields::default();
    let request_id = fields.request_id(&request.request_id);
    let mask = Mask::read(&mut fields, request.update_mask.take());
    let mut requested = request.schedule.take();
    if requested.is_none() {
        fields.refuse("schedule", "is missing; it names the schedule that is to change");
    }
    let files = files(admin, &mut fields, requested.as_mut(), call).await?;
    let (mask, requested) = fields.done(requested.map(|requested| (mask, requested)))?;
    let edit = Arc::new(Edit { body_hash: mask.hash(&requested), requested, mask, request_id, is_put });
    let mut files = Some(files);
    let (mut until, mut tries) = (Until::Now, 0);
    loop {
        tries += 1;
        match attempt(admin, &request, &edit, &mut files, until, call).await {
            Err(WriteError::Refused(refusal)) if tries < TRIES && is_overtaken(&refusal) => match refusal {
                CommandRefusal::NotDue(_) => until = Until::Applied,
                refusal => tracing::debug!(%refusal, "an edit is planned anew"),
            },
            done => {
                return done.map_err(|error| error.worded(|why| error_texts::refused_of(&edit.requested.name, why)));
            }
        }
    }
}

/// Returns true if the plan or the ledger time differed from what this node knew. Then it plans again.
fn is_overtaken(refusal: &CommandRefusal) -> bool {
    matches!(refusal, CommandRefusal::StalePlan | CommandRefusal::FiredThrough | CommandRefusal::NotDue(_))
}

async fn attempt(
    admin: &Admin,
    request: &UpdateScheduleRequest,
    edit: &Arc<Edit>,
    files: &mut Option<BroughtFiles>,
    until: Until,
    call: &Call,
) -> Result<UpdateScheduleResponse, WriteError> {
    let present = present(admin, edit, call).await?;
    let (id, now, notes, name) = (present.id, present.now, present.notes, &edit.requested.name);
    admin.not_of_a_campaign(id)?;
    if present.is_repeat {
        let shown = admin.show_schedule(id, name).await?;
        let former = Some(shown.clone());
        let warnings = warnings_of(admin, [&*present.schedule.settings.pool], present.content.bulk);
        return Ok(UpdateScheduleResponse {
            schedule: Some(shown),
            former,
            warnings,
            ..UpdateScheduleResponse::default()
        });
    }
    let stale = stale(&request.etag, &present);
    if let Some(stale) = stale.clone().filter(|_| !edit.is_put) {
        return Err(stale.into());
    }
    let former = present.schedule.clone();
    let former_body = request.with_bodies.then(|| views::body(&former, &present.content, &present.audience));
    let Planned { edit, content, audience, duplicates } = plan(admin, present, until, Arc::clone(edit)).await?;
    let due = edit.timing.iter().flat_map(|timing| &timing.due);
    let opens_count = due.clone().map(|fire| fire.opened.len() as u32).sum();
    let explained = edit.timing.iter().flat_map(|timing| &timing.explained).chain(due.flat_map(|fire| &fire.explained));
    let explained_count = explained.map(ExplainedRange::count).fold(0, u32::saturating_add);
    let mut would_be = former.clone();
    would_be.take(&edit, former.index);
    let body = request.with_bodies.then(|| views::body(&would_be, &content, &audience));
    let warnings = warnings_of(admin, [&*would_be.settings.pool], content.bulk);
    let changes = edit.changes_something();
    if let Some(stale) = stale.filter(|_| changes) {
        return Err(stale.into());
    }
    let at = notes.read_time(now);
    let shown = admin.blocking(move |node| {
        let show = |schedule: &Schedule| notes.apply_to(views::schedule(id, schedule, &node.zones, at, INSTANTS_SHOWN));
        (show(&former), v1::Schedule { etag: String::new(), ..show(&would_be) })
    });
    let (former, would_be) = shown.await?;
    let schedule = match (changes, request.validate_only) {
        (false, _) => former.clone(),
        (true, true) => {
            let tenant = &would_be.tenant;
            let may_use = |pool: &String| admin.context.replica.read(|ledger| ledger.tenant(tenant).may_use(pool));
            if let Some(pool) = edit.pool.as_ref().filter(|pool| !may_use(pool)) {
                return Err(ApiError::of_field("schedule.pool", validate::no_relay_of(pool)).into());
            }
            would_be
        }
        (true, false) => {
            if edit.content.is_some() {
                admin.store_files(files.take().unwrap_or_default(), [&content]).await?;
            }
            let command = Command::ScheduleEdit(Box::new(edit));
            let outcome = admin.try_write(command, call).await?.outcome;
            let CommandOutcome::Schedule(id) = outcome else {
                return Err(error_texts::broken(format!("an edit was answered by {outcome:?}")).into());
            };
            admin.show_schedule(id, name).await?
        }
    };
    Ok(UpdateScheduleResponse {
        schedule: Some(schedule),
        former: Some(former),
        duplicates,
        opens_count,
        explained_count,
        body,
        former_body,
        warnings,
    })
}

/// Returns the error if the request names another etag than the schedule has.
fn stale(given: &str, Present { id, schedule, .. }: &Present) -> Option<ApiError> {
    let (etag, name) = (views::etag(*id, schedule), &schedule.name);
    let message = match given {
        given if !views::is_other_etag(given, &etag) => return None,
        NO_ETAG => format!("schedule '{name}' exists already"),
        given => {
            let changed = format!("last changed at log index {}", schedule.index);
            format!("schedule '{name}' was changed since you read it: its etag is {etag}, {changed}, not {given}")
        }
    };
    Some(error_texts::stale_etag(name, message))
}

/// Returns a copy of the schedule. A request id that was used for another change is refused.
async fn present(admin: &Admin, edit: &Edit, call: &Call) -> ApiResult<Present> {
    let (tenant, name) = (tenant(&edit.requested.tenant)?, &edit.requested.name);
    let query = admin.try_read(false, call, |ledger| {
        let (id, schedule) = schedule_named(ledger, &tenant, name)?;
        let bytes = |hash| ledger.blob(hash).map(<[u8]>::to_vec).unwrap_or_default();
        let blobs = (bytes(&schedule.content), bytes(&schedule.audience));
        let answer = ledger.check_repeat(&Command::ScheduleEdit(Box::new(edit.of_nothing(id, schedule))));
        let is_repeat = answer.map_err(|refusal| error_texts::refused(&refusal))?.is_some();
        Ok((id, schedule.clone(), blobs, (is_repeat, ScheduleNotes::of(ledger, id)), ledger.head().now))
    });
    let (id, schedule, (content, audience), (is_repeat, notes), applied) = query.await?.0;
    let unreadable = || error_texts::broken(format!("the content or the audience of {name} does not read back"));
    Ok(Present {
        content: Content::from_blob(&content).ok_or_else(unreadable)?,
        audience: Recipients::from_blob(&audience).ok_or_else(unreadable)?.into_choice(schedule.audience),
        now: admin.now(applied),
        id,
        schedule,
        is_repeat,
        notes,
        applied,
    })
}

/// Applies the change to the present schedule, and returns the edit to propose.
async fn plan(admin: &Admin, present: Present, until: Until, requested: Arc<Edit>) -> ApiResult<Planned> {
    let planned = admin.blocking(move |node| {
        let mask = &requested.mask;
        let mut wanted = views::body(&present.schedule, &present.content, &present.audience);
        // Whether the schedule is paused is not part of an update.
        wanted.paused = None;
        mask.check_timing(&wanted)?;
        mask.lay_over(&mut wanted, requested.requested.clone());
        replace_other_content(&mut wanted, mask, &present)?;
        let context = CheckContext::of(node, present.now, true);
        let CheckedSchedule { create, content, duplicates } = validate::schedule(Some(wanted), &context)?;
        let mut edit = difference(&present, &requested, &create);
        if moves_instants(&present.schedule, &create) {
            let through = match until {
                Until::Now => present.now.plus_ms(-CLOCKS_MS).max(present.applied),
                Until::Applied => present.applied,
            };
            edit.timing = Some(retimed(node, &present, &create, through)?);
        }
        Ok(Planned { edit, content, audience: create.audience, duplicates })
    });
    planned.await?
}

/// A schedule has a content of its own or a template: what the mask names replaces the other one.
///
/// # Errors
/// If the mask names a part of the content, which is that of a template.
fn replace_other_content(wanted: &mut v1::ScheduleBody, mask: &Mask, present: &Present) -> ApiResult<()> {
    match (mask.names("content"), mask.names("template"), &present.schedule.settings.template) {
        (false, true, Some(_)) if wanted.template.is_empty() => wanted.content = Some(views::mail(&present.content)),
        (false, true, _) if !wanted.template.is_empty() => wanted.content = None,
        (true, false, Some(_)) if mask.names_whole("content") => wanted.template.clear(),
        (true, false, Some(template)) => {
            let message = format!("is that of template '{template}'; name another template, or give the whole content");
            return Err(ApiError::of_field("schedule.content", message));
        }
        _ => {}
    }
    Ok(())
}

/// Returns true if the calendar gives other instants.
fn moves_instants(schedule: &Schedule, wanted: &ScheduleCreate) -> bool {
    *schedule.timing != wanted.timing
        || schedule.settings.policies.dst != wanted.policies.dst
        || schedule.settings.policies.jitter_ms != wanted.policies.jitter_ms
}

/// Returns the edit for all fields that the mask names and that differ, except for the timing.
fn difference(present: &Present, requested: &Edit, wanted: &ScheduleCreate) -> ScheduleEdit {
    let (schedule, mask) = (&present.schedule, &requested.mask);
    let policies = mask.names("policies") && *schedule.settings.policies != wanted.policies;
    let names_content = mask.names("content") || mask.names("template");
    let former = (schedule.content, schedule.settings.template.clone());
    let content = names_content && former != (wanted.content.hash(), wanted.content.template());
    let audience = mask.names("audience") && present.audience != wanted.audience;
    ScheduleEdit {
        policies: policies.then(|| wanted.policies.clone()),
        pool: (*schedule.settings.pool != *wanted.pool).then(|| wanted.pool.clone()),
        priority: (schedule.settings.priority != wanted.priority).then_some(wanted.priority),
        content: content.then(|| wanted.content.clone()),
        audience: audience.then(|| wanted.audience.clone()),
        labels: (schedule.labels != wanted.labels).then(|| wanted.labels.clone()),
        ..requested.of_nothing(present.id, schedule)
    }
}

/// Returns the timing after the edit, from `through` on. It must have a future instant.
fn retimed(node: &NodeContext, present: &Present, create: &ScheduleCreate, through: Time) -> ApiResult<TimingChange> {
    let schedule = &present.schedule;
    let (pattern, zone) = calendar_of(&create.timing, &node.zones)?;
    let former = calendar_of(&schedule.timing, &node.zones).ok();
    let former = former.as_ref().map(|(pattern, zone)| Calendar { pattern, zone });
    let active = former.filter(|_| schedule.state == ScheduleState::Active);
    let due = active.and_then(|old| {
        node.replica.read(|ledger| plan_last_fire_of_old_timing(ledger, present.id, old.pattern, old.zone, through))
    });
    // The lock is taken for each name, so that entries do not wait for the whole calendar computation.
    let has_opened = |name: &OccurrenceName| {
        let name = (present.id, name.clone());
        node.replica.read(|ledger| ledger.has_opened(&name))
    };
    let waits = node.replica.read(|ledger| ledger.waits_at(present.id, through));
    let calendar = Calendar { pattern: &pattern, zone: &zone };
    let timing = create.timing.clone();
    let edit = TimingEdit { schedule, due, former, timing, policies: &create.policies, calendar, through, waits };
    let retiming = plan_timing_change(edit, has_opened);
    let retiming = retiming.map_err(|wait| error_texts::changed_meanwhile(wait.to_string()))?;
    match (&retiming.next, create.timing.max_runs) {
        (Some(_), _) => Ok(retiming),
        (None, Some(most)) if schedule.plan.opened >= most => {
            let opened = schedule.plan.opened;
            Err(ApiError::of_field("schedule.max_runs", format!("is {most}, but {opened} have opened; give more")))
        }
        (None, _) => {
            let mut fields = Fields::default();
            let message = format!("has no instant after now, {}; give one to come, or a later end", present.now);
            fields.refuse_as(ErrorReason::NeverFires, "schedule.timing", message);
            fields.done(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::impossible::Impossible;

    use super::*;

    #[test]
    fn overtaken_plan_is_made_anew_and_wrong_one_is_refused() {
        for overtaken in [CommandRefusal::StalePlan, CommandRefusal::FiredThrough, CommandRefusal::NotDue(Time(0))] {
            assert!(is_overtaken(&overtaken), "{overtaken}");
        }
        for wrong in [CommandRefusal::ClocksDisagree, Impossible::NoRecipients.into()] {
            assert!(!is_overtaken(&wrong), "{wrong}");
        }
    }
}
