//! Owners change what is due much later: spare schedules, of which nothing but their names and instants matters. They are
//! edited by etag, by clients with one request id and with another, deleted, and made again.

use anyhow::Result;
use reveille_check::history::{Answer, Noun, Operation};

use super::operator::{Operator, word};
use super::recorder::Recorder;
use super::workload::{Item, TENANT, Workload, bell};
use crate::admin::Admin;
use crate::orders::Came;

/// So few that they are written often.
const SPARES: usize = 3;
const SPARE_RECIPIENTS: u32 = 2;
/// Edits of one order, each to an instant of its own.
const EDITS: u64 = 4;

/// Creates them.
pub async fn create_spares(workload: &Workload, admin: &Admin, recorder: &Recorder) -> Result<()> {
    for number in 0..SPARES {
        workload.insist(admin, recorder, number, &spare(spare_name(number), 0)).await?;
    }
    Ok(())
}

/// The name of one of them, by a number of any size.
pub fn spare_name(number: usize) -> String {
    format!("spare-{}", number % SPARES)
}

/// As this edit leaves it: due long after every run is over.
fn spare(name: String, edit: u64) -> Item {
    Item::once(name, bell().due_ms + 1_000 * edit, SPARE_RECIPIENTS)
}

impl Operator {
    /// Three clients read one etag; two of them ask for one change under one request id, the third for another change.
    /// What somebody has deleted is made again.
    pub(super) async fn update(&self) -> (bool, String) {
        let name = spare_name(self.number);
        self.desk.writes(TENANT, Noun::Schedule, &name);
        let edit = |which: u64| spare(name.clone(), EDITS * (self.number as u64 + 1) + which);
        let [same, other] = ["same", "other"].map(|which| format!("edit-{}-{which}", self.number));
        match self.admin.schedule(&name).await {
            None => (false, format!("{name}: nobody tells of it")),
            Some(None) => {
                let came = self.workload.ask(&self.admin, &self.recorder, "first", &same, &edit(0)).await;
                (matches!(came, Came::Done(_)), format!("{name} is made again: {}", word(&came)))
            }
            Some(Some(found)) => {
                let (one, two) = (edit(0), edit(1));
                let (first, second, third) = tokio::join!(
                    self.edit_as((0, "first"), &same, &found.etag, &one),
                    self.edit_as((1, "second"), &same, &found.etag, &one),
                    self.edit_as((2, "third"), &other, &found.etag, &two)
                );
                let said_yes = [&first, &second, &third].into_iter().any(|came| matches!(came, Came::Done(())));
                (said_yes, format!("{name}: {}, {}, {}", word(&first), word(&second), word(&third)))
            }
        }
    }

    async fn edit_as(&self, (node, client): (usize, &str), id: &str, etag: &str, item: &Item) -> Came<()> {
        let admin = self.admin.another(self.number + node).unwrap_or_else(|_| self.admin.clone());
        let invoked = self.recorder.now_ns();
        let came = match admin.retime(id, etag, &self.workload.body(item)).await {
            // It may have been deleted after it was edited, before the answer was worded.
            Came::Refused(reason) if reason.starts_with("NotFound") => Came::Unknown,
            came => came,
        };
        let operation = write(&item.name, Some(item.value()));
        self.record_as(client, Some(id.to_owned()), invoked, operation, came.clone().answer(|()| Answer::at(None)));
        came
    }

    /// Deletes one of them.
    pub(super) async fn delete(&self) -> (bool, String) {
        let name = spare_name(self.number);
        self.desk.writes(TENANT, Noun::Schedule, &name);
        let invoked = self.recorder.now_ns();
        let came = self.admin.delete_schedule(&name).await;
        let words = format!("delete {name}: {}", word(&came));
        let answer = came.clone().answer(|index| Answer::at(Some(index)));
        self.record(None, invoked, write(&name, None), answer);
        (matches!(came, Came::Done(_)), words)
    }
}

fn write(name: &str, value: Option<String>) -> Operation {
    Operation::Write { noun: Noun::Schedule, tenant: TENANT.to_owned(), name: name.to_owned(), value }
}
