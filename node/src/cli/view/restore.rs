//! Output of `restore …`.

use reveille_proto::admin::v1::{GetRestoreResponse, Restore};

use super::{Cell, Tone, View, card, format, table, text};

fn pairs(restore: &Restore) -> Vec<(&'static str, Cell)> {
    let accepted = match &restore.accept_time {
        Some(at) => Cell::at(Some(at)),
        None => Cell::toned("no: nothing is sent before reveille restore accept", Tone::Bad),
    };
    vec![
        ("backup of", Cell::at(restore.backup_time.as_ref())),
        ("restored", Cell::at(restore.restore_time.as_ref())),
        ("accepted", accepted),
    ]
}

impl View for Restore {
    fn name(&self) -> String {
        text(self.restore_time.as_ref()).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        card(pairs(self), paint)
    }
}

/// `restore` is missing if the cluster was never restored.
impl View for GetRestoreResponse {
    fn name(&self) -> String {
        self.restore.as_ref().map(View::name).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let Some(restore) = &self.restore else { return "this cluster was never restored from a backup".to_owned() };
        let mut pairs = pairs(restore);
        pairs.push(("in doubt", format::counted(self.in_doubt, "email").into()));
        pairs.push(("schedules", format!("{} active", format::count(self.active_schedules)).into()));
        let rows = self
            .upcoming
            .iter()
            .map(|one| vec![Cell::at(one.due_time.as_ref()), one.tenant.as_str().into(), one.schedule.as_str().into()]);
        let rows: Vec<Vec<Cell>> = rows.collect();
        if rows.is_empty() {
            return card(pairs, paint);
        }
        format!("{}\n\n{}", card(pairs, paint), table(&["NEXT", "TENANT", "SCHEDULE"], rows, paint))
    }
}
