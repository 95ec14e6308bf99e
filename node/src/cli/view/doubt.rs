//! Output of `in-doubt …`.

use reveille_proto::admin::v1::Doubt;

use super::{Cell, Tone, View, card};

impl View for Doubt {
    const NOUN: &'static str = "emails in doubt";
    const COLUMNS: &'static [&'static str] = &["RUN", "RECIPIENT", "#", "SINCE", "UNTIL", "NODE", "CAUSE"];

    fn name(&self) -> String {
        format!("{} {}", self.run, self.recipient)
    }

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.run.as_str().into(),
            self.recipient.as_str().into(),
            self.number.to_string().into(),
            Cell::at(self.doubt_time.as_ref()),
            Cell::at(self.leave_time.as_ref()),
            self.node.as_str().into(),
            Cell::toned(self.cause.as_str(), Tone::Notable),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let pairs = vec![
            ("run", self.run.as_str().into()),
            ("recipient", format!("{} #{}", self.recipient, self.number).into()),
            ("since", Cell::at(self.doubt_time.as_ref())),
            ("until", Cell::at(self.leave_time.as_ref())),
            ("claimed", Cell::at(self.claim_time.as_ref())),
            ("cause", Cell::toned(self.cause.as_str(), Tone::Notable)),
            ("node", self.node.as_str().into()),
            ("fence", self.fence.as_str().into()),
            ("evidence", self.evidence.as_str().into()),
            ("next", Cell::or_dash(self.next_step.as_str())),
        ];
        card(pairs, paint)
    }
}
