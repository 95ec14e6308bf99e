//! Opening a session: banner and EHLO, spoken by lettre over our stream.
//!
//! Called by the dialogue, once a session. lettre gets a loan of the stream for the time of the
//! opening; when it gives it back, nothing of lettre is left between us and the wire. While it holds
//! the loan it reads whole, bounded, cleaned replies, one at a time, never more than it asked for.
//! A panic inside lettre ends at this border.

use std::{
    fmt, io,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::FutureExt;
use lettre::transport::smtp::{
    client::{AsyncSmtpConnection, AsyncTokioStream},
    extension::{ClientId, Extension, ServerInfo},
};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    cause::Cause,
    envelope::Offers,
    lines::Reply,
    patience::{Patience, Timeouts},
    reply::Verdict,
    stream::{Stage, Stream, Transport},
};

/// lettre refuses a line of more than 1,000 bytes; longer ones are cut for it.
const LINE_FOR_LETTRE_CHARS: usize = 200;

/// Greets the relay as `hello_name`. Banner and EHLO share the sum of their time-outs.
///
/// # Errors
/// The verdict for the mail that wanted the session; the connection is closed then.
pub(super) async fn open(
    transport: Box<dyn Transport>,
    hello_name: &str,
    timeouts: &Timeouts,
    patience: &Patience,
) -> Result<(Stream, Offers), Box<Verdict>> {
    let loan = Loan(Arc::new(Mutex::new(Lent {
        stream: Stream::new(transport),
        heard: Vec::new(),
        failure: None,
        unread: Vec::new(),
    })));
    let hello = ClientId::Domain(hello_name.to_owned());
    let greeting = AsyncSmtpConnection::connect_with_transport(Box::new(loan.clone()), &hello);
    let greeting = AssertUnwindSafe(greeting).catch_unwind();
    let info = match patience.bound(timeouts.banner + timeouts.ehlo, greeting).await {
        Ok(Ok(Ok(connection))) => Ok(connection.server_info().clone()),
        Ok(Ok(Err(error))) => Err(Cause::Opening(error.to_string())),
        Ok(Err(panic)) => Err(Cause::of_panic(panic.as_ref())),
        Err(cause) => Err(cause),
    };
    // lettre's half of the loan ended with its future, so this is the only one left.
    match Arc::try_unwrap(loan.0) {
        Ok(lent) => lent.into_inner().settle(info).map_err(Box::new),
        Err(_) => Err(Box::new(Verdict::lost(Stage::Ehlo, Cause::Opening("the loan was kept".to_owned())))),
    }
}

/// What lettre holds.
#[derive(Clone)]
struct Loan(Arc<Mutex<Lent>>);

struct Lent {
    stream: Stream,
    heard: Vec<Reply>,
    failure: Option<Cause>,
    /// The rest of the reply that lettre is reading, as lettre likes it.
    unread: Vec<u8>,
}

impl Lent {
    /// What came of it. A refusal that was heard, or what broke the stream, says more than
    /// lettre's account of it.
    fn settle(self, info: Result<ServerInfo, Cause>) -> Result<(Stream, Offers), Verdict> {
        let stage = self.stream.stage();
        if let Some(refusal) = self.refusal() {
            let stage = if self.heard.len() > 1 { Stage::Ehlo } else { Stage::Banner };
            return Err(Verdict::refused(stage, refusal));
        }
        let info = match (self.failure, info) {
            (Some(cause), _) | (None, Err(cause)) => return Err(Verdict::lost(stage, cause)),
            (None, Ok(info)) => info,
        };
        let keyword = |line: &str| line.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case("PIPELINING"));
        match self.heard.as_slice() {
            [banner, ehlo] if banner.class() == 2 && ehlo.class() == 2 => {
                let offers = Offers {
                    // lettre does not know this one.
                    pipelining: ehlo.text.lines().skip(1).any(keyword),
                    eight_bit: info.supports_feature(Extension::EightBitMime),
                    utf8: info.supports_feature(Extension::SmtpUtfEight),
                };
                Ok((self.stream, offers))
            }
            heard => {
                let words = heard.last().map(Reply::summary).unwrap_or_default();
                Err(Verdict::lost(stage, Cause::OutOfStep(words)))
            }
        }
    }

    fn refusal(&self) -> Option<&Reply> {
        self.heard.iter().take(2).find(|reply| reply.class() >= 4)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            // After a refusal lettre says QUIT and would wait for its answer. Nobody else does.
            if self.refusal().is_some() {
                return Poll::Ready(Ok(()));
            }
            match ready!(self.stream.poll_reply(cx)) {
                Ok(reply) => {
                    self.unread = for_lettre(&reply);
                    self.heard.push(reply);
                }
                Err(cause) => {
                    let error = io::Error::other(cause.to_string());
                    self.failure = Some(cause);
                    return Poll::Ready(Err(error));
                }
            }
        }
        let part: Vec<u8> = self.unread.drain(..space.remaining().min(self.unread.len())).collect();
        space.put_slice(&part);
        Poll::Ready(Ok(()))
    }
}

/// The same reply within lettre's grammar: a text where there is none, short lines, and a second
/// digit that it knows. What the relay really said stays in [`Lent::heard`].
fn for_lettre(reply: &Reply) -> Vec<u8> {
    let (class, second, third) = (reply.class(), reply.code / 10 % 10, reply.code % 10);
    let code = class * 100 + second.min(5) * 10 + third;
    let lines: Vec<&str> = reply.text.split('\n').collect();
    let mut wire = String::new();
    for (number, line) in lines.iter().enumerate() {
        let separator = if number + 1 == lines.len() { ' ' } else { '-' };
        let text: String = line.chars().take(LINE_FOR_LETTRE_CHARS).collect();
        let text = if text.trim().is_empty() { "ok" } else { text.as_str() };
        wire.push_str(&format!("{code}{separator}{text}\r\n"));
    }
    wire.into_bytes()
}

impl AsyncRead for Loan {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_read(cx, space)
    }
}

impl AsyncWrite for Loan {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut lent = self.0.lock();
        lent.stream.at(Stage::Ehlo);
        lent.stream.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().stream.poll_flush(cx)
    }

    /// Closing is the owner's: lettre only borrowed the stream.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Loan")
    }
}

impl AsyncTokioStream for Loan {
    /// Not every transport has one, and lettre asks only on behalf of its own callers.
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
