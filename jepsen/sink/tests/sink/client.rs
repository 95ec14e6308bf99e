//! The SMTP client of these tests. It writes exactly what a test says, and reads whole replies.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum time of any step, far above what a loaded machine needs. A test that reaches it has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which a test checks that nothing is sent. A sink that sends an unexpected reply sends it at once.
const SILENCE: Duration = Duration::from_millis(150);

pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects, without reading the banner.
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = timeout(PATIENCE, TcpStream::connect(address)).await.unwrap().unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Connects and sends EHLO.
    pub async fn greeted(address: SocketAddr) -> Self {
        let mut client = Self::connect(address).await;
        assert_eq!(client.code().await, 220);
        assert_eq!(client.ask("EHLO node-1.test\r\n").await, 250);
        client
    }

    pub async fn say(&mut self, words: &str) {
        self.say_bytes(words.as_bytes()).await;
    }

    pub async fn say_bytes(&mut self, bytes: &[u8]) {
        // If the sink has ended the connection, the next read shows it.
        let _gone = timeout(PATIENCE, self.stream.get_mut().write_all(bytes)).await.unwrap();
    }

    /// Sends a command. Returns the code of the reply.
    pub async fn ask(&mut self, words: &str) -> u16 {
        self.say(words).await;
        self.code().await
    }

    /// Returns the code of the next reply.
    pub async fn code(&mut self) -> u16 {
        let reply = self.reply().await.expect("a reply, not the end of the connection");
        reply.get(..3).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no reply: {reply}"))
    }

    /// Returns all lines of the next reply. `None`: the connection has ended.
    pub async fn reply(&mut self) -> Option<String> {
        let mut reply = String::new();
        loop {
            let start = reply.len();
            match timeout(PATIENCE, self.stream.read_line(&mut reply)).await.expect("a reply in time") {
                Ok(0) | Err(_) => return None,
                Ok(_) if reply.as_bytes().get(start + 3) != Some(&b'-') => return Some(reply),
                Ok(_) => {}
            }
        }
    }

    /// Returns everything up to the end of the connection.
    pub async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset counts as an end.
        let _ended = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("an end in time");
        String::from_utf8(rest).unwrap()
    }

    /// Returns true if the connection ends with a reset.
    pub async fn is_reset(&mut self) -> bool {
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("an end in time");
        ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    }

    /// Panics if the sink sends anything.
    pub async fn expect_silence(&mut self) {
        let mut byte = [0];
        let heard = timeout(SILENCE, self.stream.read(&mut byte)).await;
        assert!(heard.is_err(), "heard {heard:?} in what should be silence");
    }

    /// Sends the envelope of an email to `recipient` in one packet, and reads the replies up to the 354.
    pub async fn open_mail(&mut self, recipient: &str) {
        self.say(&format!("MAIL FROM:<news@shop.test>\r\nRCPT TO:<{recipient}>\r\nDATA\r\n")).await;
        assert_eq!([self.code().await, self.code().await, self.code().await], [250, 250, 354]);
    }

    /// Sends a whole email with its final dot, and reads no answer.
    pub async fn send_mail(&mut self, recipient: &str) {
        self.open_mail(recipient).await;
        self.say(&message(recipient)).await;
    }
}

/// Returns a small message with the headers of a claim, and its final dot.
pub fn message(recipient: &str) -> String {
    format!(
        "Message-ID: <{recipient}.run-7@reveille.test>\r\nX-Reveille-Fence: 1.17.99.3\r\nX-Reveille-Run: 7\r\n\
         Subject: Hello\r\n\r\nHello {recipient}\r\n.\r\n"
    )
}

/// Waits until a condition holds.
pub async fn until(condition: impl Fn() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.expect("a condition that comes true in time");
}
