//! Opt-outs: when the call returns, they are in force on every node.

use std::collections::BTreeSet;

use reveille_cluster::process::peer_messages::BarrierSubject;
use reveille_ledger::command::{Command, OPT_OUTS_MAX, OptOut, OptOutTakeBack};
use reveille_ledger::erased::is_erased_key;
use reveille_ledger::etag::ANY_ETAG;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{Ledger, TakenBack};
use reveille_proto::admin::v1::{
    self, AddOptOutRequest, AddOptOutResponse, CheckOptOutRequest, CheckOptOutResponse, ImportOptOutsRequest,
    ImportOptOutsResponse, ListOptOutsRequest, ListOptOutsResponse, TakeBackOptOutRequest, TakeBackOptOutResponse,
};

use crate::server::admin::paging::Paging;
use crate::server::admin::validate::Fields;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, validate, views};

/// Purpose of the secret that encrypts page tokens, whose keys are addresses.
const PAGE_SECRET: &str = "Reveille: page tokens of opt-outs, 1";

fn taken_back(back: &TakenBack) -> v1::TakenBack {
    v1::TakenBack { index: back.index, take_back_time: Some(views::timestamp(back.at)), reason: back.reason.clone() }
}

/// The result of a completed opt-out.
pub struct OptOutResult {
    /// Number of keys that had not opted out before.
    pub added: u64,
    /// What the barrier proved.
    pub barrier: v1::Barrier,
}

impl Admin {
    /// All opt-outs use this function: it writes the entry and then waits for the barrier (P15). After it returns, no
    /// handoff to these recipients starts. If it fails, the entry may be in force; the same call can be repeated.
    pub async fn opt_out(&self, tenant: &str, keys: BTreeSet<String>, call: &Call) -> ApiResult<OptOutResult> {
        let command = Command::OptOut(OptOut { tenant: tenant.to_owned(), keys: keys.iter().cloned().collect() });
        let reply = self.write(command, call).await?;
        let about = BarrierSubject::OptedOut { tenant: tenant.to_owned(), keys };
        let barrier = self.barrier(reply.index, about, call).await?;
        let added = if let CommandOutcome::Changed(added) = reply.outcome { added } else { 0 };
        Ok(OptOutResult { added, barrier })
    }
}

serve! {
    opt_out_service_server::OptOutService {
        tenant add_opt_out(AddOptOutRequest, request_id) -> AddOptOutResponse;
        tenant check_opt_out(CheckOptOutRequest) -> CheckOptOutResponse;
        tenant take_back_opt_out(TakeBackOptOutRequest) -> TakeBackOptOutResponse;
        tenant import_opt_outs(ImportOptOutsRequest) -> ImportOptOutsResponse;
        tenant list_opt_outs(ListOptOutsRequest) -> ListOptOutsResponse;
    }
}

impl Admin {
    async fn add_opt_out(&self, request: AddOptOutRequest, call: &Call) -> ApiResult<AddOptOutResponse> {
        let tenant = validate::tenant(&request.tenant)?;
        let key = validate::address_key("recipient", &request.recipient)?;
        let keys = BTreeSet::from([key.clone()]);
        let mut barrier = self.opt_out(&tenant, keys, call).await?.barrier;
        // A repeated opt-out writes another entry, but the first one forbids the handoffs.
        let place = (tenant, key);
        let first = self.context.replica.read(|ledger| ledger.opt_out_of(&place).map(|known| known.index));
        barrier.index = first.unwrap_or(barrier.index);
        Ok(AddOptOutResponse { recipient: place.1, barrier: Some(barrier) })
    }

    async fn check_opt_out(&self, request: CheckOptOutRequest, call: &Call) -> ApiResult<CheckOptOutResponse> {
        let place = (validate::tenant(&request.tenant)?, validate::address_key("recipient", &request.recipient)?);
        let query = self.read(request.stale, call, |ledger| {
            (ledger.opt_out_of(&place).copied(), ledger.taken_back().get(&place).map(taken_back))
        });
        let ((known, taken_back), freshness) = query.await?;
        Ok(CheckOptOutResponse {
            recipient: place.1,
            opted_out: known.is_some(),
            index: known.map(|opted_out| opted_out.index),
            opt_out_time: known.map(|opted_out| views::timestamp(opted_out.at)),
            freshness,
            taken_back,
            etag: known.map(|opted_out| opted_out.last.to_string()).unwrap_or_default(),
        })
    }

