//! Whose doing a doubt is. Each recipient in doubt is put down to one fault that can have brought it about, no fault to
//! more recipients than it leaves room for: an account by item, in which room that one node's kill leaves cannot hide
//! a doubt of another node's. Pure arithmetic; what a fault leaves room for stands in `doubt.rs`.

use std::collections::{BTreeMap, BTreeSet};

/// Items that the same faults can be blamed for, by the places of those faults.
pub type CandidateFaults = Vec<usize>;

/// How many items of each class nothing is left to be blamed for, when as many as possible are accounted for.
///
/// It is a flow from classes to faults, found by augmenting paths; there are as many classes as lives of nodes, and not
/// as many as recipients.
pub fn unexplained(classes: &[(CandidateFaults, u64)], capacities: &[u64]) -> Vec<u64> {
    let mut accounts = Accounts { classes, free: capacities.to_vec(), held: vec![BTreeMap::new(); capacities.len()] };
    let left = classes.iter().enumerate().map(|(class, (_, count))| {
        let mut left = *count;
        while left > 0 {
            match accounts.place(class, left, &mut BTreeSet::new()) {
                0 => break,
                placed => left -= placed,
            }
        }
        left
    });
    left.collect()
}

struct Accounts<'a> {
    classes: &'a [(CandidateFaults, u64)],
    free: Vec<u64>,
    /// Of each fault: how many of which class it is blamed for.
    held: Vec<BTreeMap<usize, u64>>,
}

impl Accounts<'_> {
    /// Finds room for up to `count` more of a class, if need be by blaming something else for others; answers for how
    /// many.
    fn place(&mut self, class: usize, count: u64, tried: &mut BTreeSet<usize>) -> u64 {
        let Some((candidates, _)) = self.classes.get(class) else { return 0 };
        for &fault in candidates {
            if !tried.insert(fault) {
                continue;
            }
            let placed = self.room_at(fault, count, tried);
            if placed > 0 {
                *self.held[fault].entry(class).or_default() += placed;
                return placed;
            }
        }
        0
    }

    /// Takes room at a fault: what is free, or else what others give up who find room elsewhere.
    fn room_at(&mut self, fault: usize, count: u64, tried: &mut BTreeSet<usize>) -> u64 {
        let free = self.free[fault].min(count);
        if free > 0 {
            self.free[fault] -= free;
            return free;
        }
        let others: Vec<(usize, u64)> = self.held[fault].iter().map(|(class, count)| (*class, *count)).collect();
        for (other, held) in others.into_iter().filter(|(_, held)| *held > 0) {
            let moved = self.place(other, held.min(count), tried);
            if moved > 0 {
                self.held[fault].entry(other).and_modify(|held| *held -= moved);
                return moved;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_cannot_be_used_is_no_room() {
        assert_eq!(unexplained(&[(vec![0], 3), (vec![1], 1)], &[2, 5]), [1, 0]);
        assert_eq!(unexplained(&[(vec![], 2)], &[9]), [2]);
    }

    #[test]
    fn item_with_another_suspect_makes_room() {
        // The first takes the first fault, which is the only one for the third; through the second it goes to the last.
        let classes = [(vec![0, 1], 2), (vec![1, 2], 3), (vec![0], 2)];
        assert_eq!(unexplained(&classes, &[2, 3, 2]), [0, 0, 0]);
        assert_eq!(unexplained(&classes, &[2, 3, 1]).iter().sum::<u64>(), 1);
    }
}
