//! Records the history of a simulation in the checker's format, in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use reveille_check::events::{Answer, Call, Event, Fault, FaultKind, Fence, Lifetime, LifetimeEnd, Operation};
use reveille_ledger::ids::NodeId;

use crate::network::ProcessId;
use crate::trace::Trace;

#[derive(Default)]
struct RecordedEvents {
    events: Vec<Event>,
    /// Time at which any node first applied each claim.
    granted: BTreeMap<Fence, u64>,
}

/// The recorded events of a run. Clones share them.
#[derive(Clone)]
pub struct HistoryRecorder {
    inner: Arc<Mutex<RecordedEvents>>,
    trace: Trace,
}

/// The index of a recorded call or fault that may still change.
#[derive(Clone, Copy, Debug)]
pub struct EventId(usize);

/// Returns the name of a node in a history.
pub fn name(node: NodeId) -> String {
    format!("n{}", node.0)
}

impl HistoryRecorder {
    /// Returns an empty history with the clock of the trace.
    pub fn new(trace: Trace) -> HistoryRecorder {
        HistoryRecorder { inner: Arc::default(), trace }
    }

    /// Returns the nanoseconds since the beginning of the run.
    pub fn now_ns(&self) -> u64 {
        self.trace.elapsed().as_nanos() as u64
    }

    /// Records an event.
    pub fn record(&self, event: Event) {
        self.push(event);
    }

    fn push(&self, event: Event) -> EventId {
        let mut inner = self.inner.lock();
        inner.events.push(event);
        EventId(inner.events.len() - 1)
    }

    /// Records the start of a call. Its answer is unknown until [`HistoryRecorder::call_answered`].
    pub fn call_began(&self, client: &str, request_id: Option<&str>, operation: Operation) -> EventId {
        self.push(Event::Call(Call {
            client: client.to_owned(),
            request_id: request_id.map(str::to_owned),
            invoked_ns: self.now_ns(),
            answered_ns: None,
            operation,
            answer: Answer::Unknown,
        }))
    }

    /// Records the answer to a call.
    pub fn call_answered(&self, call: EventId, answer: Answer) {
        let now_ns = self.now_ns();
        if let Some(Event::Call(call)) = self.inner.lock().events.get_mut(call.0) {
            call.answered_ns = (answer != Answer::Unknown).then_some(now_ns);
            call.answer = answer;
        }
    }

    /// Records the start of a fault.
    pub fn fault_began(&self, kind: FaultKind, name: String, nodes: &[NodeId]) -> EventId {
        let nodes = nodes.iter().map(|node| self::name(*node)).collect();
        self.push(Event::Fault(Fault::installed(kind, name, nodes, self.now_ns())))
    }

    /// Records the end of a fault.
    pub fn fault_ended(&self, fault: EventId) {
        let now_ns = self.now_ns();
        if let Some(Event::Fault(fault)) = self.inner.lock().events.get_mut(fault.0) {
            fault.until_ns = Some(now_ns);
        }
    }

    /// Records the start of a process.
    pub fn process_started(&self, process: ProcessId) {
        let (node, incarnation, started_ns) = (name(process.node), Some(process.number), self.now_ns());
        self.record(Event::Lifetime(Lifetime { node, incarnation, started_ns, ended_ns: None, end: None }));
    }

    /// Records the end of a process.
    pub fn process_ended(&self, process: ProcessId) {
        let (now_ns, node) = (self.now_ns(), name(process.node));
        let mut inner = self.inner.lock();
        let own = inner.events.iter_mut().rev().find_map(|event| match event {
            Event::Lifetime(own) if own.node == node && own.incarnation == Some(process.number) => Some(own),
            _ => None,
        });
        if let Some(lifetime) = own {
            (lifetime.ended_ns, lifetime.end) = (Some(now_ns), Some(LifetimeEnd::Killed));
        }
    }

    /// Records that a node has applied a claim.
    pub fn claim_applied(&self, fence: Fence) {
        let now_ns = self.now_ns();
        self.inner.lock().granted.entry(fence).or_insert(now_ns);
    }

    /// Returns the time at which a node first applied the claim. The claim was committed by then.
    pub fn committed_ns(&self, fence: &Fence) -> Option<u64> {
        self.inner.lock().granted.get(fence).copied()
    }

    /// Returns all events so far.
    pub fn events(&self) -> Vec<Event> {
        self.inner.lock().events.clone()
    }
}
