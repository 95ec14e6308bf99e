//! Output of `restore …`.

use reveille_proto::admin::v1;

use super::View;
use super::fields::view;
use super::layout::{Cell, Tone, card, table};
use crate::format;

view! {
    /// A restore from a backup.
    pub struct RestoredView of v1::Restore as restore {
        backup_time: Option<String>,
        restore_time: Option<String>,
        /// Null until an operator accepts it.
        pub accept_time: Option<String>,
    }
}

view! {
    /// How a restored cluster stands.
    pub struct RestoreStatusView of v1::GetRestoreResponse as status {
        /// Null if the cluster was never restored.
        pub restore: Option<RestoredView>,
        /// Recipients in doubt about which only an operator decides.
        pub in_doubt: u64,
        active_schedules: u64,
        upcoming: Vec<UpcomingView>,
    }
}

view! {
    /// The next instant of a schedule.
    pub struct UpcomingView of v1::UpcomingInstant as instant {
        tenant: String,
        schedule: String,
        due: Option<String>,
    }
}

impl RestoredView {
    fn pairs(&self) -> Vec<(&'static str, Cell)> {
        let accepted = match &self.accept_time {
            Some(at) => at.as_str().into(),
            None => Cell::toned("no: nothing is sent", Tone::Bad),
        };
        vec![
            ("backup of", Cell::or_dash(self.backup_time.as_deref())),
            ("restored", Cell::or_dash(self.restore_time.as_deref())),
            ("accepted", accepted),
        ]
    }
}

impl View for RestoredView {
    fn name(&self) -> String {
        self.restore_time.clone().unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        card(self.pairs(), paint)
    }
}

impl View for RestoreStatusView {
    fn name(&self) -> String {
        self.restore.as_ref().map(View::name).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let Some(restore) = &self.restore else { return "this cluster was never restored from a backup".to_owned() };
        let mut pairs = restore.pairs();
        pairs.push(("in doubt", format::counted(self.in_doubt, "email").into()));
        pairs.push(("schedules", format!("{} active", format::count(self.active_schedules)).into()));
        let rows = self.upcoming.iter().map(|one| {
            vec![Cell::or_dash(one.due.as_deref()), one.tenant.as_str().into(), one.schedule.as_str().into()]
        });
        let rows: Vec<Vec<Cell>> = rows.collect();
        if rows.is_empty() {
            return card(pairs, paint);
        }
        format!("{}\n\n{}", card(pairs, paint), table(&["NEXT", "TENANT", "SCHEDULE"], rows, paint))
    }
}
