//! Effects of a refusal on its recipient and on its run (P6).
//!
//! The worker classifies the answer; here the answer becomes a dead letter, a counted attempt, a wait, or a pause.
//!
//! A refusal is *unattributed* if it is permanent and may be about the content or the sender. That is an answer about
//! sender or content, and an answer without a cause. It is also an answer about the mailbox without an enhanced code
//! that says so, such as a plain `550 user unknown`. Ten in a row pause the run. Their recipients are then pending, and
//! no recipient becomes dead by an unattributed refusal until an acceptance or a resume ends the series. A run of fewer
//! recipients is paused by as many such refusals as the run has recipients, if the last one is about sender or content.
//! A pause protects the other recipients. A run of one has none: its recipient is dead, also for sender or content.

use std::collections::BTreeMap;

use super::Context;
use super::not_sent::{NextState, is_stale, state_after_not_sent};
use crate::command::{OpeningCause, RelayRefusal};
use crate::model::{
    ChunkKey, Claim, ClaimEventKind, DeadLetter, DeadLetterCause, Deferral, EnhancedCode, Ledger, LedgerLimits,
    PauseReason, RecipientId, RecipientState, RefusalEffect, Run, RunEventKind, RunId, RunState, Time,
};

/// Whether one more unattributed refusal completes the series of its run.
enum RefusalSeries {
    /// The run goes on.
    Incomplete,
    /// The refusal was the last one of the series.
    Complete {
        /// Numbers of the refused recipients.
        recipients: Vec<u32>,
        /// True if the state of the run allows a pause.
        pauses: bool,
    },
}

/// The deferral of a recipient after an answer, and how long the recipient waits.
struct NextDeferral {
    deferral: Deferral,
    wait_ms: i64,
}

impl Ledger {
    /// Applies the refusals of a claim, each by the effect of its answer.
    pub(super) fn apply_refusals(&mut self, context: &mut Context, claim: &mut Claim, refused: &[RelayRefusal]) -> u64 {
        refused.iter().map(|answer| self.apply_refusal(context, claim, answer)).sum()
    }

    fn apply_refusal(&mut self, context: &mut Context, claim: &mut Claim, answer: &RelayRefusal) -> u64 {
        let (key, limits) = (claim.chunk, self.limits());
        let is_held = claim.claimed.contains(answer.slot) || claim.in_doubt.contains(answer.slot);
        if is_held && is_unattributed(answer) {
            self.count_unattributed_refusal(context, key, answer);
        }
        // Every effect except `NextWave` proves that the email was composed, even if the dialogue broke: RCPT comes
        // after composing. So this recipient does not crash the node that prepares it (P12).
        if is_held && answer.effect != RefusalEffect::NextWave {
            self.clear_crash_suspects(key, &[answer.slot].into_iter().collect());
        }
        let what = ClaimEventKind::Refused {
            code: answer.code,
            enhanced: answer.enhanced,
            effect: answer.effect,
            text: answer.text.clone(),
        };
        let next_deferral = self.deferral_after(key, answer);
        let wait_ms = next_deferral.as_ref().map_or(0, |next| next.wait_ms);
        let moved = self.apply_not_sent(context, claim, (answer.slot, what), |run, attempts, now| {
            next_state(run, attempts, now, answer, wait_ms, limits)
        });
        if moved > 0 {
            self.alarm_if_run_of_one_is_refused(context, key, answer);
        }
        if let Some(next) = next_deferral.filter(|_| moved > 0) {
            self.record_deferral(key, answer.slot, next.deferral);
        }
        moved
    }

    /// Raises the alarm that a pause would raise in a larger run. The caller of a test email waits for its answer.
    fn alarm_if_run_of_one_is_refused(&self, context: &mut Context, key: ChunkKey, answer: &RelayRefusal) {
        let Some(id) = self.recipient_at(key, answer.slot).map(|recipient| recipient.run) else { return };
        let refused = |run: &&Run| {
            run.count == 1 && answer.effect == RefusalEffect::MayPauseRun && run.cause != OpeningCause::Test
        };
        if let Some(run) = self.run(id).filter(refused) {
            let enhanced = answer.enhanced.map(|enhanced| format!("{enhanced} ")).unwrap_or_default();
            let (label, code, text) = (run.label(), answer.code, &answer.text);
            context.alarm(format!("run {id} of {label} is refused for its sender or content: {code} {enhanced}{text}"));
        }
    }

