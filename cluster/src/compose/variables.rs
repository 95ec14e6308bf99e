//! Finds the variables that a content's templates use, before the recipients are known.

use std::collections::{BTreeSet, HashSet};

use minijinja::Environment;
use reveille_ledger::content::Content;

use super::BUILT_IN;

/// Returns the names of the variables that must come with the recipients: the templates use them, and the content does
/// not set them. A template that does not compile has none; compiling the content reports its error.
pub fn columns_used(content: &Content) -> Vec<String> {
    let mut used = BTreeSet::new();
    let parts = [Some(&content.subject), content.text.as_ref(), content.html.as_ref()].into_iter().flatten();
    for source in parts.chain(content.headers.iter().map(|(_, value)| value)) {
        used.extend(named_in(source));
    }
    used.retain(|name| built_in(name).is_none() && !content.variables.iter().any(|(known, _)| known == name));
    used.into_iter().collect()
}

/// Describes the value of a built-in variable. `None` for other names, which columns and variables may have.
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// Returns true if a template can use the name. A column whose name is not an identifier is useless for templates.
pub fn is_variable(name: &str) -> bool {
    let named = named_in(&format!("{{{{ {name} }}}}"));
    named.len() == 1 && named.contains(name)
}

fn named_in(source: &str) -> HashSet<String> {
    let environment = Environment::empty();
    let template = environment.template_from_str(source);
    template.map(|template| template.undeclared_variables(false)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_name_is_one_that_templates_can_use() {
        for name in ["name", "last_order", "Name2", "_x", "recipient"] {
            assert!(is_variable(name), "{name:?}");
        }
        for name in ["first name", "a-b", "2nd", "", "a|upper", "a }} {{ b", "a.b", " a", "{{ a }}"] {
            assert!(!is_variable(name), "{name:?}");
        }
    }
}
