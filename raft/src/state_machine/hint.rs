//! Hints: effects of `apply` that are sent to the actors. They save a search in the state; no actor depends on them.
//!
//! The apply thread sends a hint after the state that caused it can be read. The channel is bounded: a slow reader
//! loses hints, gets [`Hint::Resync`], and then reads the state. A replaced state causes the same hint.

use reveille_ledger::effect::Effect;
use tokio::sync::broadcast;

/// Maximum number of hints that wait for the slowest reader: about two seconds at full speed.
pub(crate) const HINTS_MAX: usize = 16_384;

/// One hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// An effect of an applied entry.
    Effect {
        /// Log index of the entry.
        index: u64,
        /// The effect.
        effect: Effect,
    },
    /// Hints were lost, or the state was replaced: read the whole state again.
    Resync,
}

/// Reader of all hints that are sent after its subscription.
pub struct Hints {
    receiver: broadcast::Receiver<Hint>,
}

impl Hints {
    pub(crate) fn new(receiver: broadcast::Receiver<Hint>) -> Hints {
        Hints { receiver }
    }

    /// Returns the next hint. `None`: the replica has stopped. Cancel-safe.
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
