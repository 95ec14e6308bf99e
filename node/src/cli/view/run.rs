//! Output of `run …`.

use reveille_proto::admin::v1::{
    CanaryVerdict, CancelledRun, Run, RunCanary, RunCause, RunCounts, RunState, TriggerScheduleResponse,
};

use super::{Cell, Tone, View, card, format, some, text, word};
use crate::cli::wording::{missing_file, why};

/// Returns text such as `undecided, 40 of 100 to come, 1 dead or in doubt of at most 5`. After the verdict, the numbers
/// are those at the verdict; the run's own counts show its present state.
pub fn canary_words(canary: &RunCanary) -> String {
    let count = |count: u32| format::count(count.into());
    let (to_come, all) = (count(canary.undecided), count(canary.recipients));
    let (bad, most) = (count(canary.bad), count(canary.bad_max));
    match canary.verdict() {
        CanaryVerdict::Undecided => {
            format!("undecided, {to_come} of {all} to come, {bad} dead or in doubt of at most {most}")
        }
        decided => format!(
            "{}; at its verdict {to_come} of {all} were to come, {bad} dead or in doubt of at most {most}",
            word(decided.as_str_name())
        ),
    }
}

fn named(counts: &RunCounts) -> [(&'static str, u32, Tone); 9] {
    [
        ("pending", counts.pending, Tone::Plain),
        ("claimed", counts.claimed, Tone::Plain),
        ("sent", counts.sent, Tone::Good),
        ("assumed", counts.assumed, Tone::Notable),
        ("dead", counts.dead, Tone::Bad),
        ("suppressed", counts.suppressed, Tone::Notable),
        ("expired", counts.expired, Tone::Bad),
        ("cancelled", counts.cancelled, Tone::Notable),
        ("in doubt", counts.in_doubt, Tone::Bad),
    ]
}

/// Returns the counts that are not zero, `sent` first.
fn words(counts: &RunCounts) -> String {
    let others = named(counts).into_iter().filter(|(name, count, _)| *count > 0 && *name != "sent");
    let others = others.map(|(name, count, _)| format!(", {name} {}", format::count(count.into())));
    format!("sent {}{}", format::count(counts.sent.into()), others.collect::<String>())
}

fn counts(run: &Run) -> RunCounts {
    run.counts.unwrap_or_default()
}

fn state(run: &Run) -> String {
    word(run.state().as_str_name())
}

fn tone(run: &Run) -> Tone {
    match run.state() {
        RunState::Open => Tone::Plain,
        RunState::Finished => Tone::Good,
        RunState::Paused => Tone::Notable,
        RunState::Cancelled | RunState::Expired | RunState::Unspecified => Tone::Bad,
    }
}

/// True if no recipient is pending or claimed.
pub fn is_finished(run: &Run) -> bool {
    let counts = counts(run);
    counts.pending == 0 && counts.claimed == 0
}

/// Returns the number of settled recipients, and of all.
pub fn progress(run: &Run) -> (u64, u64) {
    let counts = counts(run);
    let open = u64::from(counts.pending) + u64::from(counts.claimed);
    let all = u64::from(run.audience);
    (all.saturating_sub(open), all)
}

/// Returns one line of progress.
pub fn sentence(run: &Run) -> String {
    let (done, all) = progress(run);
    let waits = run.canary.as_ref().filter(|canary| canary.verdict() == CanaryVerdict::Undecided);
    let canary = waits.map(|canary| format!("; canary {}", canary_words(canary))).unwrap_or_default();
    let blocked = run.blocked.as_ref().map(|file| format!("; blocked: {}", missing_file(file))).unwrap_or_default();
    let (done, all, counts) = (format::count(done), format::count(all), words(&counts(run)));
    format!("{} {}: {done} of {all}, {counts}{canary}{blocked}", run.run, state(run))
}

/// Returns a message about recipients in doubt, which need a decision even after the run is finished.
pub fn left_in_doubt(run: &Run) -> Option<String> {
    let count = counts(run).in_doubt;
    let next = format!("reveille in-doubt list --run {}", run.run);
    (count > 0).then(|| format!("{}, {} in doubt: {next}", state(run), format::count(count.into())))
}

/// Returns what a cancellation would do.
pub fn would_cancel(run: &Run) -> String {
    let RunCounts { pending, claimed, in_doubt, .. } = counts(run);
    let recipients = format::counted(pending.into(), "recipient");
    let rest = match claimed + in_doubt {
        0 => String::new(),
        under_way => format!("; {} under way only if they turn out not to be sent", format::count(under_way.into())),
    };
    format!("{recipients} would be cancelled{rest}")
}

/// Returns the card of a run that was only checked and has no name.
fn would_open(run: &Run, paint: bool) -> String {
    let pairs = vec![
        ("schedule", format!("{} ({})", run.schedule, run.tenant).into()),
        ("run", Cell::toned("would open now", Tone::Notable)),
        ("finish by", Cell::at(run.finish_by_time.as_ref())),
        ("audience", format::count(run.audience.into()).into()),
    ];
    card(pairs, paint)
}

impl View for Run {
    const NAME: &'static str = "run";
    const NOUN: &'static str = "runs";
    const COLUMNS: &'static [&'static str] =
        &["RUN", "SCHEDULE", "OCCURRENCE", "CAUSE", "STATE", "AUDIENCE", "SENT", "DEAD", "IN DOUBT"];

    fn cells(&self) -> Vec<Cell> {
        let counts = counts(self);
        vec![
            self.run.as_str().into(),
            self.schedule.as_str().into(),
            self.occurrence.as_str().into(),
            word(self.cause().as_str_name()).into(),
            Cell::toned(state(self), tone(self)),
            format::count(self.audience.into()).into(),
            Cell::count(counts.sent.into(), Tone::Good),
            Cell::count(counts.dead.into(), Tone::Bad),
            Cell::count(counts.in_doubt.into(), Tone::Bad),
        ]
    }

    fn text(&self, paint: bool) -> String {
        if self.run.is_empty() {
            return would_open(self, paint);
        }
        let state = some(&why(self)).map_or_else(|| state(self), |reason| format!("{}: {reason}", state(self)));
        let occurrence = match self.cause() {
            // The occurrence of a trigger already names its cause.
            RunCause::Trigger => self.occurrence.clone(),
            cause => format!("{} ({})", self.occurrence, word(cause.as_str_name()).replace('_', " ")),
        };
        let finished = self.finished_index.map(|index| format!(", finished at {index}")).unwrap_or_default();
        let opened = match (text(self.open_time.as_ref()), some(&self.waited_for)) {
            (Some(at), Some(former)) => format!("{at}, waited for {former}").into(),
            (at, _) => Cell::or_dash(at.as_deref()),
        };
        let mut pairs = vec![
            ("run", Cell::from(self.run.as_str())),
            ("schedule", format!("{} ({})", self.schedule, self.tenant).into()),
            ("occurrence", occurrence.into()),
            ("state", Cell::toned(state, tone(self))),
            ("due", Cell::at(self.due_time.as_ref())),
            ("opened", opened),
            ("finish by", Cell::at(self.finish_by_time.as_ref())),
            ("log index", format!("opened at {}{finished}", self.opened_index).into()),
            ("audience", format::count(self.audience.into()).into()),
        ];
        let counts = named(&counts(self)).into_iter().filter(|(name, count, _)| *count > 0 || *name == "sent");
        pairs.extend(counts.map(|(name, count, tone)| (name, Cell::count(count.into(), tone))));
        pairs.extend(self.blocked.as_ref().map(|file| ("blocked", Cell::toned(missing_file(file), Tone::Bad))));
        pairs.extend(self.canary.as_ref().map(|canary| ("canary", canary_words(canary).into())));
        let more = [("known duplicates", self.known_duplicates, Tone::Bad), ("resent", self.resent, Tone::Notable)];
        let more = more.into_iter().filter(|(_, count, _)| *count > 0);
        pairs.extend(more.map(|(name, count, tone)| (name, Cell::count(count.into(), tone))));
        pairs.extend(self.archived_index.map(|index| {
            let what = format!("at log index {index}: outcomes of recipients are no longer kept");
            ("archived", Cell::toned(what, Tone::Notable))
        }));
        card(pairs, paint)
    }
}

/// Returns text such as `r12.0: 300 recipients cancelled, 14 claimed`.
fn cancelled_words(one: &CancelledRun) -> String {
    let cancelled = format::counted(one.cancelled.into(), "recipient");
    let claimed = match one.claimed {
        0 => String::new(),
        claimed => format!(", {} claimed and sent unless released", format::count(claimed.into())),
    };
    format!("{}: {cancelled} cancelled{claimed}", one.run)
}

/// The run that a trigger opened or would open, and the runs that it cancels.
impl View for TriggerScheduleResponse {
    fn name(&self) -> String {
        self.run.as_ref().map(View::name).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let verb = if self.name().is_empty() { "would cancel" } else { "cancelled" };
        let mut lines = vec![self.run.clone().unwrap_or_default().text(paint)];
        lines.extend(self.cancelled.iter().map(|one| format!("{verb} run {}", cancelled_words(one))));
        if self.cancelled_more > 0 {
            lines.push(format!("{verb} {} more", format::counted(self.cancelled_more.into(), "run")));
        }
        lines.join("\n")
    }
}
