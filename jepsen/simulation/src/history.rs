//! The history of a run: its header, its events, and the parts that were observed completely.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};
use reveille_check::History;
use reveille_check::events::{Ended, Event, FORMAT, Header, InDoubt, Phase, PhaseName, Policies, Writer};
use reveille_ledger::policy;

use crate::limits::{self, Limited};
use crate::node::ELECTION;
use crate::options::{FAULTS_AFTER, Options};
use crate::plan::SeedPlan;

/// Maximum milliseconds by which ledger time may be ahead of true time: two of three clocks agree within two seconds
/// (P18), and ledger time is slewed.
pub const CLOCK_ERROR_MS: u64 = 2_500;
/// Maximum lateness of an opening while there is a leader, in milliseconds.
const LATE_MS: u64 = 10_000;
/// The invariants that are judged in every simulation. It has no overload (I12) and no counters of gate passes (I14).
/// I18 is judged if the seed has a budget.
const ASKS: [u8; 12] = [3, 5, 6, 7, 8, 10, 11, 13, 15, 16, 17, 19];

/// Returns the time within which a majority must have a leader: ten seconds, or four election rounds if heartbeats are
/// slow. A voter grants no vote for an election timeout after the last heartbeat, and becomes a candidate after at most
/// another election timeout.
fn led_within_ms(heartbeat_ms: u64) -> u64 {
    const ROUNDS: u64 = 4;
    (ROUNDS * 2 * heartbeat_ms * ELECTION.end).max(10_000)
}

/// Writes the history of these events to the file of the options, and returns the index that the checker judges.
pub fn index(options: &Options, plan: &SeedPlan, mut events: Vec<Event>, at_ns: u64) -> Result<History> {
    let phase = Phase { at_ns: FAULTS_AFTER.as_nanos() as u64, phase: PhaseName::Faults };
    events.push(Event::Phase(phase));
    let limited = Limited::of(options.seed);
    events.push(Event::Limit(limited.limit(plan.begins, None)));
    events.extend(limits::attempts(&plan.schedules).map(Event::Limit));
    let header = Header {
        format: FORMAT,
        seed: options.seed,
        command: options.command.clone(),
        commit: options.commit.clone(),
        began_unix_ms: plan.begins.0,
        nodes: (1..=3).map(|number| format!("n{number}")).collect(),
        in_doubt: match plan.in_doubt {
            policy::InDoubt::Hold => InDoubt::Hold,
            policy::InDoubt::Resend => InDoubt::Resend,
            policy::InDoubt::AssumeSent => InDoubt::AssumeSent,
        },
        sessions: limited.sessions(),
        clock_error_ms: CLOCK_ERROR_MS,
        late_ms: LATE_MS,
        // Emails become due until shortly before the end of the run, so that end is the deadline.
        drain_within_ms: options.minutes * 60_000 * 4 / 10,
        led_within_ms: Some(led_within_ms(options.heartbeat_ms())),
        // Some schedules have `overlap = skip`, and none sets `finish_by`, which is a day by default.
        policies: Policies { finish_within_ms: Some(24 * 3_600_000), finish_at_least_ms: 600_000, may_skip: true },
        asks: ASKS.into_iter().chain(limited.has_budget().then_some(18)).collect(),
        ..Header::default()
    };
    let ended = Ended { at_ns, missing: Vec::new() };
    if let Some(path) = &options.history {
        write(path, &header, &events, &ended).with_context(|| format!("the history {}", path.display()))?;
    }
    let mut index = History::new(header);
    events.into_iter().chain([Event::Ended(ended)]).for_each(|event| index.record(event));
    Ok(index.close())
}

fn write(path: &Path, header: &Header, events: &[Event], ended: &Ended) -> Result<()> {
    let mut writer = Writer::begin(BufWriter::new(File::create(path)?), header)?;
    events.iter().try_for_each(|event| writer.event(event))?;
    writer.end(ended)?;
    Ok(())
}
