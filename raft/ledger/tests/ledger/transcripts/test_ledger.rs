//! The test of one script: a ledger, its log index, and names of claims.

use std::collections::BTreeMap;

use goldenscript::{Command, Context, Runner};
use reveille_ledger::command::{Actor, Entry};
use reveille_ledger::content::{Audience, Content, Recipient};
use reveille_ledger::ids::{Epoch, Fence, RunId, ScheduleId, Time};
use reveille_ledger::invariants::violations;
use reveille_ledger::{ApplyResult, Ledger};

use super::arguments::{Parsed, Words, offset};
use super::recipients;
use crate::archived;
use crate::given::GivenTexts;

/// Monday 2026-03-02T00:00:00Z, unless the script gives another instant.
const FIRST_INSTANT_MS: i64 = 1_772_409_600_000;

pub struct TestLedger {
    pub ledger: Ledger,
    pub first: Time,
    pub index: u64,
    /// Fences by the prefix of the command that made the claim.
    pub fences: BTreeMap<String, Fence>,
    /// Schedules by name, with deleted ones.
    pub names: BTreeMap<String, ScheduleId>,
    given: GivenTexts,
}

impl TestLedger {
    pub fn new() -> TestLedger {
        TestLedger {
            ledger: Ledger::new(),
            first: Time(FIRST_INSTANT_MS),
            index: 0,
            fences: BTreeMap::new(),
            names: BTreeMap::new(),
            given: GivenTexts::default(),
        }
    }

    /// Commits a command, stamped as by a leader unless the script gives other values.
    pub fn commit(&mut self, command: reveille_ledger::command::Command, words: &mut Words) -> Parsed<String> {
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        let epoch = Epoch(words.number("epoch", epoch.0)?);
        let now = words.ms("at")?.map_or(head.now, |ms| self.first.plus_ms(ms)).plus_ms(-head.offset_ms());
        self.commit_entry(Entry { epoch, now, actor: Actor::System, command })
    }

    /// Commits one of many commands whose effects are printed together.
    pub fn commit_unseen(&mut self, command: reveille_ledger::command::Command) {
        self.index += 1;
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        let now = head.now.plus_ms(-head.offset_ms());
        self.given.record(&command);
        self.ledger.apply(self.index, &Entry { epoch, now, actor: Actor::System, command });
    }

    pub fn commit_entry(&mut self, entry: Entry) -> Parsed<String> {
        // A restore is applied offline, at an index far above the others.
        let is_restore = matches!(entry.command, reveille_ledger::command::Command::Restore(_));
        self.index += if is_restore { self.ledger.limits().restore_ahead } else { 1 };
        let entry = Entry::from_bytes(&entry.to_bytes())?;
        let before = self.ledger.clone();
        let applied = self.ledger.apply(self.index, &entry);
        self.given.record(&entry.command);
        self.given.assert_hold(&self.ledger);
        recipients::assert_as_explained(&self.ledger);
        archived::assert_whole(&self.ledger);
        let violations = violations(&self.ledger);
        assert!(violations.is_empty(), "after {entry:?}: {violations:?}");
        let restored = Ledger::from_rows(self.ledger.all_rows()).expect("the rows read back");
        assert_eq!(restored.state_hash(), self.ledger.state_hash(), "P2: restored = live");
        Ok(self.reaction(&before, &applied))
    }

    fn reaction(&self, before: &Ledger, applied: &ApplyResult) -> String {
        super::reaction::reaction(self, before, applied)
    }

    /// Returns the schedule of a name; if it was deleted, the last one.
    pub fn schedule(&self, name: &str) -> Parsed<ScheduleId> {
        if let Some((id, _)) = self.ledger.schedule_named("default", name) {
            return Ok(id);
        }
        if let Some(id) = self.names.get(name) {
            return Ok(*id);
        }
        name.parse().map(|index| ScheduleId::new(index, 0)).map_err(|_| format!("no schedule '{name}'").into())
    }

    /// Returns a run by its id, by the key of its message, or the latest run of a schedule's name.
    pub fn run(&self, text: &str) -> Parsed<RunId> {
        if let Ok(run) = text.parse() {
            return Ok(run);
        }
        if let Some(run) = self.ledger.run_of_message("default", text) {
            return Ok(run);
        }
        let latest = self.ledger.runs().rev().find(|(_, _, run)| *run.name == *text);
        latest.map(|(id, _, _)| id).ok_or_else(|| format!("no run of '{text}'").into())
    }

    pub fn fence(&self, text: &str) -> Parsed<Fence> {
        self.fences.get(text).copied().map_or_else(|| Ok(text.parse()?), Ok)
    }

    pub fn fence_name(&self, fence: Fence) -> String {
        let alias = self.fences.iter().find(|(_, known)| **known == fence);
        alias.map_or_else(|| fence.to_string(), |(name, _)| name.clone())
    }

    /// Prints an instant as its distance from the script's first one.
    pub fn time(&self, time: Time) -> String {
        offset(time.since_ms(self.first))
    }
}

impl Runner for TestLedger {
    type Command = Command;

    fn run(&mut self, command: &Command, context: &Context) -> Parsed<String> {
        let mut words = Words::of(command);
        let output = match self.ask(&command.name, &mut words, context)? {
            Some(output) => output,
            None => self.show(&command.name, &mut words)?,
        };
        words.end()?;
        Ok(output)
    }
}

pub fn content(subject: &str) -> Content {
    Content {
        sender: "news@example.org".into(),
        subject: subject.into(),
        text: Some("hello".into()),
        ..Content::default()
    }
}

pub fn audience(size: u32) -> Audience {
    audience_from(0, size)
}

/// Returns the same recipients with other numbers, if they are in both ranges.
pub fn audience_from(first: u32, size: u32) -> Audience {
    let recipient = |number: u32| {
        let address = format!("u{number}@example.org");
        Recipient { key: address.clone(), address, values: vec![] }
    };
    Audience { columns: vec![], recipients: (first..first + size).map(recipient).collect() }
}
