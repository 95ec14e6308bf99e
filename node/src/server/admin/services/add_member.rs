//! Makes join tokens for new nodes.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use reveille_proto::admin::v1::{AddMemberRequest, AddMemberResponse};

use crate::server::admin::{Admin, ApiResult, Call, error_texts, validate};
use crate::server::node_identity::new_node;

/// Makes a join token. It changes nothing: the node is a member when it has joined.
pub async fn add_member(admin: &Admin, request: AddMemberRequest, call: &Call) -> ApiResult<AddMemberResponse> {
    // No entry is proposed, so a fresh read checks the token.
    admin.read_latest(call, |_| ()).await?;
    let valid_for = validate::token_valid_for(request.valid_for)?;
    let node = new_node();
    let address = &admin.context.introduction.address;
    let token = admin.context.replica.join_token(node, address, valid_for);
    let token = token.ok_or_else(error_texts::no_authority)?;
    let expire_time = Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(token.expires_at_s));
    Ok(AddMemberResponse { token: token.to_string(), id: node.to_string(), expire_time: Some(expire_time) })
}
