//! The checks of `reveille doctor`: pure functions from the cluster's answers to findings.
//!
//! `commands::doctor` makes the requests and calls them. Scripts may rely on the checks' names, which the handbook's
//! table lists. Nothing here waits or repairs, and only [`folder`] reads anything itself.

pub mod cluster;
pub mod folder;
pub mod relay;
pub mod work;

/// Limit of names in one sentence.
const NAMED_MAX: usize = 5;

/// Joins the first names, and counts the rest.
fn named(names: &[&str]) -> String {
    let shown = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
