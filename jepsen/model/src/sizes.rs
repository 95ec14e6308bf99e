//! The size of a search: the maximum number of each kind of event.

use crate::names::Time;
use crate::run::Policies;
use crate::state::ModelState;

/// Maximum number of each kind of event in one search, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Recipients of the run: 1 to 8.
    pub recipients: u8,
    /// Claims.
    pub claims: u8,
    /// Elections after the opening one.
    pub elections: u8,
    /// `kill -9` of a process.
    pub kills: u8,
    /// Power cuts of a node.
    pub power_cuts: u8,
    /// Refusals by the relay, all because of the mailbox.
    pub refusals: u8,
    /// Opt-out entries, all of recipient 0. Repetitions count.
    pub opt_outs: u8,
    /// Pauses of the run.
    pub pauses: u8,
    /// Resumes of the run.
    pub resumes: u8,
    /// Cancels of the run. Repetitions count.
    pub cancels: u8,
    /// Decisions of operators about a recipient in doubt, either way.
    pub decisions: u8,
    /// Dead recipients that operators send again.
    pub requeues: u8,
    /// The latest instant of ledger time. 0: ledger time does not move.
    pub until: Time,
    /// The policies of the run.
    pub policies: Policies,
    /// The state with which a process starts.
    pub replay: Replay,
}

impl Sizes {
    /// One recipient, one claim, and no failure. All other sizes are based on it.
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

    /// Returns true if another claim may be granted.
    pub fn has_claims_left(&self, state: &ModelState) -> bool {
        state.log.tip().claims.len() < usize::from(self.claims)
    }
}

/// The state with which a process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// The opening state: the process applies every entry again, one by one.
    Everything,
    /// The committed state. By P10 nothing before its own `NodeUp` concerns a process, so this is the same protocol
    /// with fewer states.
    Nothing,
}
