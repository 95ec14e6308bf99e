//! The bytes of one connection: received and not yet read, or written and not yet sent. Used by `dialogue.rs` and
//! `receive.rs`.
//!
//! Replies are collected until the input is exhausted, so a group of pipelined commands is answered with one write.
//! Every wait ends: by the client, by the idle limit, or by the stop of the sink.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::body::{Violation, text_of};

/// Maximum bytes of one read: two or three emails of usual size.
const READ_BYTES: usize = 16 << 10;
/// Maximum bytes of a command line. RFC 5321 4.5.3.1.4 says 512 octets, and extensions add to them.
const MAX_COMMAND_LINE: usize = 1_000;
/// Maximum unread bytes during a stall. With more bytes the sink stops reading, and does not notice the client's FIN.
const MAX_UNREAD: usize = 256 << 10;
/// Time for which a closed connection is still read, so that a reset does not lose the last replies.
const LINGER: Duration = Duration::from_secs(2);
/// Maximum time for which the client may be silent (RFC 5321 4.5.3.2.7 asks for five minutes), or may take to read a
/// reply.
const IDLE: Duration = Duration::from_secs(300);
/// Interval at which a waiting dialogue checks if its client has left.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Reason why a dialogue ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialogueEnd {
    #[error("the client left")]
    Gone,
    #[error("the client said nothing or read nothing for too long")]
    Idle,
    #[error("the sink stops")]
    Stopped,
    #[error("the sink closes: {0}")]
    Closed(&'static str),
    #[error("the connection is to be reset")]
    Reset,
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
}

/// Selects if a wait ends when the client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The wait ends when the client leaves.
    WhileTheClientStays,
    /// The wait continues without the client, because the next step happens in any case.
    InAnyCase,
}

/// One connection with its buffers.
pub(crate) struct Wire {
    stream: TcpStream,
    stop: CancellationToken,
    input: Vec<u8>,
    /// Number of bytes of `input` that were read.
    taken: usize,
    output: Vec<u8>,
    /// Delay of each write.
    round_trip: Duration,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, round_trip: Duration, stop: CancellationToken) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (input, output) = (Vec::with_capacity(READ_BYTES), Vec::with_capacity(512));
        Ok(Self { stream, stop, input, taken: 0, output, round_trip })
    }

    /// Returns the bytes that were received and not yet read.
    pub(crate) fn unread(&self) -> &[u8] {
        self.input.get(self.taken..).unwrap_or_default()
    }

    /// Marks this many bytes as read.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.taken = (self.taken + bytes).min(self.input.len());
    }

    /// Adds a reply line to the output.
    pub(crate) fn say(&mut self, code: u16, text: &str) {
        self.put(format_args!("{code} {text}\r\n"));
    }

    /// Adds formatted text to the output.
    pub(crate) fn put(&mut self, words: std::fmt::Arguments<'_>) {
        use std::io::Write;
        // Writing into a Vec cannot fail.
        let _ok = self.output.write_fmt(words);
    }

    /// Removes the last bytes from the output and returns them, for faults that send only a part.
    pub(crate) fn take_back(&mut self, bytes: usize) -> Vec<u8> {
        self.output.split_off(self.output.len().saturating_sub(bytes))
    }

    /// Adds bytes to the output.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Sends the output.
    pub(crate) async fn flush(&mut self) -> Result<(), DialogueEnd> {
        if self.output.is_empty() {
            return Ok(());
        }
        if !self.round_trip.is_zero() {
            tokio::time::sleep(self.round_trip).await;
        }
        let write = timeout(IDLE, self.stream.write_all(&self.output));
        tokio::select! {
            () = self.stop.cancelled() => return Err(DialogueEnd::Stopped),
            written = write => written.map_err(|_| DialogueEnd::Idle)??,
        }
        self.output.clear();
        Ok(())
    }

    /// Sends the output, then waits until at least one more byte was received.
    pub(crate) async fn fill(&mut self) -> Result<(), DialogueEnd> {
        self.flush().await?;
        self.make_room();
        let read = timeout(IDLE, self.stream.read_buf(&mut self.input));
        let bytes = tokio::select! {
            () = self.stop.cancelled() => return Err(DialogueEnd::Stopped),
            read = read => read.map_err(|_| DialogueEnd::Idle)??,
        };
        if bytes == 0 { Err(DialogueEnd::Gone) } else { Ok(()) }
    }

    /// Reads a command line into `line`, without its line end.
    pub(crate) async fn line(&mut self, line: &mut Vec<u8>) -> Result<Result<(), Violation>, DialogueEnd> {
        line.clear();
        loop {
            let unread = self.unread();
            if let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let text = text_of(unread.get(..end).unwrap_or_default());
                let kept = text.map(|text| line.extend_from_slice(text));
                self.consume(end + 1);
                return Ok(kept);
            }
            if unread.len() > MAX_COMMAND_LINE {
                return Ok(Err(Violation::LineTooLong));
            }
            self.fill().await?;
        }
    }

    /// Sends the output, then waits for `event` or until `limit` has passed (`None`: no limit). With
    /// [`Patience::WhileTheClientStays`] the wait also ends when the client leaves.
    pub(crate) async fn wait_for<T>(
        &mut self,
        event: impl Future<Output = T>,
        limit: Option<Duration>,
        patience: Patience,
    ) -> Result<(), DialogueEnd> {
        self.flush().await?;
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        tokio::pin!(event);
        loop {
            let look = Instant::now() + LOOK_EVERY;
            tokio::select! {
                () = self.stop.cancelled() => return Err(DialogueEnd::Stopped),
                _ = &mut event => return Ok(()),
                () = sleep_until(until.map_or(look, |until| until.min(look))) => {}
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
            if patience == Patience::WhileTheClientStays && !self.client_is_there() {
                return Err(DialogueEnd::Gone);
            }
        }
    }

    /// Closes the connection normally: sends the output and FIN, then reads for a moment. A close with unread input
    /// would make the kernel reset the connection and drop the last replies.
    pub(crate) async fn close(mut self) {
        let stop = self.stop.clone();
        let goodbye = async {
            self.flush().await?;
            self.stream.shutdown().await?;
            loop {
                self.input.clear();
                if self.stream.read_buf(&mut self.input).await? == 0 {
                    return Ok::<(), DialogueEnd>(());
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            // It does not matter if the client still reads.
            _done = timeout(LINGER, goodbye) => {}
        }
    }

    /// Ends the connection with a reset and drops the unsent output.
    pub(crate) fn reset(self) -> io::Result<()> {
        self.stream.set_zero_linger()
    }

    /// Reads available bytes without waiting. Returns false if the client has closed or reset the connection.
    fn client_is_there(&mut self) -> bool {
        self.make_room();
        while self.input.len() < MAX_UNREAD {
            match self.stream.try_read_buf(&mut self.input) {
                Ok(0) => return false,
                Ok(_) => self.input.reserve(READ_BYTES),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn make_room(&mut self) {
        self.input.drain(..self.taken.min(self.input.len()));
        self.taken = 0;
        if self.input.capacity() - self.input.len() < READ_BYTES / 2 {
            self.input.reserve(READ_BYTES);
        }
    }
}
