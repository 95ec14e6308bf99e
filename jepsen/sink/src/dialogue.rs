//! The dialogue with one client: banner, envelope and the order of commands (RFC 5321 4.1.4). `receive.rs` handles DATA
//! up to the answer, and `fault_injection.rs` handles faults. Both extend the type of this file.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::clock::SinkInstant;
use crate::command::{Mail, SmtpCommand};
use crate::connections::{ConnectionEntry, Connections};
use crate::faults::{FaultReply, FaultStage};
use crate::shared::SinkState;
use crate::wire::{DialogueEnd, Wire};

/// Number of commands with a wrong form or in a wrong order after which the dialogue ends with 421.
const MAX_MISTAKES: u32 = 50;
/// Maximum size of a message, offered as SIZE. A larger message is refused with 552.
pub(crate) const MAX_MESSAGE_BYTES: usize = 20 << 20;
/// Maximum number of recipients of one email. Further recipients are refused with 452.
const MAX_RECIPIENTS: usize = 1_000;
/// Host name in the banner and in the answer to EHLO.
const NAME: &str = "sink.test";

/// A dialogue and the buffers that its emails reuse.
pub(crate) struct Dialogue {
    pub(crate) sink: Arc<SinkState>,
    pub(crate) wire: Wire,
    pub(crate) entry: ConnectionEntry,
    pub(crate) peer: SocketAddr,
    /// Name that the client gave in EHLO. `None`: there was no EHLO yet.
    pub(crate) ehlo: Option<String>,
    pub(crate) envelope: Option<Envelope>,
    /// Number of emails accepted so far.
    pub(crate) emails: u32,
    /// The message that is being received.
    pub(crate) message: Vec<u8>,
    mistakes: u32,
}

/// Sender and recipients of an email.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    pub(crate) sender: String,
    pub(crate) recipients: Vec<String>,
    smtputf8: bool,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(sink: Arc<SinkState>, stream: TcpStream, peer: SocketAddr) {
    let wire = match Wire::new(stream, sink.options.round_trip, sink.stop.clone()) {
        Ok(wire) => wire,
        Err(error) => return tracing::debug!(%peer, %error, "lost a connection before its banner"),
    };
    let Some(entry) = Connections::enter(&sink.connections, peer, sink.options.max_connections) else {
        return turn_away(wire).await;
    };
    let mut dialogue = Dialogue::new(sink, wire, entry, peer);
    let Err(end) = dialogue.run().await;
    let connection = dialogue.entry.connection;
    tracing::debug!(%peer, connection, emails = dialogue.emails, %end, "dialogue ended");
    drop(dialogue.entry);
    match end {
        DialogueEnd::Closed(_) => dialogue.wire.close().await,
        DialogueEnd::Reset => {
            if let Err(error) = dialogue.wire.reset() {
                tracing::warn!(%peer, connection, %error, "closed a connection that was to be reset");
            }
        }
        DialogueEnd::Gone | DialogueEnd::Idle | DialogueEnd::Stopped | DialogueEnd::Broken(_) => {}
    }
}

async fn turn_away(mut wire: Wire) {
    wire.say(421, "4.7.0 too many connections, try again later");
    wire.close().await;
}

impl Dialogue {
    fn new(sink: Arc<SinkState>, wire: Wire, entry: ConnectionEntry, peer: SocketAddr) -> Self {
        Self { sink, wire, entry, peer, ehlo: None, envelope: None, emails: 0, message: Vec::new(), mistakes: 0 }
    }

    /// Runs the dialogue until it ends. Always returns the reason as an error.
    async fn run(&mut self) -> Result<std::convert::Infallible, DialogueEnd> {
        self.greet().await?;
        let mut line = Vec::with_capacity(256);
        loop {
            if let Err(violation) = self.wire.line(&mut line).await? {
                return Err(self.reply_and_close(521, violation.text()));
            }
            match SmtpCommand::parse(&line) {
                Ok(command) => self.execute(command).await?,
                Err((code, text)) => self.mistake(code, text)?,
            }
        }
    }

    async fn greet(&mut self) -> Result<(), DialogueEnd> {
        self.inject_fault(FaultStage::Connect).await?;
        let huge = match self.inject_fault(FaultStage::Banner).await? {
            FaultReply::Refuse(code, text) => return Err(self.reply_and_close(code, &text)),
            FaultReply::Bare => return self.bare(220),
            FaultReply::Huge(bytes) => bytes,
            FaultReply::Nothing => 0,
        };
        self.huge_banner(huge).await?;
        self.wire.put(format_args!("220 {} ESMTP\r\n", NAME));
        Ok(())
    }

    async fn execute(&mut self, command: SmtpCommand<'_>) -> Result<(), DialogueEnd> {
        match command {
            SmtpCommand::Ehlo(name) => self.hello(name, true).await?,
            SmtpCommand::Helo(name) => self.hello(name, false).await?,
            SmtpCommand::Mail(mail) => self.mail(mail).await?,
            SmtpCommand::Rcpt(recipient) => self.recipient(recipient).await?,
            SmtpCommand::Data => self.data().await?,
            SmtpCommand::Rset => {
                self.forget_envelope();
                self.wire.say(250, "2.0.0 forgotten");
            }
            SmtpCommand::Noop => self.wire.say(250, "2.0.0 ok"),
            SmtpCommand::Quit => return Err(self.reply_and_close(221, "2.0.0 goodbye")),
        }
        Ok(())
    }

