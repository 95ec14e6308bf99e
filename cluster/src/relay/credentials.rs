//! Credentials by reference: each node resolves them for itself, whenever a session opens.
//!
//! Called by the opening. It promises that what it read is shown nowhere: the value has no `Debug`, its
//! errors name the reference and never the content, and it lives as long as one AUTH. It is not a vault:
//! who can read the node's files and environment can read it.

use std::path::Path;

use reveille_ledger::access::Secret;
use tokio::io::AsyncReadExt;

use super::cause::{Cause, Mend};

/// More than any `user:password` has.
const MAX_BYTES: u64 = 4096;

/// A name and its password. No `Debug`, on purpose.
pub(super) struct Credentials {
    pub user: String,
    pub password: String,
}

impl Credentials {
    /// Reads what `secret` refers to: `user:password` on one line. The user ends at the first colon.
    ///
    /// # Errors
    /// [`Cause::Credentials`]: what this node lacks.
    pub async fn resolve(secret: &Secret) -> Result<Credentials, Cause> {
        let content = match secret {
            Secret::File(path) => read(Path::new(path)).await,
            Secret::Env(name) => std::env::var(name).map_err(|_| "is not set, or not a text".to_owned()),
        };
        content
            .and_then(|content| parse(&content).ok_or_else(|| "is not user:password on one line".to_owned()))
            .map_err(|why| Cause::Credentials(Mend::Reference.because(format!("{secret} {why}"))))
    }
}

async fn read(path: &Path) -> Result<String, String> {
    let mut content = String::new();
    let file = tokio::fs::File::open(path).await.map_err(|error| format!("cannot be read: {error}"))?;
    // The error of what is no text is worded here: the library's could come to show it.
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut content)
        .await
        .map_err(|error| format!("is no text: {}", error.kind()))?;
    Ok(content)
}

fn parse(content: &str) -> Option<Credentials> {
    let line = content.strip_suffix('\n').unwrap_or(content);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let (user, password) = line.split_once(':')?;
    let good = !user.is_empty() && !password.is_empty() && !line.chars().any(char::is_control);
    (good && line.len() as u64 <= MAX_BYTES)
        .then(|| Credentials { user: user.to_owned(), password: password.to_owned() })
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
        assert!(parse(&format!("anna:{}", "x".repeat(5000))).is_none());
    }

    #[tokio::test]
    async fn what_is_missing_is_named_and_what_is_there_is_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("login").to_string_lossy().into_owned();
        let told = |found: Result<Credentials, Cause>| found.err().map(|cause| cause.to_string()).unwrap_or_default();
        let secret = Secret::File(path.clone());
        let missing = told(Credentials::resolve(&secret).await);
        assert!(missing.contains(&path) && missing.contains("No such file"), "{missing}");
        std::fs::write(&path, "hunter2").expect("written");
        let bad = told(Credentials::resolve(&secret).await);
        assert!(bad.contains("user:password") && !bad.contains("hunter2"), "{bad}");
        std::fs::write(&path, b"\xffhunter2").expect("written");
        let bad = told(Credentials::resolve(&secret).await);
        assert!(bad.contains("no text") && !bad.contains("hunter2"), "{bad}");
        std::fs::write(&path, "anna:hunter2\n").expect("written");
        assert!(Credentials::resolve(&secret).await.is_ok(), "read anew each time");
        let unset = told(Credentials::resolve(&Secret::Env("REVEILLE_SURELY_UNSET".into())).await);
        assert!(unset.contains("env:REVEILLE_SURELY_UNSET"), "{unset}");
    }
}
