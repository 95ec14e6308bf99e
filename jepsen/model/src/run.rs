//! The run as a whole: its state, its policies, its deadline and its counts.

use crate::names::{Index, RECIPIENTS_MAX, Recipient, Time};

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Recipients are claimed and sent.
    Open,
    /// Nothing is claimed and no gate passes until an operator resumes the run.
    Paused,
    /// An operator cancelled the run.
    Cancelled,
    /// The deadline has passed.
    Expired,
    /// Nothing is pending or claimed, and the run is not paused, cancelled or expired.
    Finished,
}

/// The policy for recipients in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InDoubt {
    /// They stay in doubt until evidence arrives or an operator decides.
    Hold,
    /// They are sent again. A duplicate is possible by choice, and counted.
    Resend,
    /// They are closed as assumed when the run is finished.
    AssumeSent,
}

/// The policies of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policies {
    /// Policy for recipients in doubt.
    pub in_doubt: InDoubt,
    /// Number of refusals because of the mailbox after which a recipient is dead.
    pub max_attempts: u8,
    /// Time to send a run, from its opening, and again from each reopening by an operator.
    pub finish_by: Time,
}

impl Policies {
    /// Doubts are held, and there are three attempts and no deadline.
    pub const DEFAULT: Policies = Policies { in_doubt: InDoubt::Hold, max_attempts: 3, finish_by: Time::MAX };
}

/// The run, without the states of its recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// State of the run.
    pub state: RunState,
    /// Policies of the run.
    pub policies: Policies,
    /// Instant from which on none of its recipients is claimed and no gate passes (P16).
    pub finish_by: Time,
    /// Index of the operator's entry that stopped the run. 0: the run sends, or no operator stopped it.
    pub stopped_since: Index,
    /// The index of the last pause or cancel, for which a barrier of the run waits.
    pub stop_index: Index,
    /// Counted attempts of each recipient (P4, P6).
    pub attempts: [u8; RECIPIENTS_MAX],
    /// Number of decisions to send a recipient in doubt again.
    pub resent: u8,
    /// Number of acceptances of a recipient that was sent under another fence.
    pub known_duplicates: u8,
    /// Number of acceptances of a recipient in another terminal state.
    pub contradictions: u8,
    /// Number of assumed recipients that evidence showed not to have been handed off.
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

    /// Returns true if the policy `resend` may send a recipient in doubt again. A resend is a counted attempt. When no
    /// attempt is left, an operator decides (P4).
    pub fn may_resend(&self, recipient: Recipient) -> bool {
        self.attempts_of(recipient) + 1 < self.policies.max_attempts
    }
}
