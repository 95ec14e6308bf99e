//! Tests of damaged parts: no damage may result in another recipient than was sealed.

use reveille_ledger::content::Seal;

use super::*;

fn generated_part(recipients: u32) -> (GeneratedAudience, Vec<u8>) {
    let generated = GeneratedAudience { seed: 42, recipients, columns: vec!["name".to_owned()] };
    let bytes = encode(&generated.list());
    (generated, bytes)
}

fn parts() -> (tempfile::TempDir, FileStore) {
    let folder = tempfile::tempdir().expect("a folder");
    let parts = FileStore::open(folder.path().join("parts")).expect("it opens");
    (folder, parts)
}

#[test]
fn generated_audience_is_the_same_in_every_build() {
    let (generated, bytes) = generated_part(600);
    // Recorded: an import that is repeated with another release must find its parts.
    assert_eq!(format!("{:?}", part::verify(&bytes).expect("a part")), RECORDED);
    let one = generated.recipient(17);
    assert_eq!(one.address, "r00000017.s42@audience.invalid");
    let parsed = reveille_ledger::address::Address::parse(&one.address).expect("an address");
    assert_eq!(parsed.key(), one.key);
}

const RECORDED: &str = "77b7e954";

#[test]
fn recipients_are_read_by_their_places() {
    let (_folder, parts) = parts();
    let (generated, bytes) = generated_part(600);
    let part = parts.put(&bytes).expect("it is kept");
    let positions = [0, 1, 255, 256, 511, 512, 599];
    let read = parts.read(part, &positions).expect("they are read");
    let expected: Vec<(u16, Recipient)> =
        positions.iter().map(|position| (*position, generated.recipient((*position).into()))).collect();
    assert_eq!(read, expected);
    assert!(matches!(parts.read(part, &[600]), Err(FileStoreError::Damaged { .. })), "no recipient is there");
    let key = generated.recipient(300).key;
    let keys = [key.clone(), "unknown@example.org".to_owned()].into();
    assert_eq!(parts.find(part, &keys), Ok(vec![(300, key)]));
    let missing = Hash::of(b"another part");
    let each = parts.read_each([(part, 599), (part, 300), (missing, 0)].into());
    assert_eq!(each[&(part, 300)], Ok(generated.recipient(300)));
    assert_eq!(each[&(part, 599)], Ok(generated.recipient(599)));
    assert_eq!(each[&(missing, 0)], Err(FileStoreError::Missing(missing)));
}

/// A full volume stops the node, since its log is on that volume too.
#[test]
fn marks_of_a_large_audience_leave_room_to_the_log() {
    let (_folder, mut parts) = parts();
    let part = parts.put(&generated_part(3).1).expect("kept");
    let seal = |rows: u32| Seal { name: "all".into(), columns: vec!["name".into()], rows, parts: vec![part] };
    assert_eq!(parts.check(&seal(3), |_| true), Ok(()), "few marks are in memory");
    // The system reports no free space for this volume.
    parts.folder = "/proc".into();
    let refused = parts.check(&seal(2_000_000), |_| true);
    assert!(matches!(&refused, Err(AudienceFault::Disk(why)) if why.contains("are free in /proc")), "{refused:?}");
}

#[test]
fn key_other_than_address_is_kept() {
    let (_folder, parts) = parts();
    let ann =
        Recipient { address: "Ann@Example.org".into(), key: "ann@example.org".into(), values: vec!["Ann".into()] };
    let part = parts.put(&encode(std::slice::from_ref(&ann))).expect("it is kept");
    assert_eq!(parts.read(part, &[0]), Ok(vec![(0, ann)]));
}

#[test]
fn absent_part_is_lacking_until_it_is_stored() {
    let (_folder, parts) = parts();
    let (_, bytes) = generated_part(3);
    let part = part::verify(&bytes).expect("a part");
    assert_eq!(parts.read(part, &[0]), Err(FileStoreError::Missing(part)));
    assert_eq!(parts.missing(), [part]);
    parts.put(&bytes).expect("it is kept");
    assert!(parts.missing().is_empty());
    assert!(parts.read(part, &[0]).is_ok());
}

