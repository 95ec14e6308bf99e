//! The bytes of the log, of the stored rows and of the replies, and the fingerprints, as recorded (P23).
//!
//! A change of the format must fail here, because new builds read old logs and old stores. New variants are added at
//! the end. The records in `tests/format.txt` never change; new ones are added with `UPDATE_GOLDENFILES=1`. A record
//! may change only if no cluster was created with it yet.

#[path = "ledger/hex/mod.rs"]
mod hex;
#[path = "ledger/samples/mod.rs"]
mod samples;

use std::collections::BTreeMap;

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{Actor, ClaimRequest, Command, Entry};
use reveille_ledger::content::Content;
use reveille_ledger::fingerprint::fingerprint;
use reveille_ledger::form::FORM;
use reveille_ledger::ids::{ClaimOwner, Epoch, Incarnation, NodeId, PageId, RunId, Time};
use reveille_ledger::{
    Ledger, access, audit, calendar, campaign, canary, causes, claim_history, command, content, etag, events, ids,
    impossible, labels, policy, refusal, reply, run_events, token,
};
use serde::de::value;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

use crate::hex::{hex, unhex};

const RECORD: &str = "tests/format.txt";
/// Enums in stored values and replies: each variant with its ordinal.
const ORDINALS: &str = "tests/ordinals.txt";

/// Reads the name and the variants of an enum, as an error.
struct VariantReader;

