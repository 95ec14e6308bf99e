//! The only place where bytes go to a relay, and where the gate stands (P3, P5). It sits above TLS and knows no time.
//!
//! - A command is written outside an email's text only, and a text only as `Stuffed`, which cannot contain a line of one
//!   dot. So exactly one function ends a text, `Stream::hand_over`, and it asks the gate exactly once.
//! - The [`Stage`] is at least what the peer may know: it moves to `DotHanded` *before* the first byte of the terminator.
//! - Bytes that arrive unasked before the gate end the dialogue: answers could not be matched to questions any more.
//!
//! Text does not go through lettre: its two writes would make the gate guess, it appends an empty line to each text, refuses
//! replies that RFC 5321 4.2.1 tolerates, reads lines without bound, and has one error before and after the dot.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::future::poll_fn;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::coop::unconstrained,
};

use super::cause::Cause;
use super::dot_stuffing::Piece;
use super::gate::{Gate, GateAnswer, GateRefusal};
use super::lines::{Reply, ReplyLines};

/// A connected byte stream to a relay: TCP, TLS over TCP, or a simulated one.
///
/// Its flush is ready once what was written is with the network and more would be taken at once. The gate is asked
/// then and not before, so that no time passes between its answer and the write of the terminator. TLS flushes what is
/// below it, so it keeps the promise of that.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// How far a dialogue is. Ordered; each is entered before its first byte is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Resolving and connecting.
    Connect,
    /// STARTTLS written, or TLS being shaken hands on. With STARTTLS it comes after a first EHLO, and a
    /// second one follows.
    Tls,
    /// Waiting for the greeting.
    Banner,
    /// EHLO written.
    Ehlo,
    /// AUTH written.
    Auth,
    /// MAIL written (with RCPT and DATA where the relay takes them together).
    Mail,
    /// MAIL is answered; RCPT is next to be answered.
    Rcpt,
    /// RCPT is answered; DATA is next to be answered.
    Data,
    /// The text is being written.
    Body,
    /// The terminator may be on its way: without an answer, in doubt.
    DotHanded,
    /// The final dot has a whole answer; the session is between emails.
    Answered,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Stage; 11] = [
        Stage::Connect,
        Stage::Tls,
        Stage::Banner,
        Stage::Ehlo,
        Stage::Auth,
        Stage::Mail,
        Stage::Rcpt,
        Stage::Data,
        Stage::Body,
        Stage::DotHanded,
        Stage::Answered,
    ];
}

/// The end of a text (RFC 5321 4.1.1.4); the CRLF before it belongs to the text's last line.
const TERMINATOR: &[u8] = b".\r\n";

/// The size of one read. Four pipelined replies are some 200 bytes.
const READ_BYTES: usize = 2048;

/// The connection with its stage and its half-read replies.
pub(crate) struct Stream {
    /// `None` once closed: nothing can be read or written any more.
    transport: Option<Box<dyn ByteStream>>,
    replies: ReplyLines,
    stage: Stage,
}

impl Stream {
    /// Takes a connected transport, before its banner.
    pub fn new(transport: Box<dyn ByteStream>) -> Stream {
        Stream { transport: Some(transport), replies: ReplyLines::default(), stage: Stage::Banner }
    }

    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The question that is next to be answered. Only the stages of commands can be set.
    pub fn at(&mut self, stage: Stage) {
        let in_text = matches!(self.stage, Stage::Body | Stage::DotHanded);
        debug_assert!(stage <= Stage::Data && !in_text, "the stages of a text are this file's own");
        if stage <= Stage::Data && !in_text {
            self.stage = stage;
        }
    }

    /// Gives the transport back, for TLS to take. Only when nothing was read beyond the last answer.
    ///
    /// # Errors
    /// `OutOfStep` when something was, `Closed` when there is none.
    pub fn into_transport(self) -> Result<Box<dyn ByteStream>, Cause> {
        if self.replies.has_surplus() {
            return Err(Cause::OutOfStep(self.replies.surplus()));
        }
        self.transport.ok_or(Cause::Closed)
    }

