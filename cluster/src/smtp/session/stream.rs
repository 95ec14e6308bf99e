//! The only code that writes bytes to a relay and asks the gate (P3, P5). It works above TLS and has no time-outs.
//!
//! - Commands are written only outside an email's text, or behind the final dot in its write. Texts are written only as
//!   `EmailText`, which cannot contain a line of one dot. So only `Stream::end_text_through_gate` can end the text of
//!   an email, and it asks the gate at most once. `Stream::dot_without_recipients` ends an empty text without the gate,
//!   after the only recipient was refused.
//! - The [`Stage`] changes to `FinalDot` before the first byte of the final dot, so a possible handoff is never taken
//!   for a definite not-sent.
//! - Unexpected bytes before the gate end the dialogue: answers could no longer be matched to commands.

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

use super::dot_stuffing::Piece;
use super::lines::ReplyLines;
use crate::smtp::cause::Cause;
use crate::smtp::gate::{Gate, GateAnswer};
use crate::smtp::reply::Reply;
use crate::smtp::stage::Stage;

/// A connected byte stream to a relay: TCP, TLS over TCP, or a simulated one.
///
/// Its flush is ready when all written bytes are with the network and more bytes would be accepted at once. The gate is
/// asked only then, so that no time passes between its answer and the write of the final dot. TLS flushes the stream
/// below it, so it gives the same guarantee.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// The final dot with its CRLF: the terminator of RFC 5321 4.1.1.4. The CRLF before it belongs to the last line of the
/// text.
pub(crate) const FINAL_DOT: &[u8] = b".\r\n";

/// Size of one read in bytes. Four pipelined replies have about 200 bytes.
const READ_BYTES: usize = 2048;

/// The connection with its stage and its incomplete replies.
pub(crate) struct Stream {
    /// `None` after the close: nothing can be read or written any more.
    transport: Option<Box<dyn ByteStream>>,
    replies: ReplyLines,
    stage: Stage,
}

impl Stream {
    /// Returns a stream on a connected transport, before its banner.
    pub fn new(transport: Box<dyn ByteStream>) -> Stream {
        Stream { transport: Some(transport), replies: ReplyLines::default(), stage: Stage::Banner }
    }

    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Sets the command that is answered next. Only the stages of commands can be set.
    pub fn set_stage(&mut self, stage: Stage) {
        let in_text = matches!(self.stage, Stage::Body | Stage::FinalDot);
        debug_assert!(stage <= Stage::Data && !in_text, "the stages of a text are this file's own");
        if stage <= Stage::Data && !in_text {
            self.stage = stage;
        }
    }

    /// Returns the transport, for TLS to use. Only if nothing was read after the last answer.
    ///
    /// # Errors
    /// `OutOfStep` if more was read, `Closed` if the transport was closed.
    pub fn into_transport(self) -> Result<Box<dyn ByteStream>, Cause> {
        if self.replies.has_surplus() {
            return Err(Cause::OutOfStep(self.replies.surplus()));
        }
        self.transport.ok_or(Cause::Closed)
    }

    /// Closes the socket. For the relay, a text without its final dot is not an email.
    pub fn close(&mut self) {
        self.transport = None;
    }

    pub fn is_closed(&self) -> bool {
        self.transport.is_none()
    }

