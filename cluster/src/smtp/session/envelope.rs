//! An email as the dialogue gets it, and the SMTP commands that offer it.
//!
//! `worker/composition.rs` makes an [`Email`]; the dialogue calls the rest. An address is checked again here, so that
//! nothing in a recipient list can end a command line. An email that no relay can accept is refused here before a byte
//! is written, with the code that a relay would have used; such texts begin with "not offered:". If another relay may
//! accept it, the result is [`DialogueResult::NoSmtpUtf8`].

use super::dot_stuffing::EmailText;
use crate::smtp::replies::classification::ReplyClass;
use crate::smtp::replies::dialogue_result::{DialogueResult, enhanced_code};
use crate::smtp::stage::Stage;

pub(crate) const DATA: &str = "DATA\r\n";

/// One email to one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Email {
    /// The envelope sender in its wire form; empty for the null sender `<>`.
    pub from: String,
    /// The recipient in its wire form.
    pub to: String,
    /// Headers, empty line, body.
    pub text: EmailText,
    /// DSN parameters, for relays that offer DSN. `None`: none are sent.
    pub dsn: Option<Dsn>,
}

impl Email {
    /// True if an address in the envelope or header is not ASCII.
    pub fn needs_smtputf8(&self) -> bool {
        !self.to.is_ascii() || !self.from.is_ascii() || !self.text.is_ascii()
    }
}

/// Parameters of RFC 3461 for one email.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dsn {
    /// Envelope id: at most 100 letters, digits and dots, which need no xtext. Relays log it and return it in
    /// notifications.
    pub envelope_id: String,
    /// Condition under which the sender gets a notification.
    pub notify: Notify,
}

/// Condition under which the sender gets a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// Never.
    Never,
    /// If the email cannot be delivered.
    Failure,
}

impl Notify {
    fn word(self) -> &'static str {
        match self {
            Notify::Never => "NEVER",
            Notify::Failure => "FAILURE",
        }
    }
}

/// Extensions that the relay offered in its answer to EHLO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extensions {
    /// True if the relay accepted EHLO. After HELO a relay offers nothing, whatever it supports.
    pub by_ehlo: bool,
    /// True if MAIL, RCPT and DATA may be sent in one write (RFC 2920).
    pub pipelining: bool,
    /// True if the relay supports addresses beyond ASCII (RFC 6531), and 8BITMIME, which their headers need.
    pub utf8: bool,
    /// True if the relay supports ENVID and NOTIFY (RFC 3461).
    pub dsn: bool,
    /// Maximum size of a message in bytes (RFC 1870); zero: no limit is named. `None`: MAIL may not have a `SIZE`.
    pub size: Option<u64>,
    /// Maximum number of transactions in one session (`LIMITS MAILMAX`, RFC 9422). `None`: no limit is named.
    pub emails_max: Option<u32>,
}

impl Extensions {
    /// Parses the lines after the first one of the answer to EHLO.
    pub(crate) fn read(extensions: &[String]) -> Extensions {
        let words = |keyword: &str| {
            extensions.iter().find_map(|line| {
                let mut words = line.split_ascii_whitespace();
                words.next().filter(|first| first.eq_ignore_ascii_case(keyword)).map(|_| words)
            })
        };
        let emails_max = words("LIMITS").into_iter().flatten().find_map(|word| {
            let (name, most) = word.split_once('=')?;
            most.parse().ok().filter(|most| name.eq_ignore_ascii_case("MAILMAX") && *most > 0)
        });
        let size = words("SIZE").map(|mut words| words.next().and_then(|most| most.parse().ok()).unwrap_or(0));
        Extensions {
            by_ehlo: true,
            pipelining: words("PIPELINING").is_some(),
            utf8: words("SMTPUTF8").is_some() && words("8BITMIME").is_some(),
            dsn: words("DSN").is_some(),
            size,
            emails_max,
        }
    }
}

/// The commands that offer one email.
#[derive(Debug)]
pub(crate) struct EnvelopeCommands {
    pub mail: String,
    pub rcpt: String,
}