    /// Closes the socket. What was written and not ended is no mail for the peer.
    pub fn close(&mut self) {
        self.transport = None;
    }

    pub fn is_closed(&self) -> bool {
        self.transport.is_none()
    }

    /// Writes commands as they stand. While the peer does not take more, its answers to the first
    /// ones are read: two that only write to each other would wait for ever (RFC 2920 3.1).
    ///
    /// # Errors
    /// When the transport fails, or when a text was begun: a command would become part of it.
    pub async fn command(&mut self, text: &str) -> Result<(), Cause> {
        if matches!(self.stage, Stage::Body | Stage::DotHanded) {
            return Err(Cause::OutOfStep("a command inside a text".to_owned()));
        }
        let mut rest = text.as_bytes();
        poll_fn(|cx| match self.poll_write_all(cx, &mut rest) {
            Poll::Pending => {
                while self.replies.has_room() && matches!(self.poll_feed(cx)?, Poll::Ready(1..)) {}
                Poll::Pending
            }
            written => written,
        })
        .await?;
        Ok(())
    }

    /// The next whole reply. Cancel-safe: what was read stays.
    pub async fn reply(&mut self) -> Result<Reply, Cause> {
        poll_fn(|cx| self.poll_reply(cx)).await
    }

    /// Writes a piece of the text, and watches for unasked bytes whenever the peer
    /// does not take more.
    pub async fn text(&mut self, piece: Piece<'_>) -> Result<(), Cause> {
        if !matches!(self.stage, Stage::Data | Stage::Body) {
            return Err(Cause::OutOfStep("a text before 354".to_owned()));
        }
        self.stage = Stage::Body;
        let mut rest = piece.bytes();
        poll_fn(|cx| match self.poll_write_all(cx, &mut rest) {
            Poll::Ready(written) => Poll::Ready(written.map_err(Cause::from)),
            Poll::Pending => self.poll_unasked(cx).map_or(Poll::Pending, |cause| Poll::Ready(Err(cause))),
        })
        .await
    }

    /// **The gate.** Waits until the transport takes more bytes, meets `gate` once and, when it lets the email pass,
    /// hands the terminator to the transport in the same poll. `Ok(Some)` says why it stayed shut: then nothing was written, and
    /// the connection is closed, as it is when replies are out of step before the gate.
    ///
    /// Once the gate has passed, every error leaves the stage at `DotHanded`: even a write that
    /// failed at its first byte, since a transport that encrypts may have taken it before it failed.
    pub async fn hand_over(&mut self, gate: &mut dyn Gate) -> Result<Option<GateRefusal>, Cause> {
        if self.stage != Stage::Body {
            return Err(Cause::OutOfStep("a terminator without a text".to_owned()));
        }
        let mut rest = TERMINATOR;
        // Unconstrained: tokio's budget for a task must not push the write into a later poll.
        unconstrained(poll_fn(|cx| {
            if self.stage == Stage::Body {
                if let Some(cause) = self.poll_unasked(cx) {
                    self.close();
                    return Poll::Ready(Err(cause));
                }
                ready!(self.poll_flush(cx))?;
                if let GateAnswer::Closed(reason) = gate.pass() {
                    self.close();
                    return Poll::Ready(Ok(Some(reason)));
                }
                self.stage = Stage::DotHanded;
            }
            ready!(self.poll_write_all(cx, &mut rest))?;
            Poll::Ready(Ok(None))
        }))
        .await
    }

