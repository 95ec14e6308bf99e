//! Collects messages that arrive together, so that many share one log entry.
//!
//! The first message of a batch waits [`GATHER`] for others of the same caller and tenant. Then a task proposes all of
//! them, and answers each by itself. The task belongs to no caller: one that goes away takes no other message with it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reveille_ledger::command::{Command, ENTRY_BYTES_MAX, SendMessage, SendMessages};
use reveille_ledger::form;
use reveille_ledger::reply::{CommandOutcome, MessageReceipt};
use tokio::sync::oneshot;

use crate::server::admin::error_texts::CallKind;
use crate::server::admin::{Admin, ApiResult, Call, error_texts};

/// How long the first message waits for others.
const GATHER: Duration = Duration::from_millis(5);
/// Messages of one entry at most; they are one page if their pools, priorities and send times are equal.
const MESSAGES_MAX: usize = 256;
/// Bytes of messages in one entry, unless one alone has more. Below the limit, because the entry adds its own fields.
const BYTES_MAX: usize = ENTRY_BYTES_MAX / 2;

/// Messages that wait for their entry. A batch lives for [`GATHER`], and each message belongs to a running call, so the
/// limits of calls bound them.
#[derive(Default)]
pub struct MessageBatches(Mutex<OpenBatches>);

#[derive(Default)]
struct OpenBatches {
    last: u64,
    open: Vec<Batch>,
}

/// Messages of one caller and tenant.
struct Batch {
    number: u64,
    tenant: String,
    /// The first call, with the latest deadline of all.
    call: Call,
    bytes: usize,
    messages: Vec<SendMessage>,
    answers: Vec<oneshot::Sender<ApiResult<MessageReceipt>>>,
}

impl MessageBatches {
    /// Sends a message, and waits until this node has applied it.
    pub async fn send(admin: &Admin, tenant: &str, message: SendMessage, call: &Call) -> ApiResult<MessageReceipt> {
        let (answer, answered) = oneshot::channel();
        if let Some(number) = admin.messages.add(tenant, message, call, answer) {
            let admin = admin.clone();
            tokio::spawn(async move {
                tokio::time::sleep(GATHER).await;
                if let Some(batch) = admin.messages.take(number) {
                    batch.propose(&admin).await;
                }
            });
        }
        let answer = tokio::time::timeout_at(call.deadline.into(), answered).await;
        answer.ok().and_then(Result::ok).unwrap_or_else(|| Err(error_texts::timed_out(CallKind::Write)))
    }

    /// Adds a message to a batch. Returns the number of the batch if it is a new one.
    fn add(
        &self,
        tenant: &str,
        message: SendMessage,
        call: &Call,
        answer: oneshot::Sender<ApiResult<MessageReceipt>>,
    ) -> Option<u64> {
        let bytes = form::encoded_len(&message);
        let mut batches = self.lock();
        let has_room = |batch: &&mut Batch| {
            batch.messages.len() < MESSAGES_MAX
                && batch.bytes + bytes <= BYTES_MAX
                && batch.tenant == tenant
                && batch.call.actor() == call.actor()
        };
        if let Some(batch) = batches.open.iter_mut().find(has_room) {
            batch.bytes += bytes;
            batch.messages.push(message);
            batch.answers.push(answer);
            batch.call.deadline = batch.call.deadline.max(call.deadline);
            return None;
        }
        batches.last += 1;
        let (number, tenant, call) = (batches.last, tenant.to_owned(), call.clone());
        let (messages, answers) = (vec![message], vec![answer]);
        batches.open.push(Batch { number, tenant, call, bytes, messages, answers });
        Some(number)
    }

    fn take(&self, number: u64) -> Option<Batch> {
        let mut batches = self.lock();
        let place = batches.open.iter().position(|batch| batch.number == number)?;
        Some(batches.open.swap_remove(place))
    }

    fn lock(&self) -> MutexGuard<'_, OpenBatches> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    /// Proposes the messages as one entry, and answers each.
    async fn propose(self, admin: &Admin) {
        let Batch { tenant, call, messages, answers, .. } = self;
        let send = Command::SendMessages(SendMessages { tenant, messages });
        let outcome = admin.write(send, &call).await.map(|reply| reply.outcome);
        let fault = match outcome {
            Ok(CommandOutcome::Messages(receipts)) => {
                for (answer, receipt) in answers.into_iter().zip(receipts) {
                    // A caller that went away gets no answer. Its message is in the log.
                    let _ = answer.send(receipt.map_err(|refusal| error_texts::refused(&refusal)));
                }
                return;
            }
            Ok(outcome) => error_texts::broken(format!("messages were answered by {outcome:?}")),
            Err(fault) => fault,
        };
        for answer in answers {
            let _ = answer.send(Err(fault.clone()));
        }
    }
}
