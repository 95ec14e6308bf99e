//! The reaction to one entry: the reply, the effects, and the changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::bounce_breaker::BounceBreaker;
use reveille_ledger::canary::CanaryState;
use reveille_ledger::command::{Fire, NextInstant};
use reveille_ledger::effect::Effect;
use reveille_ledger::ids::{RunId, ScheduleId};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::{
    CancelledRun, ChangedRecipients, CommandOutcome, CommandReply, MessageReceipt, ScheduleCreation,
};
use reveille_ledger::{ApplyResult, Ledger, Page, RecipientState, Run, RunState, wave_start};

use super::arguments::ranges;
use super::test_ledger::TestLedger;

/// Lines of one kind that are printed at most; of more lines only the first ones.
const LINES_MAX: usize = 16;

pub fn reaction(test: &TestLedger, before: &Ledger, applied: &ApplyResult) -> String {
    let mut text = format!("{}\n", reply(test, &applied.reply));
    let effects = applied.effects.iter().map(|effect| format!("  -> {}", effect_words(test, effect)));
    few(&mut text, effects.collect());
    few(&mut text, changes(test, before).into_iter().map(|line| format!("  {line}")).collect());
    text
}

fn few(text: &mut String, lines: Vec<String>) {
    let shown = if lines.len() > LINES_MAX { LINES_MAX / 2 } else { lines.len() };
    for line in &lines[..shown] {
        let _ = writeln!(text, "{line}");
    }
    if shown < lines.len() {
        let _ = writeln!(text, "  ... and {} more", lines.len() - shown);
    }
}

fn reply(test: &TestLedger, reply: &CommandReply) -> String {
    let said = match &reply.outcome {
        CommandOutcome::Done => "done".to_owned(),
        CommandOutcome::EpochStarted { epoch, base, clocks_agree } => {
            let agree = if *clocks_agree { "clocks agree" } else { "clocks disagree" };
            format!("epoch {} from {}, {agree}", epoch.0, test.time(*base))
        }
        CommandOutcome::Schedule(id) => format!("schedule {id}"),
        CommandOutcome::Run { run, cancelled, is_repeat } => {
            let one = |one: &CancelledRun| {
                format!("; cancels {}: {} pending, {} claimed", one.run, one.cancelled, one.claimed)
            };
            let again = if *is_repeat { ", opened before" } else { "" };
            format!("run {run}{again}{}", cancelled.runs.iter().map(one).collect::<String>())
        }
        CommandOutcome::Fired(answers) => list(answers.iter().map(|answer| match answer {
            Ok(runs) => format!("fired {}", list(runs.iter().map(RunId::to_string))),
            Err(refusal) => format!("refused: {refusal}"),
        })),
        CommandOutcome::Claimed(answers) => list(answers.iter().map(|answer| match answer {
            Ok(fence) => format!("granted {fence}"),
            Err(refusal) => format!("refused: {refusal}"),
        })),
        CommandOutcome::Backfilled { opened, first, last, known, rest, inside_gap } => {
            let run = |run: &Option<RunId>| run.map_or("none".to_owned(), |run| run.to_string());
            let rest = rest.map_or(String::new(), |rest| format!("; the rest begins at {}", test.time(rest)));
            let inside = if *inside_gap == 0 { String::new() } else { format!("; {inside_gap} inside the gap") };
            format!("backfilled {opened}, {} to {}; {known} had opened before{inside}{rest}", run(first), run(last))
        }
        CommandOutcome::Schedules(created) => {
            let one = |one: &Result<ScheduleCreation, CommandRefusal>| match one {
                Ok(ScheduleCreation::Created(id)) => format!("schedule {id}"),
                Ok(ScheduleCreation::Existed(id)) => format!("schedule {id} existed"),
                Err(refusal) => format!("refused: {refusal}"),
            };
            created.iter().map(one).collect::<Vec<_>>().join("; ")
        }
        CommandOutcome::Messages(receipts) => list(receipts.iter().map(|receipt| match receipt {
            Ok(MessageReceipt { run, is_repeat: false }) => format!("run {run}"),
            Ok(MessageReceipt { run, is_repeat: true }) => format!("run {run} again"),
            Err(refusal) => format!("refused: {refusal}"),
        })),
        CommandOutcome::Template(version) => format!("version {version}"),
        CommandOutcome::Archived(runs) => format!("archived {runs} runs"),
        CommandOutcome::Changed(count) => format!("moved {count}"),
        CommandOutcome::ChangedByRun(runs) => {
            let describe = |moved: &Result<ChangedRecipients, CommandRefusal>| match moved {
                Ok(ChangedRecipients { recipients, inside_gap: 0 }) => format!("moved {recipients}"),
                Ok(ChangedRecipients { recipients, inside_gap }) => {
                    format!("moved {recipients}, {inside_gap} inside the gap")
                }
                Err(refusal) => format!("refused: {refusal}"),
            };
            runs.iter().map(describe).collect::<Vec<_>>().join("; ")
        }
        CommandOutcome::DeadLetters { moved: ChangedRecipients { recipients, inside_gap }, cancelled, rest } => {
            let inside = if *inside_gap == 0 { String::new() } else { format!(", {inside_gap} inside the gap") };
            let left = if *cancelled == 0 { String::new() } else { format!(", {cancelled} left") };
            let rest = rest.map_or(String::new(), |rest| format!("; more after {}#{}", rest.run, rest.number));
            format!("moved {recipients}{inside}{left}{rest}")
        }
        CommandOutcome::Refused(refusal) => format!("refused: {refusal}"),
    };
    let again = if reply.index == test.index { String::new() } else { format!(", as {} did", reply.index) };
    format!("[{}{again}] {said}", test.index)
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    match items.len() {
        0 => "nothing".to_owned(),
        1..=4 => items.join("; "),
        count => format!("{}; ... {}, {count} in all", items[0], items[count - 1]),
    }
}

