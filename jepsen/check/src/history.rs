//! A history in memory, as the invariants read it. Frequent events (handoffs, claims, outcomes, states) are packed and
//! sorted by item, so that the entries of an item are one slice. Rare events stay as they were recorded.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::events::{
    Answer, Answered, Call, Claim, Ended, EpochStarted, Event, Explained, Fault, FaultKind, Fence, FinalState, Found,
    GateReading, Header, Lifetime, Limit, Mail, Observed, OpenClaim, Operation, Outage, Outcome, Overload, PhaseName,
    RecipientState, Run, StateHash, Step,
};
use crate::names::{Name, Names};

/// One recipient of one run: the unit that may be accepted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    /// The run; the empty text if an email named none.
    pub run: Name,
    /// The address.
    pub recipient: Name,
}

/// A [`Mail`]: one handoff to one recipient, as the sink saw it.
#[derive(Clone, Copy, Debug)]
pub struct Handoff {
    /// The recipient of a run.
    pub item: Item,
    /// When it arrived.
    pub at_ns: u64,
    /// When its DATA command arrived.
    pub data_ns: u64,
    /// Fence of its claim.
    pub fence: Option<Fence>,
    /// The node that sent it.
    pub node: Name,
    /// How it was answered.
    pub answer: Answered,
    /// Its `Message-ID`.
    pub message_id: Option<Digest>,
    /// Its body.
    pub body: Option<Digest>,
    /// The content, as its body names it.
    pub content: Option<ReceivedContent>,
}

/// A [`Content`](crate::events::Content).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedContent {
    /// The schedule or campaign.
    pub schedule: Name,
    /// The run.
    pub run: Name,
    /// The recipient.
    pub recipient: Name,
    /// The value of the recipient's variable.
    pub code: Name,
}

/// A 128-bit hash in place of a text that is only compared. A collision within a run is practically impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u64; 2]);

impl Digest {
    /// The hash of a text; the same in every process.
    pub fn of(text: &str) -> Digest {
        Digest([0_u8, 1].map(|half| {
            let mut hasher = DefaultHasher::new();
            (half, text).hash(&mut hasher);
            hasher.finish()
        }))
    }
}

/// A [`Claim`] of one recipient.
#[derive(Clone, Copy, Debug)]
pub struct ItemClaim {
    /// The recipient of a run.
    pub item: Item,
    /// Fence of the claim.
    pub fence: Fence,
    /// The node that owns it.
    pub node: Name,
    /// The incarnation of that node.
    pub incarnation: u64,
    /// When it was committed.
    pub committed_ns: Option<u64>,
    /// When it was proposed.
    pub proposed_ns: Option<u64>,
}

/// An [`Outcome`].
#[derive(Clone, Copy, Debug)]
pub struct ItemOutcome {
    /// The recipient of a run.
    pub item: Item,
    /// Log index.
    pub index: u64,
    /// The step.
    pub step: Step,
    /// When it was proposed.
    pub proposed_ns: Option<u64>,
}

/// A [`FinalState`].
#[derive(Clone, Copy, Debug)]
pub struct ItemState {
    /// The recipient of a run.
    pub item: Item,
    /// Its number in the run.
    pub number: Option<u32>,
    /// State of the recipient.
    pub state: RecipientState,
}

/// An entry about one item.
pub trait HasItem {
    /// The item.
    fn item(&self) -> Item;
}

macro_rules! has_item {
    ($($entry:ty),*) => { $(impl HasItem for $entry { fn item(&self) -> Item { self.item } })* };
}
has_item!(Handoff, ItemClaim, ItemOutcome, ItemState);

/// The entries of one run; `entries` are sorted by item.
pub fn of_run<T: HasItem>(entries: &[T], run: Name) -> &[T] {
    equal_range(entries, |entry| entry.item().run.cmp(&run))
}

/// The entries of one item, of entries that are sorted by item.
pub fn of_item<T: HasItem>(entries: &[T], item: Item) -> &[T] {
    equal_range(entries, |entry| entry.item().cmp(&item))
}

fn equal_range<T>(entries: &[T], order: impl Fn(&T) -> Ordering) -> &[T] {
    let from = entries.partition_point(|entry| order(entry).is_lt());
    let rest = entries.get(from..).unwrap_or_default();
    rest.get(..rest.partition_point(|entry| order(entry).is_eq())).unwrap_or_default()
}

