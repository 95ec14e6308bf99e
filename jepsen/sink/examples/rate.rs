//! Measures how many emails per second a sink accepts. The client costs little: it pipelines (RFC 2920), so an email is
//! one write and one read.
//!
//! ```text
//! cargo run --release -p reveille-sink --example rate -- 1000000
//! ```
//!
//! An optional second argument is the number of connections. Default 200.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use reveille_sink::{Sink, SinkOptions};

/// Size of an email in bytes, without its Message-ID.
const TEXT_BYTES: usize = 2_048;
const CONNECTIONS: u64 = 200;
/// Silence after which the server counts as stopped.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// MAIL, RCPT and DATA of the next email. They go in one write with the dot of the email before.
const ENVELOPE: &[u8] = b"MAIL FROM:<rate@example.org>\r\nRCPT TO:<recipient@example.org>\r\nDATA\r\n";
const ENVELOPE_ANSWERS: [&[u8]; 3] = [b"250", b"250", b"354"];
const MAIL_ANSWERS: [&[u8]; 4] = [b"250", b"250", b"250", b"354"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let emails: u64 = arguments.next().ok_or("rate EMAILS [CONNECTIONS]")?.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let sink = runtime.block_on(async { Sink::start(SinkOptions::default()) })?;
    let connections = arguments.next().map_or(Ok(CONNECTIONS), |number| number.parse())?.clamp(1, emails.max(1));
    let mut clients = (0..connections).map(|_| Client::connect(sink.address())).collect::<Result<Vec<_>, _>>()?;
    let text =
        format!("Subject: rate\r\n\r\n{}\r\n", "0123456789012345678901234567890123456789\r\n".repeat(TEXT_BYTES / 42));
    let began = Instant::now();
    let mut sent = 0;
    while sent < emails {
        let round = connections.min(emails - sent) as usize;
        for client in &mut clients[..round] {
            client.send(sent, &text)?;
            sent += 1;
        }
        for client in &mut clients[..round] {
            client.expect(&MAIL_ANSWERS)?;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{emails} emails over {connections} connections in {seconds:.1} s: {:.0} a second",
        emails as f64 / seconds
    );
    Ok(())
}

/// A client that sends the envelope of the next email before the answer to the email before.
struct Client {
    stream: TcpStream,
    /// The bytes of one write.
    mail: Vec<u8>,
    heard: Vec<u8>,
}

impl Client {
    fn connect(server: SocketAddr) -> Result<Client, Box<dyn Error>> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        let mut client = Client { stream, mail: Vec::new(), heard: Vec::new() };
        client.expect(&[b"220"])?;
        client.stream.write_all(b"EHLO rate.example.org\r\n")?;
        // The answer has several lines. Only the last line has no hyphen.
        while !client.line()?.starts_with(b"250 ") {}
        client.stream.write_all(ENVELOPE)?;
        client.expect(&ENVELOPE_ANSWERS)?;
        Ok(client)
    }

    fn send(&mut self, number: u64, text: &str) -> Result<(), Box<dyn Error>> {
        self.mail.clear();
        write!(self.mail, "Message-ID: <{number}@rate.example.org>\r\n{text}.\r\n")?;
        self.mail.extend_from_slice(ENVELOPE);
        Ok(self.stream.write_all(&self.mail)?)
    }

    fn expect(&mut self, answers: &[&[u8]]) -> Result<(), Box<dyn Error>> {
        for answer in answers {
            let line = self.line()?;
            if !line.starts_with(answer) {
                return Err(format!("the server says {:?}", String::from_utf8_lossy(&line)).into());
            }
        }
        Ok(())
    }

    fn line(&mut self) -> Result<Vec<u8>, Box<dyn Error>> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                return Ok(self.heard.drain(..=end).collect());
            }
            let mut piece = [0; 1_024];
            let bytes = self.stream.read(&mut piece)?;
            if bytes == 0 {
                return Err("the server has hung up".into());
            }
            self.heard.extend_from_slice(&piece[..bytes]);
        }
    }
}
