use proptest::prelude::*;

use super::*;

#[test]
fn shortest_form_depends_on_the_set_alone() {
    let some: Bitmap = [3, 9, 70].into_iter().collect();
    assert_eq!(some.to_bytes().len(), 1 + 6);
    assert_eq!(Bitmap::range(0, CHUNK).to_bytes().len(), 1 + 4);
    let every_second: Bitmap = (0..CHUNK).step_by(2).map(|slot| slot as u16).collect();
    assert_eq!(every_second.to_bytes().len(), 1 + 8192);
    assert_eq!(Bitmap::from_bytes(&[FORM_NUMBERS, 0, 9, 0, 3]), None, "unsorted numbers are refused");
    assert_eq!(Bitmap::from_bytes(&[FORM_WORDS, 1]), None, "a longer form is refused");
}

/// Returns the bytes as they are defined, computed slot by slot.
fn slowly(set: &Bitmap) -> Vec<u8> {
    let slots: Vec<u16> = (0..=u16::MAX).filter(|slot| set.contains(*slot)).collect();
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for slot in &slots {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *slot => *last = *slot,
            _ => runs.push((*slot, *slot)),
        }
    }
    let numbers = [vec![FORM_NUMBERS], slots.iter().flat_map(|slot| slot.to_be_bytes()).collect()].concat();
    let edges = runs.iter().flat_map(|(first, last)| [first.to_be_bytes(), last.to_be_bytes()].concat());
    let runs = [vec![FORM_RUNS], edges.collect()].concat();
    let mut words = vec![0; 1 + CHUNK as usize / 8];
    words[0] = FORM_WORDS;
    slots.iter().for_each(|slot| words[1 + usize::from(*slot / 8)] |= 1 << (slot % 8));
    // The shortest form; if several are equally short, the first.
    [numbers, runs, words].into_iter().min_by_key(Vec::len).expect("three forms")
}

/// Runs of one length with holes of one length, with or without run compression.
fn pieces() -> impl Strategy<Value = Bitmap> {
    (0..CHUNK, 0..=CHUNK, 1u16..30, 1u16..30, any::<bool>()).prop_map(|(from, length, run, hole, is_packed)| {
        let slots = Bitmap::range(from, length);
        let mut set = Bitmap::of_many(slots.iter().filter(|slot| slot % (run + hole) < run));
        if is_packed {
            set.optimize();
        }
        set
    })
}

proptest! {
    /// Runs of any length with any holes between them: all three forms, and the lengths at which the form changes.
    #[test]
    fn bytes_equal_those_of_slotwise_encoding(
        pairs in prop::collection::vec((1u32..200, 1u32..200), 0..40),
        step in 1u16..40,
        dense in any::<bool>(),
    ) {
        let mut set = Bitmap::new();
        let mut at = 0;
        for (hole, run) in pairs {
            set.add(&Bitmap::range(at + hole, run));
            at += hole + run;
        }
        if dense {
            let above = (at.min(CHUNK - 1) as u16..=u16::MAX).step_by(usize::from(step));
            set.add(&Bitmap::of_many(above));
        }
        prop_assert_eq!(set.to_bytes(), slowly(&set));
    }

    /// The result must not depend on the form in which each set is kept.
    #[test]
    fn sets_are_joined_and_taken_apart_as_slot_by_slot(a in pieces(), b in pieces()) {
        let slots = |wanted: &dyn Fn(u16) -> bool| (0..=u16::MAX).filter(|slot| wanted(*slot)).collect::<Vec<u16>>();
        let (mut both, mut left) = (a.clone(), a.clone());
        both.add(&b);
        left.remove(&b);
        prop_assert_eq!(both.iter().collect::<Vec<u16>>(), slots(&|slot| a.contains(slot) || b.contains(slot)));
        prop_assert_eq!(left.iter().collect::<Vec<u16>>(), slots(&|slot| a.contains(slot) && !b.contains(slot)));
        prop_assert_eq!(a.and_not(&b), left);
    }

    #[test]
    fn equal_sets_are_equal_bytes_whatever_their_history(slots in prop::collection::vec(any::<u16>(), 0..600), extra in any::<u16>(), span in 0u32..70_000) {
        let mut grown: Bitmap = slots.iter().copied().collect();
        grown.add(&Bitmap::range(u32::from(extra), span));
        let mut shrunk = Bitmap::range(0, CHUNK);
        shrunk.remove(&Bitmap::range(0, CHUNK).and_not(&grown));
        prop_assert_eq!(grown.to_bytes(), shrunk.to_bytes());
        prop_assert_eq!(Bitmap::of_many(grown.iter()), grown.clone());
        prop_assert_eq!(Bitmap::from_bytes(&grown.to_bytes()), Some(grown));
    }
}
