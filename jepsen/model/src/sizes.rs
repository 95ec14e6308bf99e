//! How large a search is: what may happen, and how often.

use crate::names::Time;
use crate::run::Policies;
use crate::state::ModelState;

/// How much may happen in one search. Each number bounds how often; the order is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Recipients of the run, 1 to 8.
    pub recipients: u8,
    /// Claims.
    pub claims: u8,
    /// Elections after the opening one.
    pub elections: u8,
    /// `kill -9` of a process.
    pub kills: u8,
    /// Power cuts of a node.
    pub power_cuts: u8,
    /// Definite refusals by the relay, all about the mailbox.
    pub refusals: u8,
    /// Opt-out entries, all of recipient 0: repeats count.
    pub opt_outs: u8,
    /// Pauses of the run.
    pub pauses: u8,
    /// Resumes of it.
    pub resumes: u8,
    /// Cancels of it: repeats count.
    pub cancels: u8,
    /// Decisions of operators about a recipient in doubt, either way.
    pub decisions: u8,
    /// Dead recipients that operators send again.
    pub requeues: u8,
    /// The latest instant of ledger time; 0: it stands still.
    pub until: Time,
    /// What the run's owner has chosen.
    pub policies: Policies,
    /// Where a new life begins.
    pub replay: Replay,
}

impl Sizes {
    /// One recipient, one claim, and nothing that goes wrong: to be widened with `..`.
    pub const CALM: Sizes = Sizes {
        recipients: 1,
        claims: 1,
        elections: 0,
        kills: 0,
        power_cuts: 0,
        refusals: 0,
        opt_outs: 0,
        pauses: 0,
        resumes: 0,
        cancels: 0,
        decisions: 0,
        requeues: 0,
        until: 0,
        policies: Policies::DEFAULT,
        replay: Replay::Nothing,
    };

    /// Whether another claim may be granted.
    pub fn has_claims_left(&self, state: &ModelState) -> bool {
        state.log.tip().claims.len() < usize::from(self.claims)
    }
}

/// The state that a new life begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// The opening state: it applies every entry again, one by one.
    Everything,
    /// What is committed at that moment. Nothing before a life's own `NodeUp` can concern it, if
    /// P10 is kept, so this is the same protocol in fewer states.
    Nothing,
}
