//! Finds the process of a node by an instant: the ledger and the pages name nodes and instants only.

use reveille_check::events::Lifetime;

/// The lifetimes of all processes, also of running ones.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes(Vec<Lifetime>);

impl Lifetimes {
    /// Adds one, in any order.
    pub fn add(&mut self, lifetime: Lifetime) {
        self.0.push(lifetime);
    }

    /// All of them.
    pub fn all(&self) -> &[Lifetime] {
        &self.0
    }

    /// The incarnation of the process that ran at this instant, or had run last; `None` if it is unknown.
    pub fn at(&self, node: &str, at_ns: u64) -> Option<u64> {
        let began = self.0.iter().filter(|lifetime| lifetime.node == node && lifetime.started_ns <= at_ns);
        began.max_by_key(|lifetime| lifetime.started_ns)?.incarnation
    }

    /// The process that ran from one instant to the other; `None` if another one may have answered meanwhile.
    pub fn during(&self, node: &str, from_ns: u64, to_ns: u64) -> Option<&Lifetime> {
        let ran = |lifetime: &&Lifetime| {
            lifetime.node == node
                && lifetime.started_ns <= from_ns
                && lifetime.ended_ns.is_none_or(|ended| to_ns <= ended)
        };
        self.0.iter().find(ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetimes() -> Lifetimes {
        let lifetime = |incarnation, started_ns, ended_ns| Lifetime {
            node: "n1".to_owned(),
            incarnation: Some(incarnation),
            started_ns,
            ended_ns,
            end: None,
        };
        let mut lifetimes = Lifetimes::default();
        lifetimes.add(lifetime(2, 200, None));
        lifetimes.add(lifetime(1, 0, Some(100)));
        lifetimes
    }

    #[test]
    fn instant_belongs_to_process_that_began_last() {
        let lifetimes = lifetimes();
        assert_eq!([0, 99, 150, 200].map(|at| lifetimes.at("n1", at)), [Some(1), Some(1), Some(1), Some(2)]);
        assert_eq!(lifetimes.at("n2", 50), None);
    }

    #[test]
    fn answer_belongs_to_process_that_ran_all_time() {
        let lifetimes = lifetimes();
        let incarnation = |from, to| lifetimes.during("n1", from, to).and_then(|lifetime| lifetime.incarnation);
        let found = [(10, 100), (10, 101), (150, 250), (200, 250)].map(|(from, to)| incarnation(from, to));
        assert_eq!(found, [Some(1), None, None, Some(2)]);
    }
}
