//! Output of `schedule …`.

use jiff::Timestamp;
use reveille_proto::admin::v1::{
    self, DeleteScheduleResponse, Instant, InstantRemarkKind, Policies, Schedule, ScheduleState,
};

use super::instant::instants;
use super::{Cell, Tone, View, card, duration_ms, format, some, text, word};
use crate::cli::instant::from_wire;
use crate::cli::wording;

fn labels(schedule: &Schedule) -> String {
    let labels = schedule.labels.iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(", ")
}

fn state(schedule: &Schedule) -> String {
    word(schedule.state().as_str_name())
}

fn tone(schedule: &Schedule) -> Tone {
    match schedule.state() {
        ScheduleState::Active => Tone::Good,
        ScheduleState::Paused => Tone::Notable,
        ScheduleState::Blocked => Tone::Bad,
        ScheduleState::Done | ScheduleState::Unspecified => Tone::Dim,
    }
}

/// Returns the pattern in the syntax of the flags.
pub fn when_text(when: &v1::When) -> String {
    use v1::when::Pattern;
    match &when.pattern {
        None => String::new(),
        Some(Pattern::Cron(expression)) => format!("cron {expression}"),
        Some(Pattern::Daily(v1::Daily { hour, minute, days })) => {
            format!("daily {hour:02}:{minute:02} {days}").trim_end().to_owned()
        }
        Some(Pattern::Every(every)) => {
            let period = format::duration(every.period.as_ref().map(duration_ms).unwrap_or_default());
            // The Unix epoch is the default anchor.
            match every.anchor_time.filter(|anchor| (anchor.seconds, anchor.nanos) != (0, 0)) {
                Some(anchor) => format!("every {period} from {}", text(Some(&anchor)).unwrap_or_default()),
                None => format!("every {period}"),
            }
        }
        Some(Pattern::At(instant)) => format!("at {}", text(Some(instant)).unwrap_or_default()),
    }
}

/// Adds the lines about policies to a card.
fn policies_pairs(policies: &Policies, pairs: &mut Vec<(&'static str, Cell)>) {
    let time = |duration: &Option<prost_types::Duration>| duration.as_ref().map(duration_ms).unwrap_or_default();
    let dst_gap = word(policies.dst_gap().as_str_name());
    let dst = format!("gap {dst_gap}, overlap {}", word(policies.dst_overlap().as_str_name()));
    let late = format!(
        "catch up {}, start within {}, finish by {}",
        word(policies.catch_up().as_str_name()),
        format::duration(time(&policies.start_within)),
        format::duration(time(&policies.finish_by))
    );
    let in_doubt = word(policies.in_doubt().as_str_name());
    pairs.extend([
        ("clocks", dst.into()),
        ("late", late.into()),
        ("overlap", word(policies.overlap().as_str_name()).replace('_', " ").into()),
        ("sending", format!("in doubt {in_doubt}, {} attempts", policies.max_attempts).into()),
        ("kept", format::duration(time(&policies.retention)).into()),
    ]);
    let set = [("jitter", time(&policies.jitter)), ("min gap", time(&policies.min_gap))];
    pairs.extend(set.into_iter().filter(|(_, ms)| *ms > 0).map(|(name, ms)| (name, format::duration(ms).into())));
}

/// Returns why a schedule is paused or blocked. Empty if it is not, or if there is no reason.
pub fn stopped(schedule: &Schedule) -> String {
    wording::stopped(schedule.pause.as_ref(), schedule.block.as_ref())
}

/// Returns true if a restore that is not accepted holds the instant.
fn is_held(instant: &Instant) -> bool {
    instant.remarks.iter().any(|remark| remark.kind() == InstantRemarkKind::RestoreNotAccepted)
}

fn next_text(next: &Instant) -> String {
    if is_held(next) { format!("{}, not before restore accept", next.local) } else { next.local.clone() }
}

impl View for Schedule {
    const NOUN: &'static str = "schedules";
    const COLUMNS: &'static [&'static str] = &["NAME", "STATE", "WHEN", "ZONE", "NEXT", "RECIPIENTS", "LABELS"];
    const OPTIONAL: &'static [&'static str] = &["LABELS"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            Cell::toned(state(self), tone(self)),
            self.timing.as_ref().map(when_text).unwrap_or_default().into(),
            self.zone.as_str().into(),
            Cell::or_dash(self.next_instants.first().map(next_text).as_deref()),
            format::count(self.recipients.into()).into(),
            Cell::or_dash(labels(self).as_str()),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let state = match (some(&stopped(self)), some(&self.waits_for)) {
            (Some(reason), _) => format!("{}: {reason}", state(self)),
            (None, Some(run)) => format!("{}, its next instant waits until {run} is finished", state(self)),
            (None, None) => state(self),
        };
        let when = self.timing.as_ref().map(when_text).unwrap_or_default();
        let when = match some(&self.hashed_cron) {
            Some(expression) => format!("{when}, which is {expression}, in {}", self.zone),
            None => format!("{when} in {}", self.zone),
        };
        let mut pairs = vec![
            ("name", Cell::from(self.name.as_str())),
            ("state", Cell::toned(state, tone(self))),
            ("when", when.into()),
            ("recipients", format::count(self.recipients.into()).into()),
        ];
        let content = [("sender", &self.sender), ("subject", &self.subject)];
        pairs.extend(content.into_iter().filter_map(|(name, text)| Some((name, some(text)?.into()))));
        policies_pairs(&self.policies.unwrap_or_default(), &mut pairs);
        pairs.push(("pool", self.pool.as_str().into()));
        let campaign = || ("campaign", format!("reveille campaign status {}", self.name).into());
        pairs.extend(self.of_campaign.then(campaign));
        let bounds = [("start", &self.start_time), ("end", &self.end_time)];
        pairs.extend(bounds.into_iter().filter_map(|(name, at)| Some((name, text(at.as_ref())?.into()))));
        pairs.extend(self.max_runs.map(|most| ("runs at most", most.to_string().into())));
        pairs.extend((!self.labels.is_empty()).then(|| ("labels", labels(self).into())));
        let number = || ("number", format!("{}, last changed at log index {}", self.number, self.index).into());
        pairs.extend((self.number > 0).then(number));
        let card = card(pairs, paint);
        if self.next_instants.is_empty() {
            return format!("{card}\n\nno instant is left");
        }
        // The cluster's time when it answered.
        let now = self.read_time.as_ref().and_then(from_wire).unwrap_or_else(Timestamp::now);
        let next = instants(&self.next_instants, now, paint);
        match self.state() {
            _ if self.next_instants.iter().any(is_held) => {
                format!("{card}\n\nrestored: nothing is sent before `reveille restore accept`\n{next}")
            }
            ScheduleState::Paused => {
                format!("{card}\n\npaused: none of these opens before `reveille schedule resume {}`\n{next}", self.name)
            }
            _ => format!("{card}\n\n{next}"),
        }
    }
}

/// Returns in words what a deletion did, or would do.
pub fn deleted(name: &str, answer: &DeleteScheduleResponse, dry_run: bool) -> String {
    let open = match answer.open_runs.as_slice() {
        [] => String::new(),
        runs => format!("; still open: {}", runs.join(", ")),
    };
    match dry_run {
        true => format!("{name} would be deleted{open}"),
        false => format!("{name} deleted, log index {}{open}", answer.index),
    }
}