    /// Writes commands unchanged. While the relay accepts no more bytes, its answers to the first commands are read: if
    /// both sides only wrote, they would wait for ever (RFC 2920 3.1).
    ///
    /// # Errors
    /// Fails if the transport fails, or if a text was begun: the command would become part of it.
    pub async fn write_command(&mut self, text: &str) -> Result<(), Cause> {
        if matches!(self.stage, Stage::Body | Stage::FinalDot) {
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

    /// Returns the next whole reply. Cancel-safe: bytes that were read are kept.
    pub async fn read_reply(&mut self) -> Result<Reply, Cause> {
        poll_fn(|cx| self.poll_reply(cx)).await
    }

    /// Writes a piece of the text. Fails on unexpected bytes, which it looks for whenever the relay accepts no more.
    pub async fn write_text(&mut self, piece: Piece<'_>) -> Result<(), Cause> {
        if !matches!(self.stage, Stage::Data | Stage::Body) {
            return Err(Cause::OutOfStep("a text before 354".to_owned()));
        }
        self.stage = Stage::Body;
        let mut rest = piece.bytes();
        poll_fn(|cx| match self.poll_write_all(cx, &mut rest) {
            Poll::Ready(written) => Poll::Ready(written.map_err(Cause::from)),
            Poll::Pending => self.poll_unexpected(cx).map_or(Poll::Pending, |cause| Poll::Ready(Err(cause))),
        })
        .await
    }

    /// **The gate.** Waits until the transport takes more bytes, then asks `gate` once, and returns its answer. If the
    /// email passes, the rest of the text (`text`), the final dot and the commands that announce the next email
    /// (`announced`) go to the transport in the same poll. If the gate is closed, none of these bytes is written, and
    /// the connection is closed. Replies that are out of step before the gate close it too.
    ///
    /// After the gate has passed, every error leaves the stage at `FinalDot`. This includes a write that fails at its
    /// first byte: a transport that encrypts may have taken it before it failed.
    pub async fn end_text_through_gate(
        &mut self,
        text: Option<Piece<'_>>,
        announced: Option<&str>,
        gate: &mut dyn Gate,
    ) -> Result<GateAnswer, Cause> {
        if self.stage != if text.is_some() { Stage::Data } else { Stage::Body } {
            return Err(Cause::OutOfStep("a final dot without a text".to_owned()));
        }
        self.stage = Stage::Body;
        let (text, announced) = (text.map_or(&[] as &[u8], Piece::bytes), announced.unwrap_or_default().as_bytes());
        let whole = [text, FINAL_DOT, announced].concat();
        let mut rest = whole.as_slice();
        // Unconstrained: tokio's budget for a task must not push the write into a later poll.
        unconstrained(poll_fn(|cx| {
            if self.stage == Stage::Body {
                if let Some(cause) = self.poll_unexpected(cx) {
                    self.close();
                    return Poll::Ready(Err(cause));
                }
                ready!(self.poll_flush(cx))?;
                if gate.decide() == GateAnswer::Closed {
                    self.close();
                    return Poll::Ready(Ok(GateAnswer::Closed));
                }
                self.stage = Stage::FinalDot;
            }
            ready!(self.poll_write_all(cx, &mut rest))?;
            Poll::Ready(Ok(GateAnswer::Pass))
        }))
        .await
    }

    /// Returns the whole answer to the final dot. If bytes other than a 421 follow it, it may be the answer
    /// to something else. Then the call fails, and the email is in doubt. If the next email was `announced`, answers to
    /// its commands may follow.
    pub async fn read_final_reply(&mut self, announced: bool) -> Result<Reply, Cause> {
        let reply = self.read_reply().await?;
        if !announced && let Some(cause @ Cause::OutOfStep(_)) = self.read_unexpected().await {
            self.close();
            if !self.replies.surplus_is_421() {
                return Err(cause);
            }
        }
        if reply.class() == 3 {
            return Err(Cause::OutOfStep(reply.summary()));
        }
        self.stage = Stage::Answered;
        Ok(reply)
    }

    /// Sends the lone dot of RFC 2920 3.1. It ends a text that the relay accepted although it had refused the only
    /// recipient. It is not a handoff and asks no gate: `refusal` proves that there is no recipient.
    pub async fn dot_without_recipients(&mut self, refusal: &Reply) -> Result<Reply, Cause> {
        if self.stage != Stage::Data || refusal.class() < 4 {
            return Err(Cause::OutOfStep("a dot that could land somewhere".to_owned()));
        }
        let mut rest = FINAL_DOT;
        poll_fn(|cx| self.poll_write_all(cx, &mut rest)).await?;
        self.read_reply().await
    }

    /// Returns what is wrong with a connection that should be silent now. `None`: it is silent and open.
    pub async fn read_unexpected(&mut self) -> Option<Cause> {
        poll_fn(|cx| Poll::Ready(self.poll_unexpected(cx))).await
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

    fn poll_unexpected(&mut self, cx: &mut Context<'_>) -> Option<Cause> {
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

    /// Reads the available bytes. Returns 0 at the end of the stream.
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
    use crate::smtp::session::dot_stuffing::EmailText;

    struct Never;

    impl Gate for Never {
        fn decide(&mut self) -> GateAnswer {
            panic!("the gate may not be asked")
        }
    }

    #[tokio::test]
    async fn final_dot_is_written_only_through_the_gate() {
        let (ours, mut theirs) = duplex(1024);
        let mut stream = Stream::new(Box::new(ours));
        let ok = Reply { code: 250, text: String::new() };
        let text = EmailText::new(b"x\r\n".to_vec()).expect("a good text");
        let piece = text.pieces(10).next().expect("a piece");
        assert!(stream.end_text_through_gate(None, None, &mut Never).await.is_err(), "not before a text");
        assert!(stream.write_text(piece).await.is_err(), "and no text before 354");
        stream.set_stage(Stage::Data);
        assert!(stream.dot_without_recipients(&ok).await.is_err(), "not with a recipient");
        assert!(stream.write_text(piece).await.is_ok());
        assert!(stream.write_command(".\r\n").await.is_err(), "not as a command");
        let refusal = Reply { code: 550, text: String::new() };
        assert!(stream.dot_without_recipients(&refusal).await.is_err(), "not behind a text");
        stream.close();
        let mut written = String::new();
        theirs.read_to_string(&mut written).await.expect("what was written");
        assert_eq!(written, "x\r\n");
    }
}
