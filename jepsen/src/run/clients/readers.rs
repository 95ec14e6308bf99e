//! Readers. Each asks one node at a time for objects that are being written, for objects that no client writes, and for
//! opt-outs. The answers are judged (I7): no read is older than a write that was answered before the read began, and no
//! read goes back.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reveille_check::events::{Answer, OPTED_OUT, ObjectKind, Operation};
use reveille_harness::AdminClient;
use tokio::task::JoinSet;

use super::coordination::{Coordination, Object};
use super::edits::spare_name;
use super::operator::Operator;
use crate::run::observe::Recorder;
use crate::run::workload::{TENANT, Workload, value_of};

const READERS: u64 = 2;
/// Pause between two reads of one reader.
const PAUSE: Duration = Duration::from_millis(300);

struct Reader {
    name: String,
    admin: AdminClient,
    recorder: Recorder,
    workload: Workload,
    coordination: Coordination,
    random: StdRng,
}

/// Starts the readers. They share their state with the operators of this template.
pub fn start(operator: &Operator, seed: u64, readers: &mut JoinSet<()>) {
    let Operator { admin, recorder, workload, coordination, .. } = operator;
    for number in 0..READERS {
        let reader = Reader {
            name: format!("reader-{number}"),
            admin: admin.clone(),
            recorder: recorder.clone(),
            workload: workload.clone(),
            coordination: coordination.clone(),
            random: StdRng::seed_from_u64(seed ^ (number + 1).wrapping_mul(0x0005_DEEC_E66D)),
        };
        readers.spawn(reader.read_on());
    }
}

impl Reader {
    async fn read_on(mut self) {
        loop {
            if let Some(object) = self.choose() {
                self.read(object).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Chooses an object, in most cases one that is being written.
    fn choose(&mut self) -> Option<Object> {
        let written = self.coordination.written();
        match self.random.random_range(0..8) {
            0..5 if !written.is_empty() => written.choose(&mut self.random).cloned(),
            5 => Some((TENANT, ObjectKind::Schedule, spare_name(self.random.random_range(0..64)))),
            _ => {
                let items = self.workload.items();
                items.choose(&mut self.random).map(|item| (item.tenant(), item.object_kind(), item.name.clone()))
            }
        }
    }

    async fn read(&mut self, (tenant, kind, name): Object) {
        let admin = self.admin.of_tenant(tenant);
        let node = self.random.random_range(0..64);
        let invoked_ns = self.recorder.now_ns();
        let seen = match kind {
            ObjectKind::Schedule => admin.schedule_by(node, &name).await.map(|found| found.as_ref().map(value_of)),
            ObjectKind::OptOut => {
                let is_out = admin.is_opted_out_by(node, &name).await;
                is_out.map(|is_out| is_out.then(|| OPTED_OUT.to_owned()))
            }
            ObjectKind::Campaign | ObjectKind::Audience | ObjectKind::TemplateVersion | ObjectKind::Person => return,
        };
        let answer = seen.map_or(Answer::Unknown, |value| Answer::Found { value });
        let operation = Operation::Read { kind, tenant: tenant.to_owned(), name };
        self.recorder.call((self.name.clone(), None), invoked_ns, operation, answer);
    }
}
