//! AUTH: how a session logs in to the relay (RFC 4954), by PLAIN (RFC 4616) or else LOGIN, or by XOAUTH2 with a token.
//!
//! The opening calls this after the encryption. This module only chooses the mechanism and makes the lines; the opening
//! writes them. Credentials that a relay echoes are removed from its replies ([`scrub`]).

use data_encoding::BASE64;

use super::credentials::{Credentials, Login};
use crate::smtp::cause::Cause;
use crate::smtp::reply::Reply;

/// SASL mechanism of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display(rename_all = "UPPERCASE")]
pub enum Mechanism {
    /// One line with user and password. Preferred.
    Plain,
    /// The user, then the password, each after a 334. Obsolete, but the only one that some relays offer.
    Login,
    /// The user and an OAuth 2.0 access token on one line, as Google and Microsoft document it.
    Xoauth2,
}

impl Mechanism {
    /// Returns the best mechanism that EHLO offers for such credentials. Old relays write `AUTH=PLAIN`.
    pub(crate) fn choose(extensions: &[String], login: Login) -> Option<Mechanism> {
        let offers = |wanted: &str| {
            extensions.iter().any(|line| {
                let mut words = line.split([' ', '=']);
                words.next().is_some_and(|word| word.eq_ignore_ascii_case("AUTH"))
                    && words.any(|word| word.eq_ignore_ascii_case(wanted))
            })
        };
        let known: &[Mechanism] = match login {
            Login::Password => &[Mechanism::Plain, Mechanism::Login],
            Login::Xoauth2 => &[Mechanism::Xoauth2],
        };
        known.iter().copied().find(|mechanism| offers(&mechanism.to_string()))
    }

    /// Returns the lines to write. Each line but the first follows a 334; the answer to the last one is 235.
    pub(crate) fn lines(self, credentials: &Credentials) -> Vec<String> {
        let Credentials { user, password, .. } = credentials;
        match self {
            Mechanism::Plain => {
                vec![format!("AUTH PLAIN {}\r\n", BASE64.encode(format!("\0{user}\0{password}").as_bytes()))]
            }
            Mechanism::Login => vec![
                "AUTH LOGIN\r\n".to_owned(),
                format!("{}\r\n", BASE64.encode(user.as_bytes())),
                format!("{}\r\n", BASE64.encode(password.as_bytes())),
            ],
            Mechanism::Xoauth2 => {
                let response = format!("user={user}\u{1}auth=Bearer {password}\u{1}\u{1}");
                vec![format!("AUTH XOAUTH2 {}\r\n", BASE64.encode(response.as_bytes()))]
            }
        }
    }
}

/// Returns the texts that must not be shown: the password, and the encoded words that contain credentials.
pub(crate) fn secrets(credentials: &Credentials, lines: &[String]) -> Vec<String> {
    let encoded = lines.iter().filter_map(|line| line.split_ascii_whitespace().last());
    let encoded = encoded.filter(|word| *word != "LOGIN").map(str::to_owned);
    encoded.chain([credentials.password.clone()]).collect()
}

/// Hides the text of a reply if the relay echoed credentials in it.
pub(crate) fn scrub(reply: Reply, secrets: &[String]) -> Reply {
    Reply { text: hide(reply.text, secrets), ..reply }
}

/// Hides the text of a cause if it contains credentials.
pub(crate) fn scrub_cause(cause: Cause, secrets: &[String]) -> Cause {
    match cause {
        Cause::Malformed(text) => Cause::Malformed(hide(text, secrets)),
        Cause::OutOfStep(text) => Cause::OutOfStep(hide(text, secrets)),
        other => other,
    }
}

fn hide(text: String, secrets: &[String]) -> String {
    // A text that was cut may end within a secret, so the first 8 bytes of a secret hide the whole text.
    let shown = |secret: &String| text.contains(secret.get(..8).unwrap_or(secret));
    if secrets.iter().any(shown) { "(not shown: it repeats the credentials)".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anna() -> Credentials {
        Credentials { user: "anna".to_owned(), password: "hunter2".to_owned(), login: Login::Password }
    }

    #[test]
    fn auth_plain_is_preferred_and_unknown_methods_ignored() {
        let choose = |line: &str| Mechanism::choose(&["SIZE 1".to_owned(), line.to_owned()], Login::Password);
        assert_eq!(choose("AUTH LOGIN PLAIN"), Some(Mechanism::Plain));
        assert_eq!(choose("auth=login"), Some(Mechanism::Login));
        assert_eq!(choose("AUTH CRAM-MD5 XOAUTH2"), None);
        assert_eq!(choose("XAUTH PLAIN"), None);
        assert_eq!(choose("AUTH"), None);
        let by_token = |line: &str| Mechanism::choose(&[line.to_owned()], Login::Xoauth2);
        assert_eq!(by_token("AUTH LOGIN PLAIN XOAUTH2"), Some(Mechanism::Xoauth2));
        assert_eq!(by_token("AUTH LOGIN PLAIN"), None, "a token is no password");
    }

    #[test]
    fn auth_lines_match_the_rfcs() {
        assert_eq!(Mechanism::Plain.lines(&anna()), ["AUTH PLAIN AGFubmEAaHVudGVyMg==\r\n"]);
        assert_eq!(Mechanism::Login.lines(&anna()), ["AUTH LOGIN\r\n", "YW5uYQ==\r\n", "aHVudGVyMg==\r\n"]);
        let token = "AUTH XOAUTH2 dXNlcj1hbm5hAWF1dGg9QmVhcmVyIGh1bnRlcjIBAQ==\r\n";
        assert_eq!(Mechanism::Xoauth2.lines(&anna()), [token]);
    }

    #[test]
    fn echoed_credentials_are_not_repeated() {
        for mechanism in [Mechanism::Plain, Mechanism::Login, Mechanism::Xoauth2] {
            let lines = mechanism.lines(&anna());
            let secrets = secrets(&anna(), &lines);
            for line in lines.iter().filter(|line| !line.contains("LOGIN")) {
                let text = format!("5.7.8 bad: {}", line.trim_end());
                assert!(!scrub(Reply { code: 535, text: text.clone() }, &secrets).text.contains(line.trim_end()));
                assert!(!scrub_cause(Cause::Malformed(text), &secrets).to_string().contains(line.trim_end()));
            }
            let reply = Reply { code: 535, text: "5.7.8 authentication failed".to_owned() };
            assert_eq!(scrub(reply.clone(), &secrets), reply);
            let reply = Reply { code: 535, text: "hunter2?".to_owned() };
            assert!(!scrub(reply, &secrets).text.contains("hunter2"));
        }
    }
}