/// An instant of a schedule that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// All texts.
    pub names: Names,
    /// Handoffs that arrived at the sink, by item, then by arrival.
    pub handoffs: Vec<Handoff>,
    /// Claims, by item, then by fence.
    pub claims: Vec<ItemClaim>,
    /// Outcomes, by item, then by log index.
    pub outcomes: Vec<ItemOutcome>,
    /// Final states, by item.
    pub final_states: Vec<ItemState>,
    /// Runs by name. If a run was read twice, the last reading counts.
    pub runs: BTreeMap<Name, Run>,
    /// Instants that were due, with the names of their audiences.
    pub due: BTreeMap<Instant, Name>,
    /// Audiences by name, each sorted.
    pub audiences: BTreeMap<Name, Vec<Name>>,
    /// The value of each recipient's variable, by audience and recipient.
    pub codes: BTreeMap<(Name, Name), Name>,
    /// Emails that have an identity header more than once, with the header.
    pub repeated_headers: Vec<(Item, String)>,
    /// Instants without a run, by tenant and schedule.
    pub explained: BTreeMap<(Name, Name), Vec<Explained>>,
    /// Calls, by their beginning.
    pub calls: Vec<Call>,
    /// Resumptions in the ledger: run and log index.
    pub resumptions: BTreeSet<(Name, u64)>,
    /// Runs that were seen paused when all faults were over.
    pub paused: BTreeSet<String>,
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
    /// Objects that were there at the end.
    pub found: Vec<Found>,
    /// Each time the test clock was moved by hand, and its offset from then on, in order.
    pub clock_moves: Vec<(u64, i64)>,
    /// When faults began.
    pub faults_from_ns: Option<u64>,
    /// When the last healing was done.
    pub healed_ns: Option<u64>,
    /// When nothing was pending or claimed any more.
    pub drained_ns: Option<u64>,
    /// The end; `None` if the history was cut short.
    pub ended: Option<Ended>,
}

impl History {
    /// An empty history: [`History::note`] adds events, [`History::close`] sorts them.
    pub fn new(header: Header) -> History {
        History { header, ..History::default() }
    }

