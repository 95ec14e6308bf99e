//! Reads a command's input files, including stdin.

use std::io::{self, Read};
use std::path::Path;

use tokio::sync::oneshot;

/// Reads at most `most` + 1 bytes of a file, so that the caller can detect a file that is too long. `-` is stdin. Reads
/// on a separate thread, so that Ctrl-C can end a wait for stdin.
pub async fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (give, get) = oneshot::channel();
    let path = path.to_owned();
    std::thread::spawn(move || {
        // The receiver is gone if the command was interrupted.
        let _ = give.send(read(&path, most));
    });
    get.await.unwrap_or_else(|_| Err(io::Error::other("its reader ended")))
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(most + 1).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
