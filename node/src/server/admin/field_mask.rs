//! Field masks of a schedule: which fields an update changes.
//!
//! A path names a field of `ScheduleBody`, or of its `policies` or `content`. The named field is replaced by that of
//! the request; if it is absent there, it is cleared. `labels.KEY` is one label: everything after the first dot is its
//! key. `timing.daily.days` is one part of a pattern: the other parts stay if the kind of the pattern stays.

use prost::Message;
use prost_types::FieldMask;
use reveille_ledger::ids::Hash;
use reveille_ledger::labels::is_key;
use reveille_proto::admin::v1::when::Pattern;
use reveille_proto::admin::v1::{Daily, Every, ScheduleBody, When};

use super::validate::Fields;
use super::{ApiError, ApiResult};

/// The paths of a mask, sorted and without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    paths: Vec<String>,
}

/// The first line lists fields of the body; each further line lists the fields of one message.
macro_rules! fields {
    ($($name:ident),*; $($message:ident: $($part:ident),*;)*) => {
        /// All paths except labels and parts of a pattern.
        const PATHS: &[&str] = &[
            $(stringify!($name),)*
            $(stringify!($message), $(concat!(stringify!($message), ".", stringify!($part)),)*)*
        ];

        /// Moves the field that `path` names.
        fn take(path: &str, to: &mut ScheduleBody, from: &mut ScheduleBody) {
            match path {
                $(stringify!($name) => to.$name = std::mem::take(&mut from.$name),)*
                $(stringify!($message) => to.$message = std::mem::take(&mut from.$message),)*
                _ => match path.split_once('.') {
                    $(Some((stringify!($message), part)) => {
                        let from = from.$message.get_or_insert_default();
                        let to = to.$message.get_or_insert_default();
                        match part {
                            $(stringify!($part) => to.$part = std::mem::take(&mut from.$part),)*
                            _ => {}
                        }
                    })*
                    _ => {}
                },
            }
        }
    };
}
fields! {
    timing, zone, start_time, end_time, max_runs, pool, priority, template, audience, labels;
    policies: dst_gap, dst_overlap, catch_up, start_within, finish_by, in_doubt, max_attempts, retention,
        overlap, min_gap, jitter;
    content: sender, reply_to, cc, subject, text, html, headers, variables, bulk, attachments;
}

/// Prefix of a path that names one label.
const LABEL: &str = "labels.";
/// Paths that name a part of a pattern.
const TIMING: &[&str] = &[
    "timing.daily.hour",
    "timing.daily.minute",
    "timing.daily.days",
    "timing.every.period",
    "timing.every.anchor_time",
];

/// Takes one part of a pattern. A pattern of another kind is replaced by one that has only this part.
fn take_timing(path: &str, to: &mut ScheduleBody, from: &ScheduleBody) {
    let pattern = match path.strip_prefix("timing.daily.") {
        Some(part) => {
            let (mut daily, given) = (daily(to).unwrap_or_default(), daily(from).unwrap_or_default());
            match part {
                "hour" => daily.hour = given.hour,
                "minute" => daily.minute = given.minute,
                _ => daily.days = given.days,
            }
            Pattern::Daily(daily)
        }
        None => {
            let (mut every, given) = (every(to).unwrap_or_default(), every(from).unwrap_or_default());
            match path {
                "timing.every.period" => every.period = given.period,
                _ => every.anchor_time = given.anchor_time,
            }
            Pattern::Every(every)
        }
    };
    to.timing = Some(When { pattern: Some(pattern) });
}

fn daily(body: &ScheduleBody) -> Option<Daily> {
    match body.timing.as_ref()?.pattern.as_ref()? {
        Pattern::Daily(daily) => Some(daily.clone()),
        _ => None,
    }
}

fn every(body: &ScheduleBody) -> Option<Every> {
    match body.timing.as_ref()?.pattern.as_ref()? {
        Pattern::Every(every) => Some(*every),
        _ => None,
    }
}

impl Mask {
    /// Returns the mask that names all fields.
    pub fn of_all() -> FieldMask {
        let wholes = PATHS.iter().filter(|path| !path.contains('.'));
        FieldMask { paths: wholes.map(|path| (*path).to_owned()).collect() }
    }

    /// Reads the paths of a request. Refuses unknown paths, with the list of known ones.
    pub fn read(fields: &mut Fields, mask: Option<FieldMask>) -> Mask {
        let mut paths = mask.unwrap_or_default().paths;
        paths.sort();
        paths.dedup();
        // A path that names the whole field makes paths of its parts redundant.
        let wholes: Vec<String> = paths.iter().filter(|path| !path.contains('.')).cloned().collect();
        paths.retain(|path| path.split_once('.').is_none_or(|(whole, _)| !wholes.iter().any(|named| named == whole)));
        if paths.is_empty() {
            fields.refuse("update_mask", format!("names nothing; give some of {}", known()));
        }
        let names_of = |kind: &str| paths.iter().any(|path| path.starts_with(kind));
        if names_of("timing.daily.") && names_of("timing.every.") {
            fields.refuse(
                "update_mask",
                "names parts of two patterns; give those of `timing.daily` or of `timing.every`",
            );
        }
        let is_known = |path: &str| {
            PATHS.contains(&path) || TIMING.contains(&path) || path.strip_prefix(LABEL).is_some_and(is_key)
        };
        for path in paths.iter().filter(|path| !is_known(path)) {
            fields.refuse("update_mask", format!("{path:?} can not be changed; give some of {}", known()));
        }
        Mask { paths }
    }