fn effect_words(test: &TestLedger, effect: &Effect) -> String {
    match effect {
        Effect::DueChanged { schedule, due } => {
            let due = due.map_or("nothing".to_owned(), |due| test.time(due));
            format!("timer: schedule {schedule} is due {due}")
        }
        Effect::WorkAppeared(page) => format!("dispatcher: work on {page}"),
        Effect::ClaimGranted { fence, owner } => format!("lane of {owner}: row {}", test.fence_name(*fence)),
        Effect::ClaimEmptied { fence, owner } => {
            format!("lane of {owner}: nothing is claimed in {}", test.fence_name(*fence))
        }
        Effect::RelaysChanged => "pools: relays changed".to_owned(),
        Effect::Alarm(text) => format!("alarm: {text}"),
        Effect::ClockMoved(now) => format!("leader: it is {}", test.time(*now)),
    }
}

/// Returns the visible changes of the state.
fn changes(test: &TestLedger, before: &Ledger) -> Vec<String> {
    let mut lines = Vec::new();
    for (id, _) in test.ledger.schedules().iter() {
        differences(&mut lines, &schedule_facts(test, before, *id), &schedule_facts(test, &test.ledger, *id));
    }
    let gone = before.runs().filter(|(id, ..)| test.ledger.run(*id).is_none());
    lines.extend(gone.map(|(id, _, run)| format!("{id} of {} has left", run.label())));
    let gone = before.summaries().iter().filter(|(id, _)| !test.ledger.summaries().contains(id));
    lines.extend(gone.map(|(id, summary)| format!("the summary of {id} of {} is forgotten", summary.name)));
    for (id, page, run) in test.ledger.runs() {
        match before.run(id) {
            None => lines.push(opened(test, id, page, run)),
            Some(_) => differences(&mut lines, &run_facts(before, id), &run_facts(&test.ledger, id)),
        }
        if before.run(id).is_some() {
            recipients(&mut lines, test, before, id, run.count);
        }
    }
    lines
}

type Facts = BTreeMap<String, String>;

fn differences(lines: &mut Vec<String>, old: &Facts, new: &Facts) {
    for (name, value) in new {
        if let Some(was) = old.get(name)
            && was != value
        {
            lines.push(format!("{name} {was} -> {value}"));
        }
    }
}

