//! One session with one relay: opened once, then used for one email after the other.
//!
//! The permit calls it in the task that owns the session during an email. It guarantees exactly one [`DialogueResult`]
//! for each email, after the gate was asked at most once. After anything but a clean end the socket is closed before
//! the result is returned. It never retries, never sends QUIT inside an email, and never has more than one recipient in
//! a transaction. It may announce the next email: write its MAIL, RCPT and DATA with the final dot of an email (P5.3).
//!
//! To cancel an email, cancel [`Deadlines::stop`]. Dropping the future of [`Session::run_transaction`] closes the
//! socket without a result. If the email was past the gate, its outcome is then unknown.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use reveille_raft::crash;
use tokio::time::timeout;

use super::deadlines::{Deadlines, Timeouts};
use super::dialer::{Connected, Dial};
use super::dot_stuffing::EmailText;
use super::envelope::{DATA, Email, EnvelopeCommands, Extensions};
use super::opening::SessionOpening;
use super::probe_report::ProbeReport;
use super::stream::{FINAL_DOT, Stream};
use super::target::Target;
use super::tcp::NEVER_FULL;
use crate::smtp::cause::Cause;
use crate::smtp::gate::{Gate, GateAnswer};
use crate::smtp::replies::classification::ReplyClass;
use crate::smtp::replies::classification::ReplyRules;
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::reply::Reply;
use crate::smtp::stage::Stage;

const RSET: &str = "RSET\r\n";

/// Maximum bytes of a text that are written within one time-out (the "data block" of RFC 5321 4.5.3.2.5).
const BLOCK_BYTES: usize = 64 * 1024;

/// Maximum bytes of a text that goes in one write with the final dot, after the gate. An idle socket takes it whole.
const ONE_WRITE_BYTES: usize = NEVER_FULL - FINAL_DOT.len();

/// Maximum time of a dialogue before the gate. A backstop: a delivery ends it after 60 s ([`Deadlines::gate_by`]), and
/// each step has its own time-out.
const BEFORE_GATE_MAX: Duration = Duration::from_secs(3600);

/// An open session. Dropping it closes the socket without QUIT.
pub struct Session {
    stream: Stream,
    extensions: Extensions,
    timeouts: Timeouts,
    rules: ReplyRules,
    /// True if a transaction was begun and not completed: RSET must precede the next MAIL.
    needs_reset: bool,
    /// The commands of the next email, if they were written with the final dot of the last one. Only that email may
    /// follow in this session.
    announced: Option<String>,
    emails: u32,
    /// Number of emails after which the relay ended the session with 421. `None`: it did not.
    ended_after: Option<u32>,
}

/// Result of MAIL, RCPT and DATA.
enum EnvelopeReply {
    /// The relay answered 354 and waits for the text.
    SendText,
    Refused(Box<DialogueResult>),
}

impl Session {
    /// Connects and does all steps before the first MAIL.
    ///
    /// # Errors
    /// Returns the result for the email that wanted the session: `Refused` or `Broken` at a stage from `Connect` to
    /// `Auth`.
    pub async fn open(
        target: &Target,
        dialer: &dyn Dial,
        timeouts: Timeouts,
        deadlines: &Deadlines,
    ) -> Result<Session, Box<DialogueResult>> {
        Session::open_with_report(target, dialer, timeouts, deadlines, &mut ProbeReport::default()).await
    }

    /// As [`Session::open`], but also writes its findings to `findings`, even when it fails.
    ///
    /// # Errors
    /// The same errors as [`Session::open`].
    pub async fn open_with_report(
        target: &Target,
        dialer: &dyn Dial,
        timeouts: Timeouts,
        deadlines: &Deadlines,
        findings: &mut ProbeReport,
    ) -> Result<Session, Box<DialogueResult>> {
        let dialed = AssertUnwindSafe(dialer.dial(target.host(), target.port())).catch_unwind();
        let connected = match deadlines.bound(timeouts.connect, dialed).await {
            Ok(Ok(Ok(connected))) => Ok(connected),
            Ok(Ok(Err(error))) => Err(Cause::Dial(error.to_string())),
            Ok(Err(panic)) => Err(Cause::of_panic(panic.as_ref())),
            Err(cause) => Err(cause),
        };
        let Connected { transport, local } =
            connected.map_err(|cause| DialogueResult::without_answer(Stage::Connect, cause))?;
        let opening = SessionOpening { target, local, timeouts: &timeouts, deadlines, findings };
        let (stream, extensions) = opening.open(transport).await?;
        crash::point("smtp.after-connect");
        let rules = target.reply_rules().clone();
        let (needs_reset, announced, emails, ended_after) = (false, None, 0, None);
        Ok(Session { stream, extensions, timeouts, rules, needs_reset, announced, emails, ended_after })
    }

