//! The room between the final dot and the `250`: lines are appended to the record and synced in groups, by a
//! thread of its own, and only then the dialogues that wait for them go on.
//!
//! Three promises:
//! - [`AcceptRecorder::commit`] answers Ok only when the line is in the file (and on the disk, when `sync`);
//! - memory sees an accept after the file has it, in the same order;
//! - an error while writing ends the record for good. Whether those lines survived is unknown, so their
//!   clients get no answer at all, and later emails are refused before DATA.
//!
//! The queue is bounded by the number of dialogues: each waits for its one mail.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::archive::{Archive, Delivery};
use crate::record::RecordFile;

/// Takes accepts, from all dialogues of a sink.
pub(crate) struct AcceptRecorder {
    archive: Arc<Archive>,
    desk: Option<Arc<Desk>>,
    writer: Mutex<Option<thread::JoinHandle<()>>>,
}

/// The record has failed, or is closed; whether the line survives is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordLost;

/// Where dialogues leave lines and the writer picks them up.
struct Desk {
    pile: Mutex<Pile>,
    wake: Condvar,
    /// Set under the lock of the pile; read without it by dialogues that only want to know.
    lost: AtomicBool,
}

#[derive(Default)]
struct Pile {
    lines: Vec<u8>,
    waiting: Vec<Waiting>,
    closing: bool,
}

struct Waiting {
    delivery: Delivery,
    recorded: oneshot::Sender<()>,
}

impl AcceptRecorder {
    /// Opens or continues the file and starts the writer; without a file, accepts go to memory only.
    pub(crate) fn start(path: Option<&Path>, sync: bool, archive: Arc<Archive>) -> io::Result<Self> {
        let Some(path) = path else {
            return Ok(Self { archive, desk: None, writer: Mutex::new(None) });
        };
        let file = open(path)?;
        let desk = Arc::new(Desk { pile: Mutex::default(), wake: Condvar::new(), lost: AtomicBool::new(false) });
        let (its_desk, its_archive) = (Arc::clone(&desk), Arc::clone(&archive));
        let writer = thread::Builder::new()
            .name("sink-record".to_owned())
            .spawn(move || write_groups(file, sync, &its_desk, &its_archive))?;
        Ok(Self { archive, desk: Some(desk), writer: Mutex::new(Some(writer)) })
    }

    /// Whether there is a file, and so anything to write.
    pub(crate) fn writes(&self) -> bool {
        self.desk.is_some()
    }

    /// Whether the record can take no more.
    pub(crate) fn is_lost(&self) -> bool {
        self.desk.as_ref().is_some_and(|desk| desk.lost.load(Ordering::Acquire))
    }

    /// Records one email: `lines` are its accepts as JSON, each with its line end; unused where
    /// there is no file.
    pub(crate) async fn commit(&self, delivery: Delivery, lines: &[u8]) -> Result<(), RecordLost> {
        let Some(desk) = &self.desk else {
            self.archive.add([delivery]);
            return Ok(());
        };
        let (recorded, answer) = oneshot::channel();
        {
            let mut pile = desk.pile.lock();
            if pile.closing || desk.lost.load(Ordering::Acquire) {
                return Err(RecordLost);
            }
            pile.lines.extend_from_slice(lines);
            pile.waiting.push(Waiting { delivery, recorded });
            if pile.waiting.len() == 1 {
                desk.wake.notify_one();
            }
        }
        answer.await.map_err(|_| RecordLost)
    }

    /// Writes what waits, then ends the writer; the calling thread blocks until it has ended.
    pub(crate) fn close(&self) {
        self.begin_closing();
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            tracing::error!("the thread of the record panicked");
        }
    }

    fn begin_closing(&self) {
        if let Some(desk) = &self.desk {
            desk.pile.lock().closing = true;
            desk.wake.notify_one();
        }
    }
}

impl Drop for AcceptRecorder {
    fn drop(&mut self) {
        self.begin_closing();
    }
}

fn write_groups(mut file: File, sync: bool, desk: &Desk, archive: &Archive) {
    let mut group = Pile::default();
    while desk.take(&mut group) {
        let written = file.write_all(&group.lines).and_then(|()| if sync { file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            tracing::error!(%error, emails = group.waiting.len(), "cannot write the record; the sink accepts no more mail");
            desk.lose();
            return;
        }
        group.lines.clear();
        let (deliveries, recorded): (Vec<_>, Vec<_>) =
            group.waiting.drain(..).map(|waiting| (waiting.delivery, waiting.recorded)).unzip();
        archive.add(deliveries);
        for recorded in recorded {
            // A dialogue whose task was dropped no longer waits; its mail is recorded all the same.
            let _gone = recorded.send(());
        }
    }
}

impl Desk {
    /// Swaps the pile for an empty one, waiting while it is empty; false when it is empty and closing.
    fn take(&self, group: &mut Pile) -> bool {
        let mut pile = self.pile.lock();
        while pile.waiting.is_empty() {
            if pile.closing {
                return false;
            }
            self.wake.wait(&mut pile);
        }
        std::mem::swap(&mut pile.lines, &mut group.lines);
        std::mem::swap(&mut pile.waiting, &mut group.waiting);
        true
    }

    /// Dropping those who wait tells them that nothing is known.
    fn lose(&self) {
        let mut pile = self.pile.lock();
        self.lost.store(true, Ordering::Release);
        pile.waiting.clear();
        pile.lines.clear();
    }
}

/// Opens the file for appending behind its last whole line; a torn one was never acknowledged and is cut. A
/// new file is entered in its folder for good. What is no regular file (a pipe, a device) is taken as it is.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(file);
    }
    if metadata.len() > 0 {
        cut_torn_line(&file, path)?;
    }
    file.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    Ok(file)
}

fn cut_torn_line(file: &File, path: &Path) -> io::Result<()> {
    if let Some(torn) = RecordFile::visit(path, |_| {})? {
        tracing::warn!(path = %path.display(), offset = torn.offset, bytes = torn.bytes, "cut a torn line off the record");
        file.set_len(torn.offset)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Keep;

    #[tokio::test]
    async fn record_that_cannot_be_written_acknowledges_nothing_and_takes_no_more() {
        let archive = Arc::new(Archive::new(Keep { records: 10, texts: 0, text_bytes: 0 }));
        let recorder = AcceptRecorder::start(Some(Path::new("/dev/full")), false, Arc::clone(&archive)).unwrap();
        let delivery = Delivery { accepts: Vec::new(), text: None };
        assert_eq!(recorder.commit(delivery.clone(), b"{}\n").await, Err(RecordLost));
        assert!(recorder.is_lost());
        assert_eq!(recorder.commit(delivery, b"{}\n").await, Err(RecordLost));
        assert_eq!(archive.count(), 0);
        recorder.close();
    }
}
