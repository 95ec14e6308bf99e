//! Writes the history during the run. Every observer has a handle. The order of the lines has no meaning.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use reveille_check::events::{Answer, Call, Ended, Event, Header, Operation, Writer};
use reveille_harness::measure::monotonic_us;

/// The client of a call, and its request id.
pub type Caller = (String, Option<String>);

/// A handle to the history. A clone is cheap.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<RecordedFile>,
}

struct RecordedFile {
    /// CLOCK_BOOTTIME at the beginning, in microseconds.
    began_us: i64,
    writer: Mutex<Option<Writer<BufWriter<File>>>>,
    failed: Mutex<Option<std::io::Error>>,
}

impl Recorder {
    /// Begins a history now.
    pub fn begin(path: &Path, header: &Header) -> Result<Recorder> {
        let began_us = monotonic_us();
        let file = File::create(path).with_context(|| format!("the history {}", path.display()))?;
        let writer = Writer::begin(BufWriter::new(file), header).context("the history")?;
        let inner = RecordedFile { began_us, writer: Mutex::new(Some(writer)), failed: Mutex::default() };
        Ok(Recorder { inner: Arc::new(inner) })
    }

    /// Returns the nanoseconds from the beginning until now.
    pub fn now_ns(&self) -> u64 {
        self.ns(monotonic_us())
    }

    /// Converts an instant of CLOCK_BOOTTIME in microseconds to the time of the history, at least 0.
    pub fn ns(&self, boot_us: i64) -> u64 {
        u64::try_from(boot_us - self.inner.began_us).unwrap_or(0) * 1_000
    }

    /// Records an event.
    pub fn event(&self, event: &Event) {
        let mut writer = self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = writer.as_mut()
            && let Err(error) = open.event(event)
        {
            *self.inner.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            *writer = None;
        }
    }

    /// Records a call that was answered now, or that got no answer.
    pub fn call(&self, (client, request_id): Caller, invoked_ns: u64, operation: Operation, answer: Answer) {
        let answered_ns = (answer != Answer::Unknown).then(|| self.now_ns());
        self.event(&Event::Call(Call { client, request_id, invoked_ns, answered_ns, operation, answer }));
    }

    /// Ends the history. Also returns the error of an earlier line.
    pub fn end(&self, missing: Vec<String>) -> Result<()> {
        if let Some(error) = self.inner.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error).context("the history could not be written");
        }
        let writer = self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = Ended { at_ns: self.now_ns(), missing };
        writer.context("the history has ended already")?.end(&ended).context("the end of the history")?;
        Ok(())
    }
}