    /// Returns the extensions that the relay offers.
    pub fn extensions(&self) -> Extensions {
        self.extensions
    }

    /// Returns the number of emails offered over this session so far.
    pub fn emails(&self) -> u32 {
        self.emails
    }

    /// Returns the number of emails after which the relay ended the session with 421. `None`: it did not.
    pub fn ended_after(&self) -> Option<u32> {
        self.ended_after
    }

    /// True while another email may be offered.
    pub fn is_open(&self) -> bool {
        !self.stream.is_closed()
    }

    /// True if the next email was announced: its commands are written. No other email can use the session.
    pub fn has_announced(&self) -> bool {
        self.announced.is_some()
    }

    /// Checks without waiting if the session is still usable for the next email. If the relay closed it or sent
    /// anything unasked, the session is closed; this does not count as a failure of the relay.
    pub async fn is_still_usable(&mut self) -> bool {
        if self.announced.is_none() && self.stream.read_unexpected().await.is_some() {
            self.stream.close();
        }
        self.is_open()
    }

    /// Offers `email`, asks `gate` at most once, writes the final dot if it passes, and waits for the answer. A long
    /// text is written before the gate, a short one together with the final dot. If the relay offers PIPELINING, the
    /// same write announces `next`. The result depends on the relay's answer to `email` only.
    pub async fn run_transaction(
        &mut self,
        email: &Email,
        gate: &mut dyn Gate,
        deadlines: &Deadlines,
        next: Option<&Email>,
    ) -> DialogueResult {
        let dialogue = AssertUnwindSafe(self.dialogue(email, gate, deadlines, next)).catch_unwind().await;
        let result = match dialogue.unwrap_or_else(|panic| Err(Cause::of_panic(panic.as_ref()))) {
            Ok(result) => return result,
            Err(cause) => self.result_after(cause),
        };
        self.stream.close();
        result
    }

    /// Sends QUIT and waits shortly for the answer. Only for a session between two emails: its owner can hold no other.
    /// After an announcement QUIT could become the text of an email, so the socket is only closed.
    pub async fn quit(mut self) {
        if self.is_open() && !self.has_announced() {
            let farewell = async {
                if self.stream.write_command("QUIT\r\n").await.is_ok() {
                    let _ = self.stream.read_reply().await;
                }
            };
            let _ = timeout(self.timeouts.quit, farewell).await;
        }
    }

    /// Returns the result of a dialogue that `cause` has ended. If an idle session turns out to be closed at its next
    /// MAIL, the relay closed it while it was idle.
    fn result_after(&self, cause: Cause) -> DialogueResult {
        let gone = matches!(cause, Cause::Closed | Cause::Io(_));
        if self.stream.stage() == Stage::Mail && gone && self.emails > 1 {
            return DialogueResult::without_answer(Stage::Mail, Cause::ClosedBetweenEmails);
        }
        DialogueResult::without_answer(self.stream.stage(), cause)
    }

    async fn dialogue(
        &mut self,
        email: &Email,
        gate: &mut dyn Gate,
        deadlines: &Deadlines,
        next: Option<&Email>,
    ) -> Result<DialogueResult, Cause> {
        let commands = match EnvelopeCommands::new(email, self.extensions) {
            Ok(commands) => commands,
            Err(refusal) => return Ok(*refusal),
        };
        self.emails = self.emails.saturating_add(1);
        self.stream.set_stage(Stage::Mail);
        match deadlines.bound(BEFORE_GATE_MAX, self.before_gate(&commands, &email.text)).await?? {
            EnvelopeReply::Refused(result) => return Ok(*result),
            EnvelopeReply::SendText => {}
        }
        crash::point("smtp.before-dot");
        let dot = self.timeouts.dot;
        let announced = next.and_then(|next| self.announcement(next, &email.text));
        let text = email.text.whole(ONE_WRITE_BYTES);
        let ended = self.stream.end_text_through_gate(text, announced.as_deref(), gate);
        if within(dot, ended).await? == GateAnswer::Closed {
            return Ok(DialogueResult::GateClosed);
        }
        crash::point("smtp.after-dot-before-250");
        let reply = within(dot, self.stream.read_final_reply(announced.is_some())).await?;
        self.needs_reset = false;
        self.announced = announced;
        if reply.code == 421 {
            self.stream.close();
        }
        Ok(match reply.class() {
            2 => DialogueResult::accepted(&reply),
            _ => DialogueResult::refused(&self.rules, Stage::Answered, &reply),
        })
    }

