//! Changes of spare schedules by operators. Spare schedules are due long after every run. Clients with the same and
//! with another request id edit by etag. Schedules are also deleted, and created again.

use anyhow::Result;
use reveille_check::events::{Answer, ObjectKind, Operation};
use reveille_harness::CallResult;

use super::operator::{Operator, at};
use crate::run::workload::{TENANT, WorkloadItem};

/// Number of spare schedules. Few, so that each is written often.
const SPARES: usize = 3;
const SPARE_RECIPIENTS: u32 = 2;
/// Number of edits of one operator, each to another instant.
const EDITS: u64 = 4;

/// Creates the spare schedules.
pub async fn create_spares(operator: &Operator) -> Result<()> {
    for number in 0..SPARES {
        operator.workload.insist(&operator.admin, number, &spare(spare_name(number), 0)).await?;
    }
    Ok(())
}

/// Returns the name of a spare schedule, by any number.
pub fn spare_name(number: usize) -> String {
    format!("spare-{}", number % SPARES)
}

/// Returns a spare schedule after this edit.
fn spare(name: String, edit: u64) -> WorkloadItem {
    WorkloadItem::once(name, WorkloadItem::triggered().due_ms + 1_000 * edit, SPARE_RECIPIENTS)
}

impl Operator {
    /// Lets three clients read one etag. Two of them request one change under one request id, and the third requests
    /// another change. A deleted schedule is created again.
    pub(super) async fn update(&self) -> bool {
        let name = spare_name(self.number);
        self.coordination.writes(TENANT, ObjectKind::Schedule, &name);
        let edit = |which: u64| spare(name.clone(), EDITS * (self.number as u64 + 1) + which);
        let [same, other] = ["same", "other"].map(|which| format!("edit-{}-{which}", self.number));
        match self.admin.schedule(&name).await {
            None => false,
            Some(None) => self.workload.ask(&self.admin, "first", &same, &edit(0)).await.is_done(),
            Some(Some(found)) => {
                let (one, two) = (edit(0), edit(1));
                let (first, second, third) = tokio::join!(
                    self.edit_as((0, "first"), &same, &found.etag, &one),
                    self.edit_as((1, "second"), &same, &found.etag, &one),
                    self.edit_as((2, "third"), &other, &found.etag, &two)
                );
                [first, second, third].iter().any(CallResult::is_done)
            }
        }
    }

    async fn edit_as(&self, (node, client): (usize, &str), id: &str, etag: &str, item: &WorkloadItem) -> CallResult {
        let admin = self.admin.another(self.number + node).unwrap_or_else(|_| self.admin.clone());
        let call = async {
            match admin.retime(id, etag, &self.workload.body(item)).await {
                // The schedule may have been deleted after the edit, before the answer was read.
                CallResult::Refused(reason) if reason.starts_with("NotFound") => CallResult::Unknown,
                result => result,
            }
        };
        let operation = write(&item.name, Some(item.value()));
        self.call((client, Some(id)), operation, call, |()| Answer::at(None)).await
    }

    /// Deletes a spare schedule.
    pub(super) async fn delete(&self) -> bool {
        let name = spare_name(self.number);
        self.coordination.writes(TENANT, ObjectKind::Schedule, &name);
        self.call(("operator", None), write(&name, None), self.admin.delete_schedule(&name), at).await.is_done()
    }
}

fn write(name: &str, value: Option<String>) -> Operation {
    Operation::Write { kind: ObjectKind::Schedule, tenant: TENANT.to_owned(), name: name.to_owned(), value }
}
