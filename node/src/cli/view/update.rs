//! Output of `schedule update`: the schedule, its changed fields, and its instants before and after.

use reveille_proto::admin::v1;
use serde::Serialize;
use serde_json::Value;

use super::View;
use super::instant::InstantView;
use super::layout::{Cell, Tone, table};
use super::schedule::ScheduleView;
use crate::format;

/// Fields that follow from other fields or change with every update; they are not listed as changes.
const FOLLOWING: [&str; 5] = ["next", "etag", "index", "state", "waits_for"];
/// Characters of a hash that are shown.
const HASH_SHOWN: usize = 12;

/// A schedule that was updated, or would be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UpdateView {
    /// The schedule after the update.
    #[serde(flatten)]
    schedule: ScheduleView,
    /// Changed fields; each policy is a field.
    changes: Vec<ChangeView>,
    /// Next instants before the update.
    former_next: Vec<InstantView>,
    /// Due instants of the former timing that still open.
    opens_count: u32,
    /// Missed instants of the former timing that are explained in the history instead.
    explained_count: u32,
}

/// One changed field.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ChangeView {
    field: String,
    from: Value,
    to: Value,
}

impl From<v1::UpdateScheduleResponse> for UpdateView {
    fn from(answer: v1::UpdateScheduleResponse) -> UpdateView {
        let former = answer.former.unwrap_or_default();
        let former_next = former.next.iter().cloned().map(InstantView::from).collect();
        let (former, schedule) = (ScheduleView::from(former), ScheduleView::from(answer.schedule.unwrap_or_default()));
        let mut changes = Vec::new();
        differences(&mut changes, "", &value(&former), &value(&schedule));
        changes.retain(|change| !FOLLOWING.contains(&change.field.as_str()));
        let (opens_count, explained_count) = (answer.opens_count, answer.explained_count);
        UpdateView { schedule, changes, former_next, opens_count, explained_count }
    }
}

fn value(schedule: &ScheduleView) -> Value {
    // Cannot fail: the value has only texts, numbers and lists of them.
    serde_json::to_value(schedule).unwrap_or_default()
}

/// Adds the fields that differ. A nested field is named like `policies.catch_up`.
fn differences(changes: &mut Vec<ChangeView>, within: &str, from: &Value, to: &Value) {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let gone = from.keys().filter(|name| !to.contains_key(*name));
            for name in to.keys().chain(gone) {
                let (was, now) = (from.get(name).unwrap_or(&Value::Null), to.get(name).unwrap_or(&Value::Null));
                let field = if within.is_empty() { name.clone() } else { format!("{within}.{name}") };
                differences(changes, &field, was, now);
            }
        }
        (from, to) if from != to => {
            changes.push(ChangeView { field: within.to_owned(), from: from.clone(), to: to.clone() });
        }
        _ => {}
    }
}

impl ChangeView {
    fn line(&self) -> String {
        format!("{}: {} → {}", self.flag(), self.said(&self.from), self.said(&self.to))
    }

    /// Returns the name of the field's flag: `min-gap` for `policies.min_gap_ms`.
    fn flag(&self) -> String {
        let field = self.field.strip_prefix("policies.").unwrap_or(&self.field);
        match field {
            "audience_hash" => "recipients".to_owned(),
            "content_hash" => "content".to_owned(),
            "zone" => "tz".to_owned(),
            field => field.strip_suffix("_ms").unwrap_or(field).replace('_', "-"),
        }
    }

    /// Returns a value for the user: durations with units, hashes shortened.
    fn said(&self, value: &Value) -> String {
        match value {
            Value::Null => "none".to_owned(),
            Value::String(text) if self.field.ends_with("_hash") => text.chars().take(HASH_SHOWN).collect(),
            Value::String(text) if text.is_empty() => "\"\"".to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(ms) if self.field.ends_with("_ms") => format::duration(ms.as_i64().unwrap_or_default()),
            other => other.to_string(),
        }
    }
}

impl UpdateView {
    /// Returns the changes, one line each.
    pub fn lines(&self) -> Vec<String> {
        if self.changes.is_empty() {
            return vec!["nothing changes: it is like that already".to_owned()];
        }
        let mut lines: Vec<String> = self.changes.iter().map(ChangeView::line).collect();
        if self.opens_count > 0 {
            let due = format::counted(self.opens_count.into(), "instant");
            lines.push(format!("{due} of the former timing, due by now, still opened as it was"));
        }
        if self.explained_count > 0 {
            let missed = format::counted(self.explained_count.into(), "missed instant");
            lines.push(format!("{missed} of the former timing did not open: see the history"));
        }
        lines
    }

    /// Returns the view after the update was made, with the schedule's present state.
    pub fn made(self, schedule: v1::Schedule) -> UpdateView {
        UpdateView { schedule: schedule.into(), ..self }
    }
}

impl View for UpdateView {
    fn name(&self) -> String {
        self.schedule.name()
    }

    fn text(&self, paint: bool) -> String {
        let lines = self.lines().join("\n");
        if self.former_next == self.schedule.next() {
            return lines;
        }
        let rows = self.former_next.len().max(self.schedule.next().len());
        let local = |instants: &[InstantView], place: usize, tone| {
            Cell::toned(instants.get(place).map_or("-", |one| one.local.as_str()), tone)
        };
        let row = |place: usize| {
            let remark = self.schedule.next().get(place).map(InstantView::remarks).unwrap_or_default();
            let (was, is) = (&self.former_next, self.schedule.next());
            vec![local(was, place, Tone::Dim), local(is, place, Tone::Good), Cell::toned(remark, Tone::Notable)]
        };
        let instants = table(&["NEXT, OLD", "NEXT, NEW", "REMARK"], (0..rows).map(row).collect(), paint);
        format!("{lines}\n\n{instants}")
    }
}
