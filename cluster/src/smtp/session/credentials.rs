//! The credentials of relays. The node's configuration defines them by name and binds each to the relay that may get
//! them.
//!
//! A relay in the ledger only names its credentials. The API can change a relay's host, but only the configuration of
//! each node defines what a name means. So a caller of the API cannot make a node send a password to another host. The
//! opening resolves a name when it logs in. The value is shown nowhere: it has no `Debug`, errors name the reference
//! and never the content, and it lives only during one AUTH. This is not a vault: an account that can read the node's
//! files and environment can read the credentials.

use std::collections::BTreeMap;
use std::path::Path;

use parking_lot::RwLock;
use tokio::io::AsyncReadExt;

use crate::process::secret::Secret;
use crate::smtp::cause::{Cause, Fix};

/// Maximum size of a secret in bytes, more than any `user:password` has. Access tokens have about 2 KiB. RFC 4954
/// (section 4) allows 12 KiB for a line of AUTH.
const SECRET_BYTES_MAX: u64 = 8192;

/// The credentials that a node's configuration defines, by name. A reload of the configuration replaces them.
#[derive(Debug, Default)]
pub struct CredentialStore(RwLock<BTreeMap<String, Binding>>);

/// Credentials: where this node finds them, and the only relay that gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The relay's host, as in the ledger. Compared without regard to case.
    pub host: String,
    /// The relay's port.
    pub port: u16,
    /// Reference to the secret, which is `user:password` on one line.
    pub secret: Secret,
    /// Kind of login for which the password is used.
    pub login: Login,
}

/// Kind of login: how the credentials are sent to a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Login {
    /// By AUTH PLAIN or LOGIN.
    #[default]
    Password,
    /// By AUTH XOAUTH2: the password is an OAuth 2.0 access token, which another program renews in time.
    Xoauth2,
}

impl FromIterator<(String, Binding)> for CredentialStore {
    fn from_iter<I: IntoIterator<Item = (String, Binding)>>(bindings: I) -> CredentialStore {
        CredentialStore(RwLock::new(bindings.into_iter().collect()))
    }
}

impl CredentialStore {
    /// True if a name of credentials may contain this byte.
    pub fn may_name(byte: u8) -> bool {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte)
    }

    /// Replaces all credentials. The next login uses them; open sessions stay.
    pub fn replace(&self, bindings: BTreeMap<String, Binding>) {
        *self.0.write() = bindings;
    }

    /// Returns the credentials of this name, for this relay.
    ///
    /// # Errors
    /// Returns a text that names what this node's configuration lacks: the name, or this host and port.
    pub fn find(&self, name: &str, host: &str, port: u16) -> Result<Binding, String> {
        let binding = self.0.read().get(name).cloned().ok_or_else(|| {
            format!(
                "this node's configuration defines no credentials '{name}': it needs a section [credentials.{name}]"
            )
        })?;
        if binding.host.eq_ignore_ascii_case(host) && binding.port == port {
            return Ok(binding);
        }
        let Binding { host: bound, port: at, .. } = binding;
        Err(format!("credentials '{name}' are for {bound} port {at} alone, by this node's configuration"))
    }

    /// Reads the credentials of this name for one AUTH.
    ///
    /// # Errors
    /// [`Cause::Credentials`], which names what this node lacks.
    pub(crate) async fn resolve(&self, name: &str, host: &str, port: u16) -> Result<Credentials, Cause> {
        let binding = self.find(name, host, port).map_err(missing)?;
        let read = Credentials::read(&binding.secret).await.map_err(missing)?;
        Ok(Credentials { login: binding.login, ..read })
    }
}

impl Binding {
    /// Reads the secret and drops it, to check that this node can log in with it.
    ///
    /// # Errors
    /// Returns a text that names what is wrong with the reference or with its content.
    pub async fn check(&self) -> Result<(), String> {
        Credentials::read(&self.secret).await.map(drop)
    }
}

fn missing(why: String) -> Cause {
    Cause::Credentials(Fix::Reference.because(why))
}

/// A user and its password. It deliberately has no `Debug`.
pub(crate) struct Credentials {
    pub user: String,
    pub password: String,
    pub login: Login,
}

