//! Bugs that can be injected, to prove that the judge finds them: one at a time, by name, for the lifetime of a
//! process.
//!
//! A build without the feature `injected-bugs`, such as every release, has none of them: [`is`] is a constant false.
//! With the feature the variable [`VARIABLE`] names the bug. It is read once, so `apply` stays pure within a process.

use std::fmt;
use std::str::FromStr;

/// Name of the variable that selects the bug.
pub const VARIABLE: &str = "REVEILLE_INJECTED_BUG";

/// True if this build contains the bugs.
pub const COMPILED: bool = cfg!(feature = "injected-bugs");

/// Declares the bugs: for each, a variant and its name as the variable has it.
macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal,)*) => {
        /// A bug. Each names the rule that it breaks; `docs/reliability.md` says which command finds it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        impl Bug {
            /// All bugs.
            pub const ALL: [Bug; [$($name),*].len()] = [$(Bug::$bug),*];

            /// Name of the bug as the variable has it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)*
                }
            }
        }
    };
}
bugs! {
    /// Emails carry a fence that no claim has (P4).
    AnotherFence = "another-fence",
    /// `apply` accepts entries of any epoch (P13).
    NoEpochCheck = "no-epoch-check",
    /// A node with a history votes at once, whatever its former process had promised to a leader.
    NoStartupDelay = "no-startup-delay",
    /// Recipients claimed by a lost owner become pending again instead of in doubt (P14).
    SendAgain = "send-again",
    /// An opt-out, a pause and a cancel are answered before any gate was asked (P15).
    AnswerBeforeBarrier = "answer-before-barrier",
    /// `handoff` is written to the journal after the answer, instead of before the final dot (P5, P11).
    JournalAfterAct = "journal-after-act",
    /// A lost journal is read as one without any `handoff` (P11).
    TrustLostJournal = "trust-lost-journal",
    /// A proposal is answered before it is written to any log, and written some seconds later.
    AckBeforeCommit = "ack-before-commit",
    /// The timer of a deposed leader fires (P8, P13). It asks the current leader until it gets an answer, without its
    /// epoch, and the plan is not compared.
    TimerTrustsLeader = "timer-trusts-leader",
    /// A local time that occurs twice fires twice, whatever the policy.
    OverlapTwice = "overlap-twice",
    /// A sync of the log is reported but not done.
    FsyncLies = "fsync-lies",
    /// Two neighbours in an inline audience get each other's content.
    SwapContents = "swap-contents",
    /// A node that lost its leader asks for votes only after 15 s.
    NoElection = "no-election",
    /// Each voter uses the whole rate of a relay (P25).
    WholeBudget = "whole-budget",
    /// A node may hold the maximum number of claimed recipients that the ledger allows, however slow its relays are
    /// (P12).
    NoClaimCap = "no-claim-cap",
    /// A run is paused when emails to half of its recipients were sent (P6).
    PauseForNothing = "pause-for-nothing",
    /// The warm-up of a pool has no cap (P25).
    NoWarmUpCap = "no-warm-up-cap",
    /// Recipients of a tenant are claimed as if it had no rate (P25).
    NoTenantRate = "no-tenant-rate",
    /// No run considers the runs within `min_gap` (P17).
    NoMinGap = "no-min-gap",
    /// The policy `resend` acts after any number of attempts (P14).
    NoMaxAttempts = "no-max-attempts",
    /// The last recipient of a claim stays claimed for a minute without a handoff, and is then released (P12).
    IdleClaim = "idle-claim",
    /// Runs are archived while recipients are in doubt, so evidence about them comes too late (P24).
    EarlyArchive = "early-archive",
    /// What is pending in a backup stays pending after the restore (P21).
    PendingAfterRestore = "pending-after-restore",
    /// `apply` takes the limits of the level that the process knows, instead of the ledger's (P23). Only the feature
    /// `next-level` has two levels.
    IgnoreLevel = "ignore-level",
    /// Nodes talk to each other in plaintext and without certificates. `bench --compare-tls` measures with it.
    PlaintextPeers = "plaintext-peers",
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no bug.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no injected bug")]
pub struct NoSuchBug(String);

impl FromStr for Bug {
    type Err = NoSuchBug;

    fn from_str(text: &str) -> Result<Bug, NoSuchBug> {
        Bug::ALL.into_iter().find(|bug| bug.name() == text).ok_or_else(|| NoSuchBug(text.to_owned()))
    }
}

/// True if this process has the bug.
#[cfg(not(feature = "injected-bugs"))]
#[inline(always)]
pub const fn is(_bug: Bug) -> bool {
    false
}

/// True if this process has the bug. An unknown name in the variable ends the process: running without the intended bug
/// would be worse.
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
    fn injected_bug_parses_to_what_it_prints() {
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
