//! The history of a run: its header, what was seen of it, and which parts of it are whole.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};
use reveille_check::HistoryIndex;
use reveille_check::history::{Clock, Ended, Event, FORMAT, Header, InDoubt, Part, Phase, PhaseName, Policies, Writer};
use reveille_cluster::node::lease::{LEASE, MARGIN};
use reveille_ledger::policy;

use crate::limits::{self, Limited};
use crate::node::ELECTION;
use crate::options::{FAULTS_AFTER, Options};
use crate::plan::SeedPlan;

/// So far may ledger time be ahead of the true one: two of three clocks agree within two seconds (P18), and it is
/// slewed. Milliseconds.
pub const CLOCK_ERROR_MS: u64 = 2_500;
/// An instant opens at most this late while there is a leader. Milliseconds.
const LATE_MS: u64 = 10_000;
/// Recipients that a node may hold claimed (P12).
const CLAIM_CAP: u32 = 4_096;
/// The invariants that every simulation asks. It has no overload (I12) and no count of gate passes (I14). I18 is asked
/// where there is a budget.
const ASKS: [u8; 12] = [3, 5, 6, 7, 8, 10, 11, 13, 15, 16, 17, 19];

/// A majority has a leader within ten seconds, or four rounds of an election where heartbeats are slow: a voter grants
/// no vote for an election's time after the last heartbeat, and stands after as long again at most.
fn led_within_ms(heartbeat_ms: u64) -> u64 {
    const ROUNDS: u64 = 4;
    (ROUNDS * 2 * heartbeat_ms * ELECTION.end).max(10_000)
}

/// A simulation sees everything, but for these two parts.
const WHOLE: [Part; 16] = [
    Part::Accepts,
    Part::Handoffs,
    Part::Contents,
    Part::Claims,
    Part::Outcomes,
    Part::FinalStates,
    Part::Runs,
    Part::Instants,
    Part::Due,
    Part::Calls,
    Part::Objects,
    Part::Lifetimes,
    Part::Faults,
    Part::Outages,
    Part::OpenClaims,
    Part::StateHashes,
];

/// A whole history in memory.
pub struct History {
    header: Header,
    events: Vec<Event>,
    ended: Ended,
}

/// The history of these events.
pub fn whole(options: &Options, plan: &SeedPlan, mut events: Vec<Event>, at_ns: u64) -> History {
    let phase = Phase { at_ns: FAULTS_AFTER.as_nanos() as u64, phase: PhaseName::Faults };
    events.push(Event::Phase(phase));
    let limited = Limited::of(options.seed);
    events.push(Event::Limit(limited.limit(plan.begins, None)));
    events.extend(limits::attempts(&plan.schedules).map(Event::Limit));
    let ms = |duration: std::time::Duration| duration.as_millis() as u64;
    let header = Header {
        format: FORMAT,
        seed: options.seed,
        command: options.command.clone(),
        commit: options.commit.clone(),
        clock: Clock::Virtual,
        began_unix_ms: plan.begins.0,
        nodes: (1..=3).map(|number| format!("n{number}")).collect(),
        in_doubt: match plan.in_doubt {
            policy::InDoubt::Hold => InDoubt::Hold,
            policy::InDoubt::Resend => InDoubt::Resend,
            policy::InDoubt::AssumeSent => InDoubt::AssumeSent,
        },
        lease_ms: ms(LEASE),
        margin_ms: ms(MARGIN),
        sessions: limited.sessions(),
        claim_cap: CLAIM_CAP,
        clock_error_ms: CLOCK_ERROR_MS,
        late_ms: LATE_MS,
        // Mail becomes due until shortly before the end, so the end is the deadline.
        drain_within_ms: options.minutes * 60_000 * 4 / 10,
        led_within_ms: Some(led_within_ms(options.heartbeat_ms)),
        // Some of its schedules have `overlap = skip`, and none has a `finish_by` of its own: it is a day.
        policies: Policies { finish_within_ms: Some(24 * 3_600_000), finish_at_least_ms: 600_000, may_skip: true },
        asks: ASKS.into_iter().chain(limited.has_budget().then_some(18)).collect(),
        ..Header::default()
    };
    History { header, events, ended: Ended { at_ns, whole: WHOLE.to_vec() } }
}

/// The index that the checker judges.
pub fn index(history: History) -> HistoryIndex {
    let mut index = HistoryIndex::new(history.header);
    history.events.into_iter().for_each(|event| index.note(event));
    index.note(Event::Ended(history.ended));
    index.close()
}

/// As a file.
pub fn write(path: &Path, history: &History) -> Result<()> {
    let file = File::create(path).with_context(|| format!("the history {}", path.display()))?;
    let mut writer = Writer::begin(BufWriter::new(file), &history.header).context("the history")?;
    for event in &history.events {
        writer.event(event).context("the history")?;
    }
    writer.end(&history.ended).context("the end of the history")?;
    Ok(())
}
