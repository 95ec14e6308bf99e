//! From DATA to the answer: an email becomes an accept. Extends `dialogue.rs`.
//!
//! The order is the promise: message read -> (held) -> accept in the record -> (held) -> answer. A fault can be
//! injected at each arrow.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::accepted::Accepted;
use crate::body::{self, Progress};
use crate::clock::SinkInstant;
use crate::dialogue::{Dialogue, Envelope, MAX_MESSAGE_BYTES};
use crate::faults::{FaultKind, FaultReply, FaultStage};
use crate::headers;
use crate::hold::HoldPoint;
use crate::kept_accepts::Delivery;
use crate::options::DotAnswer;
use crate::wire::{DialogueEnd, Patience};

/// Maximum number of `X-Reveille-*` headers that one accept keeps.
const MAX_KEPT_HEADERS: usize = 32;
/// Maximum bytes of a header value that an accept keeps.
const MAX_KEPT_VALUE: usize = 1_000;
/// Maximum bytes that a dialogue's message buffer keeps after a large email.
const KEEP_BUFFER_BYTES: usize = 64 << 10;

impl Dialogue {
    /// Reads a message up to its final dot and answers it.
    pub(crate) async fn receive(&mut self, envelope: Envelope, started: SinkInstant) -> Result<(), DialogueEnd> {
        self.message.clear();
        self.message.shrink_to(KEEP_BUFFER_BYTES);
        if let Err(end) = self.inject_body_fault().await {
            return Err(self.cut_off(end, envelope, started));
        }
        loop {
            let (taken, progress) = body::read_lines(self.wire.unread(), &mut self.message);
            self.wire.consume(taken);
            if self.message.len() > MAX_MESSAGE_BYTES {
                self.notify(&self.accepts(envelope, started), DotAnswer::Malformed);
                return Err(self.reply_and_close(552, "5.3.4 message too big"));
            }
            match progress {
                Progress::Done => break,
                Progress::Broken(violation) => {
                    self.notify(&self.accepts(envelope, started), DotAnswer::Malformed);
                    return Err(self.reply_and_close(521, violation.text()));
                }
                Progress::More => self.wire.fill().await?,
            }
        }
        self.finish(envelope, started).await
    }

    /// Injects a fault within the body, after its first bytes have arrived. A refusal ends the dialogue, because the
    /// client is still sending the message.
    async fn inject_body_fault(&mut self) -> Result<(), DialogueEnd> {
        let Some(kind) = self.sink.fault_chooser.choose(FaultStage::Body, self.emails) else { return Ok(()) };
        if self.wire.unread().is_empty() {
            self.wire.fill().await?;
        }
        match self.act_on_fault(FaultStage::Body, kind).await? {
            FaultReply::Refuse(code, text) => Err(self.reply_and_close(code, &text)),
            _ => Ok(()),
        }
    }

    /// Ends the dialogue within the message after a fault. The client may have written the dot, so it calls the
    /// watcher, except if the client had left before.
    fn cut_off(&mut self, end: DialogueEnd, envelope: Envelope, started: SinkInstant) -> DialogueEnd {
        if let (Some(_), DialogueEnd::Closed(_) | DialogueEnd::Reset) = (&self.sink.options.dots, &end) {
            // An incomplete last line is not reported.
            let came = self.wire.unread();
            let whole = came.windows(2).rposition(|pair| pair == b"\r\n").map_or(0, |end| end + 2);
            self.message = came.get(..whole).unwrap_or_default().to_vec();
            self.notify(&self.accepts(envelope, started), DotAnswer::Cut);
        }
        end
    }

    /// Calls the watcher, if there is one, for each accept.
    fn notify(&self, accepts: &[Arc<Accepted>], answer: DotAnswer) {
        if let Some(watcher) = &self.sink.options.dots {
            accepts.iter().for_each(|accept| watcher.notify(accept, answer));
        }
    }

    /// Records and answers a message that was read completely.
    async fn finish(&mut self, envelope: Envelope, started: SinkInstant) -> Result<(), DialogueEnd> {
        let accepts = self.accepts(envelope, started);
        self.entry.after_dot(&accepts);
        let mut answer = DotAnswer::Nothing;
        let answered = self.commit_and_answer(&accepts, &mut answer).await;
        self.entry.answered(self.emails);
        // If the client left first, the missing answer is not due to a fault.
        if matches!(
            (&answered, answer),
            (Err(DialogueEnd::Gone | DialogueEnd::Broken(_)), DotAnswer::AcceptedUnanswered)
        ) {
            answer = DotAnswer::Accepted;
        }
        self.notify(&accepts, answer);
        answered?;
        self.after_email().await
    }

