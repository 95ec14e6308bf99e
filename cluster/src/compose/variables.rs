//! Which variables a content's templates name, before anybody knows who gets it.

use std::collections::BTreeSet;

use minijinja::Environment;
use reveille_ledger::content::Content;

use super::RECIPIENT;

/// Names of the variables that must come with the recipients: those that the templates use and the content does not
/// set. A template that does not compile names none; compiling the content says what is wrong with it.
pub fn columns_used(content: &Content) -> Vec<String> {
    let environment = Environment::empty();
    let mut used = BTreeSet::new();
    let parts = [Some(&content.subject), content.text.as_ref(), content.html.as_ref()].into_iter().flatten();
    for source in parts.chain(content.headers.iter().map(|(_, value)| value)) {
        if let Ok(template) = environment.template_from_str(source) {
            used.extend(template.undeclared_variables(false));
        }
    }
    used.retain(|name| name != RECIPIENT && !content.variables.iter().any(|(known, _)| known == name));
    used.into_iter().collect()
}
