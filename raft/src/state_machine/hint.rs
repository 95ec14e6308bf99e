//! Effects on their way from `apply` to the actors: hints that save a search, never the only word.
//!
//! Sent by the machine after the state that they speak of can be read. Bounded: whoever is too slow loses
//! hints and is told so, and then looks at the state itself (level-triggered). The same word is given
//! after a snapshot replaced the state.

use reveille_ledger::effect::Effect;
use tokio::sync::broadcast;

/// Hints that wait for their slowest reader at most; some two seconds of full speed.
pub(crate) const HINTS_MAX: usize = 16_384;

/// What a reader of effects gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Applying the entry at this index asked for this.
    Effect {
        /// The entry's index.
        index: u64,
        /// What it asked for.
        effect: Effect,
    },
    /// Some were lost, or the state was replaced: look at the whole state again.
    Resync,
}

/// One reader of effects, from the moment it subscribed.
pub struct Hints {
    receiver: broadcast::Receiver<Hint>,
}

impl Hints {
    pub(crate) fn new(receiver: broadcast::Receiver<Hint>) -> Hints {
        Hints { receiver }
    }

    /// The next hint; `None` when the replica has stopped. May be given up and called again.
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
    async fn a_reader_that_lost_hints_is_told_to_look() {
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
