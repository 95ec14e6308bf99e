//! One client's dialogue: greeting, envelope and the order of commands (RFC 5321 4.1.4). From DATA to the
//! answer of the dot it is `receive.rs`, faults are `strike.rs`; both continue the type defined here.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::clock::Moment;
use crate::command::{Command, Mail};
use crate::connections::{Connections, DialogueState, Entry};
use crate::faults::{FaultStage, Struck};
use crate::shared::Inner;
use crate::wire::{End, Wire};

/// Commands that were refused for their form or their place before the dialogue is ended with 421.
const MAX_MISTAKES: u32 = 50;

/// A dialogue and the buffers that its mails reuse.
pub(crate) struct Dialogue {
    pub(crate) sink: Arc<Inner>,
    pub(crate) wire: Wire,
    pub(crate) entry: Entry,
    pub(crate) peer: SocketAddr,
    /// The name given in EHLO; `None` before it.
    pub(crate) ehlo: Option<String>,
    pub(crate) envelope: Option<Envelope>,
    /// Mails accepted so far.
    pub(crate) mails: u32,
    /// The message being received.
    pub(crate) message: Vec<u8>,
    /// Its lines for the record.
    pub(crate) lines: Vec<u8>,
    mistakes: u32,
}

/// Who a mail is from and for.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    pub(crate) sender: String,
    pub(crate) recipients: Vec<String>,
    smtputf8: bool,
    /// When the first chunk of the message came, for a message that comes in chunks.
    pub(crate) first_chunk: Option<Moment>,
}

/// Serves a connection to its end.
pub(crate) async fn serve(sink: Arc<Inner>, stream: TcpStream, peer: SocketAddr) {
    let wire = match Wire::new(stream, sink.options.idle, sink.stop.clone()) {
        Ok(wire) => wire,
        Err(error) => return tracing::debug!(%peer, %error, "lost a connection before its banner"),
    };
    let Some(entry) = Connections::enter(&sink.connections, peer, sink.options.max_connections) else {
        return turn_away(wire).await;
    };
    let mut dialogue = Dialogue::new(sink, wire, entry, peer);
    let Err(end) = dialogue.talk().await;
    let connection = dialogue.entry.connection;
    tracing::debug!(%peer, connection, mails = dialogue.mails, %end, "dialogue ended");
    drop(dialogue.entry);
    match end {
        End::Closed(_) => dialogue.wire.close().await,
        End::Reset => {
            if let Err(error) = dialogue.wire.reset() {
                tracing::warn!(%peer, connection, %error, "closed a connection that was to be reset");
            }
        }
        End::Gone | End::Idle | End::Stopped | End::Broken(_) => {}
    }
}

async fn turn_away(mut wire: Wire) {
    wire.say(421, "4.7.0 too many connections, try again later");
    wire.close().await;
}

impl Dialogue {
    fn new(sink: Arc<Inner>, wire: Wire, entry: Entry, peer: SocketAddr) -> Self {
        Self {
            sink,
            wire,
            entry,
            peer,
            ehlo: None,
            envelope: None,
            mails: 0,
            message: Vec::new(),
            lines: Vec::new(),
            mistakes: 0,
        }
    }

    /// Runs until something ends it; what ends it is the answer, never Ok.
    async fn talk(&mut self) -> Result<std::convert::Infallible, End> {
        self.greet().await?;
        let mut line = Vec::with_capacity(256);
        loop {
            if let Err(violation) = self.wire.line(self.sink.options.lenient_line_ends, &mut line).await? {
                return Err(self.last_words(521, violation.text()));
            }
            match Command::parse(&line) {
                Ok(command) => self.obey(command).await?,
                Err((code, text)) => self.mistake(code, text)?,
            }
        }
    }

    async fn greet(&mut self) -> Result<(), End> {
        self.strike(FaultStage::Connect).await?;
        let huge = match self.strike(FaultStage::Banner).await? {
            Struck::Refuse(code, text) => return Err(self.last_words(code, &text)),
            Struck::Bare => return self.bare(220),
            Struck::Huge(bytes) => bytes,
            Struck::Nothing => 0,
        };
        self.huge_banner(huge).await?;
        self.wire.put(format_args!("220 {} ESMTP\r\n", self.sink.options.name));
        Ok(())
    }

    async fn obey(&mut self, command: Command<'_>) -> Result<(), End> {
        match command {
            Command::Ehlo(name) => self.hello(name, true).await?,
            Command::Helo(name) => self.hello(name, false).await?,
            Command::Mail(mail) => self.mail(mail).await?,
            Command::Rcpt(recipient) => self.recipient(recipient).await?,
            Command::Data => self.data().await?,
            Command::Bdat { size, last } if self.sink.options.chunking => self.receive_chunk(size, last).await?,
            Command::Bdat { .. } => self.mistake(502, "5.5.1 not offered here")?,
            Command::Rset => {
                self.forget_envelope();
                self.wire.say(250, "2.0.0 forgotten");
            }
            Command::Noop => self.wire.say(250, "2.0.0 ok"),
            Command::Help => self.wire.say(214, "2.0.0 see RFC 5321"),
            Command::Vrfy => self.wire.say(252, "2.5.2 send some mail, I will try"),
            Command::Quit => return Err(self.last_words(221, "2.0.0 goodbye")),
        }
        Ok(())
    }

