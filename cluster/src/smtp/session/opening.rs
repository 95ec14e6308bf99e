//! Opens a session: TLS handshake, banner, EHLO, STARTTLS, AUTH, in the order that the target requires.
//!
//! The dialogue calls it once for each session. A session that should be encrypted never falls back to plain text:
//! missing or failed TLS ends the opening. So do bytes that arrive in the clear after the 220 to STARTTLS: an attacker
//! could have written them, and they would pass for an encrypted answer (CVE-2011-0411). Credentials are read after the
//! encryption is established and sent over it; only a relay on this machine may get them in the clear. Each step is
//! limited by its time-out and by the caller's deadlines.

use std::{net::IpAddr, time::Duration};

use reveille_ledger::access::Tls;

use super::auth::{self, Mechanism};
use super::credentials::Login;
use super::deadlines::{Deadlines, Timeouts};
use super::envelope::Extensions;
use super::probe_report::ProbeReport;
use super::stream::{ByteStream, Stream};
use super::target::Target;
use crate::smtp::cause::{Cause, Fix};
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::reply::Reply;
use crate::smtp::stage::Stage;

/// Inputs and findings of one opening.
pub(crate) struct SessionOpening<'a> {
    pub target: &'a Target,
    /// This node's address on the connection, if it has one.
    pub local: Option<IpAddr>,
    pub timeouts: &'a Timeouts,
    pub deadlines: &'a Deadlines,
    pub findings: &'a mut ProbeReport,
}

type Step<T> = Result<T, Box<DialogueResult>>;

