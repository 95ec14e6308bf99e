//! Which life of a node it was: what the ledger and the pages of a node tell is of some instant, and lives are known by
//! their beginnings.

use reveille_check::history::Life;

/// Every life of every node, those that go on among them.
#[derive(Clone, Debug, Default)]
pub struct Lives(Vec<Life>);

impl Lives {
    /// One more, in any order.
    pub fn add(&mut self, life: Life) {
        self.0.push(life);
    }

    /// All of them.
    pub fn all(&self) -> &[Life] {
        &self.0
    }

    /// The life that a node led at this instant, or had led last; none where nobody read which it was.
    pub fn at(&self, node: &str, at_ns: u64) -> Option<u64> {
        let began = self.0.iter().filter(|life| life.node == node && life.started_ns <= at_ns);
        began.max_by_key(|life| life.started_ns)?.incarnation
    }

    /// The life that went on from one instant to the other; none where another one may have answered meanwhile.
    pub fn during(&self, node: &str, from_ns: u64, to_ns: u64) -> Option<&Life> {
        let went_on = |life: &&Life| {
            life.node == node && life.started_ns <= from_ns && life.ended_ns.is_none_or(|ended| to_ns <= ended)
        };
        self.0.iter().find(went_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lives() -> Lives {
        let life = |incarnation, started_ns, ended_ns| Life {
            node: "n1".to_owned(),
            incarnation: Some(incarnation),
            started_ns,
            ended_ns,
            end: None,
        };
        let mut lives = Lives::default();
        lives.add(life(2, 200, None));
        lives.add(life(1, 0, Some(100)));
        lives
    }

    #[test]
    fn an_instant_is_of_the_life_that_began_last() {
        let lives = lives();
        assert_eq!([0, 99, 150, 200].map(|at| lives.at("n1", at)), [Some(1), Some(1), Some(1), Some(2)]);
        assert_eq!(lives.at("n2", 50), None);
    }

    #[test]
    fn an_answer_is_of_a_life_only_where_no_other_could_have_given_it() {
        let lives = lives();
        let of = |from, to| lives.during("n1", from, to).and_then(|life| life.incarnation);
        assert_eq!((of(10, 100), of(10, 101), of(150, 250), of(200, 250)), (Some(1), None, None, Some(2)));
    }
}