    /// Records the email and answers it. `answer` has the result, even if the dialogue ends before the answer is sent.
    async fn commit_and_answer(
        &mut self,
        accepts: &[Arc<Accepted>],
        answer: &mut DotAnswer,
    ) -> Result<(), DialogueEnd> {
        if let FaultReply::Refuse(code, text) = self.inject_fault(FaultStage::BeforeCommit).await? {
            *answer = DotAnswer::Refused;
            return self.refuse(code, &text);
        }
        self.hold(HoldPoint::BeforeCommit, accepts).await?;
        let text = self.sink.kept.keeps_texts().then(|| self.message.as_slice().into());
        self.sink.kept.add(Delivery { accepts: accepts.to_vec(), text });
        self.emails += 1;
        *answer = DotAnswer::AcceptedUnanswered;
        self.hold(HoldPoint::AfterCommit, accepts).await?;
        self.inject_fault(FaultStage::AfterCommit).await?;
        self.answer_dot().await?;
        *answer = DotAnswer::Accepted;
        Ok(())
    }

    /// Sends the `250`: complete, without text, or only half of it.
    async fn answer_dot(&mut self) -> Result<(), DialogueEnd> {
        const ANSWER: &str = "2.0.0 accepted and recorded";
        match self.sink.fault_chooser.choose(FaultStage::Answer, self.emails) {
            None => self.wire.say(250, ANSWER),
            Some(FaultKind::Bare) => self.bare(250)?,
            Some(kind) => {
                self.wire.say(250, ANSWER);
                let second_half = self.wire.take_back(ANSWER.len() / 2);
                self.act_on_fault(FaultStage::Answer, kind).await?;
                self.wire.put_bytes(&second_half);
            }
        }
        Ok(())
    }

    fn excerpt(&self, body: &[u8]) -> Option<String> {
        let bytes = self.sink.options.excerpt_bytes.min(body.len());
        let start = body.get(..bytes).filter(|start| !start.is_empty())?;
        Some(String::from_utf8_lossy(start).into_owned())
    }

    async fn after_email(&mut self) -> Result<(), DialogueEnd> {
        match self.inject_fault(FaultStage::Between).await? {
            FaultReply::Refuse(code, text) => self.refuse(code, &text),
            _ => Ok(()),
        }
    }

    async fn hold(&mut self, point: HoldPoint, accepts: &[Arc<Accepted>]) -> Result<(), DialogueEnd> {
        let Some(caught) = self.sink.holds.catch(point, accepts) else { return Ok(()) };
        let patience = match point {
            HoldPoint::BeforeCommit => Patience::InAnyCase,
            HoldPoint::AfterCommit => Patience::WhileTheClientStays,
        };
        self.wire.wait_for(caught.released, Some(caught.limit), patience).await
    }

    fn accepts(&self, envelope: Envelope, started: SinkInstant) -> Vec<Arc<Accepted>> {
        let now = SinkInstant::now();
        let (head, body) = headers::split(&self.message);
        let mut accept = Accepted {
            message_id: None,
            recipient: String::new(),
            sender: envelope.sender,
            fence: None,
            headers: BTreeMap::new(),
            repeated: Vec::new(),
            excerpt: self.excerpt(body),
            data_unix_us: started.unix_us,
            data_monotonic_us: started.monotonic_us,
            accept_unix_us: now.unix_us,
            accept_monotonic_us: now.monotonic_us,
            connection: self.entry.connection,
            peer: self.peer,
            ehlo: self.ehlo.clone().unwrap_or_default(),
            body_blake3: blake3::hash(body).to_string(),
            size: u64::try_from(self.message.len()).unwrap_or(u64::MAX),
        };
        read_marks(head, &mut accept);
        let recipients = envelope.recipients.into_iter();
        recipients.map(|recipient| Arc::new(Accepted { recipient, ..accept.clone() })).collect()
    }
}

/// Headers that identify an email. If a header occurs twice, readers differ in the occurrence that they use.
const IDENTITY: [&str; 3] = ["Message-ID", "X-Reveille-Run", "X-Reveille-Fence"];

/// Copies the headers that name the run and claim of an email.
fn read_marks(head: &[u8], accept: &mut Accepted) {
    let count = |name: &str| headers::fields(head).filter(|field| field.name.eq_ignore_ascii_case(name)).count();
    accept.repeated = IDENTITY.into_iter().filter(|name| count(name) > 1).map(str::to_owned).collect();
    for field in headers::fields(head) {
        if field.name.eq_ignore_ascii_case("Message-ID") {
            accept.message_id.get_or_insert_with(|| truncated(field.value()));
        } else if field.name.eq_ignore_ascii_case("X-Reveille-Fence") {
            accept.fence.get_or_insert_with(|| truncated(field.value()));
        } else if is_ours(field.name) && accept.headers.len() < MAX_KEPT_HEADERS {
            accept.headers.entry(field.name.to_ascii_lowercase()).or_insert_with(|| truncated(field.value()));
        }
    }
}

fn is_ours(name: &str) -> bool {
    name.get(..11).is_some_and(|start| start.eq_ignore_ascii_case("X-Reveille-"))
}

fn truncated(mut value: String) -> String {
    value.truncate(value.floor_char_boundary(MAX_KEPT_VALUE));
    value
}