impl<'de> Deserializer<'de> for VariantReader {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
        Err(value::Error::custom("not an enum"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, value::Error> {
        // The level that exists only in tests adds a command.
        let variants = variants.iter().filter(|variant| **variant != "OfNextLevel").enumerate();
        let lines = variants.map(|(ordinal, variant)| format!("{name} {ordinal} {variant}\n"));
        Err(value::Error::custom(lines.collect::<String>()))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

fn variants_of<E: DeserializeOwned>() -> String {
    E::deserialize(VariantReader).err().map(|variants| variants.to_string()).unwrap_or_default()
}

/// Returns the variants of all enums that are stored. Those of commands have samples.
fn ordinals() -> String {
    macro_rules! variants {
        ($($name:ty),* $(,)?) => { [$(variants_of::<$name>()),*].concat() };
    }
    variants! {
        access::Tls, audit::AuditCaller, audit::AuditObject, audit::AuditOutcome, audit::CommandKind,
        audit::RefusalKind, calendar::DstGap, calendar::DstOverlap, calendar::When, campaign::CampaignStage,
        campaign::StageKind, canary::CanaryVerdict, causes::BlockCause, causes::DeadLetterCause, causes::MissedCause,
        causes::PauseReason, command::Decider, command::OutcomeSource, command::RefusalEffect, command::ReleaseReason,
        command::Unsendable, claim_history::ClaimEventKind, claim_history::DoubtReason, command::Actor,
        command::AuthorityStep, command::Decision, command::KeyRule, command::Quarantined, content::AudienceChoice,
        content::ContentChoice, content::WrongSeal, etag::EtagKind, events::EventKind, events::EventSubject,
        ids::OccurrenceName, impossible::Impossible, impossible::LimitedQuantity, labels::WrongLabel, policy::CatchUp,
        policy::InDoubt, policy::Overlap, refusal::CommandRefusal, reply::CommandOutcome, reply::ScheduleCreation,
        reveille_ledger::BackupResult, reveille_ledger::InstantOutcome, command::OpeningCause,
        reveille_ledger::PartContent, reveille_ledger::RecipientState, reveille_ledger::RelayShare,
        reveille_ledger::RotationPhase, reveille_ledger::RunFile, reveille_ledger::RunState,
        reveille_ledger::RunStateKind, reveille_ledger::ScheduleState, reveille_ledger::ScheduleStateKind,
        command::UnopenedReason, run_events::RunEventKind, token::TenantScope,
    }
}

/// A stored variant keeps its ordinal; new variants are added at the end (P23).
#[test]
fn ordinals_equal_those_recorded() {
    let text = ordinals();
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(ORDINALS, &text).expect(ORDINALS);
    }
    assert!(!text.contains("not an enum"), "{text}");
    let recorded = std::fs::read_to_string(ORDINALS).expect(ORDINALS);
    for (now, then) in text.lines().zip(recorded.lines()) {
        assert_eq!(now, then, "an ordinal has changed");
    }
    assert_eq!(text.lines().count(), recorded.lines().count(), "variants came or went");
}

fn entry(command: Command) -> Entry {
    Entry { epoch: Epoch(300), now: Time(1_772_409_600_123), actor: Actor::System, command }
}

/// Returns all recorded values, by name.
fn samples() -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for (name, command) in samples::commands() {
        all.insert(format!("command {name}"), entry(command).to_bytes());
    }
    for (name, actor) in samples::actors() {
        let entry = Entry { actor, ..entry(Command::Tick) };
        all.insert(format!("actor {name}"), entry.to_bytes());
    }
    for (name, reply) in samples::replies() {
        all.insert(format!("reply {name}"), postcard::to_stdvec(&reply).expect("plain data"));
    }
    for (name, command) in samples::commands() {
        all.insert(format!("fingerprint {name}"), fingerprint(&command).0.to_vec());
    }
    for (number, (key, value)) in samples::ledger().all_rows().enumerate() {
        all.insert(format!("row {number:02} key {}", hex(&key)), value);
    }
    // The forms of all rows, and how they are divided into pages.
    all.insert("state hash".to_owned(), samples::ledger().state_hash().0.to_vec());
    all
}

#[test]
fn bytes_equal_those_recorded() {
    let text: String = samples().iter().map(|(name, bytes)| format!("{name} = {}\n", hex(bytes))).collect();
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(RECORD, &text).expect(RECORD);
    }
    let recorded = std::fs::read_to_string(RECORD).expect(RECORD);
    for (now, then) in text.lines().zip(recorded.lines()) {
        assert_eq!(now, then, "the format has changed");
    }
    assert_eq!(text.lines().count(), recorded.lines().count(), "samples came or went");
}

#[test]
fn recorded_bytes_decode_to_the_same() {
    let recorded = std::fs::read_to_string(RECORD).expect(RECORD);
    let recorded: BTreeMap<&str, &str> = recorded.lines().filter_map(|line| line.split_once(" = ")).collect();
    for (name, command) in samples::commands() {
        let bytes = unhex(recorded[format!("command {name}").as_str()]);
        assert_eq!(Entry::from_bytes(&bytes), Ok(entry(command)), "{name}");
    }
    let rows = recorded.iter().filter_map(|(name, value)| Some((unhex(name.split_once(" key ")?.1), unhex(value))));
    let restored = Ledger::from_rows(rows).expect("the recorded rows read back");
    assert_eq!(restored.state_hash(), samples::ledger().state_hash());
}

#[test]
fn every_table_has_a_row_among_the_samples() {
    let mut tables: Vec<u8> = samples::ledger().all_rows().filter_map(|(key, _)| key.first().copied()).collect();
    tables.dedup();
    assert_eq!(tables, (0..=25).collect::<Vec<u8>>());
}

#[test]
fn every_command_has_ordinal_and_sample() {
    let commands = samples::commands();
    let ordinals: Vec<u8> = commands.iter().map(|(_, command)| ordinal(command)).collect();
    let mut sorted = ordinals.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted, (0..samples::COMMANDS).collect::<Vec<u8>>());
    for (name, command) in &commands {
        assert!(name.starts_with(samples::name(command)), "{name}");
    }
}

/// Returns the byte after form, epoch, time and actor.
fn ordinal(command: &Command) -> u8 {
    Entry { epoch: Epoch(0), now: Time(0), actor: Actor::System, command: command.clone() }.to_bytes()[4]
}

#[test]
fn unknown_ordinal_is_refused() {
    for ordinal in [samples::COMMANDS + cfg!(feature = "next-level") as u8, 100, 127] {
        assert!(Entry::from_bytes(&[FORM, 0, 0, 0, ordinal]).is_err(), "{ordinal}");
        assert!(Entry::from_bytes(&[FORM, 0, 0, 0, ordinal, 0, 0, 0, 0, 0]).is_err(), "{ordinal}");
    }
    assert!(Entry::from_bytes(&[FORM, 0, 0, 0, 0xc8, 0x01]).is_err());
    assert!(Entry::from_bytes(&[FORM, 0, 0, 4, 1]).is_err(), "an unknown actor");
}