impl Credentials {
    /// Reads the content of `secret`: `user:password` on one line. The user ends at the first colon.
    ///
    /// # Errors
    /// Returns a text that names the reference, but nothing of its content.
    async fn read(secret: &Secret) -> Result<Credentials, String> {
        let content = match secret {
            Secret::File(path) => read_file(Path::new(path)).await,
            Secret::Env(name) => std::env::var(name).map_err(|_| "is not set, or not a text".to_owned()),
        };
        content
            .and_then(|content| parse(&content).ok_or_else(|| "is not user:password on one line".to_owned()))
            .map_err(|why| format!("{secret} {why}"))
    }
}

async fn read_file(path: &Path) -> Result<String, String> {
    let mut content = String::new();
    let file = tokio::fs::File::open(path).await.map_err(|error| format!("cannot be read: {error}"))?;
    // The error for invalid UTF-8 is worded here, since the library's could show the content.
    file.take(SECRET_BYTES_MAX + 1)
        .read_to_string(&mut content)
        .await
        .map_err(|error| format!("is not text: {}", error.kind()))?;
    Ok(content)
}

fn parse(content: &str) -> Option<Credentials> {
    let line = content.strip_suffix('\n').unwrap_or(content);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let (user, password) = line.split_once(':')?;
    let good = !user.is_empty() && !password.is_empty() && !line.chars().any(char::is_control);
    (good && line.len() as u64 <= SECRET_BYTES_MAX).then(|| Credentials {
        user: user.to_owned(),
        password: password.to_owned(),
        login: Login::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_with_a_user_and_a_password() {
        for text in ["anna:a:b c", "anna:a:b c\n", "anna:a:b c\r\n"] {
            let read = parse(text).expect(text);
            assert_eq!((read.user.as_str(), read.password.as_str()), ("anna", "a:b c"));
        }
        for text in ["", "anna", "anna:", ":x", "anna:x\nberta:y", "anna:x\n\n", "anna\0:x"] {
            assert!(parse(text).is_none(), "{text:?}");
        }
        assert!(parse(&format!("anna:{}", "x".repeat(9000))).is_none());
    }

    #[tokio::test]
    async fn credentials_go_to_their_own_host_and_port_only() {
        let binding = Binding {
            host: "smtp.example.com".to_owned(),
            port: 587,
            secret: Secret::Env("REVEILLE_SURELY_UNSET".to_owned()),
            login: Login::Password,
        };
        let store: CredentialStore = [("ses".to_owned(), binding.clone())].into_iter().collect();
        assert_eq!(store.find("ses", "SMTP.example.com", 587), Ok(binding.clone()));
        for (name, host, port, why) in [
            ("ses", "smtp.example.com.evil.example", 587, "are for smtp.example.com port 587 alone"),
            ("ses", "smtp.example.com", 25, "are for smtp.example.com port 587 alone"),
            ("other", "smtp.example.com", 587, "defines no credentials 'other'"),
        ] {
            let refused = store.find(name, host, port).expect_err(host);
            assert!(refused.contains(why), "{refused}");
            assert!(store.resolve(name, host, port).await.is_err(), "and nothing is read");
        }
        store.replace([("new".to_owned(), binding)].into());
        assert!(store.find("ses", "smtp.example.com", 587).is_err());
        assert!(store.find("new", "smtp.example.com", 587).is_ok());
    }

    #[tokio::test]
    async fn missing_secret_is_named_and_present_one_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("login").to_string_lossy().into_owned();
        let message_of = |found: Result<Credentials, String>| found.err().unwrap_or_default();
        let secret = Secret::File(path.clone());
        let missing = message_of(Credentials::read(&secret).await);
        assert!(missing.contains(&path) && missing.contains("No such file"), "{missing}");
        std::fs::write(&path, "hunter2").expect("written");
        let bad = message_of(Credentials::read(&secret).await);
        assert!(bad.contains("user:password") && !bad.contains("hunter2"), "{bad}");
        std::fs::write(&path, b"\xffhunter2").expect("written");
        let bad = message_of(Credentials::read(&secret).await);
        assert!(bad.contains("not text") && !bad.contains("hunter2"), "{bad}");
        std::fs::write(&path, "anna:hunter2\n").expect("written");
        assert!(Credentials::read(&secret).await.is_ok(), "read anew each time");
        let unset = message_of(Credentials::read(&Secret::Env("REVEILLE_SURELY_UNSET".into())).await);
        assert!(unset.contains("env:REVEILLE_SURELY_UNSET"), "{unset}");
    }
}
