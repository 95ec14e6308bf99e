//! The story of each recipient, as `explain` tells it at the end: who held it under which row and since when, what came
//! of it, and where it stands.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use reveille_check::history::{Claim, Event, Fate, Fence, OpenRow, Outcome, Resumption, Standing, Step};
use reveille_proto::admin::v1 as api;
use reveille_sink::Sink;
use tokio::task::JoinSet;

use super::lives::Lives;
use super::recorder::Recorder;
use crate::admin::Admin;

/// Entries that befell a run as a whole (pauses, resumptions, requeues …), of which its story tells the last so many.
const RULINGS_KEPT: usize = 64;
/// Clients that read.
const READERS: usize = 8;

/// How instants of the ledger become instants of the history, and those lives of nodes.
#[derive(Clone)]
pub struct Clocks {
    lives: Lives,
    /// Civil time at the beginning of the history; none where clocks were set wrong, so that ledger time says nothing.
    began_unix_ms: Option<i64>,
    /// When the DATA of each fence was read.
    data_ns: HashMap<String, u64>,
    /// Resumptions that were told of: run and log index.
    resumptions: Arc<Mutex<HashSet<(String, u64)>>>,
}

impl Clocks {
    /// With the lives of all nodes, and what arrived.
    pub fn new(lives: Lives, began_unix_ms: Option<i64>, sink: &Sink, recorder: &Recorder) -> Clocks {
        let mails = sink.mails();
        let arrived = mails
            .iter()
            .filter_map(|(_, accept)| Some((accept.fence.clone()?, recorder.ns(accept.data_monotonic_us as i64))));
        Clocks { lives, began_unix_ms, data_ns: arrived.collect(), resumptions: Arc::default() }
    }

    /// Whether this resumption was told of already: by the story of another recipient of the run.
    fn is_new(&self, run: &str, index: u64) -> bool {
        let mut told = self.resumptions.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert((run.to_owned(), index))
    }

    /// Does ledger time tell when something was?
    pub fn are_right(&self) -> bool {
        self.began_unix_ms.is_some()
    }

    /// When an entry was committed, as far as ledger time tells.
    fn ns(&self, event: &api::Event) -> Option<u64> {
        let at = event.instant.as_ref()?;
        let unix_ns = i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos);
        u64::try_from(unix_ns - i128::from(self.began_unix_ms?) * 1_000_000).ok()
    }

    /// Which life of the node a claim was for: by ledger time, or else by when its mail came.
    fn incarnation(&self, claimed: &api::Event) -> Option<u64> {
        let at_ns = self.ns(claimed).or_else(|| self.data_ns.get(&claimed.fence).copied())?;
        self.lives.at(&claimed.node, at_ns)
    }
}

/// Whose story.
#[derive(Clone, Debug)]
pub struct Whom {
    /// Whose run.
    pub tenant: String,
    /// Which.
    pub run: String,
    /// Address.
    pub recipient: String,
}

/// Writes down the story of each of these recipients; false where time was over before.
pub async fn read(
    admin: &Admin,
    recorder: &Recorder,
    clocks: &Clocks,
    wanted: Vec<Whom>,
    until: Instant,
) -> Result<bool> {
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let (admin, recorder, clocks) = (admin.another(reader)?, recorder.clone(), clocks.clone());
        let own: Vec<_> = wanted.iter().skip(reader).step_by(READERS).cloned().collect();
        readers.spawn(async move {
            for Whom { tenant, run, recipient } in own {
                if Instant::now() > until {
                    return anyhow::Ok(false);
                }
                let story = admin.of_tenant(&tenant).explain(&run, &recipient).await?;
                let fate = fate(story.state()).with_context(|| format!("{recipient} of {run} has no state"))?;
                write_down(&recorder, &clocks, (&run, &recipient), &story, fate);
            }
            Ok(true)
        });
    }
    let mut whole = true;
    while let Some(ended) = readers.join_next().await {
        whole &= ended??;
    }
    Ok(whole)
}

fn write_down(
    recorder: &Recorder,
    clocks: &Clocks,
    (run, recipient): (&str, &str),
    story: &api::ExplainResponse,
    state: Fate,
) {
    // A run keeps its last 64 such entries. Where none was forgotten the first one that is told is the first.
    let rulings = story.events.iter().filter(|event| event.fence.is_empty()).count();
    for (place, event) in story.events.iter().enumerate() {
        if event.what == "run resumed" && rulings < RULINGS_KEPT && clocks.is_new(run, event.index) {
            recorder.event(&Event::Resumption(Resumption { run: run.to_owned(), index: event.index }));
        }
        let fence: Option<Fence> = event.fence.parse().ok();
        if event.what == "claimed"
            && let Some(fence) = fence
        {
            let incarnation = clocks.incarnation(event);
            let later = story.events.get(place + 1..).unwrap_or_default();
            if let (Some(incarnation), Some(at_ns)) = (incarnation, open_until(clocks, event, later)) {
                let node = event.node.clone();
                recorder.event(&Event::OpenRow(OpenRow { at_ns, fence, node, incarnation, claimed: 1 }));
            }
            recorder.event(&Event::Claim(Claim {
                fence,
                node: event.node.clone(),
                incarnation,
                run: run.to_owned(),
                recipients: vec![recipient.to_owned()],
                committed_ns: None,
                proposed_ns: clocks.ns(event),
            }));
        }
        if let Some(step) = step(&event.what) {
            recorder.event(&Event::Outcome(Outcome {
                index: event.index,
                fence,
                run: run.to_owned(),
                recipient: recipient.to_owned(),
                step,
                proposed_ns: clocks.ns(event),
                detail: event.detail.clone(),
            }));
        }
    }
    let of_doubt = story.events.iter().rev().find(|event| matches!(event.what.as_str(), "in doubt" | "dead"));
    let cause = match state {
        Fate::InDoubt | Fate::Dead => of_doubt.map(|event| event.detail.clone()).unwrap_or_default(),
        _ => String::new(),
    };
    let (run, recipient, number) = (run.to_owned(), recipient.to_owned(), Some(story.number));
    recorder.event(&Event::Standing(Standing { run, recipient, number, state, cause }));
}

/// When the recipient was claimed under this row for the last time: until the first step that ended it. None where that
/// has no instant.
fn open_until(clocks: &Clocks, claimed: &api::Event, later: &[api::Event]) -> Option<u64> {
    let ends = later.iter().find(|event| event.fence == claimed.fence && step(&event.what).is_some());
    clocks.ns(ends?)
}

/// The words of `explain` that end a hand-off or decide about a doubt.
fn step(what: &str) -> Option<Step> {
    Some(match what {
        "sent" | "sent twice" | "sent after all" => Step::Sent,
        "refused" => Step::Refused,
        "given back" | "not composed" => Step::Released,
        "in doubt" => Step::InDoubt,
        "to be resent" => Step::Resent,
        "assumed" => Step::Assumed,
        _ => return None,
    })
}

fn fate(state: api::RecipientState) -> Option<Fate> {
    Some(match state {
        api::RecipientState::Unspecified => return None,
        api::RecipientState::Pending => Fate::Pending,
        api::RecipientState::Claimed => Fate::Claimed,
        api::RecipientState::Sent => Fate::Sent,
        api::RecipientState::Assumed => Fate::Assumed,
        api::RecipientState::Dead => Fate::Dead,
        api::RecipientState::Suppressed => Fate::Suppressed,
        api::RecipientState::Expired => Fate::Expired,
        api::RecipientState::Cancelled => Fate::Cancelled,
        api::RecipientState::InDoubt => Fate::InDoubt,
    })
}
