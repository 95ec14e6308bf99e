//! What `reveille doctor` knows of illness: pure functions from what the cluster says to findings.
//!
//! Called by `ask::doctor`, which asks. Each check has a name that scripts may rely on; the table of the
//! handbook has them all. Nothing here waits or repairs, and only [`folder`] looks at anything itself.

pub mod cluster;
pub mod folder;
pub mod relay;
pub mod work;

/// Names in one sentence.
const NAMED_MAX: usize = 5;

/// The first few of them.
fn named(names: &[&str]) -> String {
    let shown = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
