//! A history in memory, as the invariants read it. Frequent events (handoffs, claims, outcomes, states) are sorted by
//! item, so that the entries of an item are one slice.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::events::{
    Audience, Call, Claim, Due, Ended, EpochStarted, Event, Explained, Fault, FaultKind, Fence, FinalState, Found,
    GateReading, Handoff, Header, Lifetime, Limit, OpenClaim, Outage, Outcome, OutcomeKind, Overload, PhaseName,
    RecipientState, Resumption, Run, StateHash,
};
use crate::names::Name;

/// Maximum number of recipients of a claim whose outcomes the ledger never merges.
const EXACT_HISTORY_MAX: usize = 16;

/// One recipient of one run: the unit that may be accepted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{recipient} in {run}")]
pub struct Item {
    /// The run. Empty: an email named no run.
    pub run: Name,
    /// The address.
    pub recipient: Name,
}

impl Run {
    /// Returns the instant for which the run opened.
    pub fn instant(&self) -> Instant {
        Instant { tenant: self.tenant, schedule: self.schedule, due_unix_ms: self.due_unix_ms }
    }
}

/// An entry about one item.
pub trait HasItem {
    /// Returns the item.
    fn item(&self) -> Item;
}

macro_rules! has_item {
    ($($entry:ty),*) => { $(impl HasItem for $entry {
        fn item(&self) -> Item { Item { run: self.run, recipient: self.recipient } }
    })* };
}
has_item!(Handoff, Claim, Outcome, FinalState);

/// Returns the entries of one run. `entries` must be sorted by item.
pub fn of_run<T: HasItem>(entries: &[T], run: Name) -> &[T] {
    equal_range(entries, |entry| entry.item().run.cmp(&run))
}

/// Returns the entries of one item. `entries` must be sorted by item.
pub fn of_item<T: HasItem>(entries: &[T], item: Item) -> &[T] {
    equal_range(entries, |entry| entry.item().cmp(&item))
}

fn equal_range<T>(entries: &[T], order: impl Fn(&T) -> Ordering) -> &[T] {
    let from = entries.partition_point(|entry| order(entry).is_lt());
    let rest = entries.get(from..).unwrap_or_default();
    rest.get(..rest.partition_point(|entry| order(entry).is_eq())).unwrap_or_default()
}

/// An instant of a schedule that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{tenant}/{schedule} of {due_unix_ms} ms")]
pub struct Instant {
    /// Name of the tenant.
    pub tenant: Name,
    /// Name of the schedule.
    pub schedule: Name,
    /// The instant that was due.
    pub due_unix_ms: i64,
}

/// A whole history.
#[derive(Debug, Default)]
pub struct History {
    /// The parameters of the run.
    pub header: Header,
    /// Handoffs that arrived at the sink, by item, then by arrival.
    pub handoffs: Vec<Handoff>,
    /// Claims, by item, then by fence.
    pub claims: Vec<Claim>,
    /// Outcomes, by item, then by log index.
    pub outcomes: Vec<Outcome>,
    /// Final states, by item.
    pub final_states: Vec<FinalState>,
    /// Runs by name.
    pub runs: BTreeMap<Name, Run>,
    /// Runs that were read twice with different contents.
    pub contradicting_runs: BTreeSet<Name>,
    /// Instants that were due, with the names of their audiences.
    pub due: BTreeMap<Instant, Name>,
    /// Audiences by name, each sorted.
    pub audiences: BTreeMap<Name, Vec<Name>>,
    /// The value of each recipient's variable, by audience and recipient.
    pub codes: BTreeMap<(Name, Name), Name>,
    /// Instants without a run, by tenant and schedule.
    pub explained: BTreeMap<(Name, Name), Vec<Explained>>,
    /// Calls, by their beginning.
    pub calls: Vec<Call>,
    /// Resumptions in the ledger: run and log index.
    pub resumptions: BTreeSet<(Name, u64)>,
    /// Runs that were seen paused when all faults were over.
    pub paused: BTreeSet<Name>,
    /// Faults, by their beginning.
    pub faults: Vec<Fault>,
    /// Lifetimes of node processes.
    pub lifetimes: Vec<Lifetime>,
    /// Gate counters.
    pub readings: Vec<GateReading>,
    /// Leaderships, by their beginning.
    pub epochs: Vec<EpochStarted>,
    /// Intervals without an acting quorum, by their beginning.
    pub outages: Vec<Outage>,
    /// Tenants above their budget.
    pub overloads: Vec<Overload>,
    /// Bounds that the workload was given.
    pub limits: Vec<Limit>,
    /// Claims that were observed open.
    pub open_claims: Vec<OpenClaim>,
    /// Hashes of states.
    pub hashes: Vec<StateHash>,
    /// Objects that existed at the end.
    pub found: Vec<Found>,
    /// Moves of the test clock by hand, in order: the time, and the offset from then on.
    pub clock_moves: Vec<(u64, i64)>,
    /// Time at which faults began.
    pub faults_from_ns: Option<u64>,
    /// Time of the last healing.
    pub healed_ns: Option<u64>,
    /// Time from which nothing was pending or claimed.
    pub drained_ns: Option<u64>,
    /// The end. `None`: the history was cut short.
    pub ended: Option<Ended>,
}

