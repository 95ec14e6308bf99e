//! Records the history of a simulation in the checker's format, in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use reveille_check::history::{Answer, Call, Event, Fault, FaultKind, Fence, Life as Lived, LifeEnd, Operation};
use reveille_ledger::ids::NodeId;

use crate::network::Life;
use crate::trace::Trace;

#[derive(Default)]
struct Inner {
    events: Vec<Event>,
    calls: Vec<Call>,
    faults: Vec<Fault>,
    lives: Vec<Lived>,
    /// When a claim was first seen applied anywhere.
    granted: BTreeMap<Fence, u64>,
}

/// The record of a run. Clones are the same.
#[derive(Clone)]
pub struct Chronicle {
    inner: Arc<Mutex<Inner>>,
    trace: Trace,
}

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
pub struct PendingCall(usize);

/// A fault that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Broken(usize);

/// The name of a node in a history.
pub fn name(node: NodeId) -> String {
    format!("n{}", node.0)
}

impl Chronicle {
    /// An empty history; it counts time as the trace does.
    pub fn new(trace: Trace) -> Chronicle {
        Chronicle { inner: Arc::default(), trace }
    }

    /// Nanoseconds since the beginning.
    pub fn now_ns(&self) -> u64 {
        self.trace.elapsed().as_nanos() as u64
    }

    /// Records an event.
    pub fn note(&self, event: Event) {
        self.inner.lock().events.push(event);
    }

    /// A client calls. The result is unknown until [`Chronicle::answered`].
    pub fn asked(&self, client: &str, request_id: Option<&str>, operation: Operation) -> PendingCall {
        let call = Call {
            client: client.to_owned(),
            request_id: request_id.map(str::to_owned),
            invoked_ns: self.now_ns(),
            answered_ns: None,
            operation,
            answer: Answer::Unknown,
        };
        let mut inner = self.inner.lock();
        inner.calls.push(call);
        PendingCall(inner.calls.len() - 1)
    }

    /// The call was answered.
    pub fn answered(&self, asked: PendingCall, answer: Answer) {
        let now_ns = self.now_ns();
        if let Some(call) = self.inner.lock().calls.get_mut(asked.0) {
            call.answered_ns = (answer != Answer::Unknown).then_some(now_ns);
            call.answer = answer;
        }
    }

    /// A fault begins.
    pub fn breaks(&self, kind: FaultKind, name: String, nodes: &[NodeId]) -> Broken {
        let nodes = nodes.iter().map(|node| self::name(*node)).collect();
        self.breaks_as(Fault::installed(kind, name, nodes, self.now_ns()))
    }

    /// A fault begins, with all its details.
    pub fn breaks_as(&self, fault: Fault) -> Broken {
        let mut inner = self.inner.lock();
        inner.faults.push(fault);
        Broken(inner.faults.len() - 1)
    }

    /// The fault has ended.
    pub fn fault_ended(&self, broken: Broken) {
        let now_ns = self.now_ns();
        if let Some(fault) = self.inner.lock().faults.get_mut(broken.0) {
            fault.until_ns = Some(now_ns);
        }
    }

    /// A process starts.
    pub fn born(&self, life: Life) {
        let (node, incarnation, started_ns) = (name(life.node), Some(life.number), self.now_ns());
        self.inner.lock().lives.push(Lived { node, incarnation, started_ns, ended_ns: None, end: None });
    }

    /// A process is killed.
    pub fn died(&self, life: Life) {
        let (now_ns, node) = (self.now_ns(), name(life.node));
        let mut inner = self.inner.lock();
        let own =
            inner.lives.iter_mut().rev().find(|lived| lived.node == node && lived.incarnation == Some(life.number));
        if let Some(lived) = own {
            (lived.ended_ns, lived.end) = (Some(now_ns), Some(LifeEnd::Killed));
        }
    }

    /// A node has applied the claim.
    pub fn granted(&self, fence: Fence) {
        let now_ns = self.now_ns();
        self.inner.lock().granted.entry(fence).or_insert(now_ns);
    }

    /// When the claim was first seen applied: it was committed by then.
    pub fn committed_ns(&self, fence: &Fence) -> Option<u64> {
        self.inner.lock().granted.get(fence).copied()
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Event> {
        let inner = self.inner.lock();
        let calls = inner.calls.iter().cloned().map(Event::Call);
        let faults = inner.faults.iter().cloned().map(Event::Fault);
        let lives = inner.lives.iter().cloned().map(Event::Life);
        inner.events.iter().cloned().chain(calls).chain(faults).chain(lives).collect()
    }
}
