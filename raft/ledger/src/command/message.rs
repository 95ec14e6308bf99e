//! Command that sends messages: emails that a program orders one by one, each under a key of its own.

use serde::{Deserialize, Serialize};

use crate::fingerprint::fingerprint;
use crate::model::{Audience, Blob, Content, Hash, Policies, Time};

/// Arguments of [`Command::SendMessages`](super::Command::SendMessages). Each message is answered by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendMessages {
    /// Tenant of the messages.
    pub tenant: String,
    /// The messages, at most as many as one entry may open runs.
    pub messages: Vec<SendMessage>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendMessage {
    /// Key of the caller, unique among the messages of the tenant. A key opens one run.
    pub key: String,
    /// What a repeat of the key must have in common with the first call.
    pub rule: KeyRule,
    /// True for a test email: one attempt, and the relay's answer is kept.
    pub is_test: bool,
    /// Content of the emails.
    pub content: Content,
    /// Its recipients.
    pub audience: Audience,
    /// When it is sent. `None`: now.
    pub send_at: Option<Time>,
    /// Pool of relays that sends it.
    pub pool: String,
    /// Higher numbers go first within the tenant.
    pub priority: u8,
    /// Policies of the run. `apply` sets those that concern schedules only. They are in the command because the
    /// defaults of two releases may differ.
    pub policies: Policies,
}

/// What a repeat of a key, or of a trigger's request id, must have in common with the first call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyRule {
    /// Content, recipients and a given send time must be those of the first call. Otherwise the repeat is refused.
    #[default]
    Strict,
    /// Nothing: the run of the first call is the answer.
    FirstWins,
}

impl SendMessage {
    /// Hash by which a repeat is compared with the first call, of the stored content and recipients.
    pub fn body_hash(&self, content: &Blob, audience: &Blob) -> Hash {
        fingerprint(&("message", self.is_test, content.hash, audience.hash))
    }
}
