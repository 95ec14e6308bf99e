//! Where the configuration says that backups are kept: a folder, or a bucket of an S3-compatible service.

use std::path::PathBuf;
use std::str::FromStr;

use hyper::Uri;
use reveille_ledger::access::is_loopback;

use crate::process::secret::Secret;

/// Begin of the address of a bucket.
const SCHEME: &str = "s3://";

/// Address of a [`BackupTarget`](super::target::BackupTarget).
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub enum TargetAddress {
    /// A folder of the operating system.
    #[display("{}", _0.display())]
    Folder(PathBuf),
    /// A bucket.
    Bucket(BucketAddress),
}

/// A bucket, and the first part of the names in it.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{SCHEME}{bucket}{}{prefix}", if prefix.is_empty() { "" } else { "/" })]
pub struct BucketAddress {
    /// Name of the bucket.
    pub bucket: String,
    /// Folders before each name, without slashes at both ends. May be empty.
    pub prefix: String,
}

/// How a bucket is reached. Contains no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketAccess {
    /// The service.
    pub endpoint: Endpoint,
    /// Its region.
    pub region: String,
    /// Source of `ID:SECRET`, read at each request.
    pub credentials: Secret,
}

/// Address of a service: `https://HOST[:PORT]`, or `http://` on loopback.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{}://{authority}", if *tls { "https" } else { "http" })]
pub struct Endpoint {
    /// False on loopback only.
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Content of the header `host`.
    pub authority: String,
}

/// The text is not an address of a target or a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoAddress(&'static str);

impl FromStr for TargetAddress {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<TargetAddress, NoAddress> {
        let Some(rest) = text.strip_prefix(SCHEME) else { return Ok(TargetAddress::Folder(text.into())) };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let in_bucket = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(in_bucket) {
            return Err(NoAddress("a bucket's name has 3 to 63 lower-case letters, digits, '-' and '.'"));
        }
        // These need no encoding in a URL, and no service treats them in a special way.
        let in_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && part.bytes().all(in_part);
        if prefix.len() > 512 || !(prefix.is_empty() || prefix.split('/').all(is_part)) {
            return Err(NoAddress("the part after the bucket has folders of letters, digits, '-', '_' and '.'"));
        }
        Ok(TargetAddress::Bucket(BucketAddress { bucket: bucket.to_owned(), prefix: prefix.to_owned() }))
    }
}

impl FromStr for Endpoint {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Endpoint, NoAddress> {
        let form = NoAddress("it is not of the form https://HOST or https://HOST:PORT");
        let uri: Uri = text.parse().map_err(|_| form)?;
        let (tls, usual_port) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err(form),
        };
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        if uri.path() != "/" || uri.query().is_some() || authority.contains('@') {
            return Err(form);
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if !tls && !is_loopback(&host) {
            return Err(NoAddress("http:// is plaintext, and allowed on loopback only"));
        }
        let port = uri.port_u16().unwrap_or(usual_port);
        if host.is_empty() || port == 0 {
            return Err(form);
        }
        Ok(Endpoint { tls, host, port, authority: authority.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_a_folder_or_a_bucket_and_prints_as_written() {
        for text in ["/mnt/backups", "backups", "s3:/x", "s3://reveille-1.backups", "s3://bucket/a/b_c.1"] {
            let address: TargetAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(matches!(address, TargetAddress::Bucket(_)), text.starts_with("s3://"), "{text}");
        }
        let address: TargetAddress = "s3://bucket/a/".parse().unwrap();
        assert_eq!(address.to_string(), "s3://bucket/a");
        for text in ["s3://", "s3://b", "s3://Bucket", "s3://bucket//a", "s3://bucket/../a", "s3://bucket/a b"] {
            assert!(text.parse::<TargetAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn endpoint_is_encrypted_unless_it_is_on_loopback() {
        let parsed = |text: &str| text.parse::<Endpoint>();
        for (text, host, port) in [
            ("https://s3.eu-central-1.amazonaws.com", "s3.eu-central-1.amazonaws.com", 443),
            ("https://minio.example.com:9000", "minio.example.com", 9000),
            ("http://127.0.0.1:9000", "127.0.0.1", 9000),
            ("http://[::1]:9000", "::1", 9000),
            ("http://localhost", "localhost", 80),
        ] {
            let endpoint = parsed(text).unwrap();
            assert_eq!((endpoint.host.as_str(), endpoint.port), (host, port));
            assert_eq!(endpoint.to_string(), text);
        }
        for text in ["http://minio.example.com", "minio.example.com", "https://", "https://a/b", "https://a@b", ""] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