#[test]
fn damaged_part_is_rewritten_and_unfinished_one_removed() {
    let (folder, parts) = parts();
    let (_, bytes) = generated_part(300);
    let part = parts.put(&bytes).expect("it is kept");
    let path = folder.path().join("parts").join(part.to_string());
    fs::write(&path, &bytes[..bytes.len() - 1]).expect("it is cut");
    assert!(parts.read(part, &[299]).is_err());
    assert_eq!(parts.missing(), [part]);
    parts.put(&bytes).expect("it is kept again");
    assert!(parts.read(part, &[299]).is_ok());
    let left = path.with_extension(UNFINISHED);
    fs::write(&left, b"half").expect("a file");
    drop(parts);
    let parts = FileStore::open(folder.path().join("parts")).expect("it opens again");
    assert!(!left.exists() && parts.has(part));
}

#[test]
fn part_under_wrong_name_is_damaged() {
    let (folder, parts) = parts();
    let (one, other) = (generated_part(3).1, generated_part(4).1);
    let name = parts.put(&one).expect("it is kept");
    fs::write(folder.path().join("parts").join(name.to_string()), &other).expect("it is replaced");
    assert!(matches!(parts.read(name, &[0]), Err(FileStoreError::Damaged { .. })));
}

#[test]
fn only_old_unneeded_parts_are_deleted() {
    let (_folder, parts) = parts();
    let (needed, other) =
        (parts.put(&generated_part(3).1).expect("kept"), parts.put(&generated_part(4).1).expect("kept"));
    let keep = [needed].into();
    let (hour, now) = (Duration::from_secs(3_600), SystemTime::now());
    assert_eq!(parts.remove_unneeded(&keep, hour, now).ok(), Some(0));
    assert_eq!(parts.remove_unneeded(&keep, hour, now + 2 * hour).ok(), Some(1));
    assert!(parts.has(needed) && !parts.has(other));
}

#[test]
fn part_stored_again_counts_as_new() {
    let (folder, parts) = parts();
    let bytes = generated_part(3).1;
    let part = parts.put(&bytes).expect("it is kept");
    let (hour, now) = (Duration::from_secs(3_600), SystemTime::now());
    let file = File::options().append(true).open(folder.path().join("parts").join(part.to_string()));
    file.and_then(|file| file.set_modified(now - 2 * hour)).expect("it is old");
    // It belonged to an audience that was removed, and is needed for another seal.
    parts.put(&bytes).expect("it is there");
    assert_eq!(parts.remove_unneeded(&BTreeSet::new(), hour, now).ok(), Some(0));
    assert!(parts.has(part));
}

mod fuzz {
    use proptest::prelude::*;
    use reveille_fuzz::{cases, damage, damaged};

    use super::*;

    proptest! {
        #![proptest_config(cases(200))]

        /// Whatever happens to the bytes, a reader gets the sealed recipients or an error.
        #[test]
        fn damaged_part_is_refused_and_makes_no_other_recipient(
            rows in 1_u32..700,
            damage in prop::collection::vec(damage(), 1..4),
        ) {
            let (folder, parts) = parts();
            let (generated, sealed) = generated_part(rows);
            let part = parts.put(&sealed).expect("it is kept");
            let bytes = damaged(&sealed, &damage);
            if bytes == sealed {
                return Ok(());
            }
            prop_assert!(part::verify(&bytes) != Ok(part), "taken over from a peer as it is");
            fs::write(folder.path().join("parts").join(part.to_string()), &bytes).expect("it is damaged");
            let fresh = FileStore::open(folder.path().join("parts")).expect("it opens");
            let mut faults = 0;
            for position in 0..rows as u16 {
                match fresh.read(part, &[position]) {
                    Ok(read) => prop_assert_eq!(read, vec![(position, generated.recipient(position.into()))]),
                    Err(_) => faults += 1,
                }
            }
            prop_assert!(faults > 0 || bytes.starts_with(&sealed), "no read saw it");
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), rows in 0_u32..70_000) {
            let _ = part::verify(&bytes);
            let _ = part::verify(&[b"rvlpart\x01".as_slice(), &rows.to_le_bytes(), &bytes].concat());
        }
    }
}

/// Returns a part with one block of these bytes, whose head claims `rows` recipients.
fn forged(rows: u32, block: &[u8]) -> Vec<u8> {
    let mut bytes = [b"rvlpart\x01".as_slice(), &rows.to_le_bytes()].concat();
    bytes.extend((block.len() as u32).to_le_bytes());
    bytes.extend(blake3::hash(block).as_bytes());
    bytes.extend(block);
    bytes
}

