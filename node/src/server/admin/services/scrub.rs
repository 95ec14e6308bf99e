//! Checks of the files at rest of all members.

use std::collections::BTreeMap;

use reveille_cluster::maintenance::scrub_report::{DamagedFile, FileRepair, ScrubReport};
use reveille_cluster::process::peer_messages::{self, BeginScrub};
use reveille_ledger::ids::NodeId;
use reveille_proto::admin::v1::{self, MemberScrub, ScrubRequest, ScrubResponse};
use reveille_raft::FileDamage;
use tokio::task::JoinSet;

use crate::server::admin::deadline::DESCRIBED_WITHIN;
use crate::server::admin::{Admin, ApiResult, Call, views};

/// Asks all members.
pub async fn scrub(admin: &Admin, request: ScrubRequest, call: &Call) -> ApiResult<ScrubResponse> {
    // No entry is proposed, so a fresh read checks the token.
    admin.read_latest(call, |_| ()).await?;
    let members = admin.context.replica.members();
    if request.start {
        let mut wanted = JoinSet::new();
        for node in members.keys().copied() {
            let Some(peer) = admin.context.replica.peer(node) else { continue };
            wanted.spawn(async move { peer_messages::ask(&peer, BeginScrub, DESCRIBED_WITHIN).await });
        }
        // A member that was not reached has no report below, or one without a check that runs.
        wanted.join_all().await;
    }
    let described = admin.descriptions(members.keys().copied(), DESCRIBED_WITHIN).await;
    let mut reports: BTreeMap<NodeId, ScrubReport> =
        described.into_iter().map(|(node, described)| (node, described.description.scrub)).collect();
    let members = members.into_iter().map(|(node, member)| member_scrub(member.name, reports.remove(&node)));
    Ok(ScrubResponse { members: members.collect() })
}

fn member_scrub(member: String, report: Option<ScrubReport>) -> MemberScrub {
    let Some(report) = report else { return MemberScrub { member, unreachable: true, ..MemberScrub::default() } };
    let (files, bytes) = report.last.map_or((0, 0), |last| (last.files, last.bytes));
    MemberScrub {
        member,
        unreachable: false,
        running: report.ended < report.requested,
        end_time: report.last.map(|last| views::timestamp(last.at)),
        files,
        bytes,
        damaged: report.damaged.into_iter().map(damaged_file).collect(),
        damaged_count: report.damaged_count,
        repaired: report.repaired,
    }
}

pub(super) fn damaged_file(DamagedFile { path, damage, repair }: DamagedFile) -> v1::DamagedFile {
    let repair = match repair {
        FileRepair::BySnapshots => v1::FileRepair::Snapshots,
        FileRepair::FromPeer => v1::FileRepair::Peer,
    };
    let (damage, error) = match damage {
        FileDamage::Missing => (v1::FileDamage::Missing, String::new()),
        FileDamage::Unreadable(error) => (v1::FileDamage::Unreadable, error),
        FileDamage::Changed(_) => (v1::FileDamage::Changed, String::new()),
    };
    v1::DamagedFile { path, damage: damage.into(), repair: repair.into(), error }
}
