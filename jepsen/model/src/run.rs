//! The run as a whole: whether it sends, its policies, its deadline, and what it counts.

use crate::names::{Index, RECIPIENTS_MAX, Recipient, Time};

/// True if a run sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Recipients are claimed and sent.
    Open,
    /// Nothing is claimed, no gate passes, until an operator resumes it.
    Paused,
    /// An operator cancelled it.
    Cancelled,
    /// Its deadline has passed.
    Expired,
    /// Nothing is pending or claimed, and it is not paused, cancelled or expired.
    Finished,
}

/// The policy for recipients in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InDoubt {
    /// It stays in doubt until evidence arrives or an operator decides.
    Hold,
    /// It is sent again: a duplicate is possible, by choice, and counted.
    Resend,
    /// It is closed as assumed when the run is finished.
    AssumeSent,
}

/// The policies of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policies {
    /// For recipients in doubt.
    pub in_doubt: InDoubt,
    /// Refusals because of the mailbox until a recipient is dead.
    pub max_attempts: u8,
    /// The time to send a run, from its opening, and again from each reopening by an operator.
    pub finish_by: Time,
}

impl Policies {
    /// Doubts are held, three attempts, and no deadline.
    pub const DEFAULT: Policies = Policies { in_doubt: InDoubt::Hold, max_attempts: 3, finish_by: Time::MAX };
}

/// The run, without the states of its recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// True if it sends.
    pub state: RunState,
    /// Its policies.
    pub policies: Policies,
    /// From this instant on no recipient of it is claimed and no gate passes (P16).
    pub finish_by: Time,
    /// The index of the operator's entry by which it stopped sending; 0 while it sends, or if no operator stopped it.
    pub stopped_since: Index,
    /// The index of the last pause or cancel, for which a barrier of the run waits.
    pub stop_index: Index,
    /// Counted attempts of each recipient (P4, P6).
    pub attempts: [u8; RECIPIENTS_MAX],
    /// Decisions to send a recipient in doubt again.
    pub resent: u8,
    /// Acceptances of a recipient that was sent under another fence.
    pub known_duplicates: u8,
    /// Acceptances of a recipient in another terminal state.
    pub contradictions: u8,
    /// Assumed recipients that turned out not to have been handed off.
    pub assumptions_disproved: u8,
}

impl Run {
    /// Returns a run that has just opened, at instant 0.
    pub fn opening(policies: Policies) -> Run {
        Run {
            state: RunState::Open,
            policies,
            finish_by: policies.finish_by,
            stopped_since: 0,
            stop_index: 0,
            attempts: [0; RECIPIENTS_MAX],
            resent: 0,
            known_duplicates: 0,
            contradictions: 0,
            assumptions_disproved: 0,
        }
    }

    /// Returns the counted attempts of one recipient.
    pub fn attempts_of(&self, recipient: Recipient) -> u8 {
        self.attempts[usize::from(recipient)]
    }

    /// Counts an attempt.
    pub fn count_attempt(&mut self, recipient: Recipient) {
        self.attempts[usize::from(recipient)] += 1;
    }

    /// Returns true if the policy `resend` may send a recipient in doubt again. That is a counted attempt; when none is
    /// left, an operator decides (P4).
    pub fn may_resend(&self, recipient: Recipient) -> bool {
        self.attempts_of(recipient) + 1 < self.policies.max_attempts
    }
}
