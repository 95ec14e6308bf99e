//! Finds the process of a node by an instant, because the pages name only nodes.

use reveille_check::events::Lifetime;

/// The lifetimes of all processes, including running processes.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes(Vec<Lifetime>);

impl Lifetimes {
    /// Adds a lifetime, in any order.
    pub fn add(&mut self, lifetime: Lifetime) {
        self.0.push(lifetime);
    }

    /// Returns all lifetimes.
    pub fn all(&self) -> &[Lifetime] {
        &self.0
    }

    /// Returns the process that ran from one instant to the other. `None`: another process may have answered meanwhile.
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
    fn answer_belongs_to_process_that_ran_all_time() {
        let lifetimes = lifetimes();
        let incarnation = |from, to| lifetimes.during("n1", from, to).and_then(|lifetime| lifetime.incarnation);
        let found = [(10, 100), (10, 101), (150, 250), (200, 250)].map(|(from, to)| incarnation(from, to));
        assert_eq!(found, [Some(1), None, None, Some(2)]);
    }
}
