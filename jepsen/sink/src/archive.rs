//! The accepts that a sink holds in memory, for its callers and its page. Filled by `recorder.rs`, in the
//! order of the record and only with what is in the record. Bounded: the oldest accepts and texts are dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::accepted::Accepted;
use crate::options::Watcher;

/// Accepts are kept in segments of this many, so that a snapshot copies pointers to segments, not to accepts.
const SEGMENT: usize = 1_024;

/// What one final dot brought: an accept for each recipient, and the text they share when it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) accepts: Vec<Arc<Accepted>>,
    pub(crate) text: Option<Arc<[u8]>>,
}

/// Accepts by number, counted from 1 in each life of the sink.
pub(crate) struct Archive {
    keep: Keep,
    watcher: Option<Watcher>,
    kept: Mutex<Kept>,
    count: watch::Sender<u64>,
}

/// The bounds of an archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    pub(crate) records: usize,
    pub(crate) texts: usize,
    pub(crate) text_bytes: usize,
}

#[derive(Default)]
struct Kept {
    count: u64,
    sealed: VecDeque<Arc<[Arc<Accepted>]>>,
    open: Vec<Arc<Accepted>>,
    texts: VecDeque<Text>,
    text_bytes: usize,
}

/// The text of the accepts numbered `first` to `last`.
struct Text {
    first: u64,
    last: u64,
    bytes: Arc<[u8]>,
}

/// Fewer accepts than were waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{accepted} of {wanted} emails were accepted in time")]
pub struct StillWaiting {
    /// How many there were when the time was over.
    pub accepted: u64,
    /// How many were waited for.
    pub wanted: u64,
}

impl Archive {
    pub(crate) fn new(keep: Keep, watcher: Option<Watcher>) -> Self {
        Self { keep, watcher, kept: Mutex::default(), count: watch::Sender::new(0) }
    }

    /// Whether a text is worth copying.
    pub(crate) fn keeps_texts(&self) -> bool {
        self.keep.texts > 0 && self.keep.text_bytes > 0
    }

    /// Takes what has just been recorded.
    pub(crate) fn add(&self, deliveries: impl IntoIterator<Item = Delivery>) {
        let mut kept = self.kept.lock();
        for delivery in deliveries {
            if let Some(watcher) = &self.watcher {
                delivery.accepts.iter().for_each(|accept| watcher.tell(accept));
            }
            kept.add(delivery, self.keep);
        }
        self.count.send_replace(kept.count);
    }

    pub(crate) fn count(&self) -> u64 {
        *self.count.borrow()
    }

    pub(crate) fn emails(&self) -> Emails {
        let kept = self.kept.lock();
        let mut segments: Vec<_> = kept.sealed.iter().cloned().collect();
        segments.push(kept.open.as_slice().into());
        let len = kept.sealed.len() * SEGMENT + kept.open.len();
        Emails { first: kept.count + 1 - u64::try_from(len).unwrap_or(0), len, segments }
    }

    /// The whole text of an accept, when it is still kept.
    pub(crate) fn text(&self, number: u64) -> Option<Arc<[u8]>> {
        let kept = self.kept.lock();
        let place = kept.texts.partition_point(|text| text.last < number);
        kept.texts.get(place).filter(|text| text.first <= number).map(|text| Arc::clone(&text.bytes))
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
        for accept in delivery.accepts {
            self.count += 1;
            self.open.push(accept);
            if self.open.len() == SEGMENT {
                self.sealed.push_back(std::mem::take(&mut self.open).into());
            }
        }
        while self.sealed.len() * SEGMENT >= keep.records.max(1) + SEGMENT {
            self.sealed.pop_front();
        }
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

/// The accepts that were in memory at one moment, oldest first; cheap to take and to keep.
#[derive(Debug, Clone)]
pub struct Emails {
    first: u64,
    len: usize,
    segments: Vec<Arc<[Arc<Accepted>]>>,
}

impl Emails {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each accept with its number, oldest first; `.rev()` for the newest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Arc<Accepted>)> + '_ {
        (0..self.len).filter_map(|place| self.at(place))
    }

    /// The accept of that number, when it is among them.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Arc<Accepted>> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.at(place).map(|(_, accept)| accept)
    }

    fn at(&self, place: usize) -> Option<(u64, &Arc<Accepted>)> {
        let accept = self.segments.get(place / SEGMENT)?.get(place % SEGMENT)?;
        Some((self.first + u64::try_from(place).ok()?, accept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accepted::BodyHash;

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
                body_blake3: BodyHash::of(b""),
                size: 0,
            })
        };
        Delivery { accepts: recipients.iter().map(accept).collect(), text: text.map(Into::into) }
    }

    #[test]
    fn watcher_is_told_of_all_mails_in_order() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let watcher = Watcher::new(move |accept| hears.lock().push(accept.recipient.clone()));
        let archive = Archive::new(Keep { records: 0, texts: 0, text_bytes: 0 }, Some(watcher));
        archive.add((0..2_000).map(|number| delivery(&[number.to_string(), format!("{number}b")], None)));
        let expected = (0..2_000).flat_map(|number| [number.to_string(), format!("{number}b")]);
        assert!(heard.lock().iter().cloned().eq(expected));
        assert!(archive.emails().len() <= 2 * SEGMENT);
    }

    #[test]
    fn numbers_stay_when_oldest_segments_go() {
        let archive = Archive::new(Keep { records: 2_000, texts: 0, text_bytes: 0 }, None);
        archive.add((1..=5_000).map(|number| delivery(&[number.to_string()], None)));
        let emails = archive.emails();
        assert_eq!(archive.count(), 5_000);
        assert!((2_000..=2_000 + 2 * SEGMENT).contains(&emails.len()), "{} are kept", emails.len());
        assert!(emails.iter().all(|(number, accept)| accept.recipient == number.to_string()));
        assert_eq!(emails.iter().next_back().map(|(number, _)| number), Some(5_000));
        assert_eq!(emails.get(4_999).map(|accept| accept.recipient.as_str()), Some("4999"));
        assert!(emails.get(1).is_none() && emails.get(5_001).is_none());
    }

    #[test]
    fn text_belongs_to_all_its_recipients_and_oldest_goes_first() {
        let archive = Archive::new(Keep { records: 10, texts: 2, text_bytes: 10 }, None);
        let pair = ["a".to_owned(), "b".to_owned()];
        archive.add([delivery(&pair, Some(b"first")), delivery(&["c".to_owned()], None)]);
        archive.add([delivery(&pair, Some(b"later"))]);
        let text = |number| archive.text(number).map(|text| text.to_vec());
        assert_eq!((text(1), text(2)), (Some(b"first".to_vec()), Some(b"first".to_vec())));
        assert_eq!((text(3), text(5)), (None, Some(b"later".to_vec())));
        archive.add([delivery(&pair, Some(b"one more"))]);
        assert_eq!((text(1), text(4), text(7)), (None, None, Some(b"one more".to_vec())));
    }
}
