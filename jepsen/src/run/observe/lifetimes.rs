//! Finds the process of a node by an instant: the ledger and the pages name nodes and instants only.

use reveille_check::history::Life;

/// The lifetimes of all processes, also of running ones.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes(Vec<Life>);

impl Lifetimes {
    /// Adds one, in any order.
    pub fn add(&mut self, life: Life) {
        self.0.push(life);
    }

    /// All of them.
    pub fn all(&self) -> &[Life] {
        &self.0
    }

    /// The incarnation of the process that ran at this instant, or had run last; `None` if it is unknown.
    pub fn at(&self, node: &str, at_ns: u64) -> Option<u64> {
        let began = self.0.iter().filter(|life| life.node == node && life.started_ns <= at_ns);
        began.max_by_key(|life| life.started_ns)?.incarnation
    }

    /// The process that ran from one instant to the other; `None` if another one may have answered meanwhile.
    pub fn during(&self, node: &str, from_ns: u64, to_ns: u64) -> Option<&Life> {
        let ran = |life: &&Life| {
            life.node == node && life.started_ns <= from_ns && life.ended_ns.is_none_or(|ended| to_ns <= ended)
        };
        self.0.iter().find(ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lives() -> Lifetimes {
        let life = |incarnation, started_ns, ended_ns| Life {
            node: "n1".to_owned(),
            incarnation: Some(incarnation),
            started_ns,
            ended_ns,
            end: None,
        };
        let mut lives = Lifetimes::default();
        lives.add(life(2, 200, None));
        lives.add(life(1, 0, Some(100)));
        lives
    }

    #[test]
    fn instant_belongs_to_process_that_began_last() {
        let lives = lives();
        assert_eq!([0, 99, 150, 200].map(|at| lives.at("n1", at)), [Some(1), Some(1), Some(1), Some(2)]);
        assert_eq!(lives.at("n2", 50), None);
    }

    #[test]
    fn answer_belongs_to_process_that_ran_all_time() {
        let lives = lives();
        let of = |from, to| lives.during("n1", from, to).and_then(|life| life.incarnation);
        assert_eq!((of(10, 100), of(10, 101), of(150, 250), of(200, 250)), (Some(1), None, None, Some(2)));
    }
}