fn schedule_facts(test: &TestLedger, ledger: &Ledger, id: ScheduleId) -> Facts {
    let Some(schedule) = ledger.schedules().get(&id) else { return Facts::new() };
    let plan = &schedule.plan;
    let fact = |what: &str, value: String| (format!("{}: {what}", schedule.name), value);
    Facts::from([
        fact("is", schedule.state.word().to_owned()),
        fact("next", plan.next.as_ref().map_or("none".to_owned(), |next| instant(test, next))),
        fact("plan", plan.version.to_string()),
        fact("labels", format!("{:?}", BTreeMap::from(schedule.labels.clone()))),
        fact("opened", plan.opened.to_string()),
        fact("fired through", test.time(plan.fired_through)),
        fact("refusals", plan.refusals.to_string()),
        fact(
            "held",
            plan.blocked_by
                .as_ref()
                .as_ref()
                .map_or("by nothing".to_owned(), |by| format!("by {} through {}", by.run, test.time(by.through))),
        ),
        fact("missed before", plan.missed_before.map_or("nothing".to_owned(), |at| test.time(at))),
        fact("forgotten through", plan.forgotten_through.map_or("nothing".to_owned(), |at| test.time(at))),
    ])
}

pub fn instant(test: &TestLedger, next: &NextInstant) -> String {
    match next.jitter_ms {
        0 => format!("{} ({})", test.time(next.due), next.occurrence),
        _ => format!("{} ({}, opens {})", test.time(next.due), next.occurrence, test.time(next.opens())),
    }
}

fn run_facts(ledger: &Ledger, id: RunId) -> Facts {
    let Some(run) = ledger.run(id) else { return Facts::new() };
    let fact = |what: &str, value: String| (format!("{id} {what}"), value);
    Facts::from([
        fact("is", state(run)),
        fact("finished at", run.finished_index.map_or("no index".to_owned(), |index| index.to_string())),
        fact("known duplicates", run.known_duplicates.to_string()),
        fact("contradictions", run.contradictions.to_string()),
        fact("assumptions disproved", run.assumptions_disproved.to_string()),
        fact("resent", run.resent.to_string()),
        fact("canary", canary(run)),
        fact("bounce breaker", bounce_breaker(run)),
        fact("blocked", run.blocked.map_or("no".to_owned(), |blocked| format!("by {}", blocked.file))),
    ])
}

pub fn state(run: &Run) -> String {
    match &run.state {
        RunState::Paused { reason } => format!("paused ({reason})"),
        RunState::Cancelled { by: Some(run) } => format!("cancelled (made way for {run})"),
        RunState::Expired { paused: Some(reason) } => format!("expired, paused ({reason})"),
        other => other.word().to_owned(),
    }
}

/// The state of the run's canary.
fn canary(run: &Run) -> String {
    run.canary.map_or("none".to_owned(), |CanaryState { recipients, bad_max, undecided, bad, verdict, .. }| {
        format!("{verdict:?}: of {recipients} {undecided} undecided, {bad} bad of at most {bad_max}")
    })
}

/// Counts of the run's bounce breaker. Empty below the number of dead recipients at which a run may be paused.
fn bounce_breaker(run: &Run) -> String {
    let BounceBreaker { window, decided, dead } = run.bounce_breaker;
    if dead < 20 {
        return "below 20 dead".to_owned();
    }
    format!("{dead} dead of {decided} in a window of {window}")
}

fn opened(test: &TestLedger, id: RunId, page: &Page, run: &Run) -> String {
    let times = format!("due {}, until {}", test.time(run.due), test.time(run.finish_by));
    let place = if page.runs.len() > 1 { format!(", slots from {}", run.first) } else { String::new() };
    let waited = run.waited_for.map_or(String::new(), |former| format!(", waited for {former}"));
    let canary = run.canary.map_or(String::new(), |of| format!(", a canary of {}", of.recipients));
    let (name, occurrence) = (run.label(), &run.occurrence);
    format!("{id} opened: {} of {name}, {occurrence}, {times}{place}{waited}{canary}", run.count)
}

