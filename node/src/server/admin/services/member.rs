//! Makes join tokens for new nodes; drains and removes members (P22).

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use reveille_cluster::leader::removal;
use reveille_cluster::process::peer_messages::{ChangeMember, ChangedMember, MemberChange};
use reveille_ledger::command::Command;
use reveille_ledger::ids::NodeId;
use reveille_proto::admin::v1::{
    self, AddMemberRequest, AddMemberResponse, DrainMemberRequest, DrainMemberResponse, RemoveMemberRequest,
    RemoveMemberResponse,
};

use crate::server::admin::{Admin, ApiResult, Call, error_texts, validate, views};
use crate::server::node_identity::new_node;

/// Makes a join token, and records that. The node is a member when it has joined.
pub async fn add(admin: &Admin, request: AddMemberRequest, call: &Call) -> ApiResult<AddMemberResponse> {
    let valid_for = validate::join_token_valid_for(request.valid_for)?;
    let node = new_node();
    let (replica, address) = (&admin.context.replica, &admin.context.introduction.address);
    replica.tls().ok_or_else(error_texts::no_authority)?;
    // Ledger time is that of this entry, at least.
    admin.write(Command::NodeInvite(node), call).await?;
    let token = replica.join_token(node, address, valid_for).ok_or_else(error_texts::no_authority)?;
    let expire_time = Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(token.expires_at_s));
    Ok(AddMemberResponse { token: token.to_string(), id: node.to_string(), expire_time: Some(expire_time) })
}

/// Drains a member, or takes that back.
pub async fn drain(admin: &Admin, request: DrainMemberRequest, call: &Call) -> ApiResult<DrainMemberResponse> {
    let node = admin.member_named(&request.member)?;
    let change = if request.undo { MemberChange::Undrain } else { MemberChange::Drain };
    admin.change_member(node, &request.member, change, call).await?;
    let member = admin.listed_members().into_iter().find(|member| member.id == node.to_string());
    // The leader has applied it, and this node may not have yet.
    let member = member.map(|member| v1::Member { drains: !request.undo, ..member });
    Ok(DrainMemberResponse { member })
}

/// Removes a member.
pub async fn remove(admin: &Admin, request: RemoveMemberRequest, call: &Call) -> ApiResult<RemoveMemberResponse> {
    let RemoveMemberRequest { member: name, dead } = request;
    let node = admin.member_named(&name).or_else(|unknown| admin.removed_named(&name).ok_or(unknown))?;
    let change = if dead { MemberChange::RemoveDead } else { MemberChange::Remove };
    let ChangedMember { in_doubt, .. } = admin.change_member(node, &name, change, call).await?;
    let mut members = admin.listed_members();
    members.retain(|member| member.id != node.to_string());
    Ok(RemoveMemberResponse { members, in_doubt })
}

impl Admin {
    /// Returns the members as this node knows them.
    pub(super) fn listed_members(&self) -> Vec<v1::Member> {
        let draining = self.draining();
        let members = self.context.replica.members();
        members.iter().map(|(node, member)| views::member(*node, member, &draining)).collect()
    }

    /// Returns the nodes that drain.
    pub(super) fn draining(&self) -> BTreeSet<NodeId> {
        let draining = |ledger: &reveille_ledger::Ledger| {
            ledger.nodes().iter().filter(|(_, node)| node.drains).map(|(id, _)| *id).collect()
        };
        self.context.replica.read(draining)
    }

    /// Returns the removed node with this id, or the last one with this name.
    fn removed_named(&self, name: &str) -> Option<NodeId> {
        self.context.replica.read(|ledger| {
            let removed = ledger.removed_nodes().iter();
            let named = removed.filter(|(node, removed)| removed.name == name || node.to_string() == name);
            named.max_by_key(|(_, removed)| removed.index).map(|(node, _)| *node)
        })
    }

    async fn change_member(
        &self,
        member: NodeId,
        name: &str,
        change: MemberChange,
        call: &Call,
    ) -> ApiResult<ChangedMember> {
        self.led(call).await?;
        // A request that needs no entry is checked by a fresh read.
        self.read_latest(call, |_| ()).await?;
        let request = ChangeMember { member, change, actor: call.actor().clone() };
        let changed = removal::through_leader(&self.context, request, call.deadline).await;
        changed.map_err(|refusal| error_texts::member_not_changed(name, change, &refusal))
    }
}
