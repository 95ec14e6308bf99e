//! A small SMTP server in memory that follows a script and records what it receives, and a transport that records each
//! byte that was written to it.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex},
    time::Instant,
};
use tokio_rustls::TlsAcceptor;

use reveille_ledger::access::Access;

use crate::smtp::gate::{Gate, GateAnswer};
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::session::deadlines::{Deadlines, Timeouts};
use crate::smtp::session::dialer::{Connected, Dial};
use crate::smtp::session::dialogue::Session;
use crate::smtp::session::dot_stuffing::EmailText;
use crate::smtp::session::envelope::Email;
use crate::smtp::session::stream::ByteStream;
use crate::smtp::session::target::Target;

/// Steps at which the script is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerStep {
    Banner,
    /// EHLO before any TLS.
    Ehlo,
    Helo,
    StartTls,
    /// EHLO under TLS.
    SecureEhlo,
    /// The last line of AUTH.
    Auth,
    Mail,
    Rcpt,
    Data,
    /// The first line of a text was read.
    InText,
    Dot,
    Reset,
    Quit,
}

/// Actions of the server.
#[derive(Debug, Clone)]
pub enum ServerAction {
    Reply(&'static str),
    ReplyAndClose(&'static str),
    ReplyAfter(Duration, &'static str),
    Close,
    /// Sends and reads nothing, and keeps the connection open.
    Hang,
    /// Sends many bytes that are no reply.
    Flood(usize),
}

/// Returns the action for a step and the number of the email on its connection, from 0. `None`: the usual one.
pub type Script = Arc<dyn Fn(ServerStep, usize) -> Option<ServerAction> + Send + Sync>;

/// Returns the script of a server that offers everything and accepts everything.
pub fn willing() -> Script {
    Arc::new(|_, _| None)
}

/// As [`willing`], except at one step of every email.
pub fn when(step: ServerStep, action: ServerAction) -> Script {
    Arc::new(move |at, _| (at == step).then(|| action.clone()))
}

/// As [`willing`], except at several steps of every email.
pub fn script(actions: &'static [(ServerStep, ServerAction)]) -> Script {
    Arc::new(move |at, _| actions.iter().find(|(step, _)| *step == at).map(|(_, action)| action.clone()))
}

/// As the given script, without PIPELINING.
pub fn stepwise(script: Script) -> Script {
    Arc::new(move |step, mail| match script(step, mail) {
        None if step == ServerStep::Ehlo => Some(ServerAction::Reply("250-relay\r\n250 8BITMIME\r\n")),
        action => action,
    })
}

/// Data that a server received, over all its connections.
#[derive(Debug, Default)]
pub struct Seen {
    pub connections: usize,
    pub open: usize,
    pub most_open: usize,
    pub commands: Vec<String>,
    /// Texts that were received completely, unstuffed, whatever the answer was.
    pub texts: Vec<Vec<u8>>,
    /// Texts that were answered with 2yz before anything else happened.
    pub accepted: Vec<Vec<u8>>,
}

pub type SharedSeen = Arc<Mutex<Seen>>;

/// Each byte that the client wrote, and the number of writes.
#[derive(Debug, Default)]
pub struct WrittenBytes {
    pub bytes: Vec<u8>,
    pub writes: usize,
    /// Every write fails after this many bytes. `None`: none fails.
    pub fails_after: Option<usize>,
}

pub type SharedWritten = Arc<Mutex<WrittenBytes>>;

/// Connects to a new server for each connection.
#[derive(Clone)]
pub struct Exchange {
    pub script: Script,
    pub seen: SharedSeen,
    pub written: SharedWritten,
    /// Size of the buffers between client and server in bytes.
    pub buffer: usize,
    /// Maximum number of bytes that one write accepts.
    pub gulp: usize,
    pub tls: ServerTls,
}

/// Encryption of a server.
#[derive(Clone)]
pub enum ServerTls {
    Never,
    /// From the first byte.
    Implicit(TlsAcceptor),
    /// After STARTTLS.
    WhenAsked(TlsAcceptor),
}

impl Exchange {
    pub fn new(script: Script) -> Exchange {
        Exchange {
            script,
            seen: SharedSeen::default(),
            written: SharedWritten::default(),
            buffer: 64 * 1024,
            gulp: usize::MAX,
            tls: ServerTls::Never,
        }
    }

    pub async fn session(&self) -> Result<Session, Box<DialogueResult>> {
        self.session_within(Timeouts::default()).await
    }

    pub async fn session_within(&self, timeouts: Timeouts) -> Result<Session, Box<DialogueResult>> {
        Session::open(&target(), self, timeouts, &Deadlines::default()).await
    }

    pub fn commands(&self) -> Vec<String> {
        self.seen.lock().commands.clone()
    }
}

#[async_trait]
impl Dial for Exchange {
    async fn dial(&self, _: &str, _: u16) -> io::Result<Connected> {
        let (ours, theirs) = duplex(self.buffer);
        let (script, seen, tls) = (self.script.clone(), self.seen.clone(), self.tls.clone());
        tokio::spawn(async move {
            {
                let mut seen = seen.lock();
                seen.connections += 1;
                seen.open += 1;
                seen.most_open = seen.most_open.max(seen.open);
            }
            let server = Server {
                stream: Box::new(theirs),
                unread: VecDeque::new(),
                script,
                seen: seen.clone(),
                mail: 0,
                has_recipient: false,
                tls,
                is_secure: false,
            };
            let _ = server.serve().await;
            seen.lock().open -= 1;
        });
        Ok(RecordedStream { inner: ours, written: self.written.clone(), gulp: self.gulp }.into())
    }
}

struct Server {
    stream: Box<dyn ByteStream>,
    unread: VecDeque<u8>,
    script: Script,
    seen: SharedSeen,
    mail: usize,
    has_recipient: bool,
    tls: ServerTls,
    is_secure: bool,
}

/// The connection has ended.
struct Over;

impl From<io::Error> for Over {
    fn from(_: io::Error) -> Over {
        Over
    }
}

impl Server {
    async fn serve(mut self) -> Result<(), Over> {
        if let ServerTls::Implicit(acceptor) = &self.tls {
            self.stream = Box::new(acceptor.accept(self.stream).await?);
            self.is_secure = true;
        }
        self.action(ServerStep::Banner, "220 relay ESMTP\r\n").await?;
        loop {
            let line = String::from_utf8_lossy(&self.line().await?).into_owned();
            let verb = line.split([' ', '\r']).next().unwrap_or_default().to_ascii_uppercase();
            self.seen.lock().commands.push(line.trim_end().to_owned());
            match verb.as_str() {
                "EHLO" if self.is_secure => {
                    let all = "250-relay\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-AUTH PLAIN LOGIN\r\n250 SMTPUTF8\r\n";
                    self.action(ServerStep::SecureEhlo, all).await?;
                }
                "EHLO" if matches!(self.tls, ServerTls::WhenAsked(_)) => {
                    self.action(ServerStep::Ehlo, "250-relay\r\n250 STARTTLS\r\n").await?;
                }
                "STARTTLS" => {
                    let said = self.action(ServerStep::StartTls, "220 2.0.0 go ahead\r\n").await?;
                    if let (ServerTls::WhenAsked(acceptor), true) = (&self.tls, said.starts_with('2')) {
                        self.stream = Box::new(acceptor.accept(self.stream).await?);
                        self.is_secure = true;
                    }
                }
                "AUTH" => {
                    if line.trim_end() == "AUTH LOGIN" {
                        for question in ["334 VXNlcm5hbWU6\r\n", "334 UGFzc3dvcmQ6\r\n"] {
                            self.stream.write_all(question.as_bytes()).await?;
                            self.stream.flush().await?;
                            let answer = String::from_utf8_lossy(&self.line().await?).into_owned();
                            self.seen.lock().commands.push(answer.trim_end().to_owned());
                        }
                    }
                    self.action(ServerStep::Auth, "235 2.7.0 welcome\r\n").await?;
                }
                "HELO" => _ = self.action(ServerStep::Helo, "250 relay\r\n").await?,
                "EHLO" => {
                    self.action(ServerStep::Ehlo, "250-relay\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n")
                        .await?;
                }
                "MAIL" => _ = self.action(ServerStep::Mail, "250 2.1.0 ok\r\n").await?,
                "RCPT" => {
                    self.has_recipient |= self.action(ServerStep::Rcpt, "250 2.1.5 ok\r\n").await?.starts_with('2')
                }
                "RSET" => {
                    self.has_recipient = false;
                    self.action(ServerStep::Reset, "250 2.0.0 ok\r\n").await?;
                }
                "DATA" => {
                    if self.action(ServerStep::Data, "354 go on\r\n").await?.starts_with('3') {
                        self.text().await?;
                        self.mail += 1;
                    }
                }
                "QUIT" => {
                    self.action(ServerStep::Quit, "221 bye\r\n").await?;
                    return Err(Over);
                }
                _ => {
                    self.stream.write_all(b"500 what\r\n").await?;
                    self.stream.flush().await?;
                }
            }
        }
    }

    async fn text(&mut self) -> Result<(), Over> {
        let mut text = Vec::new();
        loop {
            let line = self.line().await?;
            if line == b".\r\n" {
                break;
            }
            let first = text.is_empty();
            text.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
            if first {
                self.action(ServerStep::InText, "").await?;
            }
        }
        self.seen.lock().texts.push(text.clone());
        let has_recipient = std::mem::take(&mut self.has_recipient);
        let usual = if has_recipient { "250 2.0.0 queued\r\n" } else { "554 5.5.1 no valid recipients\r\n" };
        let said = self.action(ServerStep::Dot, usual).await?;
        if has_recipient && said.starts_with('2') {
            self.seen.lock().accepted.push(text);
        }
        Ok(())
    }

    /// Performs the action of the script, or else sends the usual reply. Returns the reply that it sent.
    async fn action(&mut self, step: ServerStep, usual: &'static str) -> Result<&'static str, Over> {
        match (self.script)(step, self.mail).unwrap_or(ServerAction::Reply(usual)) {
            ServerAction::Reply(words) => {
                self.stream.write_all(words.as_bytes()).await?;
                self.stream.flush().await?;
                Ok(words)
            }
            ServerAction::ReplyAndClose(words) => {
                self.stream.write_all(words.as_bytes()).await?;
                self.stream.flush().await?;
                Err(Over)
            }
            ServerAction::ReplyAfter(delay, words) => {
                tokio::time::sleep(delay).await;
                self.stream.write_all(words.as_bytes()).await?;
                self.stream.flush().await?;
                Ok(words)
            }
            ServerAction::Close => Err(Over),
            ServerAction::Hang => {
                std::future::pending::<()>().await;
                Err(Over)
            }
            ServerAction::Flood(bytes) => {
                for _ in 0..bytes / 1000 {
                    self.stream.write_all(&[b'2'; 1000]).await?;
                }
                Ok("")
            }
        }
    }

    async fn line(&mut self) -> Result<Vec<u8>, Over> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                return Ok(self.unread.drain(..=end).collect());
            }
            let mut space = [0; 4096];
            match self.stream.read(&mut space).await? {
                0 => return Err(Over),
                read => self.unread.extend(&space[..read]),
            }
        }
    }
}

struct RecordedStream {
    inner: DuplexStream,
    written: SharedWritten,
    gulp: usize,
}

impl AsyncRead for RecordedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, space)
    }
}