pub fn word(state: RecipientState) -> String {
    match state {
        RecipientState::InDoubt => "in_doubt".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// Facts about one recipient.
fn recipient(test: &TestLedger, ledger: &Ledger, run: RunId, number: u32) -> [String; 7] {
    let Some((chunk, slot)) = ledger.slot_of(run, number) else { return Default::default() };
    let Some(chunk) = ledger.chunks().get(&chunk) else { return Default::default() };
    let wave = chunk.waves.iter().find(|(_, slots)| slots.contains(slot));
    let wave = wave
        .map_or("waits for nothing".to_owned(), |(wave, _)| format!("waits until {}", test.time(wave_start(*wave))));
    let dead = ledger.dead().get(&run.recipient(number)).map_or("no letter".to_owned(), |letter| {
        let discarded = if letter.discarded { ", discarded" } else { "" };
        format!("letter: {} {}, {} attempts{discarded}", letter.code, letter.text(), letter.attempts)
    });
    let attempts = chunk.attempts.get(&slot).copied().unwrap_or(0);
    let deferred = chunk.deferrals.get(slot);
    let deferred = deferred.map_or("not deferred".to_owned(), |of| format!("deferral {}: {}", of.step, of.code));
    let suspect = if chunk.crash_suspects.contains(slot) { "a suspect" } else { "no suspect" };
    let pool = chunk.pool_of(slot).map_or("its run's pool".to_owned(), |pool| format!("pool {pool}"));
    let state = chunk.state(slot).map(word).unwrap_or_default();
    [state, format!("{attempts} attempts"), deferred, wave, dead, suspect.to_owned(), pool]
}

/// Changes of recipients; equal changes of neighbours are on one line.
fn recipients(lines: &mut Vec<String>, test: &TestLedger, before: &Ledger, run: RunId, count: u32) {
    let mut texts: Vec<(String, Vec<u32>)> = Vec::new();
    let mut equal_chunks = BTreeMap::new();
    for number in 0..count.min(CHUNK) {
        // Most entries leave most chunks as they are, and the texts of many recipients take long.
        let is_chunk_equal = test.ledger.slot_of(run, number).is_some_and(|(chunk, _)| {
            *equal_chunks
                .entry(chunk)
                .or_insert_with(|| before.chunks().get(&chunk) == test.ledger.chunks().get(&chunk))
        });
        let id = run.recipient(number);
        if is_chunk_equal && before.dead().get(&id) == test.ledger.dead().get(&id) {
            continue;
        }
        let (old, new) = (recipient(test, before, run, number), recipient(test, &test.ledger, run, number));
        let changed = |(was, is): (&String, &String)| (was != is).then(|| format!("{was} -> {is}"));
        let changed: Vec<String> = old.iter().zip(&new).filter_map(changed).collect();
        if changed.is_empty() {
            continue;
        }
        let text = changed.join(", ");
        match texts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, numbers)) => numbers.push(number),
            None => texts.push((text, vec![number])),
        }
    }
    lines.extend(texts.into_iter().map(|(text, numbers)| format!("{run}#{} {text}", ranges(&numbers))));
}

/// A fire that a leader computed, before it is proposed.
pub fn fire(test: &TestLedger, fire: &Fire) -> String {
    let mut lines = Vec::new();
    for opening in &fire.opened {
        let finish = test.time(opening.finish_by);
        lines.push(format!("opens {} due {} ({:?}), until {finish}", opening.occurrence, opening.due, opening.cause));
    }
    for explained in &fire.explained {
        let range = match explained.count() {
            1 => explained.first.to_string(),
            count => format!("{} to {}, {count} in all", explained.first, explained.last()),
        };
        lines.push(format!("explains {range}: {:?}", explained.reason));
    }
    let next = fire.next.as_ref().map_or("none".to_owned(), |next| format!("{} due {}", next.occurrence, next.due));
    lines.push(format!("through {}, next {next}", fire.through));
    let mut text = String::new();
    few(&mut text, lines);
    text
}