    async fn take_back_opt_out(
        &self,
        request: TakeBackOptOutRequest,
        call: &Call,
    ) -> ApiResult<TakeBackOptOutResponse> {
        let TakeBackOptOutRequest { tenant, recipient, reason, validate_only, etag } = request;
        let mut fields = Fields::default();
        let reason = fields.reason("reason", &reason);
        if reason.trim().is_empty() {
            fields.refuse("reason", "is missing; say what it rests on, such as a letter or a call, and when it was");
        }
        let etag = fields.etag(&etag).filter(|etag| etag != ANY_ETAG);
        let (reason, etag) = fields.done(Some((reason, etag)))?;
        let place = (validate::tenant(&tenant)?, validate::address_key("recipient", &recipient)?);
        let known = |ledger: &Ledger| {
            (ledger.opt_out_of(&place).map(|known| known.last), ledger.taken_back().get(&place).map(taken_back))
        };
        let (last, before) = self.read_latest(call, known).await?;
        let Some(last) = last else {
            let never = || error_texts::not_opted_out(&place.1);
            let taken_back = before.ok_or_else(never)?;
            let taken_back = Some(taken_back);
            return Ok(TakeBackOptOutResponse { recipient: place.1, taken_back, etag: String::new() });
        };
        let current = last.to_string();
        if etag.is_some_and(|etag| etag != current) {
            return Err(error_texts::stale_opt_out(&place.1));
        }
        if validate_only {
            return Ok(TakeBackOptOutResponse { recipient: place.1, taken_back: None, etag: current });
        }
        let (tenant, key) = place.clone();
        let back = OptOutTakeBack { tenant, key, last, reason };
        self.write(Command::OptOutTakeBack(back), call).await?;
        let (_, taken_back) = self.context.replica.read(known);
        Ok(TakeBackOptOutResponse { recipient: place.1.clone(), taken_back, etag: String::new() })
    }

    async fn import_opt_outs(&self, request: ImportOptOutsRequest, call: &Call) -> ApiResult<ImportOptOutsResponse> {
        let tenant = validate::tenant(&request.tenant)?;
        if !(1..=OPT_OUTS_MAX).contains(&request.recipients.len()) {
            let message = format!("are {}; give 1 to {OPT_OUTS_MAX} at once", request.recipients.len());
            return Err(ApiError::of_field("recipients", message));
        }
        let named = request.recipients.iter().enumerate();
        let keys = named.map(|(place, recipient)| validate::address_key(&format!("recipients[{place}]"), recipient));
        let keys = keys.collect::<ApiResult<BTreeSet<String>>>()?;
        if request.validate_only {
            let places: Vec<(String, String)> = keys.into_iter().map(|key| (tenant.clone(), key)).collect();
            let is_new =
                |known: &Ledger| places.iter().filter(|place| known.opt_out_of(place).is_none()).count() as u64;
            let added = self.read_latest(call, is_new).await?;
            return Ok(ImportOptOutsResponse { added, barrier: None });
        }
        let OptOutResult { added, barrier } = self.opt_out(&tenant, keys, call).await?;
        Ok(ImportOptOutsResponse { added, barrier: Some(barrier) })
    }

    async fn list_opt_outs(&self, request: ListOptOutsRequest, call: &Call) -> ApiResult<ListOptOutsResponse> {
        let tenant = validate::tenant(&request.tenant)?;
        let secret = self.context.replica.derived_secret(PAGE_SECRET);
        let paging = Paging::<String>::sealed("opt-outs", secret, request.page_size, &request.page_token)?;
        let query = self.read(request.stale, call, |ledger| {
            // No address is left of an erased person.
            let found = paging.of_tenant(ledger.opted_out(), &tenant).filter(|(key, _)| !is_erased_key(key));
            // One row more than the page shows whether there is a next page.
            found.take(paging.size + 1).map(|(key, known)| (key.clone(), *known)).collect::<Vec<_>>()
        });
        let (mut found, freshness) = query.await?;
        let next_page_token = paging.cut(&mut found, |(key, _)| key);
        let opt_outs = found.into_iter().map(|(recipient, known)| v1::OptOut {
            recipient,
            index: known.index,
            opt_out_time: Some(views::timestamp(known.at)),
        });
        Ok(ListOptOutsResponse { opt_outs: opt_outs.collect(), next_page_token, freshness })
    }
}