impl AsyncWrite for RecordedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let record = self.written.clone();
        let fails = {
            let written = record.lock();
            written.fails_after.is_some_and(|most| written.bytes.len() >= most)
        };
        if fails {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let gulp = bytes.len().min(self.gulp);
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &bytes[..gulp]))?;
        let mut record = record.lock();
        record.writes += 1;
        record.bytes.extend_from_slice(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

pub fn target() -> Target {
    Target::new("relay.example.org", 25, "node-1.example.org", &Access::default()).expect("a good target")
}

pub fn mail(text: &[u8]) -> Email {
    let text = EmailText::new(text.to_vec()).expect("a good text");
    Email { from: "news@example.org".to_owned(), to: "anna@example.com".to_owned(), text, dsn: None }
}

/// A gate that counts its calls, and records how many bytes were written at each.
pub struct Counting {
    pub answer: GateAnswer,
    pub written: SharedWritten,
    pub met: Arc<Mutex<Vec<usize>>>,
}

impl Counting {
    pub fn new(exchange: &Exchange, answer: GateAnswer) -> Counting {
        Counting { answer, written: exchange.written.clone(), met: Arc::default() }
    }

    pub fn open(exchange: &Exchange) -> Counting {
        Counting::new(exchange, GateAnswer::Pass)
    }

    pub fn closed(exchange: &Exchange) -> Counting {
        Counting::new(exchange, GateAnswer::Closed)
    }

    pub fn times_met(&self) -> usize {
        self.met.lock().len()
    }
}

impl Gate for Counting {
    fn decide(&mut self) -> GateAnswer {
        let written = self.written.lock().bytes.len();
        self.met.lock().push(written);
        self.answer
    }
}

/// Waits up to 30 s until `condition` holds.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < limit, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
