//! The run as a whole: whether it sends, its policies, its deadline, and what it counts.

use crate::names::{Index, RECIPIENTS_MAX, Recipient, Time};

/// Whether a run sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Recipients are claimed and sent.
    Open,
    /// Nothing is claimed, no gate passes, until an operator resumes it.
    Paused,
    /// An operator ended it.
    Cancelled,
    /// Its deadline ended it.
    Expired,
    /// Nothing is pending or claimed, nor is it paused, cancelled or expired.
    Finished,
}

/// What becomes of a recipient in doubt without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InDoubt {
    /// Stays in doubt until evidence comes, or an operator decides.
    Hold,
    /// Is sent again: a duplicate is possible, by choice, and counted.
    Resend,
    /// Is closed as assumed when the run is finished.
    AssumeSent,
}

/// What an owner may choose about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policies {
    /// Doubt.
    pub in_doubt: InDoubt,
    /// Attempts about the mailbox before a recipient is dead.
    pub max_attempts: u8,
    /// A run has so long to be sent, from when it opens, and again when an operator opens it again.
    pub finish_by: Time,
}

impl Policies {
    /// Doubt is held, three attempts, and a deadline that never comes.
    pub const DEFAULT: Policies = Policies { in_doubt: InDoubt::Hold, max_attempts: 3, finish_by: Time::MAX };
}

/// The run, but for who stands where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Whether it sends.
    pub state: RunState,
    /// What its owner has chosen.
    pub policies: Policies,
    /// From this instant on nothing of it is claimed, and no gate passes (P16).
    pub finish_by: Time,
    /// The index of the entry by which it stopped sending, if it was an operator's; 0 while it sends.
    pub stopped_since: Index,
    /// The index of the last pause or cancel: what a barrier about the run asks for.
    pub stop_index: Index,
    /// Attempts of each recipient that count (P4, P6).
    pub attempts: [u8; RECIPIENTS_MAX],
    /// Decisions to send a recipient again who was in doubt.
    pub resent: u8,
    /// Acceptances of a recipient that another fence had sent.
    pub known_duplicates: u8,
    /// Acceptances of a recipient who had ended otherwise.
    pub contradictions: u8,
    /// Who was assumed turned out not to have been handed off: so often.
    pub assumptions_disproved: u8,
}

impl Run {
    /// A run that has just opened, at instant 0.
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

    /// The attempts of one recipient that count.
    pub fn attempts_of(&self, recipient: Recipient) -> u8 {
        self.attempts[usize::from(recipient)]
    }

    /// One more of them.
    pub fn count_attempt(&mut self, recipient: Recipient) {
        self.attempts[usize::from(recipient)] += 1;
    }

    /// Whether the policy `resend` may act for a recipient in doubt: that is an attempt that counts, and when none is
    /// left a person decides (P4).
    pub fn may_resend(&self, recipient: Recipient) -> bool {
        self.attempts_of(recipient) + 1 < self.policies.max_attempts
    }
}
