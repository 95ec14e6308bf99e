//! Tenants: set limits, list, show, remove limits (P12, P25).

use reveille_ledger::Ledger;
use reveille_ledger::command::{Command, Removal};
use reveille_ledger::tenant::TenantSet;
use reveille_proto::admin::v1::{
    GetTenantRequest, GetTenantResponse, ListTenantsRequest, ListTenantsResponse, RemoveTenantRequest,
    RemoveTenantResponse, SetTenantRequest, SetTenantResponse, Tenant,
};

use crate::server::admin::lookup::near;
use crate::server::admin::paging::Paging;
use crate::server::admin::{Admin, ApiResult, Call, error_texts, validate};

fn shown(ledger: &Ledger, name: String) -> Tenant {
    let known = ledger.tenant(&name);
    Tenant {
        rate_per_second: known.rate().unwrap_or_default(),
        concurrency: known.concurrency,
        share: known.share,
        pools: known.pools.iter().cloned().collect(),
        claimed: ledger.claimed_by_tenant(&name),
        index: known.index,
        etag: ledger.tenant_etag(&name),
        name,
    }
}

serve! {
    tenant_service_server::TenantService {
        cluster set_tenant(SetTenantRequest, request_id) -> SetTenantResponse;
        cluster list_tenants(ListTenantsRequest) -> ListTenantsResponse;
        own get_tenant(GetTenantRequest) -> GetTenantResponse;
        cluster remove_tenant(RemoveTenantRequest) -> RemoveTenantResponse;
    }
}

impl Admin {
    async fn set_tenant(&self, request: SetTenantRequest, call: &Call) -> ApiResult<SetTenantResponse> {
        let validate_only = request.validate_only;
        let set: TenantSet = validate::tenant_bounds(request, self.limits())?;
        let name = set.name.clone();
        self.write_unless(validate_only, Command::TenantSet(set), call).await?;
        let tenant = Some(self.context.replica.read(|ledger| shown(ledger, name)));
        Ok(SetTenantResponse { tenant })
    }

    async fn list_tenants(&self, request: ListTenantsRequest, call: &Call) -> ApiResult<ListTenantsResponse> {
        let paging: Paging<String> = Paging::new("tenants", request.page_size, &request.page_token)?;
        // The smallest name after the last one.
        let from = paging.after.as_ref().map_or_else(String::new, |last| format!("{last}\0"));
        let query = self.read(request.stale, call, |ledger| {
            let names = ledger.tenant_names_from(from).take(paging.size + 1);
            names.map(|name| shown(ledger, name)).collect::<Vec<_>>()
        });
        let (mut tenants, freshness) = query.await?;
        let next_page_token = paging.cut_messages(&mut tenants, |one| &one.name);
        Ok(ListTenantsResponse { tenants, next_page_token, freshness })
    }

    async fn get_tenant(&self, request: GetTenantRequest, call: &Call) -> ApiResult<GetTenantResponse> {
        let name = validate::tenant(&request.name)?;
        let query = self.try_read(request.stale, call, |ledger| {
            let known = ledger.tenant_names_from(name.clone()).next().filter(|known| *known == name);
            let names = || near(&name, ledger.tenant_names_from(String::new()));
            known.map(|known| shown(ledger, known)).ok_or_else(|| error_texts::no_tenant(&name).near(&names()))
        });
        let (tenant, freshness) = query.await?;
        Ok(GetTenantResponse { tenant: Some(tenant), freshness })
    }

    async fn remove_tenant(&self, request: RemoveTenantRequest, call: &Call) -> ApiResult<RemoveTenantResponse> {
        let name = validate::tenant(&request.name)?;
        let expected = validate::etag(&request.etag)?;
        let reply = self.write(Command::TenantRemove(Removal { name, expected }), call).await?;
        Ok(RemoveTenantResponse { index: reply.index })
    }
}
