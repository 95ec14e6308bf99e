//! TCP connection to a relay, with a flush that waits until the socket accepts more bytes.
//!
//! A socket accepts a text into its buffer even if the relay does not read it. Here the flush is ready only when the
//! kernel reports the socket as writable (`POLLOUT`). So a relay that has stopped reading is noticed before the gate.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

/// Number of bytes that cannot fill a socket: half of Linux's initial send buffer. Below it the kernel is not asked.
pub(crate) const NEVER_FULL: usize = 8 * 1024;

/// A TCP connection. `unchecked` is the number of bytes written since the kernel was last asked.
pub(crate) struct Tcp {
    stream: TcpStream,
    unchecked: usize,
}

impl Tcp {
    pub fn new(stream: TcpStream) -> Tcp {
        Tcp { stream, unchecked: 0 }
    }
}

/// Returns `Ok` if the kernel accepts more bytes now. It also does so after an error of the connection, which the next
/// write returns. Otherwise fails with `WouldBlock`.
fn takes_more(stream: &TcpStream) -> io::Result<()> {
    let mut asked = [PollFd::new(stream, PollFlags::OUT)];
    match retry_on_intr(|| poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })))? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

impl AsyncRead for Tcp {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.unchecked = self.unchecked.saturating_add(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        self.unchecked = self.unchecked.saturating_add(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unchecked > NEVER_FULL {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_io(Interest::WRITABLE, || takes_more(&self.stream)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                asked => {
                    asked?;
                    self.unchecked = 0;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicU32, Ordering},
        },
        time::Duration,
    };

    use tokio::{
        io::AsyncReadExt,
        net::{TcpListener, TcpSocket},
        time::timeout,
    };

    use super::*;
    use crate::smtp::gate::{Gate, GateAnswer};
    use crate::smtp::session::dot_stuffing::EmailText;
    use crate::smtp::session::stream::Stream;
    use crate::smtp::stage::Stage;

    /// The gate of a run that may be paused later.
    struct PausedLater {
        paused: Arc<AtomicBool>,
        asked: Arc<AtomicU32>,
    }

    impl Gate for PausedLater {
        fn decide(&mut self) -> GateAnswer {
            self.asked.fetch_add(1, Ordering::SeqCst);
            match self.paused.load(Ordering::SeqCst) {
                true => GateAnswer::Closed,
                false => GateAnswer::Pass,
            }
        }
    }

    #[tokio::test]
    async fn relay_that_stops_reading_meets_a_gate_that_knows_of_the_pause() {
        let listener = TcpSocket::new_v4().expect("a socket");
        listener.set_recv_buffer_size(4 * 1024).expect("a small buffer");
        listener.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let listener: TcpListener = listener.listen(1).expect("it listens");
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_send_buffer_size(64 * 1024).expect("a small buffer");
        let ours = socket.connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (mut theirs, _) = listener.accept().await.expect("a connection");
        let mut stream = Stream::new(Box::new(Tcp::new(ours)));
        stream.set_stage(Stage::Data);

        // The text ends at a moment when the relay has stopped reading and the socket is full.
        let line = b"a line of the text\r\n".repeat(200);
        let text = EmailText::new(line.clone()).expect("a text");
        let piece = text.pieces(line.len()).next().expect("a piece");
        let full = async { while timeout(Duration::from_millis(300), stream.write_text(piece)).await.is_ok() {} };
        timeout(Duration::from_secs(30), full).await.expect("the socket is full");

        let (paused, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let mut gate = PausedLater { paused: paused.clone(), asked: asked.clone() };
        let waits = timeout(Duration::from_millis(300), stream.end_text_through_gate(None, None, &mut gate)).await;
        assert!(waits.is_err(), "it waits: {waits:?}");
        assert_eq!((asked.load(Ordering::SeqCst), stream.stage()), (0, Stage::Body), "the gate is not asked yet");

        paused.store(true, Ordering::SeqCst);
        let mut seen = Vec::new();
        let (closed, _) =
            tokio::join!(stream.end_text_through_gate(None, None, &mut gate), theirs.read_to_end(&mut seen));
        assert_eq!(closed, Ok(GateAnswer::Closed));
        assert!(!seen.ends_with(b"\n.\r\n"), "no final dot");
    }
}
