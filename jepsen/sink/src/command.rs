//! Parses one command line of a client (RFC 5321 4.1, 1870, 6152, 6531). Pure: `dialogue.rs` decides if the command is
//! allowed in the current state.

/// A command of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SmtpCommand<'a> {
    Ehlo(&'a str),
    Helo(&'a str),
    Mail(Mail<'a>),
    Rcpt(&'a str),
    Data,
    Rset,
    Noop,
    Quit,
}

/// The parts of a MAIL command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mail<'a> {
    pub(crate) sender: &'a str,
    /// Size in bytes that the client announced. 0: it announced no size.
    pub(crate) size: usize,
    pub(crate) smtputf8: bool,
}

/// Code and text of the reply to a line that is not a valid command.
pub(crate) type Misread = (u16, &'static str);

const SYNTAX: Misread = (501, "5.5.4 syntax error in parameters");

impl<'a> SmtpCommand<'a> {
    /// Parses a line without its line end.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Self, Misread> {
        let line = std::str::from_utf8(line).map_err(|_| (500, "5.5.2 not UTF-8"))?;
        if line.chars().any(char::is_control) {
            return Err((500, "5.5.2 control character in command"));
        }
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match verb.to_ascii_uppercase().as_str() {
            "EHLO" => host(rest).map(Self::Ehlo),
            "HELO" => host(rest).map(Self::Helo),
            "MAIL" => mail(rest).map(Self::Mail),
            "RCPT" => recipient(rest).map(Self::Rcpt),
            "DATA" => alone(rest, Self::Data),
            "RSET" => alone(rest, Self::Rset),
            "QUIT" => alone(rest, Self::Quit),
            "NOOP" => Ok(Self::Noop),
            "BDAT" | "VRFY" | "HELP" | "EXPN" | "AUTH" | "STARTTLS" => Err((502, "5.5.1 not offered here")),
            _ => Err((500, "5.5.2 no such command")),
        }
    }
}

fn alone<'a>(rest: &str, command: SmtpCommand<'a>) -> Result<SmtpCommand<'a>, Misread> {
    if rest.is_empty() { Ok(command) } else { Err(SYNTAX) }
}

fn host(rest: &str) -> Result<&str, Misread> {
    if rest.is_empty() || rest.len() > 255 || rest.contains(' ') { Err(SYNTAX) } else { Ok(rest) }
}

fn mail(rest: &str) -> Result<Mail<'_>, Misread> {
    let (sender, parameters) = path(after_keyword(rest, "FROM:")?)?;
    let mut mail = Mail { sender, ..Mail::default() };
    for parameter in parameters.split_ascii_whitespace() {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match (name.to_ascii_uppercase().as_str(), value.to_ascii_uppercase().as_str()) {
            ("SIZE", digits) => mail.size = digits.parse().map_err(|_| SYNTAX)?,
            ("BODY", "7BIT" | "8BITMIME") => {}
            ("SMTPUTF8", "") => mail.smtputf8 = true,
            _ => return Err((555, "5.5.4 unknown parameter of MAIL")),
        }
    }
    Ok(mail)
}

fn recipient(rest: &str) -> Result<&str, Misread> {
    let (recipient, parameters) = path(after_keyword(rest, "TO:")?)?;
    if recipient.is_empty() {
        return Err((501, "5.1.3 empty recipient"));
    }
    if parameters.is_empty() { Ok(recipient) } else { Err((555, "5.5.4 unknown parameter of RCPT")) }
}

fn after_keyword<'a>(rest: &'a str, keyword: &str) -> Result<&'a str, Misread> {
    match rest.split_at_checked(keyword.len()) {
        Some((word, rest)) if word.eq_ignore_ascii_case(keyword) => Ok(rest.trim_start()),
        _ => Err(SYNTAX),
    }
}

/// Splits `<path> parameters`. A `>` inside a quoted local part does not end the path.
fn path(text: &str) -> Result<(&str, &str), Misread> {
    let text = text.strip_prefix('<').ok_or(SYNTAX)?;
    let (mut quoted, mut escaped) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '>' if !quoted => return finish_path(text, at),
            ' ' | '<' if !quoted => return Err(SYNTAX),
            _ => {}
        }
    }
    Err(SYNTAX)
}

fn finish_path(text: &str, at: usize) -> Result<(&str, &str), Misread> {
    let (path, rest) = text.split_at_checked(at).ok_or(SYNTAX)?;
    let parameters = rest.strip_prefix('>').unwrap_or_default();
    if parameters.is_empty() || parameters.starts_with(' ') { Ok((path, parameters.trim())) } else { Err(SYNTAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_case_insensitive() {
        let read = |line: &'static str| SmtpCommand::parse(line.as_bytes());
        assert_eq!(read("ehlo node-1.test"), Ok(SmtpCommand::Ehlo("node-1.test")));
        assert_eq!(
            read("Mail From:<a@b.test> size=2048 BODY=8BITMIME smtputf8"),
            Ok(SmtpCommand::Mail(Mail { sender: "a@b.test", size: 2_048, smtputf8: true }))
        );
        assert_eq!(read("MAIL FROM:<>"), Ok(SmtpCommand::Mail(Mail::default())));
        assert_eq!(read(r#"rcpt to:<"odd > \" one"@b.test>"#), Ok(SmtpCommand::Rcpt(r#""odd > \" one"@b.test"#)));
        assert_eq!(read("noop anything"), Ok(SmtpCommand::Noop));
    }

    #[test]
    fn invalid_command_is_refused_with_matching_code() {
        let code = |line: &'static str| SmtpCommand::parse(line.as_bytes()).map_err(|(code, _)| code);
        for line in ["MAIL FROM:a@b", "MAIL FROM:<a@b>SIZE=1", "RCPT TO:<>", "RCPT", "EHLO", "DATA now"] {
            assert_eq!(code(line), Err(501), "{line}");
        }
        assert_eq!(code("MAIL FROM:<a@b> RET=FULL"), Err(555));
        assert_eq!(code("AUTH PLAIN"), Err(502));
        assert_eq!(code("GET / HTTP/1.1"), Err(500));
        assert_eq!(code("NOOP \u{0}"), Err(500));
        assert_eq!(SmtpCommand::parse(b"MAIL FROM:<\xff@b>"), Err((500, "5.5.2 not UTF-8")));
    }
}
