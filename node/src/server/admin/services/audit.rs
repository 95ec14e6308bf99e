//! Audit records: those that the state still has, and those in parts of the archive.

use reveille_ledger::audit::{AuditCaller, AuditObject, AuditOutcome, AuditRecord, CommandKind};
use reveille_ledger::ids::Time;
use reveille_ledger::{ArchivePartKey, Ledger, PartContent};
use reveille_proto::admin::v1::{self, ListAuditRecordsRequest, ListAuditRecordsResponse};

use crate::server::admin::archive::unless_lost;
use crate::server::admin::enums::OnWire;
use crate::server::admin::lookup::near;
use crate::server::admin::paging::{EXAMINED_MAX, Paging};
use crate::server::admin::{Admin, ApiError, ApiResult, Call, validate, views};

serve! {
    audit_service_server::AuditService {
        cluster list_audit_records(ListAuditRecordsRequest) -> ListAuditRecordsResponse;
    }
}

/// Records that follow each other.
enum RecordSource {
    /// Records that were in the state.
    State(Vec<AuditRecord>),
    /// A part of the archive, and the index of its first and last record.
    Part(ArchivePartKey, u64, u64),
}

/// Selects records.
struct RecordFilter {
    caller: String,
    tenant: String,
    command: String,
    since: Option<Time>,
    until: Option<Time>,
}

impl RecordFilter {
    fn new(request: &ListAuditRecordsRequest) -> ApiResult<RecordFilter> {
        let (since, until) = validate::time_range(request.since_time, request.until_time)?;
        let ListAuditRecordsRequest { caller, of_tenant, command, .. } = request.clone();
        let words: Vec<String> = CommandKind::ALL.iter().map(word).collect();
        if !command.is_empty() && !words.contains(&command) {
            let near = near(&command, words.iter().cloned());
            let known = if near.is_empty() { format!("; there are {}", words.join(", ")) } else { String::new() };
            return Err(ApiError::of_field("command", format!("no command is named {command:?}{known}")).near(&near));
        }
        Ok(RecordFilter { caller, tenant: of_tenant, command, since, until })
    }

    /// True if records from `from` to `to` may be selected.
    fn reaches(&self, from: Time, to: Time) -> bool {
        self.since.is_none_or(|since| since <= to) && self.until.is_none_or(|until| from < until)
    }

    fn selects(&self, record: &AuditRecord) -> bool {
        let is = |wanted: &str, word: &dyn Fn() -> String| wanted.is_empty() || word() == wanted;
        self.reaches(record.at, record.at)
            && is(&self.caller, &|| caller(record.caller))
            && is(&self.tenant, &|| record.tenant.clone().unwrap_or_default())
            && is(&self.command, &|| word(record.command))
    }
}

impl Admin {
    async fn list_audit_records(
        &self,
        request: ListAuditRecordsRequest,
        call: &Call,
    ) -> ApiResult<ListAuditRecordsResponse> {
        let paging: Paging<u64> = Paging::new("audit", request.page_size, &request.page_token)?;
        let (filter, oldest_first) = (RecordFilter::new(&request)?, request.oldest_first);
        let (mut sources, freshness) = self.read(request.stale, call, |ledger| sources(ledger, &filter)).await?;
        let is_ahead =
            |index: u64| paging.after.is_none_or(|after| if oldest_first { index > after } else { index < after });
        if !oldest_first {
            sources.reverse();
        }
        let (mut records, mut examined, mut last, mut more, mut incomplete) = (Vec::new(), 0, None, false, false);
        'sources: for source in sources {
            let mut found = match source {
                RecordSource::State(records) => records,
                RecordSource::Part(_, first, last) if !is_ahead(if oldest_first { last } else { first }) => continue,
                // The records of a part whose retention has ended meanwhile are gone.
                RecordSource::Part(key, ..) => match unless_lost(self.open_part(key).await)? {
                    Ok(Some(part)) => part.audit().iter().map(|(_, record)| record.clone()).collect(),
                    Ok(None) => continue,
                    Err(_) => {
                        incomplete = true;
                        continue;
                    }
                },
            };
            if !oldest_first {
                found.reverse();
            }
            for record in found.into_iter().filter(|record| is_ahead(record.index)) {
                if records.len() >= paging.size || examined >= EXAMINED_MAX {
                    more = true;
                    break 'sources;
                }
                (last, examined) = (Some(record.index), examined + 1);
                records.extend(filter.selects(&record).then(|| shown(&record)));
            }
        }
        let next_page_token = paging.token(last.as_ref().filter(|_| more));
        Ok(ListAuditRecordsResponse { records, next_page_token, freshness, incomplete })
    }
}

