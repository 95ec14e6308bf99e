//! Messages: programs send emails one by one, each under a key of its own, and repeat the call with that key.

use reveille_check::events::Operation;
use reveille_ledger::command::{Command, KeyRule, SendMessage, SendMessages};
use reveille_ledger::content::{Audience, Content};
use reveille_ledger::ids::Time;
use reveille_ledger::policy::Policies;
use tokio::time::Duration;

use crate::clients::Clients;
use crate::schedule::{self, TENANTS};

/// Time within which a message with a send time is due, and within which its call is repeated.
const AHEAD_MS: u64 = 40_000;
/// Number of attempts for a recipient.
const ATTEMPTS_MAX: u8 = 3;

impl Clients {
    /// Lets two programs send a message with one key, and a third later with this key and another subject. One run
    /// opens, and each answer names it. Every second message has a send time.
    pub(crate) async fn send_message(&self, which: u64, key: &str) {
        let addresses: Vec<String> = (0..1 + which % 3).map(|number| format!("{key}-{number}@example.com")).collect();
        self.known.lock().messages.push((key.to_owned(), addresses.clone()));
        let ahead_ms = (which.rotate_left(8) % AHEAD_MS) as i64;
        let message = SendMessage {
            key: key.to_owned(),
            rule: KeyRule::Strict,
            is_test: false,
            content: schedule::content(key),
            audience: Audience { columns: schedule::columns(), recipients: schedule::list(key, &addresses) },
            send_at: which.is_multiple_of(2).then(|| self.now().plus_ms(ahead_ms)),
            pool: "default".to_owned(),
            priority: 0,
            policies: Policies { in_doubt: self.in_doubt, max_attempts: ATTEMPTS_MAX, ..schedule::short_waits() },
        };
        let _ = tokio::join!(self.send_as("program", &message), self.send_as("another program", &message));
        tokio::time::sleep(Duration::from_millis(which.rotate_left(24) % AHEAD_MS)).await;
        let content = Content { subject: "Hello again".to_owned(), ..message.content.clone() };
        let other = SendMessage { rule: KeyRule::FirstWins, content, send_at: None::<Time>, ..message };
        self.send_as("third program", &other).await;
    }

    async fn send_as(&self, program: &str, message: &SendMessage) {
        let key = &message.key;
        let tenant = TENANTS[0].to_owned();
        let operation = Operation::Trigger { tenant: tenant.clone(), schedule: key.clone(), audience: key.clone() };
        let send = SendMessages { tenant, messages: vec![message.clone()] };
        self.call((program, Some(key)), operation, None, |_| Some(Command::SendMessages(send.clone()))).await;
    }
}
