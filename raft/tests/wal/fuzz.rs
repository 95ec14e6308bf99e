//! Fuzz target (`reveille-fuzz`): several changes at once of a segment's bytes.

use proptest::prelude::*;
use reveille_fuzz::{cases, damage, damaged};
use reveille_raft::wal::MemoryDisk;

use crate::support::*;

proptest! {
    #![proptest_config(cases(400))]

    /// What opens is a prefix of what was written. It is shorter only if that is reported, or if whole batches are
    /// missing at the end, as after a power cut between two batches.
    #[test]
    fn damaged_segment_is_refused_or_a_prefix(
        batches in prop::collection::vec((1_u64..4, 0_usize..1_500), 1..5),
        damage in prop::collection::vec(damage(), 1..4),
    ) {
        let disk = MemoryDisk::new();
        let (wal, _) = open(&disk, &inline());
        let mut index = 0;
        for (entries, length) in batches {
            let batch = (0..entries).map(|_| {
                index += 1;
                entry(1, index, length)
            });
            prop_assert_eq!(append(&wal, batch.collect()), WRITTEN);
        }
        let written = content(&wal).entries;
        let (name, image) = newest(&disk);
        let bytes = damaged(&image, &damage);
        let Ok((reopened, report)) = try_open(&with_file(&disk, &name, bytes.clone()), &inline()) else { return Ok(()) };
        let found = content(&reopened).entries;
        prop_assert!(written.starts_with(&found), "{} of {} entries", found.len(), written.len());
        let is_told = report.truncated_now.is_some() || image.starts_with(&bytes);
        prop_assert!(found.len() == written.len() || is_told, "{report:?}");
    }
}
