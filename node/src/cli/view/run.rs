//! Output of `run …`.

use reveille_proto::admin::v1;
use serde::{Serialize, Serializer};

use super::barrier::BarrierView;
use super::fields::{Shown, view};
use super::layout::{Cell, Tone, card};
use super::{Row, View};
use crate::cli::word::word;
use crate::format;

view! {
    /// A run.
    pub struct RunView of v1::Run as run {
        /// Null if it was only checked and does not exist.
        #[serde(serialize_with = "or_null")]
        run: String,
        tenant: String,
        schedule: String,
        nominal: String,
        cause: String = word("RUN_CAUSE_", run.cause().as_str_name()),
        state: String = word("RUN_STATE_", run.state().as_str_name()),
        reason: Option<String>,
        audience: u32,
        counts: CountsView,
        #[serde(serialize_with = "or_null")]
        opened_index: u64,
        finished_index: Option<u64>,
        due: Option<String>,
        opened_at: Option<String>,
        finish_by: Option<String>,
        known_duplicates: u32,
        resent: u32,
        archived_index: Option<u64>,
        waited_for: Option<String>,
        canary: Option<CanaryView>,
        blocked: Option<String>,
        /// Set only in the answer to a pause or a cancellation.
        #[serde(skip_serializing_if = "Option::is_none")]
        barrier: Option<BarrierView> = None,
    }
}

/// Serializes a default value as null.
fn or_null<T: Default + PartialEq + Serialize, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    (*value != T::default()).then_some(value).serialize(serializer)
}

view! {
    /// Recipients by state; their sum is the audience (P1).
    #[derive(Copy, Default)]
    pub struct CountsView of v1::RunCounts as counts {
        pending: u32,
        claimed: u32,
        sent: u32,
        assumed: u32,
        dead: u32,
        suppressed: u32,
        expired: u32,
        cancelled: u32,
        in_doubt: u32,
    }
}

view! {
    /// Recipients and verdict of the canary (P6).
    struct CanaryView of v1::RunCanary as canary {
        recipients: u32,
        undecided: u32,
        bad: u32,
        bad_max: u32,
        verdict: String = word("CANARY_VERDICT_", canary.verdict().as_str_name()),
    }
}

impl CanaryView {
    /// Returns text such as `undecided, 40 of 100 to come, 1 dead or in doubt of at most 5`. After the verdict, the
    /// numbers are those at the verdict; the run's own counts show its present state.
    fn words(&self) -> String {
        let count = |count: u32| format::count(count.into());
        let (to_come, all) = (count(self.undecided), count(self.recipients));
        let (bad, most) = (count(self.bad), count(self.bad_max));
        match self.verdict.as_str() {
            "undecided" => format!("undecided, {to_come} of {all} to come, {bad} dead or in doubt of at most {most}"),
            decided => format!(
                "{decided}; at its verdict {to_come} of {all} were to come, {bad} dead or in doubt of at most {most}"
            ),
        }
    }
}

impl CountsView {
    fn named(&self) -> [(&'static str, u32, Tone); 9] {
        [
            ("pending", self.pending, Tone::Plain),
            ("claimed", self.claimed, Tone::Plain),
            ("sent", self.sent, Tone::Good),
            ("assumed", self.assumed, Tone::Notable),
            ("dead", self.dead, Tone::Bad),
            ("suppressed", self.suppressed, Tone::Notable),
            ("expired", self.expired, Tone::Bad),
            ("cancelled", self.cancelled, Tone::Notable),
            ("in doubt", self.in_doubt, Tone::Bad),
        ]
    }

    /// Returns the counts that are not zero, `sent` first.
    fn words(&self) -> String {
        let others = self.named().into_iter().filter(|(name, count, _)| *count > 0 && *name != "sent");
        let others = others.map(|(name, count, _)| format!(", {name} {}", format::count(count.into())));
        format!("sent {}{}", format::count(self.sent.into()), others.collect::<String>())
    }
}

impl RunView {
    /// Adds the result of the barrier.
    pub fn with_barrier(self, barrier: BarrierView) -> RunView {
        RunView { barrier: Some(barrier), ..self }
    }