    /// The whole answer to the final dot. Bytes behind it, other than a farewell (421), mean that it
    /// may have been the answer to something else, so it is none: in doubt.
    pub async fn answer(&mut self) -> Result<Reply, Cause> {
        let reply = self.reply().await?;
        if let Some(cause @ Cause::OutOfStep(_)) = self.unasked().await {
            self.close();
            if !self.replies.surplus_is_farewell() {
                return Err(cause);
            }
        }
        if reply.class() == 3 {
            return Err(Cause::OutOfStep(reply.summary()));
        }
        self.stage = Stage::Answered;
        Ok(reply)
    }

    /// The lone dot of RFC 2920 3.1: it ends a text that the relay asked for although it had
    /// refused the only recipient. It is no hand-off and meets no gate: with `refusal` in hand there
    /// is no recipient to deliver to.
    pub async fn dot_for_nobody(&mut self, refusal: &Reply) -> Result<Reply, Cause> {
        if self.stage != Stage::Data || refusal.class() < 4 {
            return Err(Cause::OutOfStep("a dot that could land somewhere".to_owned()));
        }
        let mut rest = TERMINATOR;
        poll_fn(|cx| self.poll_write_all(cx, &mut rest)).await?;
        self.reply().await
    }

    /// What, if anything, is wrong with a connection that should be silent now.
    pub async fn unasked(&mut self) -> Option<Cause> {
        poll_fn(|cx| Poll::Ready(self.poll_unasked(cx))).await
    }

    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Cause>> {
        loop {
            if let Some(reply) = self.replies.next_reply()? {
                return Poll::Ready(Ok(reply));
            }
            if ready!(self.poll_feed(cx))? == 0 {
                return Poll::Ready(Err(Cause::Closed));
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Some(transport) => Pin::new(transport).poll_write(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Some(transport) => Pin::new(transport).poll_flush(cx),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_write_all(&mut self, cx: &mut Context<'_>, rest: &mut &[u8]) -> Poll<io::Result<()>> {
        while !rest.is_empty() {
            let written = ready!(self.poll_write(cx, rest))?;
            match rest.split_at_checked(written) {
                Some((_, left)) if written > 0 => *rest = left,
                _ => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            }
        }
        self.poll_flush(cx)
    }

    fn poll_unasked(&mut self, cx: &mut Context<'_>) -> Option<Cause> {
        if !self.replies.has_surplus() {
            match self.poll_feed(cx) {
                Poll::Pending => return None,
                Poll::Ready(Ok(0)) => return Some(Cause::Closed),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Some(error.into()),
            }
        }
        Some(Cause::OutOfStep(self.replies.surplus()))
    }

    /// Reads what there is; 0 at the end of the stream.
    fn poll_feed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(transport) = &mut self.transport else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let mut space = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut space);
        ready!(Pin::new(transport).poll_read(cx, &mut read))?;
        self.replies.feed(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::smtp::session::dot_stuffing::Stuffed;

    struct Never;

    impl Gate for Never {
        fn pass(&mut self) -> GateAnswer {
            panic!("the gate may not be asked")
        }
    }

    #[tokio::test]
    async fn a_terminator_has_no_other_way_out() {
        let (ours, mut theirs) = duplex(1024);
        let mut stream = Stream::new(Box::new(ours));
        let ok = Reply { code: 250, text: String::new() };
        let text = Stuffed::new(b"x\r\n").expect("a good text");
        let piece = text.pieces(10).next().expect("a piece");
        assert!(stream.hand_over(&mut Never).await.is_err(), "not before a text");
        assert!(stream.text(piece).await.is_err(), "and no text before 354");
        stream.at(Stage::Data);
        assert!(stream.dot_for_nobody(&ok).await.is_err(), "not with a recipient");
        assert!(stream.text(piece).await.is_ok());
        assert!(stream.command(".\r\n").await.is_err(), "not as a command");
        let refusal = Reply { code: 550, text: String::new() };
        assert!(stream.dot_for_nobody(&refusal).await.is_err(), "not behind a text");
        stream.close();
        let mut written = String::new();
        theirs.read_to_string(&mut written).await.expect("what was written");
        assert_eq!(written, "x\r\n");
    }
}
