//! Attributes recipients in doubt to faults. Each recipient is attributed to one fault that can have caused its doubt,
//! and each fault to at most as many recipients as its capacity (`doubt.rs`). So a kill of one node cannot explain a
//! recipient of another node.

use std::collections::{BTreeMap, BTreeSet};

/// The indices of the faults that can have caused the doubt of a class of items.
pub type CandidateFaults = Vec<usize>;

/// Returns the number of items of each class that stay unexplained when as many items as possible are attributed.
///
/// This is a maximum flow from classes to faults, found by augmenting paths. There are about as many classes as
/// processes, not as recipients.
pub fn unexplained(classes: &[(CandidateFaults, u64)], capacities: &[u64]) -> Vec<u64> {
    let mut attribution =
        Attribution { classes, free: capacities.to_vec(), held: vec![BTreeMap::new(); capacities.len()] };
    let left = classes.iter().enumerate().map(|(class, (_, count))| {
        let mut left = *count;
        while left > 0 {
            match attribution.attribute(class, left, &mut BTreeSet::new()) {
                0 => break,
                attributed => left -= attributed,
            }
        }
        left
    });
    left.collect()
}

struct Attribution<'a> {
    classes: &'a [(CandidateFaults, u64)],
    free: Vec<u64>,
    /// Number of items that are attributed to each fault, by class.
    held: Vec<BTreeMap<usize, u64>>,
}

impl Attribution<'_> {
    /// Attributes up to `count` more items of a class, if necessary by moving other items to other faults. Returns
    /// their number.
    fn attribute(&mut self, class: usize, count: u64, tried: &mut BTreeSet<usize>) -> u64 {
        let Some((candidates, _)) = self.classes.get(class) else { return 0 };
        for &fault in candidates {
            if !tried.insert(fault) {
                continue;
            }
            let attributed = self.take_capacity(fault, count, tried);
            if attributed > 0 {
                *self.held[fault].entry(class).or_default() += attributed;
                return attributed;
            }
        }
        0
    }

    /// Takes capacity of a fault: free capacity, or capacity of items that can be attributed to another fault.
    fn take_capacity(&mut self, fault: usize, count: u64, tried: &mut BTreeSet<usize>) -> u64 {
        let free = self.free[fault].min(count);
        if free > 0 {
            self.free[fault] -= free;
            return free;
        }
        let others: Vec<(usize, u64)> = self.held[fault].iter().map(|(class, count)| (*class, *count)).collect();
        for (other, held) in others.into_iter().filter(|(_, held)| *held > 0) {
            let moved = self.attribute(other, held.min(count), tried);
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
    fn capacity_of_other_faults_explains_nothing() {
        assert_eq!(unexplained(&[(vec![0], 3), (vec![1], 1)], &[2, 5]), [1, 0]);
        assert_eq!(unexplained(&[(vec![], 2)], &[9]), [2]);
    }

    #[test]
    fn item_with_another_candidate_fault_is_moved() {
        // The first class takes the first fault, which is the only fault for the third class. So its items must move to
        // the second fault.
        let classes = [(vec![0, 1], 2), (vec![1, 2], 3), (vec![0], 2)];
        assert_eq!(unexplained(&classes, &[2, 3, 2]), [0, 0, 0]);
        assert_eq!(unexplained(&classes, &[2, 3, 1]).iter().sum::<u64>(), 1);
    }
}
