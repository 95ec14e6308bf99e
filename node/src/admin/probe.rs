//! One look at a relay: connect, greet, leave. No mail is offered (P3): the session that a lane would use is
//! opened and closed, and what the relay says on the way is overheard.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use reveille_cluster::relay::{Dial, Patience, Session, Target, Timeouts, Transport, Verdict};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are kept of what the relay says.
const HEARD_MAX: usize = 16 * 1024;
/// Characters of the banner.
const BANNER_MAX: usize = 400;
/// Each step of the look; all of them end well before the caller's usual time-out.
const STEP: Duration = Duration::from_secs(3);
const FAREWELL: Duration = Duration::from_millis(500);

/// What the relay said.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The first line of its greeting, without the code.
    pub banner: String,
    /// Its EHLO keywords, with their parameters.
    pub extensions: Vec<String>,
    /// Where and why it failed; empty when it did not.
    pub problem: String,
}

/// Looks at a relay.
pub async fn probe(target: &Target, dialer: Arc<dyn Dial>) -> Found {
    let timeouts = Timeouts { connect: STEP, banner: STEP, ehlo: STEP, quit: FAREWELL, ..Timeouts::default() };
    let tap = Tap { dialer, heard: Arc::default() };
    let opened = Session::open(target, &tap, timeouts, &Patience::default()).await;
    let problem = match opened {
        Ok(session) => {
            session.quit().await;
            String::new()
        }
        Err(verdict) => in_words(&verdict),
    };
    let heard = tap.heard.lock();
    let (banner, extensions) = replies(&String::from_utf8_lossy(&heard));
    Found { banner, extensions, problem }
}

/// Where and why a session did not open.
fn in_words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Refused { stage, code, text, .. } => format!("refused at {stage:?}: {code} {text}"),
        Verdict::Broken { stage, cause } => format!("failed at {stage:?}: {cause}"),
        Verdict::InDoubt { cause } => format!("failed: {cause}"),
        Verdict::GateClosed(_) | Verdict::Accepted { .. } => "an answer to a mail that was not offered".to_owned(),
    }
}

/// The first line of the greeting, and the lines of the second reply after its first.
fn replies(heard: &str) -> (String, Vec<String>) {
    let clean = |text: &str| text.chars().filter(|one| !one.is_control()).take(BANNER_MAX).collect::<String>();
    let mut replies: Vec<Vec<String>> = vec![Vec::new()];
    for line in heard.lines() {
        let (Some(_), last) = (line.get(..3), line.as_bytes().get(3) != Some(&b'-')) else { continue };
        if let Some(reply) = replies.last_mut() {
            reply.push(clean(line.get(4..).unwrap_or_default()));
        }
        if last {
            replies.push(Vec::new());
        }
    }
    let mut replies = replies.into_iter();
    let banner = replies.next().and_then(|greeting| greeting.into_iter().next()).unwrap_or_default();
    (banner, replies.next().unwrap_or_default().into_iter().skip(1).collect())
}

/// A dialer whose connections are overheard.
struct Tap {
    dialer: Arc<dyn Dial>,
    heard: Arc<Mutex<Vec<u8>>>,
}

#[async_trait]
impl Dial for Tap {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Transport>> {
        let inner = self.dialer.dial(host, port).await?;
        Ok(Box::new(Tapped { inner, heard: Arc::clone(&self.heard) }))
    }
}

struct Tapped {
    inner: Box<dyn Transport>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Tapped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = space.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, space))?;
        let mut heard = self.heard.lock();
        let room = HEARD_MAX.saturating_sub(heard.len());
        heard.extend(space.filled().iter().skip(before).take(room));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banner_and_extensions_are_read_from_what_was_overheard() {
        let heard = "220-mx.example.org ESMTP\r\n220 be kind\r\n250-mx.example.org greets\r\n250-SIZE 1000\r\n\
                     250 PIPELINING\r\n221 bye\r\n";
        let (banner, extensions) = replies(heard);
        assert_eq!(banner, "mx.example.org ESMTP");
        assert_eq!(extensions, ["SIZE 1000", "PIPELINING"]);
        assert_eq!(replies(""), (String::new(), Vec::new()));
        assert_eq!(replies("554\r\n"), (String::new(), Vec::new()));
    }

    #[tokio::test]
    async fn a_relay_that_is_not_there_is_a_problem_in_words() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let target = Target::new("127.0.0.1", port, "node-1").expect("a target");
        let dialer = Arc::new(reveille_cluster::relay::TcpDialer::default());
        let found = probe(&target, dialer).await;
        assert!(found.problem.starts_with("failed at Connect: no connection"), "{found:?}");
    }
}
