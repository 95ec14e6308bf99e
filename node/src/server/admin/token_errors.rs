//! Errors about tokens. Only the last one says anything about what exists.

use reveille_proto::admin::v1::ErrorReason;
use tonic::Code;

use super::error::ApiError;

/// The call has no token, or one that is unknown, revoked or expired. The answer is the same in all these cases.
pub fn token_not_valid() -> ApiError {
    let message = "the call needs a valid token: there is none, or it is unknown, revoked or expired; nothing happened";
    ApiError::new(Code::Unauthenticated, ErrorReason::TokenNotValid, message)
}

/// The token does not permit the call. The answer is the same whatever exists.
pub fn not_permitted() -> ApiError {
    let message = "the token does not permit this call; nothing happened";
    ApiError::new(Code::PermissionDenied, ErrorReason::NotPermitted, message)
}

/// The state of this node has no tokens: it is joining its cluster, or its cluster is being made.
pub fn no_tokens_yet() -> ApiError {
    let message = "this node knows no tokens yet: it has just been made or is joining; nothing happened";
    ApiError::new(Code::Unavailable, ErrorReason::NotInitialized, message).next("the same in a few seconds")
}

/// There is no token with this id.
pub fn no_token(id: impl ToString) -> ApiError {
    let message = format!("no token has the id {:?}", id.to_string());
    ApiError::new(Code::NotFound, ErrorReason::TokenNotFound, message).next("reveille token list")
}
