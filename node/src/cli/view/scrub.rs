//! Output of `cluster scrub`.

use reveille_proto::admin::v1::{DamagedFile, FileDamage, FileRepair, MemberScrub};

use super::{Cell, Tone, View, format};

/// Returns what a damaged file means for its node, and what happens to it.
pub fn consequence(node: &str, file: &DamagedFile) -> String {
    match file.repair() {
        FileRepair::Snapshots => format!(
            "{node} may not be able to start before new snapshots have replaced it, within a minute: do not restart it"
        ),
        _ => format!("{node} fetches it from another node"),
    }
}

/// Returns what is wrong with a damaged file.
pub fn damage(file: &DamagedFile) -> String {
    match file.damage() {
        FileDamage::Missing => "it is missing".to_owned(),
        FileDamage::Unreadable => format!("it cannot be read: {}", file.error),
        FileDamage::Changed => "it is not what was written".to_owned(),
        FileDamage::Unspecified => "this version does not know how".to_owned(),
    }
}

/// Returns true if all files were checked, and none is damaged.
pub fn is_well(scrub: &MemberScrub) -> bool {
    !scrub.unreachable && !scrub.running && scrub.end_time.is_some() && scrub.damaged.is_empty()
}

/// Returns the damaged files.
pub fn remarks(scrub: &MemberScrub) -> Vec<String> {
    let damaged = |file: &DamagedFile| format!("{}: {} is damaged: {}", scrub.member, file.path, damage(file));
    let next = (!scrub.damaged.is_empty()).then(|| "next: reveille doctor, in a minute".to_owned());
    scrub.damaged.iter().map(damaged).chain(next).collect()
}

impl View for MemberScrub {
    const NAME: &'static str = "member";
    const NOUN: &'static str = "members";
    const COLUMNS: &'static [&'static str] = &["MEMBER", "FILES", "SIZE", "REPAIRED", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let state = match (self.unreachable, self.running, &self.end_time, self.damaged_count) {
            (true, ..) => Cell::toned("unreachable", Tone::Bad),
            (_, true, ..) => Cell::toned("running", Tone::Notable),
            (.., None, _) => Cell::toned("not checked", Tone::Notable),
            (.., 0) => Cell::toned("intact", Tone::Good),
            (.., damaged) => Cell::toned(format!("{} damaged", format::count(damaged)), Tone::Bad),
        };
        vec![
            self.member.as_str().into(),
            format::count(self.files).into(),
            indicatif::HumanBytes(self.bytes).to_string().into(),
            format::count(self.repaired).into(),
            state,
        ]
    }
}
