//! Writes accepts to the record between final dot and `250`: a thread appends and syncs them in groups, and then the
//! waiting dialogues continue.
//!
//! - [`AcceptRecorder::commit`] returns `Ok` only if the line is in the file, and on the disk if `sync` is set.
//! - Memory gets an accept after the file, in the same order.
//! - A write error ends the record for good. It is unknown whether those lines survived, so their clients get no
//!   answer, and later emails are refused before DATA.
//!
//! The number of dialogues limits the queue, because each waits for its one email.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::kept_accepts::{Delivery, KeptAccepts};
use crate::record::RecordFile;

/// Records the accepts of all dialogues of a sink.
pub(crate) struct AcceptRecorder {
    kept: Arc<KeptAccepts>,
    queue: Option<Arc<WriteQueue>>,
    writer: Mutex<Option<thread::JoinHandle<()>>>,
}

/// The record has failed or is closed. It is unknown whether the line survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordLost;

/// The queue from the dialogues to the writer thread.
struct WriteQueue {
    pending: Mutex<PendingLines>,
    wake: Condvar,
    /// Set under the lock of `pending`; may be read without it.
    lost: AtomicBool,
}

#[derive(Default)]
struct PendingLines {
    lines: Vec<u8>,
    waiting: Vec<Waiting>,
    closing: bool,
}

struct Waiting {
    delivery: Delivery,
    recorded: oneshot::Sender<()>,
}

impl AcceptRecorder {
    /// Opens or continues the file and starts the writer thread. Without a file, accepts go to memory only.
    pub(crate) fn start(path: Option<&Path>, sync: bool, kept: Arc<KeptAccepts>) -> io::Result<Self> {
        let Some(path) = path else {
            return Ok(Self { kept, queue: None, writer: Mutex::new(None) });
        };
        let file = open(path)?;
        let queue =
            Arc::new(WriteQueue { pending: Mutex::default(), wake: Condvar::new(), lost: AtomicBool::new(false) });
        let (its_queue, its_kept) = (Arc::clone(&queue), Arc::clone(&kept));
        let writer = thread::Builder::new()
            .name("sink-record".to_owned())
            .spawn(move || write_groups(file, sync, &its_queue, &its_kept))?;
        Ok(Self { kept, queue: Some(queue), writer: Mutex::new(Some(writer)) })
    }

    /// True if there is a file to write to.
    pub(crate) fn writes(&self) -> bool {
        self.queue.is_some()
    }

    /// True if the record has failed or is closed.
    pub(crate) fn is_lost(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.lost.load(Ordering::Acquire))
    }

    /// Records one email. `lines` are its accepts as JSON, each with its line end; they are unused without a file.
    pub(crate) async fn commit(&self, delivery: Delivery, lines: &[u8]) -> Result<(), RecordLost> {
        let Some(queue) = &self.queue else {
            self.kept.add([delivery]);
            return Ok(());
        };
        let (recorded, answer) = oneshot::channel();
        {
            let mut pending = queue.pending.lock();
            if pending.closing || queue.lost.load(Ordering::Acquire) {
                return Err(RecordLost);
            }
            pending.lines.extend_from_slice(lines);
            pending.waiting.push(Waiting { delivery, recorded });
            if pending.waiting.len() == 1 {
                queue.wake.notify_one();
            }
        }
        answer.await.map_err(|_| RecordLost)
    }

    /// Writes the pending lines and ends the writer; blocks the calling thread until it has ended.
    pub(crate) fn close(&self) {
        self.begin_closing();
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            tracing::error!("the thread of the record panicked");
        }
    }

    fn begin_closing(&self) {
        if let Some(queue) = &self.queue {
            queue.pending.lock().closing = true;
            queue.wake.notify_one();
        }
    }
}

impl Drop for AcceptRecorder {
    fn drop(&mut self) {
        self.begin_closing();
    }
}

fn write_groups(mut file: File, sync: bool, queue: &WriteQueue, kept: &KeptAccepts) {
    let mut group = PendingLines::default();
    while queue.take(&mut group) {
        let written = file.write_all(&group.lines).and_then(|()| if sync { file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            tracing::error!(%error, emails = group.waiting.len(), "cannot write the record; the sink accepts no more mail");
            queue.lose();
            return;
        }
        group.lines.clear();
        let (deliveries, recorded): (Vec<_>, Vec<_>) =
            group.waiting.drain(..).map(|waiting| (waiting.delivery, waiting.recorded)).unzip();
        kept.add(deliveries);
        for recorded in recorded {
            // A dialogue whose task was dropped no longer waits; its email is recorded all the same.
            let _gone = recorded.send(());
        }
    }
}

impl WriteQueue {
    /// Takes all pending lines, and waits while there are none. Returns false if there are none and the queue is
    /// closing.
    fn take(&self, group: &mut PendingLines) -> bool {
        let mut pending = self.pending.lock();
        while pending.waiting.is_empty() {
            if pending.closing {
                return false;
            }
            self.wake.wait(&mut pending);
        }
        std::mem::swap(&mut pending.lines, &mut group.lines);
        std::mem::swap(&mut pending.waiting, &mut group.waiting);
        true
    }

    /// Ends the record. Waiting dialogues see from the dropped channel that their lines may be lost.
    fn lose(&self) {
        let mut pending = self.pending.lock();
        self.lost.store(true, Ordering::Release);
        pending.waiting.clear();
        pending.lines.clear();
    }
}

/// Opens the file for appending after its last complete line; an incomplete line was never acknowledged and is cut off.
/// Syncs the folder entry of a new file. A file that is not regular (a pipe, a device) is used as it is.
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
    use crate::kept_accepts::Keep;

    #[tokio::test]
    async fn record_that_cannot_be_written_acknowledges_nothing_and_takes_no_more() {
        let kept = Arc::new(KeptAccepts::new(Keep { records: 10, texts: 0, text_bytes: 0 }));
        let recorder = AcceptRecorder::start(Some(Path::new("/dev/full")), false, Arc::clone(&kept)).unwrap();
        let delivery = Delivery { accepts: Vec::new(), text: None };
        assert_eq!(recorder.commit(delivery.clone(), b"{}\n").await, Err(RecordLost));
        assert!(recorder.is_lost());
        assert_eq!(recorder.commit(delivery, b"{}\n").await, Err(RecordLost));
        assert_eq!(kept.count(), 0);
        recorder.close();
    }
}
