//! The relay: an SMTP server behind an in-memory stream, whose record of accepts is the truth that a run is judged by.
//!
//! It writes an accept down before it answers, never deduplicates, and misbehaves on request. It shares no code with
//! the product, and with `reveille-sink` only the habit: that one lives on sockets, files and real time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use parking_lot::Mutex;
use reveille_cluster::relay::{Dial, Transport};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Duration, sleep};

use crate::chance::Chance;
use crate::network::{Life, Network};
use crate::trace::Trace;

/// Bytes under way in one direction of a connection.
const STREAM_BYTES: usize = 64 * 1024;
/// Connections whose sender shall die that wait for it: one decision each, taken at once.
const STRIKES_MAX: usize = 64;

/// How the relay behaves, in percent of occasions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mood {
    /// It takes no connection.
    pub down: bool,
    /// RCPT is answered 451.
    pub greylists: u64,
    /// The dot is answered 451 and nothing accepted.
    pub defers: u64,
    /// A mail is accepted and the connection closed without an answer.
    pub loses_answers: u64,
    /// A mail is accepted, and before the answer is out the sender is to die.
    pub strikes: u64,
    /// Milliseconds that an answer takes at most, beyond what is usual.
    pub slow_ms: u64,
}

/// One final dot that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When DATA was read, in virtual time since the beginning of the run.
    pub data_at: Duration,
    /// When the dot was.
    pub at: Duration,
    /// Who sent it.
    pub life: Life,
    /// The connection, counted from 1.
    pub connection: u64,
    /// Envelope recipient.
    pub recipient: String,
    /// Message-ID.
    pub message_id: String,
    /// `X-Reveille-Fence`.
    pub fence: String,
    /// `X-Reveille-Run`.
    pub run: String,
    /// Whether it was accepted.
    pub accepted: bool,
    /// The code that was answered; none where nothing was.
    pub code: Option<u16>,
}

struct State {
    mood: Mood,
    chance: Chance,
    arrivals: Vec<Arrival>,
    /// Refused at RCPT with 550 5.1.1.
    unknown: BTreeSet<String>,
    connections: u64,
    /// Dots of each life that have come and whose answer is not out yet.
    waiting: BTreeMap<Life, u64>,
}

/// The relay. Clones are the same.
#[derive(Clone)]
pub struct Relay {
    state: Arc<Mutex<State>>,
    strikes: mpsc::Sender<Life>,
    network: Network,
    trace: Trace,
}

impl Relay {
    /// In a good mood. The receiver is told of lives that are to die at once.
    pub fn new(chance: Chance, network: Network, trace: Trace) -> (Relay, mpsc::Receiver<Life>) {
        let (strikes, struck) = mpsc::channel(STRIKES_MAX);
        let state = State {
            mood: Mood::default(),
            chance,
            arrivals: Vec::new(),
            unknown: BTreeSet::new(),
            connections: 0,
            waiting: BTreeMap::new(),
        };
        (Relay { state: Arc::new(Mutex::new(state)), strikes, network, trace }, struck)
    }

    /// From now on it behaves so.
    pub fn set_mood(&self, mood: Mood) {
        self.state.lock().mood = mood;
    }

    /// These mailboxes do not exist.
    pub fn does_not_know(&self, addresses: impl IntoIterator<Item = String>) {
        self.state.lock().unknown.extend(addresses);
    }

    /// All dots that arrived, in order.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.state.lock().arrivals.clone()
    }

    /// Dots of this life that wait for their answer now: its hand-offs that are past the gate.
    pub fn past_gate(&self, life: Life) -> u64 {
        self.state.lock().waiting.get(&life).copied().unwrap_or(0)
    }

    /// One life's way to it.
    pub fn way(&self, life: Life) -> Arc<dyn Dial> {
        Arc::new(Way { relay: self.clone(), life })
    }

    fn draw<T>(&self, draw: impl FnOnce(Mood, &mut Chance) -> T) -> T {
        let mut state = self.state.lock();
        let mood = state.mood;
        draw(mood, &mut state.chance)
    }

    async fn take_its_time(&self) {
        let micros = self.draw(|mood, chance| chance.within(500..4_000) + chance.within(0..mood.slow_ms * 1_000 + 1));
        sleep(Duration::from_micros(micros)).await;
    }
}

struct Way {
    relay: Relay,
    life: Life,
}