    /// Adds an event, in any order.
    pub fn note(&mut self, event: Event) {
        match event {
            Event::Mail(mail) => self.note_mail(&mail),
            Event::Claim(claim) => self.note_claim(&claim),
            Event::Outcome(Outcome { index, run, recipient, step, proposed_ns, .. }) => {
                let item = self.item(&run, &recipient);
                self.outcomes.push(ItemOutcome { item, index, step, proposed_ns });
            }
            Event::FinalState(FinalState { run, recipient, number, state }) => {
                let item = self.item(&run, &recipient);
                self.final_states.push(ItemState { item, number, state });
            }
            Event::Run(run) => {
                self.names.intern(&run.tenant);
                self.names.intern(&run.schedule);
                let name = self.names.intern(&run.run);
                self.runs.insert(name, run);
            }
            Event::Audience(audience) => {
                let name = self.names.intern(&audience.name);
                let mut recipients: Vec<Name> =
                    audience.recipients.iter().map(|text| self.names.intern(text)).collect();
                for (recipient, code) in recipients.iter().zip(&audience.codes) {
                    self.codes.insert((name, *recipient), self.names.intern(code));
                }
                recipients.sort_unstable();
                recipients.dedup();
                self.audiences.insert(name, recipients);
            }
            Event::Due(due) => {
                let instant = self.instant(&due.tenant, &due.schedule, due.due_unix_ms);
                let audience = self.names.intern(&due.audience);
                self.due.insert(instant, audience);
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
            Event::Limit(limit) => self.note_limit(limit),
            Event::Call(call) => {
                self.intern_names(&call);
                self.calls.push(call);
            }
            Event::Fault(fault) => self.faults.push(fault),
            Event::Resumption(resumption) => {
                self.resumptions.insert((self.names.intern(&resumption.run), resumption.index));
            }
            Event::Paused { run } => {
                self.paused.insert(run);
            }
            Event::OpenClaim(claim) => self.open_claims.push(claim),
            Event::StateHash(hash) => self.hashes.push(hash),
            Event::Explained(explained) => {
                let key = (self.names.intern(&explained.tenant), self.names.intern(&explained.schedule));
                self.explained.entry(key).or_default().push(explained);
            }
            Event::Found(found) => self.found.push(found),
            Event::Drained { at_ns } => self.drained_ns = self.drained_ns.max(Some(at_ns)),
            Event::Ended(ended) => self.ended = Some(ended),
        }
    }

    /// Interns the names in a call, even if no other event mentions them.
    fn intern_names(&mut self, call: &Call) {
        if let Answer::Ok { run: Some(run), .. } = &call.answer {
            self.names.intern(run);
        }
        match &call.operation {
            Operation::Trigger { audience, .. } => {
                self.names.intern(audience);
            }
            Operation::OptOut { tenant, recipient } | Operation::TakeBack { tenant, recipient } => {
                self.names.intern(tenant);
                self.names.intern(recipient);
            }
            _ => {}
        }
    }

    /// Sorts all entries.
    pub fn close(mut self) -> History {
        self.handoffs.sort_unstable_by_key(|handoff| (handoff.item, handoff.at_ns));
        self.claims.sort_unstable_by_key(|claim| (claim.item, claim.fence));
        self.outcomes.sort_unstable_by_key(|outcome| (outcome.item, outcome.index));
        self.final_states.sort_by_key(|item_state| item_state.item);
        self.calls.sort_by_key(|call| call.invoked_ns);
        self.faults.sort_by_key(|fault| fault.from_ns);
        self.epochs.sort_by_key(|epoch| epoch.at_ns);
        self.outages.sort_by_key(|outage| outage.from_ns);
        self.clock_moves.sort_unstable();
        self
    }

    /// Whether this part was observed completely.
    pub fn is_whole(&self, part: Observed) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.whole.contains(&part))
    }

    /// When the history ends.
    pub fn ended_ns(&self) -> u64 {
        self.ended.as_ref().map_or(0, |ended| ended.at_ns)
    }

    /// Calls that did not fail: they were done, or may have been.
    pub fn possible_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.may_be_done())
    }

    /// Number of possible calls that ask this about an item: [`Call::resends`] or [`Call::assumes`].
    pub fn requests_about(&self, item: Item, asks: fn(&Call, &str, &str) -> bool) -> usize {
        let (run, recipient) = (self.names.text(item.run), self.names.text(item.recipient));
        self.possible_calls().filter(|call| asks(call, run, recipient)).count()
    }

    /// Faults of this kind that were, or may have been, installed.
    pub fn possible_faults(&self, kind: FaultKind) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(move |fault| fault.kind == kind && fault.may_have_struck())
    }

    /// Accepted handoffs, not in order of time.
    pub fn accepts(&self) -> impl Iterator<Item = &Handoff> {
        self.handoffs.iter().filter(|handoff| handoff.answer.is_accepted())
    }

    /// The handoffs of each item.
    pub fn handoffs_by_item(&self) -> impl Iterator<Item = (Item, &[Handoff])> {
        let groups = self.handoffs.chunk_by(|left, right| left.item == right.item);
        groups.filter_map(|handoffs| handoffs.first().map(|first| (first.item, handoffs)))
    }

    /// The state of the item at the end.
    pub fn final_state(&self, item: Item) -> Option<RecipientState> {
        of_item(&self.final_states, item).last().map(|item_state| item_state.state)
    }

    /// Whether the sink accepted it.
    pub fn arrived(&self, item: Item) -> bool {
        of_item(&self.handoffs, item).iter().any(|handoff| handoff.answer.is_accepted())
    }

    /// The run of an item, if it was recorded.
    pub fn run_of(&self, item: Item) -> Option<&Run> {
        self.runs.get(&item.run)
    }

    /// The instant for which a run opened.
    pub fn instant_of(&self, run: &Run) -> Option<Instant> {
        let (tenant, schedule) = (self.names.find(&run.tenant)?, self.names.find(&run.schedule)?);
        Some(Instant { tenant, schedule, due_unix_ms: run.due_unix_ms })
    }

    /// Text for people.
    pub fn describe(&self, item: Item) -> String {
        format!("{} in {}", self.names.text(item.recipient), self.names.text(item.run))
    }

    /// Text for people: the item and the time.
    pub fn describe_handoff(&self, handoff: &Handoff) -> String {
        format!("{} at {:.3} s", self.describe(handoff.item), handoff.at_ns as f64 / 1e9)
    }

    /// A limit is recorded once at its start, and may be recorded again with its end.
    fn note_limit(&mut self, limit: Limit) {
        let open = |limit: &Limit| Limit { until_ns: None, ..limit.clone() };
        match self.limits.iter_mut().find(|known| open(known) == open(&limit)) {
            Some(known) => known.until_ns = known.until_ns.or(limit.until_ns),
            None => self.limits.push(limit),
        }
    }

    fn note_mail(&mut self, mail: &Mail) {
        let item = self.item(mail.run.as_deref().unwrap_or_default(), &mail.recipient);
        let node = self.names.intern(&mail.node);
        let Mail { at_ns, data_ns, fence, answer, .. } = *mail;
        let [message_id, body] = [&mail.message_id, &mail.body].map(|text| text.as_deref().map(Digest::of));
        let content = mail.content.as_ref().map(|content| ReceivedContent {
            schedule: self.names.intern(&content.schedule),
            run: self.names.intern(&content.run),
            recipient: self.names.intern(&content.recipient),
            code: self.names.intern(&content.code),
        });
        self.repeated_headers.extend(mail.repeated_headers.iter().map(|header| (item, header.clone())));
        self.handoffs.push(Handoff { item, at_ns, data_ns, fence, node, answer, message_id, body, content });
    }

    fn note_claim(&mut self, claim: &Claim) {
        let node = self.names.intern(&claim.node);
        for recipient in &claim.recipients {
            let item = self.item(&claim.run, recipient);
            let Claim { fence, incarnation, committed_ns, proposed_ns, .. } = *claim;
            self.claims.push(ItemClaim { item, fence, node, incarnation, committed_ns, proposed_ns });
        }
    }

    fn item(&mut self, run: &str, recipient: &str) -> Item {
        Item { run: self.names.intern(run), recipient: self.names.intern(recipient) }
    }

    fn instant(&mut self, tenant: &str, schedule: &str, due_unix_ms: i64) -> Instant {
        Instant { tenant: self.names.intern(tenant), schedule: self.names.intern(schedule), due_unix_ms }
    }
}
