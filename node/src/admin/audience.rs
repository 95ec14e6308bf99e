//! Sealed audiences (P20): made, listed, shown, deleted.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::{Duration, Instant};

use reveille_cluster::parts::{self, Recipe};
use reveille_ledger::command::{AudienceDelete, AudienceSeal, Command};
use reveille_ledger::content::Seal;
use reveille_ledger::ids::Hash;
use reveille_ledger::{Ledger, SealedAudience};
use reveille_proto::admin::v1::audience_service_server::AudienceService;
use reveille_proto::admin::v1::{
    self, DeleteAudienceRequest, DeleteAudienceResponse, ErrorReason, GenerateAudienceRequest,
    GenerateAudienceResponse, GetAudienceRequest, GetAudienceResponse, ListAudiencesRequest, ListAudiencesResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::paging::Paging;
use super::validate::{Fields, SCHEDULE_NAME_MAX};
use super::{Admin, Fault, deadline, refusals, validate, views};

/// Words that wait for a caller: a slow one misses some, and nothing else.
const WAITING_MAX: usize = 2;
/// How long the seal is waited for, once the parts are written.
const SEAL_WITHIN: Duration = Duration::from_secs(15);

/// An audience that can be made.
struct Asked {
    tenant: String,
    name: String,
    recipe: Recipe,
    request: Option<String>,
}

impl Asked {
    fn read(request: GenerateAudienceRequest) -> Result<Asked, Fault> {
        let GenerateAudienceRequest { tenant, name, recipients, seed, columns, request_id } = request;
        let mut fields = Fields::default();
        let tenant = fields.name_or("tenant", &tenant, reveille_ledger::DEFAULT_TENANT);
        let name = fields.name("name", &name, SCHEDULE_NAME_MAX);
        validate::columns(&mut fields, "columns", &columns);
        let request = fields.request_id(&request_id);
        let recipe = Recipe { seed, rows: recipients, columns };
        // What the ledger would refuse of any seal, before a byte is written.
        let parts = vec![Hash([0; 32]); recipe.parts() as usize];
        let seal = Seal { name: name.clone(), columns: recipe.columns.clone(), rows: recipients, parts };
        if let Some(wrong) = seal.wrong() {
            fields.refuse("recipients", wrong);
        }
        fields.done(Some(Asked { tenant, name, recipe, request }))
    }
}

impl Admin {
    /// Once the parts are on a majority: the entry that makes them known.
    async fn seal(&self, asked: Asked, parts: Vec<Hash>) -> Result<v1::SealedAudience, Fault> {
        let Asked { tenant, name, recipe, request } = asked;
        let seal = Seal { name: name.clone(), columns: recipe.columns, rows: recipe.rows, parts };
        let request_id = request.clone().unwrap_or_default();
        let command = Command::AudienceSeal(AudienceSeal { request, tenant: tenant.clone(), seal });
        self.write(command, &request_id, Instant::now() + SEAL_WITHIN).await?;
        let lacking = self.site.parts.lacking().into_iter().collect();
        let shown = self.site.replica.read(|ledger| {
            let known = ledger.audiences().get(&(tenant.clone(), name.clone()))?;
            Some(shown(ledger, (&tenant, &name), known, &lacking))
        });
        shown.ok_or_else(|| refusals::no_audience(&name))
    }
}

fn shown(
    ledger: &Ledger,
    (tenant, name): (&str, &str),
    known: &SealedAudience,
    lacking: &BTreeSet<Hash>,
) -> v1::SealedAudience {
    let seal = ledger.seal(&known.seal);
    let (columns, parts) = seal.map(|seal| (seal.columns, seal.parts)).unwrap_or_default();
    v1::SealedAudience {
        tenant: tenant.to_owned(),
        name: name.to_owned(),
        recipients: known.rows,
        columns,
        parts: parts.len() as u32,
        seal: known.seal.to_string(),
        index: known.index,
        sealed_at: Some(views::timestamp(known.at)),
        lacking: parts.iter().filter(|part| lacking.contains(*part)).count() as u32,
    }
}

#[tonic::async_trait]
impl AudienceService for Admin {
    type GenerateAudienceStream = ReceiverStream<Result<GenerateAudienceResponse, Status>>;

    /// Goes on until it is sealed, its caller goes, or the node stops.
    async fn generate_audience(
        &self,
        request: Request<GenerateAudienceRequest>,
    ) -> Result<Response<Self::GenerateAudienceStream>, Status> {
        let deadline = deadline::of(&request);
        let asked = Asked::read(request.into_inner())?;
        // Asked before anything is written: is there a quorum, and is the name free?
        let place = (asked.tenant.clone(), asked.name.clone());
        let look = self.read(false, deadline, |ledger| {
            let known = ledger.audiences().get(&place)?;
            ledger.seal(&known.seal).map(|seal| (seal.rows, seal.columns))
        });
        let (known, _) = look.await?;
        if known.is_some_and(|(rows, columns)| rows != asked.recipe.rows || columns != asked.recipe.columns) {
            let taken = reveille_ledger::refusal::Refusal::AudienceNameTaken(asked.name);
            return Err(refusals::refused(&taken).into());
        }
        let (words, heard) = mpsc::channel(WAITING_MAX);
        let (admin, stop) = (self.share(), self.stop.clone());
        tokio::spawn(async move {
            let parts = asked.recipe.parts();
            let tell = |written: u32| {
                // How far it was does not matter any more when the next word comes.
                let _ = words.try_send(Ok(GenerateAudienceResponse { written, parts, audience: None }));
            };
            let written = tokio::select! {
                written = parts::seal(&admin.site, &asked.recipe, tell) => written,
                () = words.closed() => return,
                () = stop.cancelled() => return drop(words.send(Err(stopping().into())).await),
            };
            let last = match written {
                Ok(hashes) => admin.seal(asked, hashes).await,
                Err(error) => Err(Fault::new(Code::Unavailable, ErrorReason::NoQuorum, error.to_string())
                    .next("reveille cluster status")),
            };
            let last =
                last.map(|audience| GenerateAudienceResponse { written: parts, parts, audience: Some(audience) });
            // A caller who is gone needs no last word.
            let _ = words.send(last.map_err(Status::from)).await;
        });
        Ok(Response::new(ReceiverStream::new(heard)))
    }

    async fn list_audiences(
        &self,
        request: Request<ListAudiencesRequest>,
    ) -> Result<Response<ListAudiencesResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let tenant = validate::tenant(&request.tenant)?;
        let paging: Paging<String> = Paging::new("audiences", request.page_size, &request.page_token)?;
        let lacking: BTreeSet<Hash> = self.site.parts.lacking().into_iter().collect();
        let first = match &paging.after {
            Some(after) => Bound::Excluded((tenant.clone(), after.clone())),
            None => Bound::Included((tenant.clone(), String::new())),
        };
        let look = self.read(request.stale, deadline, |ledger| {
            let from = ledger.audiences().range((first, Bound::Unbounded));
            let mine = from.take_while(|((of, _), _)| *of == tenant).take(paging.size + 1);
            mine.map(|((_, name), known)| shown(ledger, (&tenant, name), known, &lacking)).collect::<Vec<_>>()
        });
        let (mut audiences, freshness) = look.await?;
        let more = audiences.len() > paging.size;
        audiences.truncate(paging.size);
        let next_page_token = paging.token(audiences.last().filter(|_| more).map(|one| &one.name));
        Ok(Response::new(ListAudiencesResponse { audiences, next_page_token, freshness }))
    }

    async fn get_audience(
        &self,
        request: Request<GetAudienceRequest>,
    ) -> Result<Response<GetAudienceResponse>, Status> {
        let deadline = deadline::of(&request);
        let request = request.into_inner();
        let place = (validate::tenant(&request.tenant)?, request.name);
        let lacking: BTreeSet<Hash> = self.site.parts.lacking().into_iter().collect();
        let look = self.read(request.stale, deadline, |ledger| {
            let known = ledger.audiences().get(&place)?;
            Some(shown(ledger, (&place.0, &place.1), known, &lacking))
        });
        let (audience, freshness) = look.await?;
        let audience = Some(audience.ok_or_else(|| refusals::no_audience(&place.1))?);
        Ok(Response::new(GetAudienceResponse { audience, freshness }))
    }

    async fn delete_audience(
        &self,
        request: Request<DeleteAudienceRequest>,
    ) -> Result<Response<DeleteAudienceResponse>, Status> {
        let deadline = deadline::of(&request);
        let DeleteAudienceRequest { tenant, name } = request.into_inner();
        let delete = AudienceDelete { tenant: validate::tenant(&tenant)?, name };
        let reply = self.write(Command::AudienceDelete(delete), "", deadline).await?;
        Ok(Response::new(DeleteAudienceResponse { index: reply.index }))
    }
}

fn stopping() -> Fault {
    let message = "this node is stopping; nothing was sealed";
    Fault::new(Code::Unavailable, ErrorReason::Stopping, message).next("ask another node: --endpoint a,b,c")
}