#[async_trait]
impl Dial for Way {
    async fn dial(&self, _host: &str, _port: u16) -> io::Result<Box<dyn Transport>> {
        self.relay.take_its_time().await;
        let connection = {
            let mut state = self.relay.state.lock();
            if state.mood.down {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            state.connections += 1;
            state.connections
        };
        let (here, there) = tokio::io::duplex(STREAM_BYTES);
        let session =
            Session { relay: self.relay.clone(), life: self.life, connection, wire: BufReader::new(there), mail: None };
        tokio::spawn(session.serve());
        Ok(Box::new(Socket { stream: here, life: self.life, network: self.relay.network.clone() }))
    }
}

/// The sender's end. It breaks when its process is gone; what was written before is under way.
struct Socket {
    stream: DuplexStream,
    life: Life,
    network: Network,
}

impl Socket {
    fn alive(&self) -> io::Result<()> {
        if self.network.is_alive(self.life) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.alive()?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.alive()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The relay's end of one connection.
struct Session {
    relay: Relay,
    life: Life,
    connection: u64,
    wire: BufReader<DuplexStream>,
    mail: Option<String>,
}

/// What a line comes to.
enum Next {
    GoOn,
    Close,
}

impl Session {
    async fn serve(mut self) {
        self.relay.take_its_time().await;
        if self.say("220 relay.simulation ESMTP").await.is_err() {
            return;
        }
        while let Ok(Some(line)) = self.line().await {
            self.relay.take_its_time().await;
            match self.obey(&line).await {
                Ok(Next::GoOn) => {}
                Ok(Next::Close) | Err(_) => return,
            }
        }
    }

    async fn line(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        if self.wire.read_until(b'\n', &mut bytes).await? == 0 || !bytes.ends_with(b"\r\n") {
            return Ok(None);
        }
        bytes.truncate(bytes.len() - 2);
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    async fn say(&mut self, answer: &str) -> io::Result<()> {
        self.wire.get_mut().write_all(format!("{answer}\r\n").as_bytes()).await
    }

    async fn obey(&mut self, line: &str) -> io::Result<Next> {
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        match verb.as_str() {
            "EHLO" => {
                self.say("250-relay.simulation\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 ENHANCEDSTATUSCODES").await?
            }
            "MAIL" => self.say("250 2.1.0 ok").await?,
            "RCPT" => self.recipient(line).await?,
            "DATA" if self.mail.is_some() => return self.data().await,
            "DATA" => self.say("554 5.5.1 no valid recipients").await?,
            "RSET" | "NOOP" => {
                self.mail = None;
                self.say("250 2.0.0 ok").await?;
            }
            "QUIT" => {
                self.say("221 2.0.0 goodbye").await?;
                return Ok(Next::Close);
            }
            _ => self.say("500 5.5.1 what?").await?,
        }
        Ok(Next::GoOn)
    }

    async fn recipient(&mut self, line: &str) -> io::Result<()> {
        let address = line.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        if self.relay.state.lock().unknown.contains(&address) {
            return self.say("550 5.1.1 no such mailbox").await;
        }
        if self.relay.draw(|mood, chance| chance.percent(mood.greylists)) {
            return self.say("451 4.2.0 not now").await;
        }
        self.mail = Some(address);
        self.say("250 2.1.5 ok").await
    }

    async fn data(&mut self) -> io::Result<Next> {
        let data_at = self.relay.trace.elapsed();
        self.say("354 go on").await?;
        let mut arrival = Arrival {
            data_at,
            at: Duration::ZERO,
            life: self.life,
            connection: self.connection,
            recipient: self.mail.take().unwrap_or_default(),
            message_id: String::new(),
            fence: String::new(),
            run: String::new(),
            accepted: false,
            code: None,
        };
        let mut in_head = true;
        loop {
            let Some(line) = self.line().await? else { return Ok(Next::Close) };
            if line == "." {
                break;
            }
            in_head &= !line.is_empty();
            if let (true, Some((name, value))) = (in_head, line.split_once(": ")) {
                match name {
                    "Message-ID" => arrival.message_id = value.to_owned(),
                    "X-Reveille-Fence" => arrival.fence = value.to_owned(),
                    "X-Reveille-Run" => arrival.run = value.to_owned(),
                    _ => {}
                }
            }
        }
        *self.relay.state.lock().waiting.entry(self.life).or_default() += 1;
        let judged = self.judge(arrival).await;
        if let Some(waiting) = self.relay.state.lock().waiting.get_mut(&self.life) {
            *waiting -= 1;
        }
        judged
    }

    /// At the dot: the decision and its record come first, then time passes, then the answer.
    async fn judge(&mut self, mut arrival: Arrival) -> io::Result<Next> {
        let (defers, loses, strikes) = self.relay.draw(|mood, chance| {
            (chance.percent(mood.defers), chance.percent(mood.loses_answers), chance.percent(mood.strikes))
        });
        arrival.at = self.relay.trace.elapsed();
        arrival.accepted = !defers;
        arrival.code = (!loses || defers).then_some(if defers { 451 } else { 250 });
        let word = match (defers, loses) {
            (true, _) => "deferred",
            (false, true) => "accepted, and the answer is lost",
            (false, false) => "accepted",
        };
        let Arrival { recipient, run, fence, .. } = &arrival;
        self.relay
            .trace
            .say(format_args!("relay: {recipient} of {run} under {fence} by n{}: {word}", self.life.node.0));
        self.relay.state.lock().arrivals.push(arrival);
        if strikes && !defers {
            // Where too many are to die at once, one death more makes no difference.
            let _ = self.relay.strikes.try_send(self.life);
        }
        self.relay.take_its_time().await;
        match (defers, loses) {
            (true, _) => self.say("451 4.3.0 later").await?,
            (false, true) => return Ok(Next::Close),
            (false, false) => self.say("250 2.0.0 taken").await?,
        }
        Ok(Next::GoOn)
    }
}
