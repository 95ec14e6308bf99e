//! Sealed audiences (P20): listed, shown, deleted. The calls of an import are in `upload`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reveille_cluster::file_store::SpreadError;
use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::command::{AudienceDelete, AudienceSeal, Command};
use reveille_ledger::content::Seal;
use reveille_ledger::ids::Hash;
use reveille_ledger::limits::LedgerLimits;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::{Ledger, SealedAudience};
use reveille_proto::admin::v1::{
    self, DeleteAudienceRequest, DeleteAudienceResponse, ErrorReason, GetAudienceRequest, GetAudienceResponse,
    ListAudiencesRequest, ListAudiencesResponse, PrepareAudienceRequest, PrepareAudienceResponse, PutPartRequest,
    PutPartResponse, SealAudienceRequest, SealAudienceResponse, UploadRecipientsRequest, UploadRecipientsResponse,
};
use tonic::{Code, Streaming};

use super::watch::Watched;
use crate::server::admin::lookup::audience_named;
use crate::server::admin::paging::Paging;
use crate::server::admin::validate::{Fields, SCHEDULE_NAME_MAX};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, validate, views};

/// Maximum number of progress messages that wait for a caller. A slow caller misses some of them.
pub(crate) const WAITING_MAX: usize = 2;
/// Timeout of the seal, once the parts are written.
const SEAL_WITHIN: Duration = Duration::from_secs(15);

/// The audience that a request describes.
pub(crate) struct AudienceRequest {
    pub tenant: String,
    pub name: String,
    pub columns: Vec<String>,
    pub rows: u32,
    pub request: Option<String>,
}

impl AudienceRequest {
    /// Checks the request. It refuses what the ledger would refuse of any seal, before a part is written.
    pub fn read(request: SealAudienceRequest, limits: &LedgerLimits) -> ApiResult<AudienceRequest> {
        let SealAudienceRequest { tenant, name, recipients: rows, columns, request_id, .. } = request;
        let mut fields = Fields::default();
        let tenant = fields.name_or("tenant", &tenant, reveille_ledger::DEFAULT_TENANT);
        let name = fields.name("name", &name, SCHEDULE_NAME_MAX);
        validate::columns(&mut fields, "columns", &columns);
        let request = fields.request_id(&request_id);
        let order = AudienceRequest { tenant, name, columns, rows, request };
        if let Some(wrong) = order.seal(vec![Hash([0; 32]); rows.div_ceil(CHUNK) as usize]).wrong(limits) {
            fields.refuse("recipients", wrong.to_string());
        }
        fields.done(Some(order))
    }

    /// Returns the seal to propose once these parts are on a majority.
    pub fn seal(&self, parts: Vec<Hash>) -> Seal {
        Seal { name: self.name.clone(), columns: self.columns.clone(), rows: self.rows, parts }
    }
}

impl Admin {
    /// Checks that there is a quorum, and that the name is free or belongs to the same audience. It runs before a part
    /// is written. Returns the hash of the existing seal with that name.
    pub(crate) async fn free(&self, order: &AudienceRequest, call: &Call) -> ApiResult<Option<Hash>> {
        let place = (order.tenant.clone(), order.name.clone());
        let query = self.read_latest(call, |ledger| {
            let known = ledger.audiences().get(&place)?;
            ledger.seal(&known.seal).map(|seal| (known.seal, seal.rows, seal.columns))
        });
        match query.await? {
            Some((_, rows, columns)) if rows != order.rows || columns != order.columns => {
                Err(error_texts::refused(&CommandRefusal::AudienceNameTaken(order.name.clone())))
            }
            known => Ok(known.map(|(seal, ..)| seal)),
        }
    }

    /// Proposes the seal. The parts must be on a majority.
    pub(crate) async fn seal(
        &self,
        order: AudienceRequest,
        parts: Vec<Hash>,
        call: &Call,
    ) -> ApiResult<v1::SealedAudience> {
        let seal = order.seal(parts);
        let AudienceRequest { tenant, name, request, .. } = order;
        let command = Command::AudienceSeal(AudienceSeal { request, tenant: tenant.clone(), seal });
        self.write(command, &call.until(Instant::now() + SEAL_WITHIN)).await?;
        let missing = self.missing();
        self.context
            .replica
            .read(|ledger| Ok(shown(ledger, (&tenant, &name), audience_named(ledger, &tenant, &name)?, &missing)))
    }

