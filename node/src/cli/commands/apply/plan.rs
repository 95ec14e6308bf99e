//! Asks the cluster what a document would change, and makes the change.

use reveille_ledger::ids::Hash;
use reveille_proto::admin::v1::{ScheduleBody, ScheduleState, UpdateScheduleRequest};

use super::ApplyOutcome;
use super::objects::{self, Call, message, whole};
use crate::cli::commands::{CommandContext, Exit, Failure, Kind, format};
use crate::cli::manifest::difference::{Change, between};
use crate::cli::manifest::document::Document;
use crate::cli::manifest::tree::{Node, Shape};
use crate::cli::manifest::write;

/// Keys that a pool keeps if its document does not have them.
const KEPT_BY_POOLS: [&str; 2] = ["warmUp", "firstDay"];

/// The change that applying one document would make.
pub struct Plan {
    step: Step,
    /// The spec that would make the object as it is; `None` if there is none.
    pub former: Option<Node>,
    /// The fields that differ.
    pub changes: Vec<Change>,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

enum Step {
    Nothing,
    Create,
    /// Update of an object with this etag, which is empty for a campaign.
    Update(String),
}

impl Plan {
    fn creation(notes: Vec<String>) -> Plan {
        Plan { step: Step::Create, former: None, changes: Vec::new(), notes }
    }

    fn change(former: Node, etag: String, changes: Vec<Change>, notes: Vec<String>) -> Plan {
        let step = if changes.is_empty() { Step::Nothing } else { Step::Update(etag) };
        Plan { step, former: Some(former), changes, notes }
    }

    /// Returns the document's outcome: done if `created` is set, otherwise intended.
    pub fn outcome(&self, created: bool) -> ApplyOutcome {
        match (&self.step, created) {
            (Step::Nothing, _) => ApplyOutcome::Unchanged,
            (Step::Create, true) => ApplyOutcome::Created,
            (Step::Create, false) => ApplyOutcome::WouldCreate,
            (Step::Update(_), true) => ApplyOutcome::Updated,
            (Step::Update(_), false) => ApplyOutcome::WouldUpdate,
        }
    }
}

/// Returns what applying the document would change.
pub async fn plan(context: &CommandContext<'_>, document: &Document) -> Result<Plan, Failure> {
    if document.kind == Kind::Schedule {
        match plan_update(context, document).await {
            Ok(plan) => return Ok(plan),
            Err(failure) if failure.exit == Exit::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    let check = Call { validate_only: true, etag: None, request_id: String::new() };
    let (mut wanted, mut notes) = objects::put(context, document, check).await?;
    if document.kind == Kind::Schedule {
        return Ok(Plan::creation(notes));
    }
    let tenant = document.tenant.as_deref().unwrap_or_default();
    let former = match objects::get(context, document.kind, tenant, &document.name).await {
        Ok(former) => former,
        Err(failure) if failure.exit == Exit::NotFound => return Ok(Plan::creation(notes)),
        Err(failure) => return Err(failure),
    };
    notes.extend(former.note);
    let changes = match document.kind {
        // A campaign is frozen: the cluster has refused one that differs.
        Kind::Campaign => Vec::new(),
        Kind::Pool => {
            keep(&mut wanted, &former.spec);
            between(&former.spec, &wanted)
        }
        _ => between(&former.spec, &wanted),
    };
    Ok(Plan::change(former.spec, former.etag, changes, notes))
}

/// Adds what a pool keeps.
fn keep(wanted: &mut Node, former: &Node) {
    let (Shape::Map(wanted), Shape::Map(former)) = (&mut wanted.shape, &former.shape) else { return };
    let kept = former.iter().filter(|(key, _)| KEPT_BY_POOLS.contains(&key.as_str()));
    let missing = kept.filter(|(key, _)| wanted.iter().all(|(known, _)| known != key)).cloned().collect::<Vec<_>>();
    wanted.extend(missing);
}

/// Makes the planned change.
pub async fn make(context: &CommandContext<'_>, document: &Document, plan: &Plan) -> Result<(), Failure> {
    let etag = match &plan.step {
        Step::Nothing => return Ok(()),
        Step::Create => None,
        Step::Update(etag) => Some(etag.clone()),
    };
    let request_id = request_id(context, document, etag.is_some());
    objects::put(context, document, Call { validate_only: false, etag, request_id }).await.map(|_| ())
}

/// Derives the request id from the command's id and the document. The same `--request-id` then never makes a change
/// twice.
fn request_id(context: &CommandContext<'_>, document: &Document, is_update: bool) -> String {
    let verb = if is_update { "update" } else { "create" };
    let spec = write::json(&document.kind.spec(&document.spec));
    let named = [context.client.request_id(), document.kind.word(), verb, &spec].join("\0");
    format!("apply-{}", Hash::of(named.as_bytes()))
}

/// Compares a body with the schedule of its name, paused or not.
async fn plan_update(context: &CommandContext<'_>, document: &Document) -> Result<Plan, Failure> {
    let request =
        UpdateScheduleRequest { validate_only: true, with_bodies: true, ..whole(message::<ScheduleBody>(document)?) };
    let answer = context.read(request).await?;
    let spec = |body: Option<ScheduleBody>| Kind::Schedule.spec(&body.unwrap_or_default());
    let (former, wanted) = (spec(answer.former_body), spec(answer.body));
    let was = answer.former.unwrap_or_default();
    let mut notes = objects::notes(&answer.duplicates, &answer.warnings);
    let count = |number: u32| format::counted(number.into(), "instant");
    if answer.opens_count > 0 {
        notes.push(format!("{} of the former timing, due by now, still opens as it was", count(answer.opens_count)));
    }
    if answer.explained_count > 0 {
        notes.push(format!("{} of the former timing will not open: see the history", count(answer.explained_count)));
    }
    match (document.spec.has_field_by_name("paused"), was.state()) {
        (true, ScheduleState::Active) => {
            notes.push(format!("it is active and stays so: reveille schedule pause {}", document.name));
        }
        (false, ScheduleState::Paused) => {
            notes.push(format!("it is paused and stays so: reveille schedule resume {}", document.name));
        }
        _ => {}
    }
    let changes = between(&former, &wanted);
    Ok(Plan::change(former, was.etag, changes, notes))
}
