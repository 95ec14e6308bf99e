//! An upgrade to a level with a changed row, a new command and a new limit (P23).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{Actor, ClaimRequest, Command, Entry, NodeUp, RaiseLevel};
use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId, PageId, RunId};
use reveille_ledger::impossible::{Impossible, LimitedQuantity};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{LEVEL, Ledger, level};

use crate::hex::{hex, unhex};

/// Rows that the former release stored.
const FORMER: &str = "tests/format.txt";
const RECORD: &str = "tests/format-next-level.txt";
const NODES: &str = "01";

type Rows = BTreeMap<String, String>;

fn restored(rows: &Rows) -> Ledger {
    Ledger::from_rows(rows.iter().map(|(key, value)| (unhex(key), unhex(value)))).expect("a state")
}

/// A ledger, and its rows as a store has them: each in the form in which it was last written.
struct TestLedger {
    ledger: Ledger,
    stored: Rows,
}

impl TestLedger {
    /// Continues from the state that the former release stored.
    fn new() -> TestLedger {
        let recorded = std::fs::read_to_string(FORMER).expect(FORMER);
        let rows = recorded.lines().filter_map(|line| line.split_once(" key ")?.1.split_once(" = "));
        let stored: Rows = rows.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        TestLedger { ledger: restored(&stored), stored }
    }

    fn entry(&self, command: Command) -> Entry {
        let head = self.ledger.head();
        Entry { epoch: head.current_epoch().unwrap_or_default(), now: head.now, actor: Actor::System, command }
    }

    fn put(&mut self, command: Command) -> CommandOutcome {
        let entry = self.entry(command);
        let outcome = self.ledger.apply(self.ledger.head().applied + 1, &entry).reply.outcome;
        self.stored = self.ledger.all_rows().map(|(key, value)| (hex(&key), hex(&value))).collect();
        outcome
    }

    /// A new incarnation of a node comes up, with a release of this level.
    fn up(&mut self, node: NodeId, level: u32) -> CommandOutcome {
        let known = self.ledger.nodes().get(&node).map_or(0, |node| node.incarnation.0);
        let owner = ClaimOwner { node, incarnation: Incarnation(known + 1) };
        self.put(Command::NodeUp(NodeUp { owner, name: node.to_string(), level, process_nonce: known + 1 }))
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.ledger.nodes().iter().map(|(id, _)| *id).collect()
    }

    fn raise(&mut self) -> CommandOutcome {
        let voters = self.nodes();
        self.put(Command::RaiseLevel(RaiseLevel { level: level::KNOWN, voters }))
    }

    /// Returns a test in which each node has announced the level, and it was raised.
    fn raised() -> TestLedger {
        let mut test = TestLedger::new();
        test.up(NodeId(2), LEVEL);
        for node in test.nodes() {
            assert_eq!(test.up(node, level::KNOWN), CommandOutcome::Done);
        }
        assert_eq!(test.raise(), CommandOutcome::Done);
        test
    }

    fn forms_of_nodes(&self) -> BTreeSet<&str> {
        self.stored.iter().filter(|(key, _)| key.starts_with(NODES)).map(|(_, value)| &value[..2]).collect()
    }
}

#[test]
fn until_the_level_is_raised_rows_are_in_the_former_form() {
    let mut test = TestLedger::new();
    test.up(NodeId(2), LEVEL);
    assert_eq!(test.up(NodeId(2), level::KNOWN), CommandOutcome::Done);
    let refused = CommandOutcome::Refused(CommandRefusal::from(Impossible::LevelNotAnnounced {
        requested: level::KNOWN,
        node: test.nodes().into_iter().find(|node| *node != NodeId(2)).expect("another node"),
        announced: LEVEL,
    }));
    assert_eq!(test.raise(), refused);
    assert_eq!(test.forms_of_nodes(), ["01"].into());
    assert_eq!(restored(&test.stored).state_hash(), test.ledger.state_hash());
}

#[test]
fn after_the_level_is_raised_all_rows_are_in_the_new_form() {
    let mut test = TestLedger::raised();
    assert_eq!(test.up(NodeId(2), level::KNOWN), CommandOutcome::Done);
    assert_eq!(test.forms_of_nodes(), ["02"].into());
    let nodes = restored(&test.stored);
    assert_eq!(nodes.nodes().get(&NodeId(2)).expect("a node").up_at, Some(test.ledger.head().now));
    assert_eq!(nodes.state_hash(), test.ledger.state_hash());
}

#[test]
fn after_the_level_is_raised_a_node_of_the_former_release_is_not_taken() {
    let mut test = TestLedger::raised();
    let refused =
        CommandOutcome::Refused(CommandRefusal::from(Impossible::LevelTooLow { ledger: level::KNOWN, node: LEVEL }));
    assert_eq!(test.up(NodeId(2), LEVEL), refused);
}

#[test]
fn limits_are_those_of_the_level() {
    let claim = |test: &mut TestLedger| {
        let (page, owner) =
            (RunId { index: 999, place: 0 }, ClaimOwner { node: NodeId(2), incarnation: Incarnation(9) });
        test.put(Command::Claim(vec![ClaimRequest {
            chunk: PageId(page).chunk(0),
            slice: Bitmap::range(0, 512),
            owner,
        }]))
    };
    let (former, next) = (claim(&mut TestLedger::new()), claim(&mut TestLedger::raised()));
    let too_large = CommandRefusal::TooLarge { what: LimitedQuantity::Slice, bound: 256 };
    assert_eq!(former, CommandOutcome::Claimed(vec![Err(too_large)]));
    assert_eq!(
        next,
        CommandOutcome::Claimed(vec![Err(CommandRefusal::OwnerGone)]),
        "512 recipients fit; incarnation 9 never was"
    );
}

#[test]
fn bytes_of_next_level_equal_those_recorded() {
    let mut test = TestLedger::raised();
    assert_eq!(test.up(NodeId(2), level::KNOWN), CommandOutcome::Done);
    let command = test.entry(Command::OfNextLevel).to_bytes();
    let mut text = format!("command OfNextLevel = {}\n", hex(&command));
    for (key, value) in test.stored.iter().filter(|(_, value)| value.starts_with("02")) {
        let _ = writeln!(text, "row key {key} = {value}");
    }
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(RECORD, &text).expect(RECORD);
    }
    assert_eq!(text, std::fs::read_to_string(RECORD).expect(RECORD), "the format has changed");
}
