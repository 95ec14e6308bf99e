//! Opt-outs: in force on every node when the answer is given.

use reveille_ledger::address::Address;
use reveille_ledger::command::{Command, OptOut};
use reveille_proto::admin::v1::opt_out_service_server::OptOutService;
use reveille_proto::admin::v1::{AddOptOutRequest, AddOptOutResponse, CheckOptOutRequest, CheckOptOutResponse};
use reveille_raft::peer::About;
use tonic::{Request, Response, Status};

use super::{Admin, Fault, deadline, validate, views};

fn key_of(recipient: &str) -> Result<String, Fault> {
    let address = Address::parse(recipient).map_err(|error| Fault::of_field("recipient", error.to_string()))?;
    Ok(address.key())
}

#[tonic::async_trait]
impl OptOutService for Admin {
    async fn add_opt_out(&self, request: Request<AddOptOutRequest>) -> Result<Response<AddOptOutResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let tenant = validate::tenant(&request.tenant)?;
        let key = key_of(&request.recipient)?;
        let command = Command::OptOut(OptOut { tenant: tenant.clone(), key: key.clone() });
        let reply = self.write(command, &request.request_id, deadline).await?;
        let about = About::OptedOut { tenant: tenant.clone(), key: key.clone() };
        let mut barrier = self.barrier(reply.index, about, deadline).await?;
        // A repeat is another entry; the one that forbids is the first.
        let place = (tenant, key);
        let first = self.site.replica.read(|ledger| ledger.opted_out().get(&place).map(|opted_out| opted_out.index));
        barrier.index = first.unwrap_or(reply.index);
        Ok(Response::new(AddOptOutResponse { recipient: place.1, barrier: Some(barrier) }))
    }

    async fn check_opt_out(
        &self,
        request: Request<CheckOptOutRequest>,
    ) -> Result<Response<CheckOptOutResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let place = (validate::tenant(&request.tenant)?, key_of(&request.recipient)?);
        let look = self.read(request.stale, deadline, |ledger| ledger.opted_out().get(&place).copied());
        let (known, freshness) = look.await?;
        Ok(Response::new(CheckOptOutResponse {
            recipient: place.1,
            opted_out: known.is_some(),
            index: known.map(|opted_out| opted_out.index),
            at: known.map(|opted_out| views::timestamp(opted_out.at)),
            freshness,
        }))
    }
}