    /// Returns true if it names this field or a part of it.
    pub fn names(&self, field: &str) -> bool {
        self.paths.iter().any(|path| path.split('.').next() == Some(field))
    }

    /// Returns true if it names this field as a whole.
    pub fn names_whole(&self, field: &str) -> bool {
        self.paths.iter().any(|path| path == field)
    }

    /// Checks that the pattern is complete after this mask is applied. One part alone cannot change the kind of the
    /// pattern.
    pub fn check_timing(&self, body: &ScheduleBody) -> ApiResult<()> {
        let names = |path: &str| self.paths.iter().any(|named| named == path);
        let names_of = |kind: &str| self.paths.iter().any(|path| path.starts_with(kind));
        if names_of("timing.daily.") && !names("timing.daily.hour") && daily(body).is_none() {
            let message = "the schedule is not daily: give the time of day too";
            return Err(ApiError::of_field("schedule.timing.daily", message));
        }
        if names_of("timing.every.") && !names("timing.every.period") && every(body).is_none() {
            let message = "the schedule has no period: give it too";
            return Err(ApiError::of_field("schedule.timing.every", message));
        }
        Ok(())
    }

    /// Replaces the named fields of `body` by those of `requested`.
    pub fn lay_over(&self, body: &mut ScheduleBody, mut requested: ScheduleBody) {
        for path in &self.paths {
            match path.strip_prefix(LABEL) {
                None if TIMING.contains(&path.as_str()) => take_timing(path, body, &requested),
                None => take(path, body, &mut requested),
                Some(key) => match requested.labels.remove(key) {
                    Some(value) => drop(body.labels.insert(key.to_owned(), value)),
                    None => drop(body.labels.remove(key)),
                },
            }
        }
    }

    /// Returns a hash of the change: the paths and the values that they name. Other fields of the request do not count.
    pub fn hash(&self, requested: &ScheduleBody) -> Hash {
        let mut taken =
            ScheduleBody { tenant: requested.tenant.clone(), name: requested.name.clone(), ..ScheduleBody::default() };
        self.lay_over(&mut taken, requested.clone());
        Hash::of([self.paths.join(",").as_bytes(), b"\0", &taken.encode_to_vec()].concat().as_slice())
    }
}

/// Returns all paths, for error messages.
fn known() -> String {
    format!("{}, {}, {LABEL}KEY", PATHS.join(", "), TIMING.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_proto::admin::v1;

    fn mask(paths: &[&str]) -> Mask {
        let mut fields = Fields::default();
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let mask = Mask::read(&mut fields, Some(FieldMask { paths }));
        fields.done(Some(mask)).expect("known paths")
    }

    fn body(priority: u32, subject: &str) -> ScheduleBody {
        let content = v1::Content { subject: subject.to_owned(), sender: "a@x.org".to_owned(), ..Default::default() };
        ScheduleBody { priority, content: Some(content), max_runs: Some(3), ..ScheduleBody::default() }
    }

    #[test]
    fn only_what_is_named_changes_and_what_is_absent_is_cleared() {
        let mut changed = body(1, "old");
        mask(&["content.subject", "max_runs"])
            .lay_over(&mut changed, ScheduleBody { max_runs: None, ..body(9, "new") });
        assert_eq!(changed, ScheduleBody { max_runs: None, ..body(1, "new") });
    }

    #[test]
    fn masked_labels_change_and_others_stay() {
        let labelled = |labels: &[(&str, &str)]| ScheduleBody {
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..ScheduleBody::default()
        };
        let mut changed = labelled(&[("team", "ops"), ("env", "dev"), ("a.b", "1")]);
        let requested = labelled(&[("env", "prod"), ("a.b", "2"), ("tier", "3")]);
        mask(&["labels.env", "labels.team", "labels.a.b"]).lay_over(&mut changed, requested.clone());
        assert_eq!(changed, labelled(&[("env", "prod"), ("a.b", "2")]));
        mask(&["labels", "labels.env"]).lay_over(&mut changed, requested.clone());
        assert_eq!(changed, requested, "a mask that names the whole replaces it");
    }

    #[test]
    fn equal_changes_are_known_whatever_else_the_request_holds() {
        let subject = mask(&["content.subject"]);
        assert_eq!(subject.hash(&body(1, "new")), subject.hash(&body(2, "new")));
        assert_ne!(subject.hash(&body(1, "new")), subject.hash(&body(1, "newer")));
        assert_ne!(subject.hash(&body(1, "new")), mask(&["content"]).hash(&body(1, "new")));
    }

    #[test]
    fn unknown_path_is_named_with_those_that_are_known() {
        let mut fields = Fields::default();
        Mask::read(&mut fields, Some(FieldMask { paths: vec!["name".to_owned(), "zone".to_owned()] }));
        let fault = fields.done(Some(())).expect_err("a name is for ever");
        assert!(format!("{fault:?}").contains("\"name\" can not be changed; give some of timing, zone"), "{fault:?}");
        let mut fields = Fields::default();
        Mask::read(&mut fields, Some(FieldMask { paths: vec!["labels.".to_owned()] }));
        assert!(fields.done(Some(())).is_err(), "no label is without a key");
    }
}
