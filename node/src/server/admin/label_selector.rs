//! Selects schedules by their labels: `team=ops,env!=dev,tier,!old`.
//!
//! A selector is parsed once per request. It filters each schedule while a page is collected, so that the page is full.
//! All conditions must hold; there is no "or".

use reveille_ledger::labels::{LABELS_MAX, Labels, is_key, is_value};

use super::{ApiError, ApiResult};

/// Maximum number of conditions in one selector.
const CONDITIONS_MAX: usize = LABELS_MAX;
const FORM: &str = "write KEY=VALUE, KEY!=VALUE, KEY or !KEY, with commas between";

/// Conditions that must all hold. Without conditions it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Condition>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    key: String,
    wanted: Wanted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Equal(String),
    /// The label has another value, or does not exist.
    Unequal(String),
    There,
    Absent,
}

impl Selector {
    /// Parses the field `selector` of a request.
    pub fn parse(text: &str) -> ApiResult<Selector> {
        if text.trim().is_empty() {
            return Ok(Selector::default());
        }
        let conditions: Vec<Condition> = text.split(',').map(condition).collect::<Result<_, _>>()?;
        if conditions.len() > CONDITIONS_MAX {
            return wrong(format!("has {} conditions, more than {CONDITIONS_MAX}", conditions.len()));
        }
        Ok(Selector(conditions))
    }

    /// Returns true if all conditions hold. `None` counts as no labels.
    pub fn means(&self, labels: Option<&Labels>) -> bool {
        self.0.iter().all(|Condition { key, wanted }| {
            let value = labels.and_then(|labels| labels.get(key));
            match wanted {
                Wanted::Equal(wanted) => value == Some(wanted),
                Wanted::Unequal(unwanted) => value != Some(unwanted),
                Wanted::There => value.is_some(),
                Wanted::Absent => value.is_none(),
            }
        })
    }
}

fn wrong<T>(message: String) -> ApiResult<T> {
    Err(ApiError::of_field("selector", message))
}

fn condition(text: &str) -> ApiResult<Condition> {
    let text = text.trim();
    let (key, wanted) = match (text.split_once("!="), text.split_once('='), text.strip_prefix('!')) {
        (Some((key, value)), ..) => (key, Wanted::Unequal(value.trim().to_owned())),
        (None, Some((key, value)), _) => {
            let value = value.strip_prefix('=').unwrap_or(value);
            (key, Wanted::Equal(value.trim().to_owned()))
        }
        (None, None, Some(key)) => (key, Wanted::Absent),
        (None, None, None) => (text, Wanted::There),
    };
    let key = key.trim();
    if !is_key(key) {
        return wrong(format!("{text:?}: {key:?} is not the key of a label; {FORM}"));
    }
    if let Wanted::Equal(value) | Wanted::Unequal(value) = &wanted
        && !is_value(value)
    {
        return wrong(format!("{text:?}: {value:?} is not the value of a label; {FORM}"));
    }
    Ok(Condition { key: key.to_owned(), wanted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Labels::new(pairs).expect("labels")
    }

    #[test]
    fn all_conditions_have_to_hold() {
        let ops = labels(&[("team", "ops"), ("env", "prod"), ("tier", "")]);
        let bare = labels(&[]);
        #[rustfmt::skip]
        let table = [
            ("", true, true),
            ("team=ops", true, false),
            ("team==ops", true, false),
            ("team=op", false, false),
            ("team!=ops", false, true),
            ("env!=dev", true, true),
            ("tier", true, false),
            ("tier=", true, false),
            ("team=", false, false),
            ("!tier", false, true),
            ("!old", true, true),
            (" team = ops , env != dev , tier ", true, false),
            ("team=ops,!tier", false, false),
        ];
        for (text, of_ops, of_bare) in table {
            let selector = Selector::parse(text).expect(text);
            assert_eq!((selector.means(Some(&ops)), selector.means(Some(&bare))), (of_ops, of_bare), "{text}");
            assert_eq!(selector.means(None), of_bare, "{text}: a schedule that is gone has no labels");
        }
    }

    #[test]
    fn invalid_selector_is_refused_with_example() {
        for text in [",", "team=ops,", "=ops", "!", "!=a", "a b", "team=o p", "team in (a)", "!a=b", "a=b=c", "!!a"] {
            let fault = Selector::parse(text).expect_err(text).to_string();
            assert!(fault.starts_with("selector: ") && fault.contains("write KEY=VALUE"), "{text}: {fault}");
        }
        let many = vec!["a"; CONDITIONS_MAX + 1].join(",");
        assert_eq!(Selector::parse(&many).expect_err("many").to_string(), "selector: has 17 conditions, more than 16");
    }
}
