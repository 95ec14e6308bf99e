//! The record of a sink: its accepts in memory, for its callers and its page. `receive.rs` adds an accept before its
//! `250`. Bounded: the oldest accepts and texts are dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::accepted::Accepted;

/// One accepted message: an accept for each recipient, and their common text if it is kept.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) accepts: Vec<Arc<Accepted>>,
    pub(crate) text: Option<Arc<[u8]>>,
}

/// Accepts by number, counted from 1 since the sink started.
pub(crate) struct KeptAccepts {
    keep: Keep,
    kept: Mutex<Kept>,
    count: watch::Sender<u64>,
}

/// The bounds of kept accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    pub(crate) records: usize,
    pub(crate) texts: usize,
    pub(crate) text_bytes: usize,
}

#[derive(Default)]
struct Kept {
    count: u64,
    accepts: VecDeque<Arc<Accepted>>,
    texts: VecDeque<Text>,
    text_bytes: usize,
}

/// The text of the accepts numbered `first` to `last`.
struct Text {
    first: u64,
    last: u64,
    bytes: Arc<[u8]>,
}

/// Error of a wait that ended with fewer accepts than expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{accepted} of {wanted} emails were accepted in time")]
pub struct StillWaiting {
    /// Number of accepts when the time was over.
    pub accepted: u64,
    /// Number of accepts that were expected.
    pub wanted: u64,
}

impl KeptAccepts {
    pub(crate) fn new(keep: Keep) -> Self {
        Self { keep, kept: Mutex::default(), count: watch::Sender::new(0) }
    }

    /// Returns true if texts are kept, so that a text must be copied.
    pub(crate) fn keeps_texts(&self) -> bool {
        self.keep.texts > 0
    }

    /// Adds a delivery.
    pub(crate) fn add(&self, delivery: Delivery) {
        let mut kept = self.kept.lock();
        kept.add(delivery, self.keep);
        self.count.send_replace(kept.count);
    }

    pub(crate) fn count(&self) -> u64 {
        *self.count.borrow()
    }

    pub(crate) fn emails(&self) -> Emails {
        let kept = self.kept.lock();
        let accepts: Vec<_> = kept.accepts.iter().cloned().collect();
        Emails { first: kept.count + 1 - accepts.len() as u64, accepts }
    }

    /// Returns the whole text of an accept. `None`: the text is not kept.
    pub(crate) fn text(&self, number: u64) -> Option<Arc<[u8]>> {
        let kept = self.kept.lock();
        let index = kept.texts.partition_point(|text| text.last < number);
        kept.texts.get(index).filter(|text| text.first <= number).map(|text| Arc::clone(&text.bytes))
    }

    pub(crate) async fn wait_for(&self, wanted: u64, limit: Duration) -> Result<(), StillWaiting> {
        let mut count = self.count.subscribe();
        let enough = tokio::time::timeout(limit, count.wait_for(|accepted| *accepted >= wanted)).await;
        match enough {
            Ok(Ok(_)) => Ok(()),
            _ => Err(StillWaiting { accepted: self.count(), wanted }),
        }
    }
}

impl Kept {
    fn add(&mut self, delivery: Delivery, keep: Keep) {
        let first = self.count + 1;
        self.count += delivery.accepts.len() as u64;
        self.accepts.extend(delivery.accepts);
        self.accepts.drain(..self.accepts.len().saturating_sub(keep.records));
        if let Some(bytes) = delivery.text {
            self.text_bytes += bytes.len();
            self.texts.push_back(Text { first, last: self.count, bytes });
            self.drop_texts(keep);
        }
    }

    fn drop_texts(&mut self, keep: Keep) {
        while self.texts.len() > keep.texts || self.text_bytes > keep.text_bytes {
            let Some(oldest) = self.texts.pop_front() else { return };
            self.text_bytes -= oldest.bytes.len();
        }
    }
}

/// The accepts that were in memory at the time of the call, oldest first.
#[derive(Debug, Clone)]
pub struct Emails {
    first: u64,
    accepts: Vec<Arc<Accepted>>,
}

impl Emails {
    /// Iterates over the accepts with their numbers, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Arc<Accepted>)> + '_ {
        self.accepts.iter().enumerate().map(|(index, accept)| (self.first + index as u64, accept))
    }

    /// Returns the accept with this number. `None`: it is not in memory.
    pub fn get(&self, number: u64) -> Option<&Arc<Accepted>> {
        self.accepts.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(recipients: &[String], text: Option<&[u8]>) -> Delivery {
        let accept = |recipient: &String| {
            Arc::new(Accepted {
                message_id: None,
                recipient: recipient.clone(),
                sender: String::new(),
                fence: None,
                headers: Default::default(),
                repeated: Vec::new(),
                excerpt: None,
                data_unix_us: 0,
                data_monotonic_us: 0,
                accept_unix_us: 0,
                accept_monotonic_us: 0,
                connection: 1,
                peer: ([127, 0, 0, 1], 25).into(),
                ehlo: String::new(),
                body_blake3: String::new(),
                size: 0,
            })
        };
        Delivery { accepts: recipients.iter().map(accept).collect(), text: text.map(Into::into) }
    }

    #[test]
    fn numbers_stay_when_oldest_accepts_go() {
        let kept = KeptAccepts::new(Keep { records: 2_000, texts: 0, text_bytes: 0 });
        (1..=5_000).for_each(|number: u32| kept.add(delivery(&[number.to_string()], None)));
        let emails = kept.emails();
        assert_eq!(kept.count(), 5_000);
        assert_eq!(emails.iter().count(), 2_000);
        assert!(emails.iter().all(|(number, accept)| accept.recipient == number.to_string()));
        assert_eq!(emails.iter().next_back().map(|(number, _)| number), Some(5_000));
        assert_eq!(emails.get(4_999).map(|accept| accept.recipient.as_str()), Some("4999"));
        assert!(emails.get(1).is_none() && emails.get(5_001).is_none());
    }

    #[test]
    fn text_belongs_to_all_its_recipients_and_oldest_goes_first() {
        let kept = KeptAccepts::new(Keep { records: 10, texts: 2, text_bytes: 10 });
        let pair = ["a".to_owned(), "b".to_owned()];
        kept.add(delivery(&pair, Some(b"first")));
        kept.add(delivery(&["c".to_owned()], None));
        kept.add(delivery(&pair, Some(b"later")));
        let text = |number| kept.text(number).map(|text| text.to_vec());
        assert_eq!((text(1), text(2)), (Some(b"first".to_vec()), Some(b"first".to_vec())));
        assert_eq!((text(3), text(5)), (None, Some(b"later".to_vec())));
        kept.add(delivery(&pair, Some(b"one more")));
        assert_eq!((text(1), text(4), text(7)), (None, None, Some(b"one more".to_vec())));
    }
}
