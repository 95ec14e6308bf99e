//! Reads a command's input files, including stdin.

use std::io::{self, Read};
use std::path::Path;

use reveille_ledger::LEVEL;
use reveille_ledger::limits::limits;

use super::failure::Failure;

/// Reads at most `most` + 1 bytes of a file, so that the caller can detect a file that is too long. `-` is stdin. Ctrl-C
/// can end a wait for stdin.
pub async fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    on_thread(move || read(&path, most)).await.flatten()
}

/// Runs blocking reads on another thread, so that Ctrl-C can end the wait for them. The runtime does not wait for that
/// thread when it stops.
///
/// # Errors
/// If the work panics.
pub async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if path == Path::new("-") { bounded(io::stdin().lock(), most) } else { bounded(std::fs::File::open(path)?, most) }
}

fn bounded(input: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads at most `most` + 1 bytes of a file or a pipe, so that the caller can detect one that is too long.
///
/// # Errors
/// If it cannot be read, as a folder.
pub fn file(path: &Path, most: usize) -> Result<Vec<u8>, Failure> {
    let read = std::fs::File::open(path).and_then(|file| bounded(file, most as u64));
    read.map_err(|error| Failure::file(path.display().to_string(), format!("cannot be read: {error}")))
}

/// Reads a file with a text of an email: UTF-8, with or without a byte order mark.
///
/// # Errors
/// If it cannot be read, is larger than a content may be, or is not UTF-8.
pub fn text_file(path: &Path) -> Result<String, Failure> {
    let most = limits(LEVEL).content_bytes_max;
    let bytes = file(path, most)?;
    if bytes.len() > most {
        let message = format!("has more than the {most} bytes that a content may have in all");
        return Err(Failure::file(path.display().to_string(), message));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        Failure::file(format!("{}:{line}", path.display()), "not UTF-8; save the file as UTF-8".to_owned())
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_end_is_read_in_part_and_a_folder_is_refused() {
        let message = |read: Result<String, Failure>| read.expect_err("refused").message;
        let endless = Path::new("/dev/zero");
        assert_eq!(file(endless, 10).expect("read").len(), 11);
        assert!(message(text_file(endless)).starts_with("has more than the 524288 bytes"));
        assert!(message(text_file(Path::new("/"))).starts_with("cannot be read: "));
    }
}
