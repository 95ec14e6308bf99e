//! Section `backup`: where and when the leader makes backups.

use std::sync::Arc;
use std::time::Duration;

use reveille_cluster::backup::{self, BackupTarget, BucketAccess, Endpoint, TargetAddress, check_credentials};
use reveille_cluster::process::secret::Secret;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::check::{setting, within};

const REGION: &str = "us-east-1";
const CREDENTIALS_NEXT: &str = "write credentials = \"file:/etc/reveille/s3\", or \"env:NAME\"";

/// Settings of section `backup`: where the leader keeps backups. No command has them as flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct BackupSettings {
    /// A folder for backups and opt-outs, the same on all nodes and outside of their machines, such as a mount; or a
    /// bucket, as s3://BUCKET/PREFIX
    pub target: Option<String>,
    /// The S3-compatible service that has the bucket, such as https://s3.eu-central-1.amazonaws.com
    pub endpoint: Option<String>,
    /// The region of that service [default: us-east-1]
    pub region: Option<String>,
    /// The place of ACCESS_KEY_ID:SECRET_ACCESS_KEY, as file:/path or env:NAME; read at each request
    pub credentials: Option<String>,
    /// The interval of backups, in seconds; 60 to 31536000 [default: 86400]
    pub every_seconds: Option<u64>,
    /// So many verified backups are kept; 1 to 10000 [default: 14]
    pub keep: Option<u64>,
}

/// Where backups are kept. The values are checked, and not the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupConfig {
    /// Without it there are no backups.
    pub target: Option<TargetAddress>,
    /// The service that has the bucket.
    pub endpoint: Option<Endpoint>,
    /// Its region.
    pub region: String,
    /// Where the credentials for it are.
    pub credentials: Option<Secret>,
    /// Interval of backups.
    pub every: Duration,
    /// Number of verified backups that are kept.
    pub keep: usize,
}

impl BackupSettings {
    pub(crate) fn check(self) -> Result<BackupConfig, ConfigError> {
        let every = within("backup.every_seconds", self.every_seconds.unwrap_or(86_400), 60..=31_536_000)?;
        let keep = within("backup.keep", self.keep.unwrap_or(14), 1..=10_000)?;
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let target = given(self.target).map(|text| {
            let next = "name a folder, or s3://BUCKET/PREFIX";
            text.parse::<TargetAddress>().map_err(|error| setting("backup.target", format!("{text}: {error}"), next))
        });
        let endpoint = given(self.endpoint).map(|text| {
            let next = "write the service's address, such as https://s3.eu-central-1.amazonaws.com";
            text.parse::<Endpoint>().map_err(|error| setting("backup.endpoint", format!("{text}: {error}"), next))
        });
        let region = given(self.region).unwrap_or_else(|| REGION.to_owned());
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(setting("backup.region", format!("'{region}' is no region"), "write one such as eu-central-1"));
        }
        // The error does not repeat the text, because it may be the secret itself.
        let credentials = given(self.credentials).map(|text| {
            text.parse::<Secret>()
                .map_err(|error| setting("backup.credentials", format!("it {error}"), CREDENTIALS_NEXT))
        });
        Ok(BackupConfig {
            target: target.transpose()?,
            endpoint: endpoint.transpose()?,
            region,
            credentials: credentials.transpose()?,
            every: Duration::from_secs(every),
            keep: usize::try_from(keep).unwrap_or(usize::MAX),
        })
    }
}

impl From<BackupConfig> for BackupSettings {
    fn from(config: BackupConfig) -> BackupSettings {
        fn text(value: Option<impl ToString>) -> String {
            value.map(|value| value.to_string()).unwrap_or_default()
        }
        BackupSettings {
            target: Some(text(config.target)),
            endpoint: Some(text(config.endpoint)),
            region: Some(config.region),
            credentials: Some(text(config.credentials)),
            every_seconds: Some(config.every.as_secs()),
            keep: Some(config.keep as u64),
        }
    }
}

impl BackupConfig {
    /// Opens the target, if there is one. Makes no request.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] if a bucket lacks what it is reached by.
    pub fn open(&self) -> Result<Option<Arc<dyn BackupTarget>>, ConfigError> {
        let Some(target) = &self.target else { return Ok(None) };
        let access = match target {
            TargetAddress::Folder(_) => None,
            TargetAddress::Bucket(_) => Some(self.access()?),
        };
        let opened = backup::open(target, access.as_ref());
        opened.map(Some).map_err(|error| setting("backup.target", error.to_string(), "the same again"))
    }

    /// Reads the credentials of a bucket, and checks their form.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] if they cannot be used.
    pub fn check_credentials(&self) -> Result<(), ConfigError> {
        let Some(TargetAddress::Bucket(_)) = self.target else { return Ok(()) };
        let BucketAccess { credentials, .. } = self.access()?;
        check_credentials(&credentials).map_err(|why| {
            let next = "let it lead to ACCESS_KEY_ID:SECRET_ACCESS_KEY on one line";
            setting("backup.credentials", format!("{credentials} {why}"), next)
        })
    }

    fn access(&self) -> Result<BucketAccess, ConfigError> {
        let lacks = |key: &'static str, next: &str| setting(key, "it is not set, and the target is a bucket", next);
        let endpoint = self.endpoint.clone().ok_or_else(|| {
            lacks("backup.endpoint", "name the service: endpoint = \"https://s3.eu-central-1.amazonaws.com\"")
        })?;
        let credentials = self.credentials.clone().ok_or_else(|| lacks("backup.credentials", CREDENTIALS_NEXT))?;
        Ok(BucketAccess { endpoint, region: self.region.clone(), credentials })
    }
}