impl SessionOpening<'_> {
    /// Opens a session over a connected transport.
    ///
    /// # Errors
    /// Returns the result for the email that wanted the session. The connection is then closed.
    pub async fn open(mut self, plain: Box<dyn ByteStream>) -> Step<(Stream, Extensions)> {
        let transport = match self.target.tls() {
            Tls::Implicit(_) => self.encrypt(plain).await?,
            Tls::None | Tls::StartTls(_) => plain,
        };
        let mut stream = Stream::new(transport);
        let banner = self.ask(&mut stream, Stage::Banner, "", self.timeouts.opening).await?;
        let banner = self.expect(Stage::Banner, banner, 2)?;
        self.findings.banner = banner.text.lines().next().unwrap_or_default().to_owned();
        let mut by_ehlo = self.hello(&mut stream).await?;
        if let Tls::StartTls(_) = self.target.tls() {
            stream = self.start_tls(stream).await?;
            by_ehlo = self.hello(&mut stream).await?;
        }
        if self.target.logs_in() {
            self.authenticate(&mut stream).await?;
        }
        let extensions = if by_ehlo { Extensions::read(&self.findings.extensions) } else { Extensions::default() };
        Ok((stream, extensions))
    }

    /// Sends EHLO, or HELO if the relay refuses EHLO. Returns true if the relay accepted EHLO.
    async fn hello(&mut self, stream: &mut Stream) -> Step<bool> {
        let name = self.target.hello_name(self.local);
        let mut reply = self.ask(stream, Stage::Ehlo, &format!("EHLO {name}\r\n"), self.timeouts.opening).await?;
        // RFC 5321 3.2: a server that does not know EHLO gets HELO, and offers no extensions.
        let by_ehlo = !matches!(reply.code, 500 | 502 | 504);
        if !by_ehlo {
            reply = self.ask(stream, Stage::Ehlo, &format!("HELO {name}\r\n"), self.timeouts.opening).await?;
        }
        let reply = self.expect(Stage::Ehlo, reply, 2)?;
        self.findings.extensions = reply.text.lines().skip(1).map(str::to_owned).collect();
        Ok(by_ehlo)
    }

    fn offers(&self, keyword: &str) -> bool {
        let first = |line: &String| line.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case(keyword));
        self.findings.extensions.iter().any(first)
    }

    async fn start_tls(&mut self, mut stream: Stream) -> Step<Stream> {
        if !self.offers("STARTTLS") {
            let why = "the relay offers no STARTTLS here; implicit is usual on port 465, starttls on 25 and 587";
            return Err(without_answer(Stage::Tls, Cause::Tls(Fix::ImplicitTls.because(why))));
        }
        let reply = self.ask(&mut stream, Stage::Tls, "STARTTLS\r\n", self.timeouts.tls).await?;
        self.expect(Stage::Tls, reply, 2)?;
        if let Some(cause) = stream.read_unexpected().await {
            return Err(without_answer(Stage::Tls, cause));
        }
        let plain = stream.into_transport().map_err(|cause| without_answer(Stage::Tls, cause))?;
        Ok(Stream::new(self.encrypt(plain).await?))
    }

    async fn encrypt(&mut self, plain: Box<dyn ByteStream>) -> Step<Box<dyn ByteStream>> {
        let encrypted = self.deadlines.bound(self.timeouts.tls, self.target.encrypt(plain)).await;
        let (transport, found) = encrypted.and_then(|done| done).map_err(|cause| without_answer(Stage::Tls, cause))?;
        self.findings.encryption = Some(found);
        Ok(transport)
    }

    async fn authenticate(&mut self, stream: &mut Stream) -> Step<()> {
        let failed = |cause| without_answer(Stage::Auth, cause);
        let credentials = self.deadlines.bound(self.timeouts.opening, self.target.credentials()).await;
        let credentials = credentials.and_then(|done| done).map_err(failed)?;
        let mechanism = Mechanism::choose(&self.findings.extensions, credentials.login).ok_or_else(|| {
            let may_after = matches!(self.target.tls(), Tls::None) && self.offers("STARTTLS");
            let (fix, then) = match may_after {
                true => (Fix::LoginAfterStartTls, " in the clear, and may after STARTTLS"),
                false => (Fix::NoLogin, " here"),
            };
            let known = match credentials.login {
                Login::Password => "neither AUTH PLAIN nor AUTH LOGIN",
                Login::Xoauth2 => "no AUTH XOAUTH2",
            };
            let words = format!("the relay offers {known}{then}");
            failed(Cause::Credentials(fix.because(words)))
        })?;
        let lines = mechanism.lines(&credentials);
        let secrets = auth::secrets(&credentials, &lines);
        for (index, line) in lines.iter().enumerate() {
            let reply = self.exchange(stream, Stage::Auth, line, self.timeouts.opening).await;
            let mut reply = reply.map_err(|cause| failed(auth::scrub_cause(cause, &secrets)))?;
            if mechanism == Mechanism::Xoauth2 && reply.class() == 3 {
                // The relay's 334 says what is wrong with the token. It sends the refusal after an empty answer.
                let refusal = self.exchange(stream, Stage::Auth, "\r\n", self.timeouts.opening).await;
                reply = refusal.map_err(|cause| failed(auth::scrub_cause(cause, &secrets)))?;
            }
            let class = if index + 1 == lines.len() { 2 } else { 3 };
            self.expect(Stage::Auth, auth::scrub(reply, &secrets), class)?;
        }
        self.findings.mechanism = Some(mechanism);
        Ok(())
    }

    async fn ask(&self, stream: &mut Stream, stage: Stage, command: &str, limit: Duration) -> Step<Reply> {
        self.exchange(stream, stage, command, limit).await.map_err(|cause| without_answer(stage, cause))
    }

    /// Writes a command, unless it is empty, and reads the answer.
    async fn exchange(
        &self,
        stream: &mut Stream,
        stage: Stage,
        command: &str,
        limit: Duration,
    ) -> Result<Reply, Cause> {
        stream.set_stage(stage);
        let asked = async {
            if !command.is_empty() {
                stream.write_command(command).await?;
            }
            stream.read_reply().await
        };
        self.deadlines.bound(limit, asked).await?
    }

    /// Returns the reply if it has `class`. A 4yz or 5yz is a refusal; any other class does not fit the command.
    fn expect(&self, stage: Stage, reply: Reply, class: u16) -> Step<Reply> {
        match reply.class() {
            found if found == class => Ok(reply),
            4 | 5 => Err(Box::new(DialogueResult::refused(self.target.reply_rules(), stage, &reply))),
            _ => Err(without_answer(stage, Cause::OutOfStep(reply.summary()))),
        }
    }
}

fn without_answer(stage: Stage, cause: Cause) -> Box<DialogueResult> {
    Box::new(DialogueResult::without_answer(stage, cause))
}
