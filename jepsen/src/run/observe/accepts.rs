//! Compares the sink's file of accepts with its memory, from which the history comes. A difference means that one of the two
//! lost or changed an accept; the run is invalid then.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reveille_sink::{Accepted, RecordFile, Sink};

/// An accept reaches the file a moment before memory.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// Reads the file back and compares it with memory.
pub async fn compare(file: &Path, sink: &Sink) -> Result<()> {
    let mut difference = String::new();
    for _ in 0..TRIES {
        let record = RecordFile::read(file).context("the sink's record")?;
        let emails = sink.emails();
        let memory: Vec<&Accepted> = emails.iter().map(|(_, accept)| accept.as_ref()).collect();
        match differ(&record.accepts, &memory) {
            None => return Ok(()),
            Some(found) => difference = found,
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!("the sink's record and its memory differ: {difference}")
}

fn differ(file: &[Accepted], memory: &[&Accepted]) -> Option<String> {
    let index = file.iter().zip(memory).position(|(written, kept)| written != *kept);
    if let Some(index) = index {
        return Some(format!("accept {} differs", index + 1));
    }
    let (written, kept) = (file.len(), memory.len());
    (written != kept).then(|| format!("the file has {written} accepts, memory has {kept}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(recipient: &str) -> Accepted {
        let line = serde_json::json!({
            "message_id": null, "recipient": recipient, "sender": "", "fence": null, "data_unix_us": 0,
            "data_monotonic_us": 0, "accept_unix_us": 0, "accept_monotonic_us": 0, "connection": 1,
            "peer": "127.0.0.1:25", "ehlo": "n1", "body_blake3": "0".repeat(64), "size": 1,
            "headers": {}, "repeated": [], "excerpt": null,
        });
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn difference_of_record_and_memory_is_found() {
        let (a, b) = (accept("a"), accept("b"));
        assert_eq!(differ(&[a.clone(), b.clone()], &[&a, &b]), None);
        assert!(differ(std::slice::from_ref(&a), &[&a, &b]).unwrap().contains("the file has 1 accepts, memory has 2"));
        assert!(differ(&[a.clone(), a.clone()], &[&a, &b]).unwrap().contains("accept 2"));
        assert!(differ(&[a.clone(), b.clone()], &[&a]).is_some());
    }
}