    /// True if no recipient is pending or claimed.
    pub fn is_finished(&self) -> bool {
        self.counts.pending == 0 && self.counts.claimed == 0
    }

    /// True if the run is held until an operator resumes it.
    pub fn is_paused(&self) -> bool {
        self.state == "paused"
    }

    /// Returns why the run is paused or has ended, if a reason was given.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns the number of settled recipients, and of all.
    pub fn progress(&self) -> (u64, u64) {
        let open = u64::from(self.counts.pending) + u64::from(self.counts.claimed);
        let all = u64::from(self.audience);
        (all.saturating_sub(open), all)
    }

    /// Returns one line of progress.
    pub fn sentence(&self) -> String {
        let (done, all) = self.progress();
        let waits = self.canary.as_ref().filter(|canary| canary.verdict == "undecided");
        let canary = waits.map(|canary| format!("; canary {}", canary.words())).unwrap_or_default();
        let blocked = self.blocked.as_ref().map(|why| format!("; blocked: {why}")).unwrap_or_default();
        let (done, all, counts) = (format::count(done), format::count(all), self.counts.words());
        format!("{} {}: {done} of {all}, {counts}{canary}{blocked}", self.run, self.state)
    }

    /// Returns the state of its canary, at the verdict if there is one.
    pub fn canary(&self) -> Option<String> {
        self.canary.as_ref().map(CanaryView::words)
    }

    /// Returns a message about recipients in doubt, which need a decision even after the run is finished.
    pub fn left_in_doubt(&self) -> Option<String> {
        let count = self.counts.in_doubt;
        (count > 0).then(|| {
            format!(
                "{}, {} in doubt: reveille in-doubt list --run {}",
                self.state,
                format::count(count.into()),
                self.run
            )
        })
    }

    /// Returns what a cancellation would do.
    pub fn would_cancel(&self) -> String {
        let CountsView { pending, claimed, in_doubt, .. } = self.counts;
        let recipients = format::counted(pending.into(), "recipient");
        let rest = match claimed + in_doubt {
            0 => String::new(),
            under_way => {
                format!("; {} under way only if they turn out not to be sent", format::count(under_way.into()))
            }
        };
        format!("{recipients} would be cancelled{rest}")
    }

    /// Returns the card of a run that was only checked and has no name.
    fn would_open(&self, paint: bool) -> String {
        let pairs = vec![
            ("schedule", format!("{} ({})", self.schedule, self.tenant).into()),
            ("run", Cell::toned("would open now", Tone::Notable)),
            ("finish by", Cell::or_dash(self.finish_by.as_deref())),
            ("audience", format::count(self.audience.into()).into()),
        ];
        card(pairs, paint)
    }

    fn tone(&self) -> Tone {
        match self.state.as_str() {
            "open" => Tone::Plain,
            "finished" => Tone::Good,
            "paused" => Tone::Notable,
            _ => Tone::Bad,
        }
    }
}

impl View for RunView {
    fn name(&self) -> String {
        self.run.clone()
    }

