//! Bugs that can be injected, to prove that the judge finds them: one at a time, by name, for the lifetime of a
//! process.
//!
//! A build without the feature `injected-bugs`, such as every release, contains none of them: [`is`] is a constant
//! false. With the feature the variable [`VARIABLE`] names the bug. It is read once, so `apply` stays pure within a
//! process.

use std::fmt;
use std::str::FromStr;

/// Names the bug that a process has.
pub const VARIABLE: &str = "REVEILLE_INJECTED_BUG";

/// Can this build have one?
pub const COMPILED: bool = cfg!(feature = "injected-bugs");

/// A bug. Each names the rule that it breaks; `docs/reliability.md` tells what caught it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// P4: a leader's claim workers send what is pending, and its claim comes afterwards.
    ClaimAfterSend,
    /// P13: `apply` takes entries of any epoch.
    NoEpochCheck,
    /// A node with a history votes at once, whatever its former life had promised to a leader.
    NoStartupDelay,
    /// P14: what a lost owner had claimed is pending again, not in doubt.
    SendAgain,
    /// P15: an opt-out, a pause and a cancel are answered before any gate was asked.
    AnswerBeforeBarrier,
    /// P5, P11: `begin` is journaled when the answer is there, not before the terminator.
    JournalAfterAct,
    /// P11: a journal that is gone is read as one in which nothing was begun.
    TrustLostJournal,
    /// A proposal is answered when it is submitted, not when it is committed.
    AckBeforeCommit,
    /// P8, P13: the timer of a deposed leader fires: it asks the current leader until it gets an answer, without
    /// its epoch, and the plan is not compared.
    TimerTrustsLeader,
    /// A local time that comes twice fires twice, whatever the policy says.
    OverlapTwice,
    /// A sync of the log is reported and not done.
    FsyncLies,
    /// Of two neighbours in an inline audience each gets the content of the other.
    SwapContents,
    /// A node that lost its leader asks for votes only after 15 s.
    NoElection,
    /// P25: each voter uses a relay's whole rate.
    WholeBudget,
    /// P12: a node may hold claimed what the ledger allows at the very most, however slow its relays are.
    NoClaimCap,
    /// P6: a run is paused when half of its recipients were sent to.
    PauseForNothing,
    /// P25: a pool that is warmed up has no cap.
    NoWarmUpCap,
    /// P25: a tenant is claimed as if it had no rate.
    NoTenantRate,
    /// P17: no run looks at the runs beside it.
    NoMinGap,
    /// P4: the policy `resend` acts however many attempts there were.
    NoMaxAttempts,
    /// P12: the last recipient of a row is kept claimed for a minute without a hand-off, and then given back.
    IdleClaim,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 21] = [
        Bug::ClaimAfterSend,
        Bug::NoEpochCheck,
        Bug::NoStartupDelay,
        Bug::SendAgain,
        Bug::AnswerBeforeBarrier,
        Bug::JournalAfterAct,
        Bug::TrustLostJournal,
        Bug::AckBeforeCommit,
        Bug::TimerTrustsLeader,
        Bug::OverlapTwice,
        Bug::FsyncLies,
        Bug::SwapContents,
        Bug::NoElection,
        Bug::WholeBudget,
        Bug::NoClaimCap,
        Bug::PauseForNothing,
        Bug::NoWarmUpCap,
        Bug::NoTenantRate,
        Bug::NoMinGap,
        Bug::NoMaxAttempts,
        Bug::IdleClaim,
    ];

    /// As the variable names it.
    pub const fn name(self) -> &'static str {
        match self {
            Bug::ClaimAfterSend => "claim-after-send",
            Bug::NoEpochCheck => "no-epoch-check",
            Bug::NoStartupDelay => "no-startup-delay",
            Bug::SendAgain => "send-again",
            Bug::AnswerBeforeBarrier => "answer-before-barrier",
            Bug::JournalAfterAct => "journal-after-act",
            Bug::TrustLostJournal => "trust-lost-journal",
            Bug::AckBeforeCommit => "ack-before-commit",
            Bug::TimerTrustsLeader => "timer-trusts-leader",
            Bug::OverlapTwice => "overlap-twice",
            Bug::FsyncLies => "fsync-lies",
            Bug::SwapContents => "swap-contents",
            Bug::NoElection => "no-election",
            Bug::WholeBudget => "whole-budget",
            Bug::NoClaimCap => "no-claim-cap",
            Bug::PauseForNothing => "pause-for-nothing",
            Bug::NoWarmUpCap => "no-warm-up-cap",
            Bug::NoTenantRate => "no-tenant-rate",
            Bug::NoMinGap => "no-min-gap",
            Bug::NoMaxAttempts => "no-max-attempts",
            Bug::IdleClaim => "idle-claim",
        }
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no bug.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no injected bug")]
pub struct NoSuchBug(String);

impl FromStr for Bug {
    type Err = NoSuchBug;

    fn from_str(text: &str) -> Result<Bug, NoSuchBug> {
        Bug::ALL.into_iter().find(|bug| bug.name() == text).ok_or_else(|| NoSuchBug(text.to_owned()))
    }
}

/// Has this process that bug?
#[cfg(not(feature = "injected-bugs"))]
#[inline(always)]
pub const fn is(_bug: Bug) -> bool {
    false
}

/// Has this process that bug? An unknown name in the variable is a mistake, and no bug is
/// worse than another one: the process ends.
#[cfg(feature = "injected-bugs")]
pub fn is(bug: Bug) -> bool {
    use std::sync::OnceLock;
    static INJECTED: OnceLock<Option<Bug>> = OnceLock::new();
    let read = || std::env::var(VARIABLE).ok().map(|name| name.parse().unwrap_or_else(|error| panic!("{error}")));
    *INJECTED.get_or_init(read) == Some(bug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_reads_as_it_prints() {
        for bug in Bug::ALL {
            assert_eq!(bug.to_string().parse(), Ok(bug));
        }
        assert!("no-bug".parse::<Bug>().is_err());
    }

    #[test]
    fn no_bug_is_injected_by_default() {
        assert!(Bug::ALL.into_iter().all(|bug| !is(bug)));
    }
}
