//! Files that a command reads, stdin among them.

use std::io::{self, Read};
use std::path::Path;

use tokio::sync::oneshot;

/// At most `most` bytes of a file and one more, by which the caller sees that it is too long; `-` is stdin. Read
/// by a thread of its own, so that Ctrl-C ends a wait for stdin.
pub async fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (give, get) = oneshot::channel();
    let path = path.to_owned();
    std::thread::spawn(move || {
        // The receiver is gone when the command was interrupted.
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