#[test]
fn block_length_is_checked_before_allocation() {
    let refused = |rows, block: Vec<u8>| part::verify(&forged(rows, &block)).expect_err("refused");
    let line = |values: usize| postcard::to_stdvec(&("a@x.org", None::<&str>, vec![""; values])).expect("bytes");
    let block = |rows: usize, lines: &[u8]| [postcard::to_stdvec(&rows).expect("bytes"), lines.to_vec()].concat();
    assert!(part::verify(&forged(1, &block(1, &line(64)))).is_ok(), "it is forged as parts are made");
    assert_eq!(refused(1, block(5_000_000, &[0; 8])), "block 0 has 5000000 recipients, not 1");
    assert_eq!(refused(1, block(1, &line(65))), "block 0 has a recipient with 65 values, more than 64");
    // A million values of one byte each would be 24 MB.
    assert_eq!(refused(1, block(1, &line(1 << 20))), "block 0 has a recipient with 1048576 values, more than 64");
    let more = [block(1, &line(1)), vec![0]].concat();
    assert_eq!(refused(1, more), "block 0 has something behind its last one");
    assert!(refused(2, block(2, &line(1))).starts_with("block 0 does not read: "));
}

#[test]
fn damaged_unneeded_part_is_deleted() {
    let (folder, parts) = parts();
    let (needed, other) =
        (parts.put(&generated_part(3).1).expect("kept"), parts.put(&generated_part(4).1).expect("kept"));
    for part in [needed, other] {
        fs::write(folder.path().join("parts").join(part.to_string()), b"damaged").expect("it is damaged");
        assert!(parts.read(part, &[0]).is_err());
    }
    parts.forget_unneeded_missing(&[needed].into()).expect("the state is kept");
    assert_eq!((parts.missing(), parts.has(needed), parts.has(other)), (vec![needed], true, false));
    assert_eq!(parts.renew(&[other], SystemTime::now()).ok(), Some(vec![other]), "so it is asked for again");
}

fn sent(addresses: &[&str]) -> Vec<Recipient> {
    let one = |address: &&str| Recipient {
        key: address.to_lowercase(),
        address: (*address).to_owned(),
        values: vec!["x".to_owned()],
    };
    addresses.iter().map(one).collect()
}

/// Stores a part as an upload does.
fn uploaded(parts: &FileStore, recipients: &[Recipient]) -> Result<Hash, String> {
    let bytes = encode(recipients);
    let part = name(&bytes).expect("a part");
    parts.store_upload(part, &bytes).map(|()| part).map_err(|error| error.to_string())
}

#[test]
fn each_recipient_of_part_is_checked() {
    let (_folder, parts) = parts();
    let good = sent(&["Ann@x.org", "bob@x.org"]);
    assert!(uploaded(&parts, &good).is_ok_and(|part| parts.has(part)));
    let with = |change: fn(&mut Recipient)| {
        let mut recipients = good.clone();
        change(&mut recipients[1]);
        uploaded(&parts, &recipients).expect_err("refused")
    };
    assert_eq!(with(|bob| bob.address = "bob".into()), "'bob' has no '@': an address is LOCAL@DOMAIN");
    assert_eq!(with(|bob| bob.address = " bob@x.org".into()), "\" bob@x.org\" has blanks around it");
    assert_eq!(with(|bob| bob.key = "rob@x.org".into()), "\"rob@x.org\" is not the key of \"bob@x.org\"");
    assert!(with(|bob| bob.address = "bob\n@x.org".into()).contains("a control character"));
    assert!(with(|bob| bob.values = vec!["a\0".into()]).starts_with("value 1 of bob@x.org holds the control"));
    assert!(with(|bob| bob.values = vec!["x".repeat(65_537)]).ends_with("is longer than 65536 bytes"));
    let bytes = encode(&good[..1]);
    let other = name(&encode(&good)).expect("a part");
    let refused = parts.store_upload(other, &bytes).expect_err("another part");
    assert_eq!(refused.to_string(), "these bytes are not the part that was announced");
}