impl EnvelopeCommands {
    /// Writes the commands for an email.
    ///
    /// # Errors
    /// Returns a refusal by this node itself: nothing was written.
    pub fn new(email: &Email, extensions: Extensions) -> Result<EnvelopeCommands, Box<DialogueResult>> {
        if !email.from.is_empty() && !is_address(&email.from) {
            return Err(not_offered(Stage::Mail, 553, "5.1.7 the sender is not an address", ReplyClass::Content));
        }
        if !is_address(&email.to) {
            return Err(not_offered(Stage::Rcpt, 553, "5.1.3 not an address", ReplyClass::Recipient));
        }
        let (envid, notify) = match email.dsn.as_ref().filter(|_| extensions.dsn) {
            Some(dsn) => ([" ENVID=", &dsn.envelope_id], [" NOTIFY=", dsn.notify.word()]),
            None => ([""; 2], [""; 2]),
        };
        let size_and_body = size_and_body(email, extensions)?;
        let mail = ["MAIL FROM:<", &email.from, ">", &size_and_body, envid[0], envid[1], "\r\n"].concat();
        let rcpt = ["RCPT TO:<", &email.to, ">", notify[0], notify[1], "\r\n"].concat();
        Ok(EnvelopeCommands { mail, rcpt })
    }

    /// Returns MAIL, RCPT and DATA, for one write (RFC 2920).
    pub fn all(&self) -> String {
        [&self.mail, &self.rcpt, DATA].concat()
    }
}

/// Returns the parameters of MAIL that depend on the text: SIZE (RFC 1870), BODY (RFC 6152) and SMTPUTF8 (RFC 6531).
fn size_and_body(email: &Email, extensions: Extensions) -> Result<String, Box<DialogueResult>> {
    let (mut parameters, bytes) = (String::new(), email.text.bytes());
    if let Some(most) = extensions.size {
        if most > 0 && bytes as u64 > most {
            let text = format!("5.3.4 the message has {bytes} bytes, and the relay takes {most}");
            return Err(not_offered(Stage::Mail, 552, &text, ReplyClass::Content));
        }
        parameters += &format!(" SIZE={bytes}");
    }
    if email.needs_smtputf8() {
        if !extensions.utf8 {
            return Err(Box::new(DialogueResult::NoSmtpUtf8 { asked: extensions.by_ehlo }));
        }
        parameters += if email.text.is_ascii() { " SMTPUTF8" } else { " BODY=8BITMIME SMTPUTF8" };
    }
    Ok(parameters)
}

/// True for an address of at most 320 bytes (RFC 5321 4.5.3.1) that ends no command line. Quoted local parts are not
/// supported.
fn is_address(text: &str) -> bool {
    let ends = |letter: char| letter.is_control() || letter.is_whitespace() || matches!(letter, '<' | '>' | '"');
    text.len() <= 320 && text.contains('@') && !text.contains(ends)
}

impl DialogueResult {
    /// Refusal by this node itself, because of the content: no relay of the pool offers what sender or header need.
    pub fn sender_needs_smtputf8() -> DialogueResult {
        *not_offered(Stage::Mail, 553, "5.6.7 no relay of the pool has SMTPUTF8", ReplyClass::Content)
    }

    /// Returns this node's own temporary refusal: no relay of the pool is known to offer SMTPUTF8, which the address
    /// needs. At least one relay refused EHLO, so it may offer it later.
    pub fn smtputf8_is_not_known() -> DialogueResult {
        let text = "4.6.7 a relay of the pool refused EHLO, so whether it has SMTPUTF8 is not known";
        *not_offered(Stage::Mail, 450, text, ReplyClass::Recipient)
    }
}

