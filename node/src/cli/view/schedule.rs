//! Output of `schedule …`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use reveille_proto::admin::v1::{self, ScheduleState};
use serde::Serialize;

use super::fields::{Shown, view};
use super::instant::{InstantView, instants};
use super::layout::{Cell, Tone, card};
use super::{Row, View};
use crate::cli::failure::BadRow;
use crate::cli::instant::{duration_ms, from_wire, text};
use crate::cli::word::word;
use crate::format;

view! {
    /// A schedule.
    pub struct ScheduleView of v1::Schedule as schedule {
        tenant: String,
        name: String,
        number: u64,
        state: String = word("SCHEDULE_STATE_", schedule.state().as_str_name()),
        reason: Option<String>,
        when: String = schedule.when.as_ref().map(when_text).unwrap_or_default(),
        /// The cron expression in which `H` is resolved.
        hashed_cron: Option<String>,
        zone: String,
        start: Option<String>,
        end: Option<String>,
        max_runs: Option<u32>,
        next: Vec<InstantView>,
        /// The run that the next instant waits for; null if it does not wait.
        waits_for: Option<String>,
        /// True if a campaign created the schedule.
        of_campaign: bool,
        recipients: u32,
        content_hash: String,
        /// The version of a template that has the content; null if the content was given.
        template: Option<String>,
        audience_hash: String,
        policies: PoliciesView,
        pool: String,
        priority: u32,
        etag: String,
        index: u64,
        labels: BTreeMap<String, String>,
        /// The cluster's time when it answered.
        #[serde(skip)]
        now: Timestamp = schedule.now.as_ref().and_then(from_wire).unwrap_or_else(Timestamp::now),
        /// Set only in the answer to a creation or its check.
        #[serde(skip_serializing_if = "Option::is_none", flatten)]
        creation: Option<CreationView> = None,
    }
}

/// Result of a creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CreationView {
    /// False if the schedule existed with the same body, or was only checked.
    pub created: bool,
    /// Recipients that were left out as duplicates.
    pub duplicates: Vec<DuplicateView>,
    /// Rows that were left out.
    pub bad_rows: Vec<BadRow>,
}

/// A duplicate recipient. Numbers are lines of the file, or places on the command line, from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DuplicateView {
    /// Line of the recipient that is left out.
    pub line: u64,
    /// Line of the recipient that is kept.
    pub same_as: u64,
}

view! {
    struct PoliciesView of v1::Policies as policies {
        dst_gap: String = word("DST_GAP_", policies.dst_gap().as_str_name()),
        dst_overlap: String = word("DST_OVERLAP_", policies.dst_overlap().as_str_name()),
        catch_up: String = word("CATCH_UP_", policies.catch_up().as_str_name()),
        start_within_ms: i64 = policies.start_within.shown(),
        finish_by_ms: i64 = policies.finish_by.shown(),
        in_doubt: String = word("IN_DOUBT_", policies.in_doubt().as_str_name()),
        max_attempts: u32,
        retention_ms: i64 = policies.retention.shown(),
        overlap: String = word("OVERLAP_", policies.overlap().as_str_name()),
        min_gap_ms: i64 = policies.min_gap.shown(),
        jitter_ms: i64 = policies.jitter.shown(),
    }
}

view! {
    /// Result of a resume, or of its dry run.
    pub struct ResumeView of v1::ResumeScheduleResponse as resumed {
        /// The schedule that is resumed.
        #[serde(flatten)]
        pub schedule: ScheduleView,
        /// Missed instants that open, at most ten.
        pub opens: Vec<InstantView>,
        /// Number of missed instants that open.
        pub opens_count: u32,
        /// Number of missed instants that are explained in the history instead.
        pub explained_count: u32,
    }
}

/// A schedule that was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeletedView {
    /// Name of the schedule.
    pub name: String,
    /// Log index of the deletion.
    pub index: u64,
    /// Runs of the schedule that are still open.
    pub open_runs: Vec<String>,
    /// True if it would only be deleted.
    pub dry_run: bool,
}

impl ScheduleView {
    /// Adds the result of the creation.
    pub fn with_creation(self, creation: CreationView) -> ScheduleView {
        ScheduleView { creation: Some(creation), ..self }
    }

    /// Returns the schedule's name.
    pub fn own_name(&self) -> &str {
        &self.name
    }

    /// Returns the state in one word.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// Returns the next instants.
    pub fn next(&self) -> &[InstantView] {
        &self.next
    }

    fn labels_text(&self) -> String {
        let labels = self.labels.iter().map(|(key, value)| format!("{key}={value}"));
        labels.collect::<Vec<_>>().join(", ")
    }

    fn tone(&self) -> Tone {
        match ScheduleState::from_str_name(&crate::cli::word::name("SCHEDULE_STATE_", &self.state)) {
            Some(ScheduleState::Active) => Tone::Good,
            Some(ScheduleState::Paused) => Tone::Notable,
            Some(ScheduleState::Blocked) => Tone::Bad,
            _ => Tone::Dim,
        }
    }
}