    fn text(&self, paint: bool) -> String {
        if self.run.is_empty() {
            return self.would_open(paint);
        }
        let state = match &self.reason {
            Some(reason) => format!("{}: {reason}", self.state),
            None => self.state.clone(),
        };
        let nominal = match self.cause.as_str() {
            // The nominal of a trigger already names its cause.
            "trigger" => self.nominal.clone(),
            cause => format!("{} ({})", self.nominal, cause.replace('_', " ")),
        };
        let finished = self.finished_index.map(|index| format!(", finished at {index}")).unwrap_or_default();
        let opened = match (&self.opened_at, &self.waited_for) {
            (Some(at), Some(former)) => format!("{at}, waited for {former}").into(),
            (at, _) => Cell::or_dash(at.as_deref()),
        };
        let mut pairs = vec![
            ("run", Cell::from(self.run.as_str())),
            ("schedule", format!("{} ({})", self.schedule, self.tenant).into()),
            ("nominal", nominal.into()),
            ("state", Cell::toned(state, self.tone())),
            ("due", Cell::or_dash(self.due.as_deref())),
            ("opened", opened),
            ("finish by", Cell::or_dash(self.finish_by.as_deref())),
            ("log index", format!("opened at {}{finished}", self.opened_index).into()),
            ("audience", format::count(self.audience.into()).into()),
        ];
        let counts = self.counts.named().into_iter().filter(|(name, count, _)| *count > 0 || *name == "sent");
        pairs.extend(counts.map(|(name, count, tone)| (name, Cell::count(count.into(), tone))));
        if let Some(why) = &self.blocked {
            pairs.push(("blocked", Cell::toned(why.as_str(), Tone::Bad)));
        }
        if let Some(canary) = self.canary() {
            pairs.push(("canary", canary.into()));
        }
        if self.known_duplicates > 0 {
            pairs.push(("known duplicates", Cell::count(self.known_duplicates.into(), Tone::Bad)));
        }
        if self.resent > 0 {
            pairs.push(("resent", Cell::count(self.resent.into(), Tone::Notable)));
        }
        if let Some(index) = self.archived_index {
            let what = format!("at log index {index}: outcomes of recipients are no longer kept");
            pairs.push(("archived", Cell::toned(what, Tone::Notable)));
        }
        card(pairs, paint)
    }
}

view! {
    /// The run that a trigger opened or would open, and the runs that it cancels.
    pub struct TriggerView of v1::TriggerScheduleResponse as answer {
        #[serde(flatten)]
        run: RunView,
        cancelled_runs: Vec<CancelledRunView> = answer.cancelled.shown(),
        cancelled_runs_more: u32 = answer.cancelled_more,
    }
}

view! {
    /// A run that is cancelled because another one opens.
    struct CancelledRunView of v1::CancelledRun as one {
        run: String,
        cancelled: u32,
        claimed: u32,
    }
}

impl CancelledRunView {
    /// Returns text such as `r12.0: 300 recipients cancelled, 14 claimed`.
    fn words(&self) -> String {
        let cancelled = format::counted(self.cancelled.into(), "recipient");
        let claimed = match self.claimed {
            0 => String::new(),
            claimed => format!(", {} claimed and sent unless released", format::count(claimed.into())),
        };
        format!("{}: {cancelled} cancelled{claimed}", self.run)
    }
}

impl View for TriggerView {
    fn name(&self) -> String {
        self.run.name()
    }

    fn text(&self, paint: bool) -> String {
        let verb = if self.run.run.is_empty() { "would cancel" } else { "cancelled" };
        let mut lines: Vec<String> =
            self.cancelled_runs.iter().map(|one| format!("{verb} run {}", one.words())).collect();
        if self.cancelled_runs_more > 0 {
            lines.push(format!("{verb} {} more", format::counted(self.cancelled_runs_more.into(), "run")));
        }
        lines.insert(0, self.run.text(paint));
        lines.join("\n")
    }
}

impl Row for RunView {
    const NOUN: &'static str = "runs";
    const COLUMNS: &'static [&'static str] =
        &["RUN", "SCHEDULE", "NOMINAL", "CAUSE", "STATE", "AUDIENCE", "SENT", "DEAD", "IN DOUBT"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.run.as_str().into(),
            self.schedule.as_str().into(),
            self.nominal.as_str().into(),
            self.cause.as_str().into(),
            Cell::toned(self.state.as_str(), self.tone()),
            format::count(self.audience.into()).into(),
            Cell::count(self.counts.sent.into(), Tone::Good),
            Cell::count(self.counts.dead.into(), Tone::Bad),
            Cell::count(self.counts.in_doubt.into(), Tone::Bad),
        ]
    }
}