#[test]
fn audience_matches_its_seal_without_duplicates() {
    let (_folder, parts) = parts();
    let seal = |recipients: &[Recipient], rows: u32, columns: &[&str]| Seal {
        name: "all".to_owned(),
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        rows,
        parts: vec![uploaded(&parts, recipients).expect("kept")],
    };
    let check = |seal: &Seal| parts.check(seal, |_| true).map_err(|unfit| unfit.to_string());
    let good = sent(&["ann@x.org", "bob@x.org", "cy@x.org"]);
    assert_eq!(check(&seal(&good, 3, &["name"])), Ok(()));
    assert_eq!(check(&seal(&good, 4, &["name"])), Err("part 1 has 3 recipients, not 4".into()));
    assert_eq!(check(&seal(&good, 3, &[])), Err("ann@x.org has 1 values for 0 columns".into()));
    let twice = sent(&["ann@x.org", "bob@x.org", "Ann@x.org"]);
    let refused = "recipients 0 and 2 are one by their address; leave one out";
    assert_eq!(check(&seal(&twice, 3, &["name"])), Err(refused.into()));
    assert_eq!(parts.check(&seal(&good, 3, &["name"]), |_| false), Err(AudienceFault::Left));
    let missing = Seal { parts: vec![Hash([7; 32])], ..seal(&good, 3, &["name"]) };
    assert!(matches!(parts.check(&missing, |_| true), Err(AudienceFault::Part(FileStoreError::Missing(_)))));
}

#[test]
fn repeated_address_in_two_parts_is_refused() {
    let (_folder, parts) = parts();
    let mut first = GeneratedAudience { seed: 1, recipients: 65_536, columns: vec!["name".to_owned()] }.list();
    let second = sent(&["last@x.org", "first@x.org"]);
    first[65_535] = sent(&["First@x.org"]).remove(0);
    let hashes = [first, second].map(|recipients| uploaded(&parts, &recipients).expect("kept"));
    let seal = Seal { name: "all".into(), columns: vec!["name".into()], rows: 65_538, parts: hashes.to_vec() };
    let refused = "recipients 65535 and 65537 are one by their address; leave one out";
    assert_eq!(parts.check(&seal, |_| true), Err(AudienceFault::Wrong(refused.to_owned())));
}

#[test]
fn uploaded_part_counts_as_new_and_unreadable_one_as_missing() {
    let (folder, parts) = parts();
    let (one, other) =
        (parts.put(&generated_part(3).1).expect("kept"), parts.put(&generated_part(300).1).expect("kept"));
    let (hour, later) = (Duration::from_secs(3_600), SystemTime::now() + Duration::from_secs(7_200));
    assert_eq!(parts.renew(&[one, Hash([7; 32])], later).expect("readable"), [Hash([7; 32])]);
    assert_eq!(parts.remove_unneeded(&BTreeSet::new(), hour, later).ok(), Some(1));
    assert!(parts.has(one) && !parts.has(other));
    assert_eq!(parts.remove_unneeded(&BTreeSet::new(), hour, later + hour).ok(), Some(1));

    let (_, bytes) = generated_part(300);
    let part = parts.put(&bytes).expect("kept");
    fs::write(folder.path().join("parts").join(part.to_string()), &bytes[..bytes.len() - 1]).expect("it is cut");
    assert!(parts.read(part, &[299]).is_err());
    assert_eq!(parts.renew(&[part], later).expect("readable"), [part]);
}

#[test]
fn lacking_list_names_parts_of_open_runs_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let parts = FileStore::open(folder.path().join("parts")).expect("a folder");
    let part = |number: u16| {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        Hash(bytes)
    };
    (0..3_000).map(part).for_each(|part| parts.mark_missing(part));
    assert_eq!(parts.missing().len(), 3_000);
    let named = parts.named_missing(&[part(2_999), part(9_999)].into());
    assert_eq!((named[0], named[1], named.len()), (part(2_999), part(0), NAMED_MAX - 1));
    parts.set_lost((0..2_998).map(part).collect());
    let named = parts.named_missing(&[part(2_999)].into());
    assert_eq!((named[1], named[2], named.len()), (part(2_998), part(0), NAMED_MAX - 1), "lost ones are the last");
    assert_eq!(
        parts.named_missing(&(1_000..3_000).map(part).collect()).len(),
        NAMED_MAX,
        "there are more of open runs"
    );
}