    /// Returns the commands that announce `next` in the write that ends `text`. `None` if the relay does not offer
    /// PIPELINING, if it would be offered `next` in vain, or if one write may not take all of it.
    fn announcement(&self, next: &Email, text: &EmailText) -> Option<String> {
        if !self.extensions.pipelining {
            return None;
        }
        let commands = EnvelopeCommands::new(next, self.extensions).ok()?.all();
        let text_bytes = text.whole(ONE_WRITE_BYTES).map_or(0, |text| text.bytes().len());
        (text_bytes + commands.len() <= ONE_WRITE_BYTES).then_some(commands)
    }

    async fn before_gate(&mut self, commands: &EnvelopeCommands, text: &EmailText) -> Result<EnvelopeReply, Cause> {
        if self.announced.is_none()
            && let Some(cause) = self.stream.read_unexpected().await
        {
            return Err(if self.emails > 1 { Cause::ClosedBetweenEmails } else { cause });
        }
        let reply = if self.extensions.pipelining {
            self.envelope_pipelined(commands).await?
        } else {
            self.envelope_stepwise(commands).await?
        };
        if let EnvelopeReply::SendText = reply {
            crash::point("smtp.before-data");
            if text.whole(ONE_WRITE_BYTES).is_none() {
                self.write_text_blocks(text).await?;
            }
        }
        Ok(reply)
    }

    async fn write_text_blocks(&mut self, text: &EmailText) -> Result<(), Cause> {
        for piece in text.pieces(BLOCK_BYTES) {
            within(self.timeouts.block, self.stream.write_text(piece)).await?;
        }
        Ok(())
    }

    /// Sends MAIL, RCPT and DATA in one write (RFC 2920) unless they were announced, then reads their answers in order.
    async fn envelope_pipelined(&mut self, commands: &EnvelopeCommands) -> Result<EnvelopeReply, Cause> {
        let commands = commands.all();
        match self.announced.take() {
            Some(announced) if announced == commands => {}
            // The relay expects the text of another email.
            Some(_) => return Err(Cause::ClosedBetweenEmails),
            None => {
                let reset = if self.needs_reset { RSET } else { "" };
                let group = [reset, &commands].concat();
                within(self.timeouts.envelope, self.stream.write_command(&group)).await?;
            }
        }
        if self.needs_reset {
            self.read_rset_reply().await?;
        }
        self.needs_reset = true;
        let mail_reply = self.read_reply(Stage::Mail).await?;
        crash::point("smtp.after-mail");
        if mail_reply.code == 421 {
            return self.refusal(Stage::Mail, &mail_reply);
        }
        let (rcpt_reply, data_reply) = match self.read_rcpt_and_data_replies().await {
            Ok(rest) => rest,
            // The refused MAIL is an answer, even if the other answers are missing.
            Err(_) if mail_reply.class() >= 4 => {
                self.stream.close();
                return self.refusal(Stage::Mail, &mail_reply);
            }
            Err(cause) => return Err(cause),
        };
        self.classify_replies(&mail_reply, &rcpt_reply, data_reply.as_ref()).await
    }

    /// Reads the answers to RCPT and DATA. `None` for DATA if the session was closed after the first answer.
    async fn read_rcpt_and_data_replies(&mut self) -> Result<(Reply, Option<Reply>), Cause> {
        let rcpt = self.read_reply(Stage::Rcpt).await?;
        crash::point("smtp.after-rcpt");
        if rcpt.class() < 4 {
            return Ok((rcpt, Some(self.read_reply(Stage::Data).await?)));
        }
        // As with MAIL: a refused recipient is an answer even if the relay closes the connection after it.
        let data = if rcpt.code == 421 { None } else { self.read_reply(Stage::Data).await.ok() };
        if data.is_none() {
            self.stream.close();
        }
        Ok((rcpt, data))
    }

