//! Finds schedules and other objects by name. The error for an unknown name contains similar names.

use reveille_ledger::calendar::nearest_names;
use reveille_ledger::campaign::Campaign;
use reveille_ledger::ids::ScheduleId;
use reveille_ledger::template::Template;
use reveille_ledger::{Ledger, Schedule, SealedAudience, Table};

use crate::server::admin::paging::EXAMINED_MAX;
use crate::server::admin::{ApiError, ApiResult, error_texts};

/// Maximum number of names that are compared to find similar ones, because the distance to each is computed.
const NAMES_MAX: usize = 2_000;

/// Returns the schedule of this tenant and name.
pub fn schedule_named<'l>(ledger: &'l Ledger, tenant: &str, name: &str) -> ApiResult<(ScheduleId, &'l Schedule)> {
    ledger.schedule_named(tenant, name).ok_or_else(|| absent_schedule(ledger, tenant, name))
}

fn absent_schedule(ledger: &Ledger, tenant: &str, name: &str) -> ApiError {
    if ledger.campaigns().contains(&(tenant.to_owned(), name.to_owned())) {
        return error_texts::no_schedule_but_campaign(name);
    }
    let schedules = ledger.schedules().iter().take(NAMES_MAX).map(|(_, schedule)| schedule);
    let named = schedules.filter(|one| *one.settings.tenant == *tenant && !one.is_of_messages());
    let names = named.map(|schedule| schedule.name.to_string());
    error_texts::no_schedule(name).near(&near(name, names))
}

/// Returns the campaign of this tenant and name.
pub fn campaign_named<'l>(ledger: &'l Ledger, tenant: &str, name: &str) -> ApiResult<&'l Campaign> {
    named(ledger.campaigns(), (tenant, name), error_texts::no_campaign)
}

/// Returns the sealed audience of this tenant and name.
pub fn audience_named<'l>(ledger: &'l Ledger, tenant: &str, name: &str) -> ApiResult<&'l SealedAudience> {
    named(ledger.audiences(), (tenant, name), error_texts::no_audience)
}

/// Returns the template of this tenant and name.
pub fn template_named<'l>(ledger: &'l Ledger, tenant: &str, name: &str) -> ApiResult<&'l Template> {
    named(ledger.templates(), (tenant, name), |name| error_texts::no_template(name, None))
}

fn named<'l, V>(
    rows: &'l Table<(String, String), V>,
    (tenant, name): (&str, &str),
    absent: impl FnOnce(&str) -> ApiError,
) -> ApiResult<&'l V> {
    rows.get(&(tenant.to_owned(), name.to_owned())).ok_or_else(|| {
        let from = rows.range((tenant.to_owned(), String::new())..);
        let names = from.take_while(|((of, _), _)| of == tenant).map(|((_, name), _)| name.clone());
        absent(name).near(&near(name, names))
    })
}

/// Returns the names that are similar to this one.
pub fn near(name: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let names: Vec<String> = names.take(NAMES_MAX).collect();
    nearest_names(name, &names).into_iter().map(str::to_owned).collect()
}

/// Checks that a filter names an existing schedule, or a deleted one that has left runs.
pub fn check_schedule(ledger: &Ledger, tenant: &str, name: &str) -> ApiResult<()> {
    if name.is_empty() || ledger.schedule_named(tenant, name).is_some() {
        return Ok(());
    }
    // If there are more runs than one response reads, the schedule may have runs among them. Then it is accepted.
    let mut pages = ledger.pages().iter();
    let of_name = pages
        .by_ref()
        .take(EXAMINED_MAX)
        .any(|(_, page)| *page.tenant == *tenant && page.runs.iter().any(|run| *run.name == *name));
    let mut summaries = ledger.summaries().iter();
    let summarized = summaries.by_ref().take(EXAMINED_MAX).any(|(_, run)| *run.tenant == *tenant && *run.name == *name);
    // The archive has no index by name, so the schedule may have runs in it as well.
    let may_have_more = pages.next().is_some() || summaries.next().is_some() || !ledger.parts().is_empty();
    let has_left_runs = of_name || summarized || may_have_more;
    if has_left_runs { Ok(()) } else { Err(absent_schedule(ledger, tenant, name)) }
}