    async fn hello(&mut self, name: &str, extended: bool) -> Result<(), DialogueEnd> {
        match self.inject_fault(FaultStage::Ehlo).await? {
            FaultReply::Refuse(code, text) => return self.refuse(code, &text),
            FaultReply::Bare => self.bare(250)?,
            FaultReply::Huge(_) | FaultReply::Nothing if extended => self.offer(),
            FaultReply::Huge(_) | FaultReply::Nothing => self.wire.say(250, NAME),
        }
        self.forget_envelope();
        self.entry.greeted(name);
        self.ehlo = Some(name.to_owned());
        Ok(())
    }

    fn offer(&mut self) {
        self.wire.put(format_args!(
            "250-{}\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-ENHANCEDSTATUSCODES\r\n250 SIZE {}\r\n",
            NAME, MAX_MESSAGE_BYTES
        ));
    }

    async fn mail(&mut self, mail: Mail<'_>) -> Result<(), DialogueEnd> {
        if self.ehlo.is_none() {
            return self.mistake(503, "5.5.1 EHLO first");
        }
        if self.envelope.is_some() {
            return self.mistake(503, "5.5.1 an email has begun already");
        }
        if mail.size > MAX_MESSAGE_BYTES {
            return self.refuse(552, "5.3.4 message too big");
        }
        if !mail.smtputf8 && !mail.sender.is_ascii() {
            return self.refuse(553, "5.6.7 non-ASCII address without SMTPUTF8");
        }
        if self.reply(FaultStage::Mail, 250, "2.1.0 sender ok").await? {
            let sender = mail.sender.to_owned();
            self.envelope = Some(Envelope { sender, smtputf8: mail.smtputf8, ..Envelope::default() });
        }
        Ok(())
    }

    async fn recipient(&mut self, recipient: &str) -> Result<(), DialogueEnd> {
        let Some(envelope) = &self.envelope else {
            return self.mistake(503, "5.5.1 MAIL first");
        };
        if envelope.recipients.len() >= MAX_RECIPIENTS {
            return self.refuse(452, "4.5.3 too many recipients");
        }
        if !envelope.smtputf8 && !recipient.is_ascii() {
            return self.refuse(553, "5.6.7 non-ASCII address without SMTPUTF8");
        }
        if self.reply(FaultStage::Rcpt, 250, "2.1.5 recipient ok").await?
            && let Some(envelope) = &mut self.envelope
        {
            envelope.recipients.push(recipient.to_owned());
        }
        Ok(())
    }

    async fn data(&mut self) -> Result<(), DialogueEnd> {
        let now = SinkInstant::now();
        match &self.envelope {
            None => return self.mistake(503, "5.5.1 MAIL first"),
            Some(envelope) if envelope.recipients.is_empty() => return self.mistake(554, "5.5.1 no valid recipients"),
            Some(_) => {}
        }
        let go_on = self.reply(FaultStage::Data, 354, "end with <CR><LF>.<CR><LF>").await?;
        match self.envelope.take() {
            Some(envelope) if go_on => self.receive(envelope, now).await,
            _ => {
                self.forget_envelope();
                Ok(())
            }
        }
    }

    /// Sends the reply of a stage, or the reply of a fault. Returns true if the command took effect.
    async fn reply(&mut self, stage: FaultStage, code: u16, text: &str) -> Result<bool, DialogueEnd> {
        match self.inject_fault(stage).await? {
            FaultReply::Refuse(code, text) => return self.refuse(code, &text).map(|()| false),
            FaultReply::Bare => self.bare(code)?,
            FaultReply::Huge(_) | FaultReply::Nothing => self.wire.say(code, text),
        }
        Ok(true)
    }

    /// Refuses a valid command. With 421 the dialogue ends too (RFC 5321 3.8).
    pub(crate) fn refuse(&mut self, code: u16, text: &str) -> Result<(), DialogueEnd> {
        self.wire.say(code, text);
        if code == 421 { Err(DialogueEnd::Closed("421")) } else { Ok(()) }
    }

    /// Refuses an invalid command, and ends the dialogue with 421 after [`MAX_MISTAKES`] of them.
    pub(crate) fn mistake(&mut self, code: u16, text: &str) -> Result<(), DialogueEnd> {
        self.mistakes += 1;
        if self.mistakes >= MAX_MISTAKES {
            return Err(self.reply_and_close(421, "4.7.0 too many mistakes"));
        }
        self.refuse(code, text)
    }

    /// Sends the last reply of this dialogue. Returns the reason of its end.
    pub(crate) fn reply_and_close(&mut self, code: u16, text: &str) -> DialogueEnd {
        self.wire.say(code, text);
        DialogueEnd::Closed("by a reply")
    }

    pub(crate) fn bare(&mut self, code: u16) -> Result<(), DialogueEnd> {
        self.wire.put(format_args!("{code}\r\n"));
        Ok(())
    }

    pub(crate) fn forget_envelope(&mut self) {
        self.envelope = None;
    }
}
