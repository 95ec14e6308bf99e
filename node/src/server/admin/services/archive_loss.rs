//! Parts of the archive that are lost on all members: which they are, and the acceptance (P24).

use std::collections::BTreeSet;

use reveille_cluster::maintenance::archive_loss::{self, LostPart};
use reveille_ledger::command::{Command, LostBlocks};
use reveille_ledger::ids::Hash;
use reveille_ledger::storage::BlockEntry;
use reveille_ledger::{ArchivePart, ArchivePartKey, PartContent};
use reveille_proto::admin::v1::{
    self, AcceptArchiveLossRequest, AcceptArchiveLossResponse, ErrorReason, GetArchiveLossRequest,
    GetArchiveLossResponse,
};

use crate::server::admin::validate::Fields;
use crate::server::admin::{Admin, ApiResult, Call, error_texts, views};

/// Returns the lost parts, and those whose loss was accepted.
pub async fn get(admin: &Admin, _: GetArchiveLossRequest, call: &Call) -> ApiResult<GetArchiveLossResponse> {
    // No entry is proposed, so a fresh read checks the token.
    admin.read_latest(call, |_| ()).await?;
    let loss = archive_loss::find(&admin.context).await;
    let parts = admin.context.replica.read(|ledger| ledger.parts().clone());
    let is_lost_now = |key: &ArchivePartKey| loss.parts.iter().any(|lost| lost.key == *key);
    let accepted = parts.iter().filter(|(key, part)| part.lost_at.is_some() && !is_lost_now(key));
    let accepted = accepted.map(|(key, part)| shown(*key, part, &BTreeSet::new()));
    let lost = loss.parts.iter().map(|LostPart { key, part, blocks }| shown(*key, part, blocks));
    Ok(GetArchiveLossResponse { parts: lost.chain(accepted).collect(), silent: loss.silent })
}

/// Accepts the loss of the named parts, if no member may have one of their lost blocks.
pub async fn accept(
    admin: &Admin,
    request: AcceptArchiveLossRequest,
    call: &Call,
) -> ApiResult<AcceptArchiveLossResponse> {
    let mut fields = Fields::default();
    let mut wanted = BTreeSet::new();
    for (place, text) in request.parts.iter().enumerate() {
        match text.parse::<ArchivePartKey>() {
            Ok(key) => drop(wanted.insert(key)),
            Err(error) => fields.refuse(format!("parts[{place}]"), error.to_string()),
        }
    }
    if request.parts.is_empty() {
        fields.refuse("parts", "is empty; name the parts that GetArchiveLoss returns");
    }
    fields.done(Some(()))?;
    admin.read_latest(call, |_| ()).await?;
    let loss = archive_loss::find(&admin.context).await;
    let (mut lost, mut shown_parts) = (Vec::new(), Vec::new());
    for key in wanted {
        if let Some(LostPart { part, blocks, .. }) = loss.parts.iter().find(|lost| lost.key == key) {
            shown_parts.push(shown(key, part, blocks));
            lost.push(LostBlocks { part: key, blocks: blocks.iter().copied().collect() });
        } else if let Some(part) = admin.context.replica.read(|ledger| ledger.parts().get(&key).cloned())
            && part.lost_at.is_some()
        {
            // A repeat.
            shown_parts.push(shown(key, &part, &BTreeSet::new()));
        } else {
            let message = format!("part {key} of the archive is not lost");
            return Err(error_texts::precondition(ErrorReason::NothingToDo, message));
        }
    }
    if lost.is_empty() {
        return Ok(AcceptArchiveLossResponse { parts: shown_parts, index: 0 });
    }
    if !loss.silent.is_empty() {
        let message = format!(
            "a block may be there still: {}; nothing was accepted; start what does not answer, or remove it for good",
            loss.silent.join("; ")
        );
        return Err(error_texts::precondition(ErrorReason::MemberSilent, message));
    }
    let index = admin.write(Command::ArchiveLossAccept(lost), call).await?.index;
    Ok(AcceptArchiveLossResponse { parts: shown_parts, index })
}

/// Returns a part with blocks that are lost now, or that were accepted as lost.
fn shown(key: ArchivePartKey, part: &ArchivePart, lost: &BTreeSet<Hash>) -> v1::LostPart {
    let is_lost = |named: &[BlockEntry]| {
        if lost.is_empty() { named.is_empty() } else { named.iter().any(|block| lost.contains(&block.hash)) }
    };
    let (content, runs, times) = match part.content {
        PartContent::Runs { count, from, to, .. } => (v1::ArchiveContent::Runs, count, Some((from, to))),
        PartContent::Audit { from, to, .. } => (v1::ArchiveContent::AuditRecords, 0, Some((from, to))),
        PartContent::Events { .. } => (v1::ArchiveContent::Events, 0, None),
    };
    v1::LostPart {
        part: key.to_string(),
        content: content.into(),
        runs,
        from_time: times.map(|(from, _)| views::timestamp(from)),
        to_time: times.map(|(_, to)| views::timestamp(to)),
        details: content == v1::ArchiveContent::Runs && is_lost(&part.details),
        summaries: is_lost(&part.summaries),
        accept_time: part.lost_at.filter(|_| lost.is_empty()).map(views::timestamp),
    }
}