impl History {
    /// Returns an empty history: [`History::record`] adds events, [`History::close`] sorts them.
    pub fn new(header: Header) -> History {
        History { header, ..History::default() }
    }

    /// Adds an event, in any order.
    pub fn record(&mut self, event: Event) {
        match event {
            Event::Handoff(handoff) => self.handoffs.push(handoff),
            Event::Claim(claim) => self.claims.push(claim),
            Event::Outcome(outcome) => self.outcomes.push(outcome),
            Event::FinalState(state) => self.final_states.push(state),
            Event::Run(run) => {
                let known = self.runs.entry(run.run).or_insert_with(|| run.clone());
                if *known != run {
                    self.contradicting_runs.insert(run.run);
                }
            }
            Event::Audience(Audience { name, mut recipients, codes }) => {
                self.codes.extend(recipients.iter().zip(codes).map(|(recipient, code)| ((name, *recipient), code)));
                recipients.sort_unstable();
                recipients.dedup();
                self.audiences.insert(name, recipients);
            }
            Event::Due(Due { tenant, schedule, due_unix_ms, audience }) => {
                self.due.insert(Instant { tenant, schedule, due_unix_ms }, audience);
            }
            Event::Phase(phase) => match phase.phase {
                PhaseName::Faults => self.faults_from_ns = self.faults_from_ns.or(Some(phase.at_ns)),
                PhaseName::Healed => self.healed_ns = self.healed_ns.max(Some(phase.at_ns)),
            },
            Event::ClockMoved { at_ns, offset_ms } => self.clock_moves.push((at_ns, offset_ms)),
            Event::Lifetime(lifetime) => self.lifetimes.push(lifetime),
            Event::GateReading(reading) => self.readings.push(reading),
            Event::EpochStarted(epoch) => self.epochs.push(epoch),
            Event::Outage(outage) => self.outages.push(outage),
            Event::Overload(overload) => self.overloads.push(overload),
            Event::Limit(limit) => self.record_limit(limit),
            Event::Call(call) => self.calls.push(call),
            Event::Fault(fault) => self.faults.push(fault),
            Event::Resumption(Resumption { run, index }) => _ = self.resumptions.insert((run, index)),
            Event::Paused { run } => _ = self.paused.insert(run),
            Event::OpenClaim(claim) => self.open_claims.push(claim),
            Event::StateHash(hash) => self.hashes.push(hash),
            Event::Explained(explained) => {
                self.explained.entry((explained.tenant, explained.schedule)).or_default().push(explained);
            }
            Event::Found(found) => self.found.push(found),
            Event::Drained { at_ns } => self.drained_ns = self.drained_ns.max(Some(at_ns)),
            Event::Ended(ended) => self.ended = Some(ended),
        }
    }