    /// Returns the files of audiences and attachments that this node does not have yet.
    pub(crate) fn missing(&self) -> BTreeSet<Hash> {
        self.context.files.missing().into_iter().collect()
    }
}

fn shown(
    ledger: &Ledger,
    (tenant, name): (&str, &str),
    known: &SealedAudience,
    missing: &BTreeSet<Hash>,
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
        seal_time: Some(views::timestamp(known.at)),
        missing: parts.iter().filter(|part| missing.contains(*part)).count() as u32,
        etag: known.index.to_string(),
    }
}

serve! {
    audience_service_server::AudienceService {
        [type SealAudienceStream = Watched<SealAudienceResponse>]
        tenant prepare_audience(PrepareAudienceRequest) -> PrepareAudienceResponse;
        cluster put_part(Streaming<PutPartRequest>) -> PutPartResponse;
        cluster upload_recipients(Streaming<UploadRecipientsRequest>) -> UploadRecipientsResponse;
        tenant seal_audience(SealAudienceRequest, request_id) -> Watched<SealAudienceResponse>;
        tenant list_audiences(ListAudiencesRequest) -> ListAudiencesResponse;
        tenant get_audience(GetAudienceRequest) -> GetAudienceResponse;
        tenant delete_audience(DeleteAudienceRequest, request_id) -> DeleteAudienceResponse;
    }
}

impl Admin {
    async fn list_audiences(&self, request: ListAudiencesRequest, call: &Call) -> ApiResult<ListAudiencesResponse> {
        let tenant = validate::tenant(&request.tenant)?;
        let paging = Paging::new("audiences", request.page_size, &request.page_token)?;
        let missing = self.missing();
        let query = self.read(request.stale, call, |ledger| {
            let mine = paging.of_tenant(ledger.audiences(), &tenant).take(paging.size + 1);
            mine.map(|(name, known)| shown(ledger, (&tenant, name), known, &missing)).collect::<Vec<_>>()
        });
        let (mut audiences, freshness) = query.await?;
        let next_page_token = paging.cut_messages(&mut audiences, |one| &one.name);
        Ok(ListAudiencesResponse { audiences, next_page_token, freshness })
    }

    async fn get_audience(&self, request: GetAudienceRequest, call: &Call) -> ApiResult<GetAudienceResponse> {
        let (tenant, name, missing) = (validate::tenant(&request.tenant)?, &request.name, self.missing());
        let query = self.try_read(request.stale, call, |ledger| {
            Ok(shown(ledger, (&tenant, name), audience_named(ledger, &tenant, name)?, &missing))
        });
        let (audience, freshness) = query.await?;
        Ok(GetAudienceResponse { audience: Some(audience), freshness })
    }

    async fn delete_audience(&self, request: DeleteAudienceRequest, call: &Call) -> ApiResult<DeleteAudienceResponse> {
        let DeleteAudienceRequest { tenant, name, validate_only, etag, request_id } = request;
        let mut fields = Fields::default();
        let (request, expected) = (fields.request_id(&request_id), fields.etag(&etag));
        fields.done(Some(()))?;
        let tenant = validate::tenant(&tenant)?;
        let delete = AudienceDelete { request, tenant: tenant.clone(), name: name.clone(), expected };
        let command = Command::AudienceDelete(delete);
        let first = self.read_latest(call, |ledger| -> ApiResult<Option<u64>> {
            // A repeat gets the first answer, although there is no such audience any more.
            let first = ledger.check_repeat(&command).map_err(|refusal| error_texts::refused(&refusal))?;
            let first = first.map(|answer| answer.index);
            if first.is_none() { audience_named(ledger, &tenant, &name).map(|_| None) } else { Ok(first) }
        });
        let first = first.await??;
        let index = match first {
            Some(index) => index,
            None => self.write_unless(validate_only, command, call).await?.map_or(0, |reply| reply.index),
        };
        Ok(DeleteAudienceResponse { index })
    }
}

/// Too few members have a part of the audience.
pub(crate) fn not_written(error: &SpreadError) -> ApiError {
    ApiError::new(Code::Unavailable, ErrorReason::NoQuorum, error.to_string())
}
