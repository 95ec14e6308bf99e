//! Detects the same permanent refusal text for many recipients (P6).
//!
//! A refusal that names the mailbox kills one recipient. If a relay gives the same text to most recipients of a run,
//! the cause is the sender, the content or the relay, whatever the code says. The node hashes the text of each
//! permanent refusal, without the parts that differ by recipient. A run counts recipients by hash, for its last few
//! hashes. Only numbers are stored, at most [`SameWordsLimits::groups`] of them.

use serde::{Deserialize, Serialize};

use crate::model::{PauseReason, RecipientState, Refused, Run, RunState, SameWordsLimits};

/// Number of recipients that died of one refusal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameWords {
    /// Hash of the text.
    pub words: u32,
    /// Number of recipients.
    pub recipients: u32,
}

impl Run {
    /// Counts a recipient that died of a permanent answer. Returns the reason if this pauses the run.
    pub(crate) fn note_words(&mut self, answer: &Refused, limits: &SameWordsLimits) -> Option<PauseReason> {
        let known = self.same_words.iter().position(|group| group.words == answer.words);
        let former = known.map_or(0, |place| self.same_words.remove(place).recipients);
        let group = SameWords { words: answer.words, recipients: former.saturating_add(1) };
        self.same_words.insert(0, group);
        self.same_words.truncate(limits.groups);
        let decided = self.counts.get(RecipientState::Sent).saturating_add(self.counts.get(RecipientState::Dead));
        let is_most =
            group.recipients >= limits.recipients && group.recipients.saturating_mul(limits.one_of) >= decided;
        if self.state != RunState::Open || !is_most {
            return None;
        }
        let (code, enhanced) = (answer.code, answer.enhanced);
        let reason = PauseReason::SameWords { recipients: group.recipients, decided, code, enhanced };
        self.state = RunState::Paused { reason: reason.clone() };
        Some(reason)
    }
}
