//! A bucket of an S3-compatible service as a target of backups.
//!
//! Few requests are used, which all such services know: PUT, GET, HEAD and DELETE of an object, and ListObjectsV2. A
//! file is one PUT: none is above the 5 GiB that a PUT may have, and an interrupted one leaves nothing. Buckets are
//! addressed by path. Calls block their thread; requests run on a runtime of the target's own, so that they neither
//! wait for nor delay the tasks of a node.

mod answer;
mod client;
mod signature;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::time::SystemTime;

use hyper::body::Bytes;
use hyper::{HeaderMap, Method, StatusCode};
use jiff::fmt::rfc2822;
use tokio::runtime::{Builder, Runtime};

use self::answer::FileListPage;
use self::client::{BucketAnswer, BucketClient, BucketRequest, BucketTimeouts};
use self::signature::{BucketKey, encoded};
use super::address::{BucketAccess, BucketAddress};
use super::target::{BackupTarget, StoredFile};
use crate::process::secret::Secret;

/// Maximum number of pages of a list, against a service whose lists have no end: ten million files.
const PAGES_MAX: usize = 10_000;

/// A bucket.
pub struct BucketTarget {
    address: BucketAddress,
    client: BucketClient,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

/// Checks that credentials can be read and have the right form.
///
/// # Errors
/// Returns why not, without the secret.
pub fn check_credentials(credentials: &Secret) -> Result<(), String> {
    let text = credentials.read()?;
    BucketKey::parse(&text).map(drop).ok_or_else(|| "is not ID:SECRET on one line".to_owned())
}

impl BucketTarget {
    /// Returns the target. Makes no request.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn new(address: BucketAddress, access: BucketAccess) -> io::Result<BucketTarget> {
        BucketTarget::with_timeouts(address, access, BucketTimeouts::default())
    }

    fn with_timeouts(
        address: BucketAddress,
        access: BucketAccess,
        timeouts: BucketTimeouts,
    ) -> io::Result<BucketTarget> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("bucket").enable_all().build()?;
        let client = BucketClient::new(access, timeouts);
        Ok(BucketTarget { address, client, runtime: Some(runtime) })
    }

    /// Returns the full name of a file in the bucket.
    fn key(&self, name: &str) -> String {
        match self.address.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    fn send(&self, request: &BucketRequest) -> io::Result<BucketAnswer> {
        let ended = || io::Error::other("the target is closed");
        self.runtime.as_ref().ok_or_else(ended)?.block_on(self.client.send(request))
    }

    /// Sends a request for one file.
    fn of_file(&self, method: Method, name: &str, body: Bytes) -> io::Result<BucketAnswer> {
        let path = format!("/{}/{}", self.address.bucket, self.key(name));
        self.send(&BucketRequest { method, path, query: String::new(), body })
    }

    fn page(&self, folder: &str, after: Option<&str>) -> io::Result<FileListPage> {
        let prefix = encoded(&format!("{}/", self.key(folder)));
        let after = after.map(|token| format!("continuation-token={}&", encoded(token))).unwrap_or_default();
        let query = format!("{after}delimiter=%2F&encoding-type=url&list-type=2&prefix={prefix}");
        let path = format!("/{}", self.address.bucket);
        let answer = self.send(&BucketRequest { method: Method::GET, path, query, body: Bytes::new() })?;
        match answer.status {
            StatusCode::OK => FileListPage::parse(&answer.body).map_err(|what| {
                io::Error::new(ErrorKind::InvalidData, format!("the service's list is broken: {what}"))
            }),
            _ => Err(answer.error()),
        }
    }
}

impl BackupTarget for BucketTarget {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let answer = self.of_file(Method::PUT, name, Bytes::copy_from_slice(bytes))?;
        if answer.status.is_success() { Ok(()) } else { Err(answer.error()) }
    }

    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        let answer = self.of_file(Method::GET, name, Bytes::new())?;
        if answer.status == StatusCode::OK { Ok(answer.body.into()) } else { Err(answer.error()) }
    }

    fn stat(&self, name: &str) -> io::Result<Option<StoredFile>> {
        let answer = self.of_file(Method::HEAD, name, Bytes::new())?;
        match answer.status {
            StatusCode::OK => {
                let (bytes, modified) = size_and_time(&answer.headers)
                    .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the service says no size or no time"))?;
                Ok(Some(StoredFile { name: name.to_owned(), bytes, modified }))
            }
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(answer.error()),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<StoredFile>> {
        let begin = self.key("");
        let (mut files, mut after) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let page = self.page(folder, after.as_deref())?;
            files.extend(page.files.into_iter().filter_map(|file| {
                let name = file.name.strip_prefix(&begin)?.to_owned();
                Some(StoredFile { name, ..file })
            }));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(files),
            }
        }
        Err(io::Error::new(ErrorKind::InvalidData, "the service's list has no end"))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let answer = self.of_file(Method::DELETE, name, Bytes::new())?;
        let is_gone = answer.status.is_success() || answer.error().kind() == ErrorKind::NotFound;
        if is_gone { Ok(()) } else { Err(answer.error()) }
    }

    fn place(&self, name: &str) -> String {
        let BucketAddress { bucket, .. } = &self.address;
        format!("s3://{bucket}/{}", self.key(name))
    }
}

impl Drop for BucketTarget {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which a task must not do.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn size_and_time(headers: &HeaderMap) -> Option<(u64, SystemTime)> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let modified = rfc2822::DateTimeParser::new().parse_timestamp(text("last-modified")?).ok()?;
    Some((text("content-length")?.parse().ok()?, SystemTime::from(modified)))
}
