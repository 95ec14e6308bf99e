//! The contexts of a user: for each cluster its addresses, its authority and a token, in one private file.
//!
//! The file is `reveille/contexts.toml` in `$XDG_CONFIG_HOME`, else in `~/.config`. `cluster init` and `login` write a
//! context, and every command uses the current one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use reveille_raft::files;
use reveille_raft::tls::fingerprint;
use serde::{Deserialize, Serialize};
use tonic::metadata::AsciiMetadataValue;
use tonic::metadata::errors::InvalidMetadataValue;

use super::failure::{Exit, Failure};

const FOLDER: &str = "reveille";
const FILE: &str = "contexts.toml";
/// Name of the first context.
const DEFAULT: &str = "default";

/// A token of the admin API. It is shown nowhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Debug)]
#[serde(transparent)]
#[debug("(a token)")]
pub struct BearerToken(pub String);

impl BearerToken {
    /// Returns the value of the header `authorization`.
    ///
    /// # Errors
    /// A failure if the token has characters that no header may have.
    pub fn header(&self) -> Result<AsciiMetadataValue, Failure> {
        let bad = |_: InvalidMetadataValue| {
            let next = "give the whole token, as it was printed";
            Failure::new(Exit::Denied, "UNAUTHENTICATED", "the token is not one line of ASCII", next)
        };
        let mut value: AsciiMetadataValue = format!("Bearer {}", self.0).parse().map_err(bad)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// How one cluster is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Admin addresses of its nodes, `HOST:PORT`.
    pub endpoints: Vec<String>,
    /// Certificate of its authority (PEM).
    pub ca: String,
    /// Token of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<BearerToken>,
}

impl Context {
    /// Returns the SHA-256 of the authority's certificate, in hexadecimal digits.
    ///
    /// # Errors
    /// Returns why it cannot be read.
    pub fn fingerprint(&self) -> Result<String, String> {
        fingerprint(&self.ca).map_err(|error| error.to_string())
    }
}

/// All contexts of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Contexts {
    /// Name of the context that commands use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Contexts by name.
    #[serde(rename = "contexts")]
    pub all: BTreeMap<String, Context>,
    /// Folder of the file. `None`: this user has no home.
    #[serde(skip)]
    folder: Option<PathBuf>,
}

impl Contexts {
    /// Reads the contexts of this user; none if there is no file.
    ///
    /// # Errors
    /// A failure if the file cannot be read.
    pub fn read() -> Result<Contexts, Failure> {
        let folder = folder(std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME"));
        folder.map_or_else(|| Ok(Contexts::default()), Contexts::read_from)
    }

    fn read_from(folder: PathBuf) -> Result<Contexts, Failure> {
        let path = folder.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => {
                let next = "correct its permissions, or name another folder in XDG_CONFIG_HOME";
                return Err(failure(format!("{} cannot be read: {error}", path.display()), next));
            }
        };
        // The parser's own message shows the line, which may be a token.
        let contexts: Contexts = toml::from_str(&text).map_err(|_| {
            let next = "move it away, and log in again: reveille login https://HOST:PORT";
            failure(format!("{} is not a file of contexts", path.display()), next)
        })?;
        Ok(Contexts { folder: Some(folder), ..contexts })
    }

    /// Writes the file, readable by its owner only.
    ///
    /// # Errors
    /// A failure if it cannot be written.
    pub fn write(&self) -> Result<(), Failure> {
        let Some(folder) = &self.folder else {
            let message = "no place for contexts: neither XDG_CONFIG_HOME nor HOME is an absolute path".to_owned();
            return Err(failure(message, "export XDG_CONFIG_HOME=/a/private/folder, and give the same command again"));
        };
        let unwritable = |why: String| {
            let message = format!("{} cannot be written: {why}", folder.join(FILE).display());
            failure(message, "correct its permissions or space, and give the same command again")
        };
        let text = toml::to_string_pretty(self).map_err(|error| unwritable(error.to_string()))?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .and_then(|()| files::replace(folder, FILE, text.as_bytes(), files::PRIVATE))
            .map_err(|error| unwritable(error.to_string()))
    }

