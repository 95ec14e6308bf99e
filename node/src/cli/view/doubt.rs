//! Output of `in-doubt …`.

use reveille_proto::admin::v1::{Doubt, DoubtCause};

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
            Cell::toned(cause(self.cause()), Tone::Notable),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let pairs = vec![
            ("run", self.run.as_str().into()),
            ("recipient", format!("{} #{}", self.recipient, self.number).into()),
            ("since", Cell::at(self.doubt_time.as_ref())),
            ("until", Cell::at(self.leave_time.as_ref())),
            ("claimed", Cell::at(self.claim_time.as_ref())),
            ("cause", Cell::toned(cause(self.cause()), Tone::Notable)),
            ("node", self.node.as_str().into()),
            ("fence", self.fence.as_str().into()),
            ("evidence", evidence(self).into()),
            ("next", next_step(self).into()),
        ];
        card(pairs, paint)
    }
}

/// Returns why the outcome is unknown, in a few words.
pub fn cause(cause: DoubtCause) -> &'static str {
    match cause {
        DoubtCause::NoAnswer => "no answer after the final dot",
        DoubtCause::OwnerLost => "owner lost",
        DoubtCause::Begun => "handed off, no answer in the journal",
        DoubtCause::NoJournal => "owner came back without its journal",
        DoubtCause::Restored => "restored from a backup",
        DoubtCause::Unspecified => "a cause that this version does not know",
    }
}

/// Returns what is known about the handoff, and what to look for in the log of the relay.
fn evidence(doubt: &Doubt) -> String {
    let Doubt { node, incarnation, message_id, fence, .. } = doubt;
    let known = match (doubt.cause(), doubt.node_returned) {
        (DoubtCause::NoAnswer, _) => format!("{node} handed it off and heard no answer, so only the relay can tell"),
        (DoubtCause::OwnerLost, false) => {
            format!("the lease of {node} is over and nothing came from it since: it may have been handed off or not")
        }
        (DoubtCause::OwnerLost, true) => {
            format!(
                "{node} is back, and what its journal of incarnation {incarnation} tells of this is not settled yet"
            )
        }
        (DoubtCause::Begun, _) => format!(
            "{node} came back with the journal of its incarnation {incarnation}: the handoff had begun and no answer is \
             written, so only the relay can tell"
        ),
        (DoubtCause::NoJournal, _) => format!(
            "{node} came back without a journal that proves anything of its incarnation {incarnation}: it may have been \
             handed off or not, so only the relay can tell"
        ),
        (DoubtCause::Restored, _) => {
            "the former cluster may have sent it after the backup, so only the relay can tell".to_owned()
        }
        (DoubtCause::Unspecified, _) => "only the relay can tell".to_owned(),
    };
    let search_term = match message_id.as_str() {
        "" => format!("X-Reveille-Fence {fence}"),
        id => format!("Message-ID <{id}>"),
    };
    format!("{known}; look for {search_term} in the relay's log")
}

/// Returns what to do next: let the node settle it if it can, or decide by the log of the relay.
fn next_step(doubt: &Doubt) -> String {
    let Doubt { node, incarnation, run, number, .. } = doubt;
    let resolve = format!(
        "if that log shows it accepted: reveille in-doubt resolve {run} '#{number}' --sent; if it does not: --resend"
    );
    match (doubt.cause(), doubt.node_returned) {
        (DoubtCause::OwnerLost, false) => format!(
            "start {node} again, with its data folder and its journal folder; if it runs, let it reach the others: it \
             settles this by its journal of incarnation {incarnation}. If it is gone for good, the relay's log tells: \
             {resolve}"
        ),
        (DoubtCause::OwnerLost, true) => format!("wait: {node} settles it when it reaches the leader"),
        _ => resolve,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handbook_has_a_line_for_each_cause() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/doubt-and-dead-letters.md");
        let page = std::fs::read_to_string(page).expect("the handbook");
        let table = page.split("| cause in `in-doubt list` |").nth(1).expect("a table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
        let documented: Vec<&str> = rows.filter_map(|row| row.split(" | ").next()?.strip_prefix("| ")).collect();
        let causes = (1..).map_while(|number| DoubtCause::try_from(number).ok());
        assert_eq!(documented, causes.map(cause).collect::<Vec<_>>());
    }

    #[test]
    fn evidence_names_what_to_look_for_and_the_step_names_the_command() {
        let doubt = Doubt {
            cause: DoubtCause::NoAnswer.into(),
            node: "a".into(),
            run: "r7.0".into(),
            number: 3,
            message_id: "1@example.org".into(),
            ..Doubt::default()
        };
        let evidence = evidence(&doubt);
        assert!(evidence.starts_with("a handed it off and heard no answer"), "{evidence}");
        assert!(evidence.ends_with("look for Message-ID <1@example.org> in the relay's log"), "{evidence}");
        assert!(next_step(&doubt).contains("reveille in-doubt resolve r7.0 '#3' --sent"), "{}", next_step(&doubt));
        let lost = Doubt { cause: DoubtCause::OwnerLost.into(), ..doubt };
        assert!(next_step(&lost).starts_with("start a again"), "{}", next_step(&lost));
        let returned = Doubt { node_returned: true, ..lost };
        assert!(next_step(&returned).starts_with("wait: a settles it"), "{}", next_step(&returned));
    }
}
