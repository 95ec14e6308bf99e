//! Which of the leader's actors a hint of the replica wakes. A lost hint delays an actor until its sleep is over.

use reveille_ledger::effect::Effect;
use reveille_raft::Hint;

/// The leader's actors for which a hint is useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concerns {
    Timer,
    Dispatcher,
    All,
    None,
}

/// Returns which of the leader's actors may have something to do after a hint.
pub(super) fn concerns(hint: &Hint) -> Concerns {
    match hint {
        Hint::Resync => Concerns::All,
        Hint::Effect { effect, .. } => match effect {
            Effect::ClockMoved(_) => Concerns::All,
            Effect::DueChanged { .. } => Concerns::Timer,
            Effect::WorkAppeared(_) | Effect::ClaimClosed { .. } | Effect::RelaysChanged => Concerns::Dispatcher,
            _ => Concerns::None,
        },
    }
}