#[test]
fn another_form_of_entry_row_or_content_is_refused() {
    let entry = entry(Command::Tick).to_bytes();
    assert!(Entry::from_bytes(&entry).is_ok());
    let (key, row) = samples::ledger().all_rows().next().expect("the head");
    assert!(Ledger::from_rows([(key.clone(), row.clone())]).is_ok());
    let content = samples::commands().into_iter().find_map(|(_, command)| match command {
        Command::SendMessages(send) => send.messages.first().map(|message| message.content.blob().bytes),
        _ => None,
    });
    let content = content.expect("a content among the samples");
    assert!(Content::from_blob(&content).is_some());
    for form in [0, FORM + 1, 255] {
        let other = |bytes: &[u8]| [&[form], &bytes[1..]].concat();
        assert!(Entry::from_bytes(&other(&entry)).is_err(), "{form}");
        assert!(Ledger::from_rows([(key.clone(), other(&row))]).is_err(), "{form}");
        assert_eq!(Content::from_blob(&other(&content)), None, "{form}");
    }
}

#[test]
fn surplus_or_missing_bytes_are_refused() {
    for (name, command) in samples::commands() {
        let mut bytes = entry(command).to_bytes();
        for length in 0..bytes.len() {
            assert!(Entry::from_bytes(&bytes[..length]).is_err(), "{name}: the first {length} bytes");
        }
        bytes.push(0);
        assert!(Entry::from_bytes(&bytes).is_err(), "{name}: one byte more");
    }
    let (key, mut value) = samples::ledger().all_rows().next().expect("the head");
    value.push(0);
    assert!(Ledger::from_rows([(key, value)]).is_err());
    let (mut key, value) = samples::ledger().all_rows().nth(1).expect("a node");
    key.push(0);
    assert!(Ledger::from_rows([(key, value)]).is_err());
    assert!(Ledger::from_rows([(vec![99], vec![0])]).is_err(), "an unknown table");
    assert!(Ledger::from_rows([(vec![], vec![])]).is_err());
}

#[test]
fn bitmap_in_other_form_is_refused() {
    let claim = |slice: Bitmap| {
        let owner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
        let page = PageId(RunId { index: 1, place: 0 });
        entry(Command::Claim(vec![ClaimRequest { chunk: page.chunk(0), slice, owner }])).to_bytes()
    };
    // `canonical` is {7} as a list of numbers, `as_run` the same set as a run. The second form is refused: equal sets must
    // be equal bytes (P2).
    let (canonical, as_run) = ([3, 1, 0, 7], [5, 2, 0, 7, 0, 7]);
    let bytes = claim([7].into_iter().collect());
    let at = bytes.windows(4).position(|window| window == canonical).expect("the set");
    let other = [&bytes[..at], &as_run, &bytes[at + 4..]].concat();
    assert!(Entry::from_bytes(&bytes).is_ok());
    assert!(Entry::from_bytes(&other).is_err(), "the same set as a run");
    // {0..9}: a run; as numbers it would be longer. A reversed run and overlapping runs are not valid.
    for form in [&[2, 0, 9, 0, 0][..], &[2, 0, 0, 0, 4, 0, 5, 0, 9], &[2, 0, 0, 0, 5, 0, 3, 0, 9], &[1, 0, 2, 0, 2]] {
        assert_eq!(Bitmap::from_bytes(form), None, "{form:?}");
    }
    let stored = samples::ledger();
    let (key, value) = stored.all_rows().find(|(key, _)| key[0] == 8).expect("a row");
    let set = value.windows(4).position(|window| window == [3, 1, 0, 1]).expect("a set of one");
    let value = [&value[..set], &[5, 2, 0, 1, 0, 1], &value[set + 4..]].concat();
    assert!(Ledger::from_rows([(key, value)]).is_err());
}