/// Returns the pattern in the syntax of the flags.
fn when_text(when: &v1::When) -> String {
    use v1::when::Pattern;
    match &when.pattern {
        None => String::new(),
        Some(Pattern::Cron(expression)) => format!("cron {expression}"),
        Some(Pattern::Daily(v1::Daily { hour, minute, days })) => {
            let days = if days.is_empty() { "" } else { days.as_str() };
            format!("daily {hour:02}:{minute:02} {days}").trim_end().to_owned()
        }
        Some(Pattern::Every(every)) => {
            let period = format::duration(every.period.as_ref().map(duration_ms).unwrap_or_default());
            // The Unix epoch is the default anchor.
            match every.anchor.filter(|anchor| (anchor.seconds, anchor.nanos) != (0, 0)) {
                Some(anchor) => format!("every {period} from {}", text(Some(&anchor)).unwrap_or_default()),
                None => format!("every {period}"),
            }
        }
        Some(Pattern::At(instant)) => format!("at {}", text(Some(instant)).unwrap_or_default()),
    }
}

impl View for ScheduleView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        let policies = &self.policies;
        let dst = format!("gap {}, overlap {}", policies.dst_gap, policies.dst_overlap);
        let late = format!(
            "catch up {}, start within {}, finish by {}",
            policies.catch_up,
            format::duration(policies.start_within_ms),
            format::duration(policies.finish_by_ms)
        );
        let sending = format!("in doubt {}, {} attempts", policies.in_doubt, policies.max_attempts);
        let state = match (&self.reason, &self.waits_for) {
            (Some(reason), _) => format!("{}: {reason}", self.state),
            (None, Some(run)) => format!("{}, its next instant waits until {run} is finished", self.state),
            (None, None) => self.state.clone(),
        };
        let when = match &self.hashed_cron {
            Some(expression) => format!("{}, which is {expression}, in {}", self.when, self.zone),
            None => format!("{} in {}", self.when, self.zone),
        };
        let mut pairs = vec![
            ("name", Cell::from(self.name.as_str())),
            ("state", Cell::toned(state, self.tone())),
            ("when", when.into()),
            ("recipients", format::count(self.recipients.into()).into()),
            ("clocks", dst.into()),
            ("late", late.into()),
            ("overlap", policies.overlap.replace('_', " ").into()),
            ("sending", sending.into()),
            ("kept", format::duration(policies.retention_ms).into()),
            ("pool", self.pool.as_str().into()),
        ];
        if policies.jitter_ms > 0 {
            pairs.push(("jitter", format::duration(policies.jitter_ms).into()));
        }
        if policies.min_gap_ms > 0 {
            pairs.push(("min gap", format::duration(policies.min_gap_ms).into()));
        }
        if self.of_campaign {
            pairs.push(("campaign", format!("reveille campaign status {}", self.name).into()));
        }
        let bounds = [("start", &self.start), ("end", &self.end)];
        pairs.extend(bounds.into_iter().filter_map(|(name, at)| Some((name, at.as_deref()?.into()))));
        pairs.extend(self.max_runs.map(|most| ("runs at most", most.to_string().into())));
        if !self.labels.is_empty() {
            pairs.push(("labels", self.labels_text().into()));
        }
        if self.number > 0 {
            pairs.push(("number", format!("{}, last changed at log index {}", self.number, self.index).into()));
        }
        let card = card(pairs, paint);
        if self.next.is_empty() {
            return format!("{card}\n\nno instant is left");
        }
        let next = instants(&self.next, self.now, paint);
        match self.state.as_str() {
            "paused" => {
                format!("{card}\n\npaused: none of these opens before `reveille schedule resume {}`\n{next}", self.name)
            }
            _ => format!("{card}\n\n{next}"),
        }
    }
}

impl Row for ScheduleView {
    const NOUN: &'static str = "schedules";
    const COLUMNS: &'static [&'static str] = &["NAME", "STATE", "WHEN", "ZONE", "NEXT", "RECIPIENTS"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            Cell::toned(self.state.as_str(), self.tone()),
            self.when.as_str().into(),
            self.zone.as_str().into(),
            Cell::or_dash(self.next.first().map(|next| next.local.as_str())),
            format::count(self.recipients.into()).into(),
        ]
    }
}

/// A schedule with its labels in the table, for a list that was selected by labels.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct LabelledView(pub ScheduleView);

impl View for LabelledView {
    fn name(&self) -> String {
        self.0.name()
    }

    fn text(&self, paint: bool) -> String {
        self.0.text(paint)
    }
}

impl Row for LabelledView {
    const NOUN: &'static str = ScheduleView::NOUN;
    const COLUMNS: &'static [&'static str] = &["NAME", "STATE", "WHEN", "ZONE", "NEXT", "RECIPIENTS", "LABELS"];

    fn cells(&self) -> Vec<Cell> {
        let mut cells = self.0.cells();
        cells.push(self.0.labels_text().into());
        cells
    }
}

impl View for ResumeView {
    fn name(&self) -> String {
        self.schedule.name()
    }

    fn text(&self, paint: bool) -> String {
        self.schedule.text(paint)
    }
}

impl View for DeletedView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, _paint: bool) -> String {
        let open = if self.open_runs.is_empty() {
            String::new()
        } else {
            format!("; still open: {}", self.open_runs.join(", "))
        };
        match self.dry_run {
            true => format!("{} would be deleted{open}", self.name),
            false => format!("{} deleted, log index {}{open}", self.name, self.index),
        }
    }
}
