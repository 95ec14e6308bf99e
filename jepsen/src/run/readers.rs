//! Users who look at things all the while, at any node: at what is being written just then, at what nobody touches, at who
//! has opted out. What they are told is judged (I7): no read is older than a write that was answered before it began, and
//! none goes back.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reveille_check::history::{Answer, Call, Event, Noun, OPTED_OUT, Operation};
use reveille_proto::admin::v1::{Schedule, when};
use tokio::task::JoinSet;

use super::desk::{Desk, Object};
use super::edits::spare_name;
use super::recorder::Recorder;
use super::workload::{TENANT, Workload, value};
use crate::admin::Admin;

const READERS: u64 = 2;
/// From an answer to the next question of the same reader.
const PAUSE: Duration = Duration::from_millis(300);

/// Somebody who looks.
struct Reader {
    name: String,
    admin: Admin,
    recorder: Recorder,
    workload: Workload,
    desk: Desk,
    dice: StdRng,
}

/// They look until this is dropped or ended.
pub fn start(admin: &Admin, recorder: &Recorder, workload: &Workload, desk: &Desk, seed: u64) -> JoinSet<()> {
    let mut readers = JoinSet::new();
    for number in 0..READERS {
        let reader = Reader {
            name: format!("reader-{number}"),
            admin: admin.clone(),
            recorder: recorder.clone(),
            workload: workload.clone(),
            desk: desk.clone(),
            dice: StdRng::seed_from_u64(seed ^ (number + 1).wrapping_mul(0x0005_DEEC_E66D)),
        };
        readers.spawn(reader.look());
    }
    readers
}

impl Reader {
    async fn look(mut self) {
        loop {
            if let Some(object) = self.choose() {
                self.read(object).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Mostly what is being written.
    fn choose(&mut self) -> Option<Object> {
        let written = self.desk.written();
        match self.dice.random_range(0..8) {
            0..5 if !written.is_empty() => written.choose(&mut self.dice).cloned(),
            5 => Some((TENANT, Noun::Schedule, spare_name(self.dice.random_range(0..64)))),
            _ => {
                let items = self.workload.items();
                items.choose(&mut self.dice).map(|item| (item.tenant(), item.noun(), item.name.clone()))
            }
        }
    }

    async fn read(&mut self, (tenant, noun, name): Object) {
        let admin = self.admin.of_tenant(tenant);
        let node = self.dice.random_range(0..64);
        let invoked_ns = self.recorder.now_ns();
        let seen = match noun {
            Noun::Schedule => admin.schedule_by(node, &name).await.map(|found| found.as_ref().map(shown)),
            Noun::OptOut => {
                let is_out = admin.is_opted_out_by(node, &name).await;
                is_out.map(|is_out| is_out.then(|| OPTED_OUT.to_owned()))
            }
            Noun::Campaign | Noun::Tenant | Noun::Relay | Noun::Audience => return,
        };
        let answered_ns = seen.as_ref().map(|_| self.recorder.now_ns());
        let answer = seen.map_or(Answer::Unknown, |value| Answer::Found { value });
        self.recorder.event(&Event::Call(Call {
            client: self.name.clone(),
            request_id: None,
            invoked_ns,
            answered_ns,
            operation: Operation::Read { noun, tenant: tenant.to_owned(), name },
            answer,
        }));
    }
}

/// A schedule's contents in a form that can be compared with what was written.
pub fn shown(schedule: &Schedule) -> String {
    let due_ms = match schedule.when.as_ref().and_then(|when| when.pattern.as_ref()) {
        Some(when::Pattern::At(at)) => at.seconds * 1_000 + i64::from(at.nanos) / 1_000_000,
        _ => 0,
    };
    value(due_ms as u64, schedule.recipients)
}
