//! Reads the configuration again when the service manager asks for it (SIGHUP).
//!
//! [`super::start`] runs it. What can change without a restart is replaced; every other key that differs is named in a
//! log line. A configuration that cannot be used changes nothing. Secrets need no reload: they are read at each login.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use reveille_cluster::smtp::CredentialStore;
use tokio::signal::unix::Signal;

use crate::server::config::{Config, ConfigError, Settings, environment, values};
use crate::server::logging::LogFilter;

/// The sources of the configuration, and what a reload changes.
pub struct ConfigReload {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The flags of the process.
    pub flags: Settings,
    /// What the node runs with.
    pub running: Config,
    /// The filter of the log.
    pub filter: LogFilter,
    /// The logins of the node.
    pub credentials: Arc<CredentialStore>,
}

impl ConfigReload {
    /// Reads the configuration at each signal.
    pub async fn run(mut self, mut requested: Signal) {
        while requested.recv().await.is_some() {
            let reloaded = self.reload();
            metrics::gauge!("reveille_config_reload_failed").set(if reloaded.is_ok() { 0.0 } else { 1.0 });
            match reloaded {
                Ok(changed) => changed.log(),
                Err(error) => tracing::error!(%error, "the configuration cannot be used, and nothing was changed"),
            }
        }
    }

    fn reload(&mut self) -> Result<ChangedKeys, ConfigError> {
        let read = Config::load(self.file.as_deref(), environment(), self.flags.clone())?;
        let changed = ChangedKeys::between(&self.running, &read);
        (self.running.log.filter, self.running.credentials) = (read.log.filter, read.credentials);
        self.filter.replace(&self.running.log.filter);
        self.credentials.replace(self.running.credentials.clone());
        Ok(changed)
    }
}

/// The keys that a reload found changed.
#[derive(Debug, Default, PartialEq, Eq)]
struct ChangedKeys {
    applied: Vec<String>,
    need_restart: Vec<String>,
}

impl ChangedKeys {
    fn between(running: &Config, read: &Config) -> ChangedKeys {
        let of = |config: &Config| values(&config.clone().into()).into_iter().collect::<BTreeMap<_, _>>();
        let (before, after) = (of(running), of(read));
        let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
        let changed = keys.filter(|key| before.get(*key) != after.get(*key)).cloned();
        let (applied, need_restart) = changed.partition(|key| key == "log.filter" || key.starts_with("credentials."));
        ChangedKeys { applied, need_restart }
    }

    fn log(&self) {
        tracing::info!(changed = self.applied.join(", "), "the configuration was read again");
        if !self.need_restart.is_empty() {
            tracing::warn!(keys = self.need_restart.join(", "), "changed in the configuration, and needs a restart");
        }
    }
}
