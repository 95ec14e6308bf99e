//! A ledger with a leader, for tests of entries that operators propose.

use reveille_ledger::Ledger;
use reveille_ledger::command::{Actor, Command, Entry, EpochStart, VoterClock};
use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId, Time};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::tenant::TenantSet;

/// The node that leads.
pub const LEADER: ClaimOwner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };

/// A ledger, and all entries that it has applied.
pub struct TestLedger {
    pub ledger: Ledger,
    pub entries: Vec<Entry>,
    pub now: Time,
}

impl TestLedger {
    pub fn new() -> TestLedger {
        TestLedger::at(Ledger::new())
    }

    pub fn at(ledger: Ledger) -> TestLedger {
        let now = ledger.head().now;
        let mut test = TestLedger { ledger, entries: Vec::new(), now };
        test.lead();
        test
    }

    /// Begins an epoch at the present time: ledger time leaps only there.
    pub fn lead(&mut self) {
        let readings = vec![VoterClock { node: LEADER.node, wall: self.now }];
        self.put(Actor::System, Command::EpochStart(EpochStart::new(LEADER, 1, readings)));
    }

    pub fn put(&mut self, actor: Actor, command: Command) -> CommandOutcome {
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        let entry = Entry { epoch, now: self.now, actor, command };
        self.entries.push(entry.clone());
        self.ledger.apply(head.applied + 1, &entry).reply.outcome
    }
}

/// Returns a change of a tenant's share.
pub fn tenant_set(name: &str) -> Command {
    let (name, share) = (name.to_owned(), Some(2));
    Command::TenantSet(TenantSet {
        request: None,
        name,
        rate_milli: None,
        concurrency: None,
        share,
        pools: None,
        expected: None,
    })
}