    /// Returns the recipient's deferral after an answer; `None` if the answer does not defer the recipient.
    fn deferral_after(&self, key: ChunkKey, answer: &RelayRefusal) -> Option<NextDeferral> {
        if answer.effect != RefusalEffect::BackOff {
            return None;
        }
        let recipient = self.recipient_at(key, answer.slot)?;
        let former = self.chunks.get(&key)?.deferrals.get(answer.slot).map_or(0, |former| former.step);
        let policies = &self.run(recipient.run)?.policies;
        let step = policies.next_deferral(former);
        let deferral = Deferral { step, code: answer.code };
        Some(NextDeferral { deferral, wait_ms: policies.deferral_ms(step, recipient) })
    }

    fn record_deferral(&mut self, key: ChunkKey, slot: u16, deferral: Deferral) {
        if let Some(chunk) = self.chunks.edit(&key)
            && matches!(chunk.state(slot), Some(RecipientState::Pending | RecipientState::Expired))
        {
            chunk.deferrals.put(slot, deferral);
        }
    }

    /// Counts an unattributed refusal. The last refusal of a series without an accept ([`series_length_that_pauses`])
    /// pauses the run, and the recipients of the earlier refusals become pending again.
    fn count_unattributed_refusal(&mut self, context: &mut Context, key: ChunkKey, answer: &RelayRefusal) {
        let Some(RecipientId { run: id, number }) = self.recipient_at(key, answer.slot) else { return };
        let limits = self.limits();
        let series = self.edit_run(key, answer.slot, |run| add_to_series(run, number, answer, limits));
        let Some(RefusalSeries::Complete { recipients, pauses }) = series else { return };
        let halted = pauses.then(|| PauseReason::UnattributedRefusals {
            count: recipients.len() as u32,
            code: answer.code,
            enhanced: answer.enhanced,
            text: answer.text.clone(),
        });
        if let Some(reason) = &halted {
            let reason = self.fit_in_page(id, reason.clone());
            self.edit_run(key, answer.slot, |run| run.state = RunState::Paused { reason });
        }
        for number in recipients {
            self.undo_dead(context, id, number);
        }
        let run = self.run(id).map(|run| (run.label().to_owned(), run.schedule));
        if let (Some(reason), Some((name, schedule))) = (halted, run) {
            let text = format!("run of {name} is paused: {reason}");
            self.record_run_event(context, id, RunEventKind::Paused(reason), BTreeMap::new());
            context.alarm(text);
            self.update_overlap_indexes(context, schedule, id);
        }
    }

    /// Undoes a dead letter of an unattributed refusal: the recipient is pending, and the attempt is not counted.
    fn undo_dead(&mut self, context: &mut Context, run: RunId, recipient: u32) {
        let Some((key, slot)) = self.slot_of(run, recipient) else { return };
        let goes_on = self.run(run).is_some_and(|run| !is_stale(run, context.now) && !run.state.is_cancelled());
        let is_unattributed =
            |letter: &DeadLetter| !letter.discarded && is_unattributed_code(letter.code, letter.enhanced);
        if !goes_on || !self.dead.get(&run.recipient(recipient)).is_some_and(is_unattributed) {
            return;
        }
        let Some(letter) = self.dead.remove(&run.recipient(recipient)) else { return };
        if let Some(chunk) = self.chunks.edit(&key) {
            match letter.attempts.saturating_sub(1) {
                0 => chunk.attempts.remove(&slot),
                attempts => chunk.attempts.insert(slot, attempts),
            };
        }
        let one = [slot].into_iter().collect();
        self.transition(context, key, &one, RecipientState::Dead, RecipientState::Pending);
        self.record_recipients_event(context, run, RunEventKind::RefusalUndone, &[recipient]);
        self.wait(key, slot, context.now.plus_ms(self.limits().unattributed_wait_ms));
    }
}

