//! Crash points: named places where a test makes this process abort, to test the recovery from a crash at that place.
//!
//! Only a build with the feature `crash-points` has them; no release does. The environment variable `FAILPOINTS`
//! selects the point and the visit: `wal.after-append-before-fsync=2*off->return` aborts at the third visit (notation
//! of the crate `fail-parallel`). The last line on stderr names the point. Nothing is cleaned up, as after `kill -9`.

/// Returns all crash points, in the order in which an email reaches them.
pub fn points() -> impl Iterator<Item = &'static str> {
    include_str!("crash_points.txt").lines()
}

/// Does nothing: this build has no crash points.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn point(_name: &'static str) {}

/// Aborts if `FAILPOINTS` selects this point.
#[cfg(feature = "crash-points")]
pub fn point(name: &'static str) {
    use std::sync::{Arc, LazyLock};

    use fail_parallel::{FailPointRegistry, FailScenario, fail_point};

    static ASKED: LazyLock<Arc<FailPointRegistry>> = LazyLock::new(|| {
        let registry = Arc::new(FailPointRegistry::new());
        // Dropping the scenario would remove the points again.
        std::mem::forget(FailScenario::setup(Arc::clone(&registry)));
        registry
    });
    debug_assert!(points().any(|point| point == name), "{name} is not in the list of crash points");
    fail_point!(Arc::clone(&ASKED), name, |_| {
        eprintln!("crashed at the crash point {name}");
        std::process::abort();
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Adds to `names` all crash points that the files below a folder mention, except this file.
    fn named_below(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                named_below(&path, names);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("crash.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let calls = text.split("crash::point(\"").skip(1);
                names.extend(calls.filter_map(|call| call.split('"').next()).map(str::to_owned));
            }
        }
    }

    #[test]
    fn crash_point_list_equals_points_in_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut names = BTreeSet::new();
        for folder in ["raft/src", "cluster/src", "node/src"] {
            named_below(&root.join(folder), &mut names);
        }
        let listed: BTreeSet<String> = points().map(str::to_owned).collect();
        assert_eq!(listed.len(), points().count(), "a name stands there twice");
        assert_eq!(names, listed);
    }
}