    async fn hello(&mut self, name: &str, extended: bool) -> Result<(), End> {
        match self.strike(FaultStage::Ehlo).await? {
            Struck::Refuse(code, text) => return self.refuse(code, &text),
            Struck::Bare => self.bare(250)?,
            Struck::Huge(_) | Struck::Nothing if extended => self.offer(),
            Struck::Huge(_) | Struck::Nothing => self.wire.say(250, &self.sink.options.name),
        }
        self.forget_envelope();
        self.entry.greeted(name);
        self.ehlo = Some(name.to_owned());
        Ok(())
    }

    fn offer(&mut self) {
        let options = &self.sink.options;
        self.wire.put(format_args!("250-{}\r\n", options.name));
        let offers = [("PIPELINING", options.pipelining), ("CHUNKING", options.chunking)];
        for (offer, _) in offers.into_iter().filter(|(_, offered)| *offered) {
            self.wire.put(format_args!("250-{offer}\r\n"));
        }
        self.wire.put(format_args!(
            "250-8BITMIME\r\n250-SMTPUTF8\r\n250-ENHANCEDSTATUSCODES\r\n250 SIZE {}\r\n",
            options.max_message_bytes
        ));
    }

    async fn mail(&mut self, mail: Mail<'_>) -> Result<(), End> {
        if self.ehlo.is_none() {
            return self.mistake(503, "5.5.1 EHLO first");
        }
        if self.envelope.is_some() {
            return self.mistake(503, "5.5.1 a mail has begun already");
        }
        if self.sink.recorder.is_lost() {
            return self.refuse(451, "4.3.0 the record of this sink cannot be written");
        }
        if mail.size > self.sink.options.max_message_bytes {
            return self.refuse(552, "5.3.4 message too big");
        }
        if !mail.smtputf8 && !mail.sender.is_ascii() {
            return self.refuse(553, "5.6.7 non-ASCII address without SMTPUTF8");
        }
        if self.reply(FaultStage::Mail, 250, "2.1.0 sender ok").await? {
            let sender = mail.sender.to_owned();
            self.envelope = Some(Envelope { sender, smtputf8: mail.smtputf8, ..Envelope::default() });
            self.entry.state(DialogueState::Envelope);
        }
        Ok(())
    }

    async fn recipient(&mut self, recipient: &str) -> Result<(), End> {
        let Some(envelope) = &self.envelope else {
            return self.mistake(503, "5.5.1 MAIL first");
        };
        if envelope.first_chunk.is_some() {
            return self.mistake(503, "5.5.1 the message has begun");
        }
        if envelope.recipients.len() >= self.sink.options.max_recipients {
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

    async fn data(&mut self) -> Result<(), End> {
        let now = Moment::now();
        match &self.envelope {
            None => return self.mistake(503, "5.5.1 MAIL first"),
            Some(envelope) if envelope.recipients.is_empty() => return self.mistake(554, "5.5.1 no valid recipients"),
            Some(envelope) if envelope.first_chunk.is_some() => {
                return self.mistake(503, "5.5.1 this mail comes in chunks");
            }
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

    /// Says the reply of a stage, or what a fault puts in its place; whether the command took effect.
    async fn reply(&mut self, stage: FaultStage, code: u16, text: &str) -> Result<bool, End> {
        match self.strike(stage).await? {
            Struck::Refuse(code, text) => return self.refuse(code, &text).map(|()| false),
            Struck::Bare => self.bare(code)?,
            Struck::Huge(_) | Struck::Nothing => self.wire.say(code, text),
        }
        Ok(true)
    }

    /// Refuses a command that was in order; 421 is also the end (RFC 5321 3.8).
    pub(crate) fn refuse(&mut self, code: u16, text: &str) -> Result<(), End> {
        self.wire.say(code, text);
        if code == 421 { Err(End::Closed("421")) } else { Ok(()) }
    }

    /// Refuses a command that was not in order.
    pub(crate) fn mistake(&mut self, code: u16, text: &str) -> Result<(), End> {
        self.mistakes += 1;
        if self.mistakes >= MAX_MISTAKES {
            return Err(self.last_words(421, "4.7.0 too many mistakes"));
        }
        self.refuse(code, text)
    }

    /// Says the last reply of this dialogue; the answer is its end.
    pub(crate) fn last_words(&mut self, code: u16, text: &str) -> End {
        self.wire.say(code, text);
        End::Closed("said so")
    }

    pub(crate) fn bare(&mut self, code: u16) -> Result<(), End> {
        self.wire.put(format_args!("{code}\r\n"));
        Ok(())
    }

    pub(crate) fn forget_envelope(&mut self) {
        self.envelope = None;
        self.entry.state(DialogueState::Idle);
    }
}
