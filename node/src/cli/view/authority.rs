//! Output of `cluster ca …`.

use reveille_proto::admin::v1::{Authority, AuthorityWait, AuthorityWaitReason, RotationStep};

use super::{Cell, View, card, some, word};

/// Returns what the members do now.
pub fn doing(authority: &Authority) -> &'static str {
    match authority.step() {
        RotationStep::Adding => "members trust the new authority too",
        RotationStep::Using => "members use the new authority",
        RotationStep::Unspecified => "members forget the former authority",
    }
}

/// True while a rotation is under way.
pub fn is_rotating(authority: &Authority) -> bool {
    authority.step() != RotationStep::Unspecified
}

/// Says why a rotation waits for a member.
pub fn late(wait: &AuthorityWait) -> String {
    let why = match wait.reason() {
        AuthorityWaitReason::Silent => "does not answer",
        AuthorityWaitReason::TrustsFormer => "does not trust the new authority yet",
        AuthorityWaitReason::UsesFormer => "does not use the new authority yet",
        AuthorityWaitReason::KnowsOther => "has not forgotten another authority yet",
        AuthorityWaitReason::Unspecified => "is not ready",
    };
    format!("{} {why}", wait.member)
}

/// Returns the members that are not there, and the next command.
pub fn remarks(authority: &Authority) -> Vec<String> {
    let next = is_rotating(authority).then(|| "a rotation is under way; next: reveille cluster ca rotate".to_owned());
    authority.waits_for.iter().map(late).chain(next).collect()
}

impl View for Authority {
    const NAME: &'static str = "fingerprint";

    fn text(&self, paint: bool) -> String {
        let mut lines = vec![("authority", Cell::from(self.fingerprint.as_str()))];
        lines.extend(some(&self.next_fingerprint).map(|next| ("next", next.into())));
        lines.extend(is_rotating(self).then(|| ("step", word(self.step().as_str_name()).into())));
        card(lines, paint)
    }
}
