//! One connection of the relay: the SMTP dialogue, and the relay's decision at the final dot.

use std::io;

use reveille_check::events::{Answered, Content, Handoff};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::SimulatedRelay;
use crate::network::ProcessId;
use crate::recorder::name;

/// The relay's end of one connection.
pub(super) struct RelaySession {
    relay: SimulatedRelay,
    process: ProcessId,
    wire: BufReader<DuplexStream>,
    mail: Option<String>,
}

/// What follows a command.
enum AfterCommand {
    Continue,
    Close,
}

impl RelaySession {
    pub fn new(relay: SimulatedRelay, process: ProcessId, stream: DuplexStream) -> RelaySession {
        RelaySession { relay, process, wire: BufReader::new(stream), mail: None }
    }

    /// Serves the connection until either side closes it.
    pub async fn serve(mut self) {
        self.relay.delay().await;
        if self.say("220 relay.simulation ESMTP").await.is_err() {
            return;
        }
        while let Ok(Some(line)) = self.line().await {
            self.relay.delay().await;
            match self.handle_command(&line).await {
                Ok(AfterCommand::Continue) => {}
                Ok(AfterCommand::Close) | Err(_) => return,
            }
        }
    }

    async fn line(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        if self.wire.read_until(b'\n', &mut bytes).await? == 0 || !bytes.ends_with(b"\r\n") {
            return Ok(None);
        }
        bytes.truncate(bytes.len() - 2);
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    async fn say(&mut self, answer: &str) -> io::Result<()> {
        self.wire.get_mut().write_all(format!("{answer}\r\n").as_bytes()).await
    }

    async fn handle_command(&mut self, line: &str) -> io::Result<AfterCommand> {
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        match verb.as_str() {
            "EHLO" => {
                self.say("250-relay.simulation\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 ENHANCEDSTATUSCODES").await?
            }
            "MAIL" => self.say("250 2.1.0 ok").await?,
            "RCPT" => self.recipient(line).await?,
            "DATA" if self.mail.is_some() => return self.data().await,
            "DATA" => self.say("554 5.5.1 no valid recipients").await?,
            "RSET" | "NOOP" => {
                self.mail = None;
                self.say("250 2.0.0 ok").await?;
            }
            "QUIT" => {
                self.say("221 2.0.0 goodbye").await?;
                return Ok(AfterCommand::Close);
            }
            _ => self.say("500 5.5.1 what?").await?,
        }
        Ok(AfterCommand::Continue)
    }

    async fn recipient(&mut self, line: &str) -> io::Result<()> {
        let address = line.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        if self.relay.state.lock().unknown.contains(&address) {
            return self.say("550 5.1.1 no such mailbox").await;
        }
        if self.relay.draw(|behavior, random| random.percent(behavior.greylists)) {
            return self.say("451 4.2.0 not now").await;
        }
        self.mail = Some(address);
        self.say("250 2.1.5 ok").await
    }

    async fn data(&mut self) -> io::Result<AfterCommand> {
        let data_at = self.relay.trace.elapsed();
        self.say("354 go on").await?;
        let recipient = self.mail.take().unwrap_or_default();
        let (mut identity, mut body, mut in_head) = (Vec::new(), String::new(), true);
        loop {
            let Some(line) = self.line().await? else { return Ok(AfterCommand::Close) };
            if line == "." {
                break;
            }
            in_head &= !line.is_empty();
            if !in_head {
                body.push_str(&line);
                body.push('\n');
            } else if let Some((name @ ("Message-ID" | "X-Reveille-Fence" | "X-Reveille-Run"), value)) =
                line.split_once(": ")
            {
                identity.push((name.to_owned(), value.to_owned()));
            }
        }
        let value = |name: &str| identity.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.clone());
        let fence = value("X-Reveille-Fence").unwrap_or_default();
        let handoff = Handoff {
            data_ns: data_at.as_nanos() as u64,
            at_ns: 0,
            run: value("X-Reveille-Run").unwrap_or_default().into(),
            recipient: recipient.into(),
            fence: fence.parse().ok(),
            node: name(self.process.node).into(),
            answer: Answered::Nothing,
            message_id: Some(value("Message-ID").unwrap_or_default().into()),
            body: None,
            content: Content::read(&body),
            repeated_headers: repeated(&identity),
        };
        // The sender has written the email: it is past its gate, and may still be delayed.
        *self.relay.state.lock().waiting.entry(self.process).or_default() += 1;
        self.relay.delay().await;
        let judged = self.judge(handoff, &fence).await;
        if let Some(waiting) = self.relay.state.lock().waiting.get_mut(&self.process) {
            *waiting -= 1;
        }
        judged
    }

    /// Decides about an email at the final dot, and records it. The answer follows after a delay.
    async fn judge(&mut self, mut handoff: Handoff, fence: &str) -> io::Result<AfterCommand> {
        let (defers, loses, kills) = self.relay.draw(|behavior, random| {
            (random.percent(behavior.defers), random.percent(behavior.loses_answers), random.percent(behavior.kills))
        });
        handoff.at_ns = self.relay.trace.elapsed().as_nanos() as u64;
        let (answer, word) = match (defers, loses) {
            (true, _) => (Answered::Refused, "deferred"),
            (false, true) => (Answered::AcceptedUnanswered, "accepted, and the answer is lost"),
            (false, false) => (Answered::Accepted, "accepted"),
        };
        handoff.answer = answer;
        let Handoff { recipient, run, .. } = &handoff;
        self.relay
            .trace
            .say(format_args!("relay: {recipient} of {run} under {fence} by n{}: {word}", self.process.node.0));
        self.relay.state.lock().emails.push(handoff);
        if !defers {
            self.relay.kill_sender(self.process, kills);
        }
        self.relay.delay().await;
        match (defers, loses) {
            (true, _) => self.say("451 4.3.0 later").await?,
            (false, true) => return Ok(AfterCommand::Close),
            (false, false) => self.say("250 2.0.0 taken").await?,
        }
        Ok(AfterCommand::Continue)
    }
}

/// Identity headers that an email has more than once.
fn repeated(identity: &[(String, String)]) -> Vec<String> {
    let names = || identity.iter().map(|(name, _)| name);
    let again = names().enumerate().filter(|(index, name)| names().take(*index).any(|before| before == *name));
    again.map(|(_, name)| name.clone()).collect()
}
