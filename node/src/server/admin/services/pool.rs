//! Pools: set, list, show, remove (P25).

use std::collections::BTreeSet;

use reveille_ledger::command::{Command, Removal};
use reveille_ledger::pool::Day;
use reveille_ledger::{Ledger, RecipientState, RunState};
use reveille_proto::admin::v1::{
    GetPoolRequest, GetPoolResponse, ListPoolsRequest, ListPoolsResponse, Pool, RemovePoolRequest, RemovePoolResponse,
    SetPoolRequest, SetPoolResponse, Warning, WarningReason,
};

use crate::server::admin::lookup::near;
use crate::server::admin::paging::Paging;
use crate::server::admin::validate::{Fields, NAME_MAX};
use crate::server::admin::{Admin, ApiResult, Call, error_texts, validate, views};

/// Returns the names of pools that have relays or settings.
fn names(ledger: &Ledger) -> BTreeSet<String> {
    let of_relays = ledger.relays().iter().map(|(_, relay)| relay.pool.clone());
    let set = ledger.pools().iter().filter(|(_, row)| !row.is_default());
    of_relays.chain(set.map(|(pool, _)| pool.clone())).collect()
}

fn shown(ledger: &Ledger, name: String) -> Pool {
    let now = ledger.head().now;
    let today = Day::of(now);
    let relays = ledger.relays().iter().map(|(_, relay)| relay).filter(|relay| relay.pool == name);
    let row = ledger.pools().get(&name).filter(|row| !row.is_default());
    let warm_up = row.filter(|row| !row.caps.is_empty());
    Pool {
        relays: relays.map(|relay| relay.name.clone()).collect(),
        warm_up: warm_up.map(|warm_up| warm_up.caps.clone()).unwrap_or_default(),
        first_day: warm_up.map(|warm_up| validate::day::text(warm_up.first)).unwrap_or_default(),
        cap_today: warm_up.and_then(|warm_up| warm_up.cap(today)),
        used_today: warm_up.map_or(0, |warm_up| warm_up.spent(today).saturating_add(ledger.claimed_by_pool(&name))),
        waiting: waiting(ledger, &name),
        day_end_time: Some(views::timestamp(today.end())),
        index: row.map_or(0, |row| row.index),
        etag: ledger.pool_etag(&name),
        reveille_headers: row.is_none_or(|row| row.reveille_headers),
        name,
    }
}

/// Returns the number of pending recipients in open runs, by the pool of their page.
fn waiting(ledger: &Ledger, pool: &str) -> u64 {
    let pages = ledger.open_pages().map(|(_, page)| page).filter(|page| *page.pool == *pool);
    let runs = pages.flat_map(|page| &page.runs).filter(|run| run.state == RunState::Open);
    runs.map(|run| u64::from(run.counts.get(RecipientState::Pending))).sum()
}

/// Returns the pools whose cap for today is used up while emails wait.
pub fn used_up(ledger: &Ledger) -> Vec<Pool> {
    let full = |pool: &&String| ledger.remaining_today(pool, ledger.head().now) == Some(0);
    let full = ledger.pools().iter().map(|(pool, _)| pool).filter(full);
    full.map(|pool| shown(ledger, pool.clone())).filter(|pool| pool.waiting > 0).collect()
}

/// Checks the name of a pool.
fn named(text: &str) -> ApiResult<String> {
    let mut fields = Fields::default();
    let name = fields.name("name", text, NAME_MAX);
    fields.done(Some(name))
}

serve! {
    pool_service_server::PoolService {
        cluster set_pool(SetPoolRequest, request_id) -> SetPoolResponse;
        cluster list_pools(ListPoolsRequest) -> ListPoolsResponse;
        cluster get_pool(GetPoolRequest) -> GetPoolResponse;
        cluster remove_pool(RemovePoolRequest) -> RemovePoolResponse;
    }
}

impl Admin {
    async fn set_pool(&self, request: SetPoolRequest, call: &Call) -> ApiResult<SetPoolResponse> {
        let validate_only = request.validate_only;
        let set = validate::pool(request, self.limits())?;
        let name = set.pool.clone();
        self.write_unless(validate_only, Command::PoolSet(set), call).await?;
        let (pool, warnings) = self.context.replica.read(|ledger| {
            let has_relay = ledger.relays().iter().any(|(_, relay)| relay.pool == name);
            let reason = WarningReason::PoolUnused.into();
            let unused = Warning { reason, pool: name.clone(), ..Warning::default() };
            (shown(ledger, name), (!has_relay).then_some(unused).into_iter().collect())
        });
        Ok(SetPoolResponse { pool: Some(pool), warnings })
    }

    async fn list_pools(&self, request: ListPoolsRequest, call: &Call) -> ApiResult<ListPoolsResponse> {
        let paging: Paging<String> = Paging::new("pools", request.page_size, &request.page_token)?;
        let query = self.read(request.stale, call, |ledger| {
            let behind = |name: &String| paging.after.as_ref().is_none_or(|after| name > after);
            let names = names(ledger).into_iter().filter(behind).take(paging.size + 1);
            names.map(|name| shown(ledger, name)).collect::<Vec<_>>()
        });
        let (mut pools, freshness) = query.await?;
        let next_page_token = paging.cut_messages(&mut pools, |pool| &pool.name);
        Ok(ListPoolsResponse { pools, next_page_token, freshness })
    }

    async fn get_pool(&self, request: GetPoolRequest, call: &Call) -> ApiResult<GetPoolResponse> {
        let name = named(&request.name)?;
        let query = self.try_read(request.stale, call, |ledger| match names(ledger) {
            names if names.contains(&name) => Ok(shown(ledger, name.clone())),
            names => Err(error_texts::no_pool(&name).near(&near(&name, names.into_iter()))),
        });
        let (pool, freshness) = query.await?;
        Ok(GetPoolResponse { pool: Some(pool), freshness })
    }

    async fn remove_pool(&self, request: RemovePoolRequest, call: &Call) -> ApiResult<RemovePoolResponse> {
        let name = named(&request.name)?;
        let expected = validate::etag(&request.etag)?;
        let reply = self.write(Command::PoolReset(Removal { name, expected }), call).await?;
        Ok(RemovePoolResponse { index: reply.index })
    }
}
