//! Reads a file as text, and decompresses gzip and zstd. The first bytes decide, not the file's name.
//!
//! The size of decompressed text is limited, absolutely and relative to the file, so that a small file cannot keep the
//! machine busy for a day. [`Text::digest`] shows if a file has changed between two passes.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

/// Limit of a text's bytes: 67 million rows of 1 KiB.
pub const TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// Limit of text bytes per byte of a compressed file. Lists have 5 to 50.
const RATIO_MAX: u64 = 200;
/// Text bytes that any file may decompress to, whatever its ratio.
const UNQUESTIONED: u64 = 64 * 1024 * 1024;
/// Limit of the zstd window, as a power of two: 128 MiB of memory.
const WINDOW_LOG_MAX: u32 = 27;
const GZIP: &[u8] = &[0x1F, 0x8B];
const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
/// Bytes read at once.
const PIECE: usize = 256 * 1024;

/// The text of a file.
pub struct Text {
    inner: Box<dyn Read>,
    raw: Rc<RefCell<Seen>>,
    unpacked: u64,
    packed: bool,
}

/// Bytes of the file itself that have been read.
#[derive(Default)]
struct Seen {
    bytes: u64,
    hasher: blake3::Hasher,
}

struct Raw {
    file: Box<dyn Read>,
    seen: Rc<RefCell<Seen>>,
}

impl Read for Raw {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        let mut seen = self.seen.borrow_mut();
        seen.bytes += count as u64;
        seen.hasher.update(into.get(..count).unwrap_or_default());
        Ok(count)
    }
}

impl Text {
    /// Opens a file.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, or its compression cannot be read.
    pub fn open(path: &Path) -> io::Result<Text> {
        Text::of(File::open(path)?)
    }

    /// Returns the text of these bytes.
    pub(super) fn of(file: impl Read + 'static) -> io::Result<Text> {
        let raw = Rc::new(RefCell::new(Seen::default()));
        let mut file = BufReader::with_capacity(PIECE, Raw { file: Box::new(file), seen: Rc::clone(&raw) });
        let head = file.fill_buf()?;
        let (gzip, zstd) = (head.starts_with(GZIP), head.starts_with(ZSTD));
        let inner: Box<dyn Read> = if gzip {
            Box::new(MultiGzDecoder::new(file))
        } else if zstd {
            let mut decoder = zstd::Decoder::with_buffer(file)?;
            decoder.window_log_max(WINDOW_LOG_MAX)?;
            Box::new(decoder)
        } else {
            Box::new(file)
        };
        Ok(Text { inner, raw, unpacked: 0, packed: gzip || zstd })
    }

    /// Adds a buffer.
    pub fn buffered(self) -> BufReader<Text> {
        BufReader::with_capacity(PIECE, self)
    }

    /// Returns the hash of the bytes read from the file, before decompression.
    pub fn digest(&self) -> blake3::Hash {
        self.raw.borrow().hasher.finalize()
    }

    fn bounded(&self) -> io::Result<()> {
        if self.unpacked > TEXT_BYTES_MAX {
            return Err(io::Error::other(format!("the text has more than {TEXT_BYTES_MAX} bytes; split the list")));
        }
        let packed = self.raw.borrow().bytes;
        if self.packed && self.unpacked > UNQUESTIONED && self.unpacked / RATIO_MAX > packed {
            let message = format!(
                "it unpacks to more than {RATIO_MAX} times its size, as no list does; if it is one, unpack it and \
                 give the file that comes of it"
            );
            return Err(io::Error::other(message));
        }
        Ok(())
    }
}

impl Read for Text {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let packed = self.packed;
        let damaged = |error: io::Error| match packed {
            true => io::Error::new(error.kind(), format!("it does not unpack: {error}")),
            false => error,
        };
        let count = self.inner.read(into).map_err(damaged)?;
        self.unpacked += count as u64;
        self.bounded()?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write as _};

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(text).expect("memory");
        encoder.finish().expect("memory")
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::encode_all(text, 1).expect("memory")
    }

    fn read(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        let read = Text::of(Cursor::new(bytes)).and_then(|mut open| open.read_to_end(&mut text));
        read.map(|_| text).map_err(|error| error.to_string())
    }

    #[test]
    fn packed_files_are_known_by_their_first_bytes() {
        let list = b"email\nann@example.com\n".repeat(100);
        for packed in [list.clone(), gzip(&list), zstd(&list)] {
            assert_eq!(read(packed), Ok(list.clone()));
        }
        let halves = list.split_at(700);
        for pack in [gzip, zstd] {
            let two = [pack(halves.0), pack(halves.1)].concat();
            assert_eq!(read(two), Ok(list.clone()), "one after the other, as several machines write them");
        }
        assert_eq!(read(Vec::new()), Ok(Vec::new()));
    }

    #[test]
    fn packed_file_that_is_cut_or_damaged_is_no_shorter_list() {
        let list: Vec<u8> = (0..2_000).flat_map(|number| format!("r{number}@example.com\n").into_bytes()).collect();
        for pack in [gzip, zstd] {
            let packed = pack(&list);
            let cut = read(packed[..packed.len() - 20].to_vec()).expect_err("cut");
            assert!(cut.starts_with("it does not unpack: "), "{cut}");
            let mut other = packed.clone();
            let middle = other.len() / 2;
            other[middle] ^= 0x55;
            // A zstd frame without a checksum may decompress to another text, but its length stays the same.
            if let Ok(text) = read(other) {
                assert_eq!(text.len(), list.len());
            }
        }
    }

    #[test]
    fn file_that_unpacks_to_two_hundred_times_its_size_is_refused() {
        let bomb = b"a@example.com\n".repeat(UNQUESTIONED as usize / 14 + 100_000);
        for pack in [gzip, zstd] {
            let packed = pack(&bomb);
            assert!(packed.len() < bomb.len() / 250, "{} bytes", packed.len());
            let refused = read(packed).expect_err("refused");
            assert!(refused.starts_with("it unpacks to more than 200 times its size"), "{refused}");
        }
        assert_eq!(read(bomb.clone()).map(|text| text.len()), Ok(bomb.len()), "as it is, it may be what it is");
    }

    #[test]
    fn text_without_end_is_refused() {
        let mut text = Text::of(io::repeat(b'x')).expect("it opens");
        text.unpacked = TEXT_BYTES_MAX - 1_000;
        let refused = io::copy(&mut text, &mut io::sink()).expect_err("refused");
        assert!(refused.to_string().contains("split the list"), "{refused}");
    }

    #[test]
    fn another_file_has_another_digest() {
        let digest = |bytes: &'static [u8]| {
            let mut text = Text::of(bytes).expect("it opens");
            io::copy(&mut text, &mut io::sink()).expect("it reads");
            text.digest()
        };
        assert_eq!(digest(b"email\n"), digest(b"email\n"));
        assert_ne!(digest(b"email\n"), digest(b"email\r"));
    }
}