/// Adds a refusal to the series of its run, unless the run has one recipient. A recipient whose answers name no cause
/// counts once, even if it uses up its attempts. Otherwise the last few recipients of a run could pause it. A refusal
/// for sender or content counts each time.
fn add_to_series(run: &mut Run, recipient: u32, answer: &RelayRefusal, limits: &LedgerLimits) -> RefusalSeries {
    let is_repeated = answer.effect == RefusalEffect::CountAttempt && run.unattributed_refusals.contains(&recipient);
    if run.count == 1 || is_repeated || series_is_full(run, limits) {
        return RefusalSeries::Incomplete;
    }
    run.unattributed_refusals.push(recipient);
    if run.unattributed_refusals.len() < series_length_that_pauses(run, answer.effect, limits) {
        return RefusalSeries::Incomplete;
    }
    let pauses = matches!(run.state, RunState::Open | RunState::Finished);
    RefusalSeries::Complete { recipients: run.unattributed_refusals.clone(), pauses }
}

/// True for a permanent answer that may be about the content or the sender. An answer about the relay (a changed
/// password, a used-up daily limit) is never unattributed, whatever its code.
fn is_unattributed(answer: &RelayRefusal) -> bool {
    match answer.effect {
        RefusalEffect::NextWave | RefusalEffect::BackOff => false,
        // An answer about the sender may have a code of the subjects 1 and 2 (x.1.7, x.1.8).
        RefusalEffect::MayPauseRun | RefusalEffect::CountAttempt => answer.code >= 500,
        RefusalEffect::Dead => is_unattributed_code(answer.code, answer.enhanced),
    }
}

/// True for a permanent refusal whose enhanced code does not name this mailbox (x.1.x, x.2.x). It is perhaps about
/// content or sender. Without an enhanced code this holds for `550 user unknown` too.
fn is_unattributed_code(code: u16, enhanced: Option<EnhancedCode>) -> bool {
    code >= 500 && !enhanced.is_some_and(EnhancedCode::names_mailbox)
}

/// Length of the series of unattributed refusals that pauses the run, if the last refusal has this effect.
///
/// A run of fewer than ten recipients could be refused as a whole without an alarm. So a small run is paused after as
/// many refusals as the run has recipients, if the last refusal is about sender or content. Refusals that may be about
/// one recipient always need ten: a run of two must not be paused because its mailboxes are unknown.
fn series_length_that_pauses(run: &Run, effect: RefusalEffect, limits: &LedgerLimits) -> usize {
    let recipients = if effect == RefusalEffect::MayPauseRun { run.count as usize } else { usize::MAX };
    limits.unattributed_series.min(recipients)
}

/// True if the series of unattributed refusals is so long that no such refusal makes a dead letter.
fn series_is_full(run: &Run, limits: &LedgerLimits) -> bool {
    run.unattributed_refusals.len() >= limits.unattributed_series
}

/// Next state after an answer (P6).
fn next_state(
    run: &Run,
    attempts: u8,
    now: Time,
    answer: &RelayRefusal,
    wait_ms: i64,
    limits: &LedgerLimits,
) -> NextState {
    let unattributed_wait = now.plus_ms(limits.unattributed_wait_ms);
    match answer.effect {
        _ if series_is_full(run, limits) && is_unattributed(answer) => {
            state_after_not_sent(run, attempts, now, Some(unattributed_wait))
        }
        RefusalEffect::NextWave => state_after_not_sent(run, attempts, now, Some(now)),
        RefusalEffect::BackOff => state_after_not_sent(run, attempts, now, Some(now.plus_ms(wait_ms))),
        RefusalEffect::MayPauseRun if run.count > 1 => {
            state_after_not_sent(run, attempts, now, Some(unattributed_wait))
        }
        RefusalEffect::Dead | RefusalEffect::CountAttempt | RefusalEffect::MayPauseRun => {
            count_attempt(run, attempts.saturating_add(1), now, answer)
        }
    }
}

/// Next state after a counted attempt, the `attempts`-th. It is the last attempt unless the answer names no cause.
fn count_attempt(run: &Run, attempts: u8, now: Time, answer: &RelayRefusal) -> NextState {
    let letter = DeadLetter {
        code: answer.code,
        enhanced: answer.enhanced,
        cause: DeadLetterCause::Answer(answer.text.clone()),
        attempts,
        since: now,
        discarded: false,
    };
    if answer.effect != RefusalEffect::CountAttempt || attempts >= run.policies.max_attempts {
        return NextState::dead(letter);
    }
    let until = now.plus_ms(run.policies.backoff_ms(attempts));
    let next = state_after_not_sent(run, attempts, now, Some(until));
    NextState { dead_letter: Some(letter), ..next }
}
