//! What a barrier proved, beside the object that it was for.

use reveille_proto::admin::v1;
use serde::Serialize;

/// After this index nothing forbidden passes a gate; what may still arrive is named (P15).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BarrierView {
    /// Log index of the entry that forbids.
    pub index: u64,
    /// Hand-offs that were past the gate.
    pub crossed: Vec<CrossingView>,
    /// Nodes that were silent, and whose lease was waited out.
    pub unconfirmed: Vec<String>,
}

/// A hand-off that was past the gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrossingView {
    /// Its run.
    pub run: String,
    /// The recipient's number in it.
    pub number: u32,
    /// Its claim row.
    pub fence: String,
}

impl From<Option<v1::Barrier>> for BarrierView {
    fn from(barrier: Option<v1::Barrier>) -> BarrierView {
        let barrier = barrier.unwrap_or_default();
        let crossed = barrier.crossed.into_iter();
        let crossed = crossed.map(|one| CrossingView { run: one.run, number: one.number, fence: one.fence });
        BarrierView { index: barrier.index, crossed: crossed.collect(), unconfirmed: barrier.unconfirmed }
    }
}

impl BarrierView {
    /// In one sentence, for stderr.
    pub fn sentence(&self) -> String {
        let mut sentence = format!("holds on every node since log index {}", self.index);
        if !self.crossed.is_empty() {
            let crossed = self.crossed.iter().map(|one| format!("{} #{} ({})", one.run, one.number, one.fence));
            let crossed: Vec<String> = crossed.collect();
            sentence.push_str(&format!("; past the gate before, may still arrive: {}", crossed.join(", ")));
        }
        if !self.unconfirmed.is_empty() {
            sentence.push_str(&format!("; silent, waited out: {}", self.unconfirmed.join(", ")));
        }
        sentence
    }
}