/// Returns where records are that may be selected, oldest first.
fn sources(ledger: &Ledger, filter: &RecordFilter) -> Vec<RecordSource> {
    let parts = ledger.audit_parts().filter_map(|(key, part)| match part.content {
        PartContent::Audit { first, last, from, to } if filter.reaches(from, to) => {
            Some(RecordSource::Part(key, first, last))
        }
        _ => None,
    });
    let mut sources: Vec<_> = parts.collect();
    sources.push(RecordSource::State(ledger.audit().iter().map(|(_, record)| record.clone()).collect()));
    sources
}

/// Returns a record as the API shows it. All but the hash is computed from the bytes that are hashed, so an exported
/// record can be compared with them.
pub fn shown(record: &AuditRecord) -> v1::AuditRecord {
    let of = |outcome: v1::AuditOutcome| v1::AuditRecord { outcome: outcome.into(), ..v1::AuditRecord::default() };
    let outcome = match record.outcome {
        AuditOutcome::Done => of(v1::AuditOutcome::Done),
        AuditOutcome::Repeats(index) => v1::AuditRecord { repeated_index: index, ..of(v1::AuditOutcome::Repeated) },
        AuditOutcome::Partly { done, refused } => {
            v1::AuditRecord { done_count: done, refused_count: refused, ..of(v1::AuditOutcome::Partly) }
        }
        AuditOutcome::Refused(kind) => v1::AuditRecord { refusal: kind.wire().into(), ..of(v1::AuditOutcome::Refused) },
    };
    v1::AuditRecord {
        index: record.index,
        time: Some(views::timestamp(record.at)),
        caller: caller(record.caller),
        tenant: record.tenant.clone().unwrap_or_default(),
        command: word(record.command),
        subject: object(&record.object),
        request_id: record.request.clone().unwrap_or_default(),
        reason: record.reason.clone().unwrap_or_default(),
        previous: record.previous.to_string(),
        hash: record.hash().to_string(),
        record: record.to_bytes(),
        ..outcome
    }
}

fn caller(caller: AuditCaller) -> String {
    match caller {
        AuditCaller::Insecure => "insecure".to_owned(),
        AuditCaller::Local => "local".to_owned(),
        AuditCaller::Token(id) => id.to_string(),
    }
}

fn object(object: &AuditObject) -> String {
    match object {
        AuditObject::Cluster => "-".to_owned(),
        AuditObject::Name(name) => name.clone(),
        AuditObject::Schedule(id, None) => format!("schedule {id}"),
        AuditObject::Schedule(id, Some(name)) => format!("schedule {id}, {name}"),
        AuditObject::Run(run) => format!("run {run}"),
        AuditObject::Recipients(run, 0) => format!("run {run}, all recipients"),
        AuditObject::Recipients(run, count) => format!("run {run}, recipients: {count}"),
        AuditObject::Items(count) => format!("items: {count}"),
        AuditObject::Node(node) => format!("node {node}"),
        AuditObject::Token(token) => format!("token {token}"),
        AuditObject::Level(level) => format!("level {level}"),
    }
}

/// Returns `schedule_create` for `ScheduleCreate`.
fn word(kind: impl std::fmt::Debug) -> String {
    let mut word = String::new();
    for one in format!("{kind:?}").chars() {
        if one.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(one.to_ascii_lowercase());
    }
    word
}
