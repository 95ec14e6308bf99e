//! Output of `cluster ca …`.

use reveille_proto::admin::v1;

use super::View;
use super::fields::view;
use super::layout::card;
use crate::cli::word::word;

const PREFIX: &str = "ROTATION_STEP_";

view! {
    /// The certificate authority of the cluster.
    pub struct AuthorityView of v1::Authority as authority {
        /// SHA-256 of the certificate of the one that every member trusts.
        pub fingerprint: String,
        /// That of the one that replaces it; null without a rotation.
        pub next_fingerprint: Option<String>,
        /// `adding` or `using`; null without a rotation.
        pub step: Option<String> = step(authority.step()),
        /// Members that are not there yet, one sentence each.
        pub waits_for: Vec<String>,
    }
}

fn step(step: v1::RotationStep) -> Option<String> {
    (step != v1::RotationStep::Unspecified).then(|| word(PREFIX, step.as_str_name()))
}

impl AuthorityView {
    /// Returns what the members do now.
    pub fn doing(&self) -> &'static str {
        match self.step.as_deref() {
            Some("adding") => "members trust the new authority too",
            Some("using") => "members use the new authority",
            _ => "members forget the former authority",
        }
    }

    /// Returns the members that are not there, and the next command.
    pub fn remarks(&self) -> Vec<String> {
        let next = self.step.as_ref().map(|_| "a rotation is under way; next: reveille cluster ca rotate".to_owned());
        self.waits_for.iter().cloned().chain(next).collect()
    }
}

impl View for AuthorityView {
    fn name(&self) -> String {
        self.fingerprint.clone()
    }

    fn text(&self, paint: bool) -> String {
        let mut lines = vec![("authority", self.fingerprint.as_str().into())];
        lines.extend(self.next_fingerprint.as_deref().map(|next| ("next", next.into())));
        lines.extend(self.step.as_deref().map(|step| ("step", step.into())));
        card(lines, paint)
    }
}
