//! Labels as flags: `--label` gives them to a schedule or a campaign, `-l` selects by them.

use super::Args;
use reveille_ledger::labels::{Labels, WrongLabel};

/// Selects objects by their labels.
#[derive(Clone, Debug, Args)]
pub struct SelectorArgs {
    /// With these labels: team=ops,env!=dev,tier,!old (all of it has to hold)
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = parse_selector)]
    pub selector: Option<String>,
}

/// Change of one label by an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelChange {
    /// Key.
    pub key: String,
    /// New value. `None`: removes the label.
    pub value: Option<String>,
}

/// `KEY=VALUE`.
pub fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it is written KEY=VALUE")?;
    let label = (key.to_owned(), value.to_owned());
    checked(label)
}

/// `KEY=VALUE`, or `KEY-` to take it away.
pub fn parse_label_change(text: &str) -> Result<LabelChange, String> {
    match text.strip_suffix('-').filter(|_| !text.contains('=')) {
        Some(key) => checked((key.to_owned(), String::new())).map(|(key, _)| LabelChange { key, value: None }),
        None if !text.contains('=') => Err("it is written KEY=VALUE, or KEY- to take the label away".to_owned()),
        None => parse_label(text).map(|(key, value)| LabelChange { key, value: Some(value) }),
    }
}

fn checked(label: (String, String)) -> Result<(String, String), String> {
    match Labels::new([label.clone()].into()) {
        Ok(_) => Ok(label),
        Err(WrongLabel::TooMany(_)) => Err("one label at a time".to_owned()),
        Err(wrong) => Err(wrong.to_string()),
    }
}

/// An empty one would select all, and comes of a variable that is not set.
fn parse_selector(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty; leave it out to select all".to_owned()),
        selector => Ok(selector.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_given_or_taken_away() {
        let change =
            |key: &str, value: Option<&str>| Ok(LabelChange { key: key.to_owned(), value: value.map(str::to_owned) });
        assert_eq!(parse_label_change("team=ops"), change("team", Some("ops")));
        assert_eq!(parse_label_change("team="), change("team", Some("")));
        assert_eq!(parse_label_change("team-"), change("team", None));
        for text in ["team", "-", "=a", "team=ops-", "te am=a", "a=b=c", "a--"] {
            assert!(parse_label_change(text).is_err(), "{text}");
        }
        assert!(parse_label("team").is_err() && parse_label("team-").is_err());
        assert!(parse_selector(" ").is_err());
    }
}
