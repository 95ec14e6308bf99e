//! Denied calls: each is counted, and one of them is logged now and then, without its token.

use reveille_ledger::ids::TokenId;
use reveille_raft::LogInterval;
use tonic::Code;

static LOGGED: LogInterval = LogInterval::new();

/// Counts a denied call. `path` is one of the server's own paths, never a text of the caller.
pub fn count(code: Code, path: &'static str, token: Option<TokenId>) {
    let reason = match code {
        Code::Unauthenticated => "token_not_valid",
        _ => "not_permitted",
    };
    metrics::counter!("reveille_calls_denied_total", "reason" => reason).increment(1);
    if LOGGED.is_due() {
        tracing::warn!(path, token = token.map(tracing::field::display), reason, "a call was denied");
    }
}