    /// Returns the file. `None`: this user has no home.
    pub fn path(&self) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(FILE))
    }

    /// Returns the context of that name, else the current one. `None`: no name is given, and none is current.
    ///
    /// # Errors
    /// A failure if there is no context of that name.
    pub fn chosen(&self, name: Option<&str>) -> Result<Option<(&str, &Context)>, Failure> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        self.named(name).map(Some)
    }

    /// Returns the context of that name.
    ///
    /// # Errors
    /// A failure if there is none.
    pub fn named(&self, name: &str) -> Result<(&str, &Context), Failure> {
        let found = self.all.get_key_value(name);
        found.map(|(name, context)| (name.as_str(), context)).ok_or_else(|| {
            let message = format!("there is no context '{name}'");
            Failure::new(Exit::NotFound, "CONTEXT_NOT_FOUND", message, "reveille context list").at("--context")
        })
    }

    /// Returns the name for a context with this authority: that of the context that has it, else `default`, else
    /// `other`.
    pub fn name_for(&self, ca: &str, other: &str) -> String {
        let same = self.all.iter().find(|(_, context)| context.ca == ca).map(|(name, _)| name.as_str());
        same.unwrap_or(if self.all.contains_key(DEFAULT) { other } else { DEFAULT }).to_owned()
    }

    /// Adds or replaces a context, and makes it the current one.
    pub fn put(&mut self, name: &str, context: Context) {
        self.all.insert(name.to_owned(), context);
        self.current = Some(name.to_owned());
    }

    /// Replaces the authority of a context by its successor, unless the context changed meanwhile.
    ///
    /// # Errors
    /// A failure if the file cannot be read or written.
    pub fn succeed(name: &str, former: &str, successor: String) -> Result<(), Failure> {
        let mut contexts = Contexts::read()?;
        match contexts.all.get_mut(name) {
            Some(context) if context.ca == former => context.ca = successor,
            _ => return Ok(()),
        }
        contexts.write()
    }

    /// Removes a context.
    pub fn remove(&mut self, name: &str) {
        self.all.remove(name);
        if self.current.as_deref() == Some(name) {
            self.current = None;
        }
    }
}

fn failure(message: String, next: &str) -> Failure {
    Failure::new(Exit::General, "CONTEXT", message, next)
}

/// Returns the folder of the file. A relative path is ignored, as the XDG specification says.
fn folder(config_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let config = config_home.map(PathBuf::from).and_then(absolute);
    let home = || home.map(PathBuf::from).and_then(absolute).map(|home| home.join(".config"));
    Some(config.or_else(home)?.join(Path::new(FOLDER)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn context(ca: &str) -> Context {
        let token = Some(BearerToken("rvt_secret".to_owned()));
        Context { endpoints: vec!["a:1".to_owned()], ca: ca.to_owned(), token }
    }

    #[test]
    fn contexts_survive_in_a_private_file() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("reveille");
        let mut contexts = Contexts::read_from(folder.clone()).expect("none yet");
        assert_eq!(contexts.chosen(None).expect("no failure"), None);
        contexts.put("default", context("one\ntwo\n"));
        contexts.write().expect("written");
        assert_eq!(Contexts::read_from(folder.clone()).expect("read"), contexts);
        let mode = std::fs::metadata(folder.join(FILE)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        contexts.remove("default");
        assert_eq!((contexts.current, contexts.all.len()), (None, 0));

        std::fs::write(folder.join(FILE), "token rvt_secret").expect("written");
        let failure = Contexts::read_from(folder).expect_err("no contexts");
        assert!(!failure.to_json().contains("rvt_secret"), "{failure:?}");
    }

    #[test]
    fn second_cluster_gets_a_name_of_its_own() {
        let mut contexts = Contexts::default();
        assert_eq!(contexts.name_for("one", "other"), "default");
        contexts.put("default", context("one"));
        assert_eq!(contexts.name_for("one", "other"), "default");
        assert_eq!(contexts.name_for("two", "other"), "other");
        assert!(!format!("{contexts:?}").contains("rvt_secret"));
        assert_eq!(contexts.named("gone").expect_err("none").exit, Exit::NotFound);
    }

    #[test]
    fn folder_is_of_xdg_or_home() {
        let path = |config: &str, home: &str| folder(Some(config.into()), Some(home.into()));
        assert_eq!(path("/config", "/home/a"), Some("/config/reveille".into()));
        assert_eq!(path("config", "/home/a"), Some("/home/a/.config/reveille".into()));
        assert_eq!(path("", ""), None);
    }
}