fn not_offered(stage: Stage, code: u16, text: &str, class: ReplyClass) -> Box<DialogueResult> {
    let (enhanced, text) = (enhanced_code(code, text), format!("not offered: {text}"));
    Box::new(DialogueResult::Refused { stage, code, enhanced, text, class })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Extensions =
        Extensions { by_ehlo: true, pipelining: true, utf8: true, dsn: true, size: None, emails_max: None };

    fn email(from: &str, to: &str, text: &[u8]) -> Email {
        let text = EmailText::new(text.to_vec()).expect("a good text");
        Email { from: from.to_owned(), to: to.to_owned(), text, dsn: None }
    }

    fn refusal(email: &Email, extensions: Extensions) -> (Stage, ReplyClass) {
        match EnvelopeCommands::new(email, extensions).map_err(|result| *result) {
            Err(DialogueResult::Refused { stage, class, .. }) => (stage, class),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_carry_only_required_parameters() {
        let plain = email("a@example.org", "b@example.com", b"hi\r\n");
        let commands = EnvelopeCommands::new(&plain, ALL).expect("a good email");
        assert_eq!(commands.mail, "MAIL FROM:<a@example.org>\r\n");
        assert_eq!(commands.rcpt, "RCPT TO:<b@example.com>\r\n");
        let rich = email("", "bj\u{f8}rn@example.com", "h\u{ef}\r\n".as_bytes());
        let commands = EnvelopeCommands::new(&rich, ALL).expect("a good email");
        assert_eq!(commands.mail, "MAIL FROM:<> BODY=8BITMIME SMTPUTF8\r\n");
        assert_eq!(commands.rcpt, "RCPT TO:<bj\u{f8}rn@example.com>\r\n");
        let reply_to = email("a@example.org", "b@example.com", "Reply-To: bj\u{f8}rn@example.com\r\n".as_bytes());
        let commands = EnvelopeCommands::new(&reply_to, ALL).expect("a good email");
        assert_eq!(commands.mail, "MAIL FROM:<a@example.org> BODY=8BITMIME SMTPUTF8\r\n", "RFC 6531 3.4");
    }

    #[test]
    fn address_beyond_ascii_without_smtputf8_is_a_lack_of_the_relay() {
        let from = email("bj\u{f8}rn@example.com", "a@example.org", b"");
        let to = email("a@example.org", "bj\u{f8}rn@example.com", b"");
        let data = email("a@example.org", "a@example.org", "\u{ef}".as_bytes());
        for email in [from, to, data] {
            let lacks = EnvelopeCommands::new(&email, Extensions { utf8: false, ..ALL }).map_err(|result| *result);
            assert_eq!(lacks.err(), Some(DialogueResult::NoSmtpUtf8 { asked: true }), "{email:?}");
        }
        let plain = email("a@example.org", "b@example.com", b"hi\r\n");
        assert!(EnvelopeCommands::new(&plain, Extensions::default()).is_ok());
    }

    #[test]
    fn envelope_id_and_notify_are_sent_where_dsn_is_offered() {
        let worded = |notify, extensions| {
            let dsn = Some(Dsn { envelope_id: "1.9.1050.4".to_owned(), notify });
            let email = Email { dsn, ..email("a@example.org", "b@example.com", b"hi\r\n") };
            let commands = EnvelopeCommands::new(&email, extensions).expect("a good email");
            (commands.mail, commands.rcpt)
        };
        let (mail, rcpt) = worded(Notify::Never, ALL);
        assert_eq!(mail, "MAIL FROM:<a@example.org> ENVID=1.9.1050.4\r\n");
        assert_eq!(rcpt, "RCPT TO:<b@example.com> NOTIFY=NEVER\r\n");
        assert_eq!(worded(Notify::Failure, ALL).1, "RCPT TO:<b@example.com> NOTIFY=FAILURE\r\n");
        let (mail, rcpt) = worded(Notify::Never, Extensions { dsn: false, ..ALL });
        assert_eq!((mail.as_str(), rcpt.as_str()), ("MAIL FROM:<a@example.org>\r\n", "RCPT TO:<b@example.com>\r\n"));
    }

    #[test]
    fn message_above_size_limit_is_refused_as_content() {
        let three = email("a@example.org", "b@example.org", b"x\r\n");
        let sized = |most| Extensions { size: Some(most), ..ALL };
        for most in [0, 3, 4] {
            let commands = EnvelopeCommands::new(&three, sized(most)).expect("it fits");
            assert_eq!(commands.mail, "MAIL FROM:<a@example.org> SIZE=3\r\n");
        }
        assert_eq!(refusal(&three, sized(2)), (Stage::Mail, ReplyClass::Content));
    }

    #[test]
    fn limits_of_ehlo_are_read() {
        let read = |lines: &[&str]| Extensions::read(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let both = read(&["SMTPUTF8", "8bitmime", "DSN"]);
        assert!(both.utf8 && both.dsn && !read(&["SMTPUTF8"]).utf8 && !read(&["8BITMIME"]).utf8);
        let extensions = read(&["PIPELINING", "size 1000", "LIMITS RCPTMAX=9 MAILMAX=20"]);
        assert_eq!((extensions.pipelining, extensions.size, extensions.emails_max), (true, Some(1000), Some(20)));
        let extensions = read(&["SIZE", "LIMITS MAILMAX=0", "XLIMITS MAILMAX=3"]);
        assert_eq!((extensions.size, extensions.emails_max), (Some(0), None), "no limit is named");
        assert_eq!(read(&["SIZES 3"]), Extensions { by_ehlo: true, ..Extensions::default() });
    }

    #[test]
    fn address_cannot_end_a_command_line() {
        for to in
            ["a@b\r\nRCPT TO:<c@d>", "\"a\r\n\"@b.org", "a>@b.org", "a b@c.org", "", "a", "a@b\n", "\"\u{85}\"@b.org"]
        {
            assert_eq!(refusal(&email("", to, b""), ALL), (Stage::Rcpt, ReplyClass::Recipient), "{to:?}");
        }
        assert_eq!(refusal(&email("x", "a@b.org", b""), ALL), (Stage::Mail, ReplyClass::Content));
    }
}
