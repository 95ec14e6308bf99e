//! A dialer that can stop connections before the banner: dialogues have begun, and stay before the gate as long as the
//! test needs.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use reveille_cluster::smtp::{Connected, Dial};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Connects to a relay. While the valve is closed, nothing is read from the relay.
#[derive(Clone)]
pub struct Valve {
    shared: Arc<Shared>,
}

struct Shared {
    /// Connections that still pass although the valve is closed.
    free: AtomicUsize,
    stopped: AtomicUsize,
    open: watch::Sender<bool>,
}

impl Default for Valve {
    fn default() -> Valve {
        let (free, stopped) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Valve { shared: Arc::new(Shared { free, stopped, open: watch::Sender::new(true) }) }
    }
}

impl Valve {
    /// Stops all further connections before their banner, except the next `connections`.
    pub fn close_after(&self, connections: usize) {
        self.shared.free.store(connections, Ordering::SeqCst);
        self.shared.open.send_replace(false);
    }

    /// Releases all stopped connections.
    pub fn open(&self) {
        self.shared.open.send_replace(true);
    }

    /// Returns the number of connections stopped so far.
    pub fn stopped(&self) -> usize {
        self.shared.stopped.load(Ordering::SeqCst)
    }

    fn passes(&self) -> bool {
        let one_less = |free: usize| free.checked_sub(1);
        *self.shared.open.borrow()
            || self.shared.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }
}

#[async_trait]
impl Dial for Valve {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Connected> {
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let mut opened = None;
        if !self.passes() {
            self.shared.stopped.fetch_add(1, Ordering::SeqCst);
            let mut open = self.shared.open.subscribe();
            opened = Some(Box::pin(async move {
                let _ = open.wait_for(|open| *open).await;
            }) as Pin<Box<dyn Future<Output = ()> + Send>>);
        }
        Ok(Line { stream, opened }.into())
    }
}

struct Line {
    stream: TcpStream,
    opened: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(opened) = &mut self.opened {
            ready!(opened.as_mut().poll(cx));
            self.opened = None;
        }
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
