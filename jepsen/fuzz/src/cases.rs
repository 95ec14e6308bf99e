//! Configuration of property tests: a failure prints the seed of its case, and the seed repeats it.

use std::any::Any;
use std::fmt::Debug;

use proptest::test_runner::{Config, FailurePersistence, PersistedSeed};

/// Name of the variable with a seed that a failure printed; that case runs first.
const SEED: &str = "REVEILLE_CASE";

/// Variable by which proptest lets a caller choose the number of cases.
const CASES: &str = "PROPTEST_CASES";

/// Returns a configuration with this number of random cases, or with the one that [`CASES`] gives.
pub fn cases(cases: u32) -> Config {
    let default = Config { failure_persistence: Some(Box::new(PrintedSeed)), ..Config::default() };
    if std::env::var_os(CASES).is_some() { default } else { Config { cases, ..default } }
}

#[derive(Clone, Copy, Debug)]
struct PrintedSeed;

impl FailurePersistence for PrintedSeed {
    fn load_persisted_failures2(&self, _: Option<&'static str>) -> Vec<PersistedSeed> {
        let Ok(seed) = std::env::var(SEED) else { return Vec::new() };
        vec![seed.parse().unwrap_or_else(|()| panic!("{SEED} holds no seed: {seed}"))]
    }

    #[allow(clippy::print_stderr)]
    fn save_persisted_failure2(&mut self, _: Option<&'static str>, seed: PersistedSeed, _: &dyn Debug) {
        eprintln!("to repeat this case: {SEED}='{seed}' cargo test");
    }

    fn box_clone(&self) -> Box<dyn FailurePersistence> {
        Box::new(*self)
    }

    fn eq(&self, other: &dyn FailurePersistence) -> bool {
        other.as_any().is::<PrintedSeed>()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