    /// Returns the first refusal in order. If DATA was accepted without a recipient, the text is ended by a lone dot.
    async fn classify_replies(
        &mut self,
        mail: &Reply,
        rcpt: &Reply,
        data: Option<&Reply>,
    ) -> Result<EnvelopeReply, Cause> {
        let wanted = data.is_some_and(|data| data.class() == 3);
        let refused = [(Stage::Mail, mail), (Stage::Rcpt, rcpt)].into_iter().find(|(_, reply)| reply.class() != 2);
        let Some((stage, reply)) = refused else {
            return match data {
                Some(_) if wanted => Ok(EnvelopeReply::SendText),
                Some(data) => self.refusal_or_out_of_step(Stage::Data, data),
                None => Err(Cause::Closed),
            };
        };
        if wanted && rcpt.class() >= 4 {
            self.dot_without_recipients(rcpt).await;
        } else if wanted {
            // RCPT was accepted although MAIL was not. A dot might deliver to that recipient, so close the connection
            // instead.
            self.stream.close();
        }
        self.refusal_or_out_of_step(stage, reply)
    }

    /// Sends one command at a time and reads its answer.
    async fn envelope_stepwise(&mut self, commands: &EnvelopeCommands) -> Result<EnvelopeReply, Cause> {
        if self.needs_reset {
            within(self.timeouts.envelope, self.stream.write_command(RSET)).await?;
            self.read_rset_reply().await?;
        }
        self.needs_reset = true;
        for (stage, command) in [(Stage::Mail, &commands.mail), (Stage::Rcpt, &commands.rcpt)] {
            let reply = self.ask(stage, command).await?;
            if reply.class() != 2 {
                return self.refusal_or_out_of_step(stage, &reply);
            }
        }
        let reply = self.ask(Stage::Data, DATA).await?;
        if reply.class() == 3 { Ok(EnvelopeReply::SendText) } else { self.refusal_or_out_of_step(Stage::Data, &reply) }
    }

    async fn ask(&mut self, stage: Stage, command: &str) -> Result<Reply, Cause> {
        self.stream.set_stage(stage);
        within(self.timeouts.envelope, self.stream.write_command(command)).await?;
        self.read_reply(stage).await
    }

    async fn read_reply(&mut self, stage: Stage) -> Result<Reply, Cause> {
        self.stream.set_stage(stage);
        let limit = if stage == Stage::Data { self.timeouts.data } else { self.timeouts.envelope };
        within(limit, self.stream.read_reply()).await
    }

    async fn read_rset_reply(&mut self) -> Result<(), Cause> {
        match self.read_reply(Stage::Mail).await? {
            reply if reply.class() == 2 => Ok(()),
            reply if reply.code == 421 => {
                self.ended_after = Some(self.emails.saturating_sub(1));
                Err(Cause::ClosedBetweenEmails)
            }
            reply => Err(Cause::OutOfStep(reply.summary())),
        }
    }

    /// Returns the result of a reply that does not accept the command. A reply below 400 does not fit the command, and
    /// ends the dialogue.
    fn refusal_or_out_of_step(&mut self, stage: Stage, reply: &Reply) -> Result<EnvelopeReply, Cause> {
        if reply.class() < 4 {
            self.stream.set_stage(stage);
            return Err(Cause::OutOfStep(reply.summary()));
        }
        self.refusal(stage, reply)
    }

    /// Returns the result of a negative reply. Relays use 421 to end a session that was used before: after a number of
    /// messages, when idle, or at a restart (RFC 5321 3.8). It says nothing about this message, unless it says "too
    /// fast" or "too much".
    fn refusal(&mut self, stage: Stage, reply: &Reply) -> Result<EnvelopeReply, Cause> {
        let result = DialogueResult::refused(&self.rules, stage, reply);
        if reply.code == 421 {
            self.stream.set_stage(stage);
            self.stream.close();
            let about_relay = matches!(result, DialogueResult::Refused { class: ReplyClass::Relay, .. });
            if self.emails > 1 && about_relay {
                self.ended_after = Some(self.emails - 1);
                return Err(Cause::ClosedBetweenEmails);
            }
        }
        Ok(EnvelopeReply::Refused(Box::new(result)))
    }

    /// Sends a lone dot. The relay's answer changes nothing. Without an answer the session is closed.
    async fn dot_without_recipients(&mut self, refusal: &Reply) {
        let limit = self.timeouts.quit;
        if within(limit, self.stream.dot_without_recipients(refusal)).await.is_err() {
            self.stream.close();
        }
    }
}

async fn within<T>(limit: Duration, step: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
    timeout(limit, step).await.unwrap_or(Err(Cause::TimedOut))
}
