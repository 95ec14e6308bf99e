//! Effects of `apply` on their way to the actors, as hints: they save a search, and no actor depends on them.
//!
//! The apply thread sends a hint after the state that caused it can be read. The channel is bounded: a slow reader loses hints
//! and gets [`Hint::Resync`], and then reads the state. A replaced state gives the same hint.

use reveille_ledger::effect::Effect;
use tokio::sync::broadcast;

/// Most hints that wait for the slowest reader: about two seconds at full speed.
pub(crate) const HINTS_MAX: usize = 16_384;

/// One hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Effect of applying an entry.
    Effect {
        /// The entry's index.
        index: u64,
        /// The effect.
        effect: Effect,
    },
    /// Hints were lost, or the state was replaced: read the whole state again.
    Resync,
}

/// A reader of hints, from its subscription on.
pub struct Hints {
    receiver: broadcast::Receiver<Hint>,
}

impl Hints {
    pub(crate) fn new(receiver: broadcast::Receiver<Hint>) -> Hints {
        Hints { receiver }
    }

    /// The next hint; `None` when the replica has stopped. Cancel-safe.
    pub async fn next(&mut self) -> Option<Hint> {
        match self.receiver.recv().await {
            Ok(hint) => Some(hint),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Hint::Resync),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reader_that_lost_hints_gets_resync() {
        let (sender, receiver) = broadcast::channel(2);
        let mut hints = Hints::new(receiver);
        for index in 1..=3 {
            sender.send(Hint::Effect { index, effect: Effect::RelaysChanged }).expect("there is a reader");
        }
        assert_eq!(hints.next().await, Some(Hint::Resync));
        assert_eq!(hints.next().await, Some(Hint::Effect { index: 2, effect: Effect::RelaysChanged }));
        drop(sender);
        assert_eq!(hints.next().await, Some(Hint::Effect { index: 3, effect: Effect::RelaysChanged }));
        assert_eq!(hints.next().await, None);
    }
}
