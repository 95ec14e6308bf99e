//! Output of `schedule update`: the changed fields of the schedule, and its instants before and after.

use reveille_proto::admin::v1::{Instant, Schedule, UpdateScheduleResponse};
use serde_json::Value;

use super::instant::remarks;
use super::schedule::when_text;
use super::{Cell, Json, Tone, View, format, table, word};

/// Fields that follow from other fields or change with every answer; they are not listed as changes.
const FOLLOWING: [&str; 6] = ["nextInstants", "etag", "index", "state", "waitsFor", "readTime"];
/// Characters of a hash that are shown.
const HASH_SHOWN: usize = 12;

/// Adds a line for each field that differs. A nested field is named like `policies.catchUp`.
fn differences(lines: &mut Vec<String>, field: &str, from: &Value, to: &Value) {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let gone = from.keys().filter(|name| !to.contains_key(*name));
            for name in to.keys().chain(gone).filter(|name| !FOLLOWING.contains(&name.as_str())) {
                let (was, now) = (from.get(name).unwrap_or(&Value::Null), to.get(name).unwrap_or(&Value::Null));
                let inner = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
                differences(lines, &inner, was, now);
            }
        }
        (from, to) if from != to => {
            lines.push(format!("{}: {} → {}", flag(field), said(field, from), said(field, to)));
        }
        _ => {}
    }
}

/// Returns the name of a field's flag: `min-gap` for `policies.minGap`.
fn flag(field: &str) -> String {
    match field.strip_prefix("policies.").unwrap_or(field) {
        "audienceHash" => "recipients".to_owned(),
        "contentHash" => "content".to_owned(),
        labelled if labelled.starts_with("labels.") => labelled.to_owned(),
        field => field.chars().fold(String::new(), |mut flag, letter| {
            if letter.is_ascii_uppercase() {
                flag.push('-');
            }
            flag.push(letter.to_ascii_lowercase());
            flag
        }),
    }
}

/// Returns a value for the user: durations with units, hashes shortened, enumerations as words.
fn said(field: &str, value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) if field.ends_with("Hash") => text.chars().take(HASH_SHOWN).collect(),
        Value::String(text) if field.starts_with("policies.") => {
            let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse::<f64>().ok());
            seconds.map_or_else(|| word(text), |seconds| format::duration((seconds * 1_000.0) as i64))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns a schedule's JSON, with its pattern in the syntax of the flags.
fn for_comparison(schedule: &Option<Schedule>) -> Value {
    let schedule = schedule.clone().unwrap_or_default();
    let mut json = schedule.json();
    json["timing"] = schedule.timing.as_ref().map(when_text).unwrap_or_default().into();
    json
}

/// Returns the changes, one line each.
pub fn lines(answer: &UpdateScheduleResponse) -> Vec<String> {
    let mut lines = Vec::new();
    differences(&mut lines, "", &for_comparison(&answer.former), &for_comparison(&answer.schedule));
    if lines.is_empty() {
        return vec!["nothing changes: it is like that already".to_owned()];
    }
    if answer.opens_count > 0 {
        let due = format::counted(answer.opens_count.into(), "instant");
        lines.push(format!("{due} of the former timing, due by now, still opened as it was"));
    }
    if answer.explained_count > 0 {
        let missed = format::counted(answer.explained_count.into(), "missed instant");
        lines.push(format!("{missed} of the former timing did not open: see the history"));
    }
    lines
}

impl View for UpdateScheduleResponse {
    fn name(&self) -> String {
        self.schedule.as_ref().map(View::name).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let lines = lines(self).join("\n");
        let next = |schedule: &Option<Schedule>| schedule.clone().unwrap_or_default().next_instants;
        let (was, is) = (next(&self.former), next(&self.schedule));
        if was == is {
            return lines;
        }
        let local = |instants: &[Instant], place: usize, tone| {
            Cell::toned(instants.get(place).map_or("-", |one| one.local.as_str()), tone)
        };
        let row = |place: usize| {
            let remark = is.get(place).map(remarks).unwrap_or_default();
            vec![local(&was, place, Tone::Dim), local(&is, place, Tone::Good), Cell::toned(remark, Tone::Notable)]
        };
        let rows = (0..was.len().max(is.len())).map(row).collect();
        format!("{lines}\n\n{}", table(&["NEXT, OLD", "NEXT, NEW", "REMARK"], rows, paint))
    }
}