    /// Sorts all entries.
    pub fn close(mut self) -> History {
        self.handoffs.sort_unstable_by_key(|handoff| (handoff.item(), handoff.at_ns));
        self.claims.sort_unstable_by_key(|claim| (claim.item(), claim.fence));
        self.outcomes.sort_unstable_by_key(|outcome| (outcome.item(), outcome.index));
        self.final_states.sort_by_key(HasItem::item);
        self.calls.sort_by_key(|call| call.invoked_ns);
        self.faults.sort_by_key(|fault| fault.from_ns);
        self.epochs.sort_by_key(|epoch| epoch.at_ns);
        self.outages.sort_by_key(|outage| outage.from_ns);
        self.clock_moves.sort_unstable();
        self
    }

    /// Returns the first outcome of a recipient under this claim.
    pub fn outcome_of(&self, item: Item, fence: Fence) -> Option<&Outcome> {
        let is_of = |outcome: &&Outcome| outcome.fence.map_or(outcome.index > fence.index, |known| known == fence);
        of_item(&self.outcomes, item).iter().find(is_of)
    }

    /// Returns true if everything was observed. Otherwise the absence of an event proves nothing.
    pub fn is_whole(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.missing.is_empty())
    }

    /// Returns the end of the history.
    pub fn ended_ns(&self) -> u64 {
        self.ended.as_ref().map_or(0, |ended| ended.at_ns)
    }

    /// Returns the calls that did not fail: they were, or may have been, executed.
    pub fn possible_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.may_be_done())
    }

    /// Returns the number of possible calls about an item for which `asks` is true, such as [`Call::resends`].
    pub fn requests_about(&self, item: Item, asks: fn(&Call, &str, &str) -> bool) -> usize {
        self.possible_calls().filter(|call| asks(call, &item.run, &item.recipient)).count()
    }

    /// Returns true if the recipient was, or may have been, in doubt after the entry `from` and before the entry
    /// `until`. In a large claim the ledger merges doubts, at the index of the last one, which may be above a decision.
    pub fn was_in_doubt(&self, item: Item, from: u64, until: u64) -> bool {
        let is_large = |fence| self.claims.iter().filter(|claim| claim.fence == fence).nth(EXACT_HISTORY_MAX).is_some();
        let doubts = of_item(&self.outcomes, item).iter().filter(|outcome| outcome.kind == OutcomeKind::InDoubt);
        doubts.filter(|outcome| outcome.index > from).any(|outcome| {
            outcome.index < until || outcome.fence.is_some_and(|fence| fence.index < until && is_large(fence))
        })
    }

    /// Returns the faults that were, or may have been, installed.
    pub fn possible_faults(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(|fault| fault.may_be_installed())
    }

    /// Returns the possible faults of this kind.
    pub fn possible_faults_of(&self, kind: FaultKind) -> impl Iterator<Item = &Fault> {
        self.possible_faults().filter(move |fault| fault.kind == kind)
    }

    /// Returns the accepted handoffs, not in order of time.
    pub fn accepts(&self) -> impl Iterator<Item = &Handoff> {
        self.handoffs.iter().filter(|handoff| handoff.answer.is_accepted())
    }

    /// Returns the handoffs of each item.
    pub fn handoffs_by_item(&self) -> impl Iterator<Item = (Item, &[Handoff])> {
        let groups = self.handoffs.chunk_by(|left, right| left.item() == right.item());
        groups.filter_map(|handoffs| handoffs.first().map(|first| (first.item(), handoffs)))
    }

    /// Returns the state of the item at the end.
    pub fn final_state(&self, item: Item) -> Option<RecipientState> {
        of_item(&self.final_states, item).last().map(|item_state| item_state.state)
    }

    /// Returns true if the sink accepted an email of the item.
    pub fn arrived(&self, item: Item) -> bool {
        of_item(&self.handoffs, item).iter().any(|handoff| handoff.answer.is_accepted())
    }

    /// Returns the run of an item, if it was recorded.
    pub fn run_of(&self, item: Item) -> Option<&Run> {
        self.runs.get(&item.run)
    }

    /// Adds a limit. A limit is recorded once at its start, and may be recorded again with its end.
    fn record_limit(&mut self, limit: Limit) {
        let open = |limit: &Limit| Limit { until_ns: None, ..limit.clone() };
        match self.limits.iter_mut().find(|known| open(known) == open(&limit)) {
            Some(known) => known.until_ns = known.until_ns.or(limit.until_ns),
            None => self.limits.push(limit),
        }
    }
}
