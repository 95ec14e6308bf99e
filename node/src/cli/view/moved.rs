//! Number of recipients that a decision moved: `in-doubt resolve`, `dead-letter requeue` and `discard`.

use reveille_proto::admin::v1::DoubtGroup;

use super::{Serialize, View, format};

/// Sum of the answers to a decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MovedView {
    /// The run as the user named it; null for dead letters of all runs.
    pub run: Option<String>,
    /// Participle of the decision: `resolved`, `requeued`, `discarded`.
    #[serde(skip)]
    pub verb: &'static str,
    /// Recipients that the decision moved, or would move in a dry run.
    pub moved: u64,
    /// Recipients left unchanged, because they got an email of another run less than the min gap away.
    pub inside_gap: u64,
    /// Log index of the decision's last entry; null if it made none.
    pub index: Option<u64>,
    /// True if the recipients were only counted.
    pub dry_run: bool,
    /// Emails in doubt by cause and node; only in a dry run of `in-doubt resolve`.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "crate::api_json::serialize_all")]
    pub groups: Vec<DoubtGroup>,
}

impl View for MovedView {
    const NAME: &'static str = "run";

    fn text(&self, _paint: bool) -> String {
        let counted = format::counted(self.moved, "recipient");
        match (self.dry_run, self.index) {
            (true, _) => format!("{counted} would be {}", self.verb),
            (false, Some(index)) => format!("{counted} {}, log index {index}", self.verb),
            (false, None) => format!("{counted} {}", self.verb),
        }
    }
}
