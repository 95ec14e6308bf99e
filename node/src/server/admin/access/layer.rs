//! Authenticates each call before anything of its message is read.
//!
//! It looks into the state of this node only. So a token is known here once this node has applied its entry, and a
//! revoked one is refused once this node has applied that. Reads and writes check again.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use reveille_cluster::process::context::NodeContext;
use reveille_ledger::ids::{Hash, TokenId};
use reveille_ledger::token::{Rights, TenantScope};
use tonic::Status;

use super::table::{AccessRow, Reach, row_of};
use crate::server::admin::{ApiResult, token_errors};
use crate::token_text::TokenText;

const SCHEME: &str = "Bearer ";

/// Checks the callers of one listener.
#[derive(Clone)]
pub struct Authenticator {
    /// The node.
    pub context: Arc<NodeContext>,
    /// What the listener asks for.
    pub listener: ListenerKind,
}

/// What a listener asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// A token in each call.
    Tokens,
    /// Nothing: calls without a token are permitted everything.
    Insecure,
    /// Nothing: the socket of this machine, whose users were checked. It serves [`Reach::Local`] only.
    Local,
}

/// The caller of one request, and what its method needs.
#[derive(Clone)]
pub struct ApiCaller {
    pub identity: CallerIdentity,
    pub row: &'static AccessRow,
}

/// Who calls.
#[derive(Clone)]
pub enum CallerIdentity {
    /// A caller without a token, at a listener that needs none.
    Insecure,
    /// A user of this machine whom its system has named.
    Local,
    /// The owner of a valid token.
    Token { id: TokenId, rights: Rights, tenants: TenantScope },
}

/// Refuses the call, or adds its [`ApiCaller`] to the extensions of the request.
pub async fn authenticate(State(by): State<Authenticator>, mut request: Request, next: Next) -> Response {
    match by.caller(request.uri().path(), request.headers()) {
        Ok(Some(caller)) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Ok(None) => next.run(request).await,
        Err(refused) => Status::from(refused).into_http(),
    }
}

impl Authenticator {
    /// Returns the caller; `None` if the method is open.
    fn caller(&self, path: &str, headers: &HeaderMap) -> ApiResult<Option<ApiCaller>> {
        let row = row_of(path);
        if row.is_some_and(|row| row.reach == Reach::Open) {
            return Ok(None);
        }
        let identity = match headers.get(header::AUTHORIZATION) {
            _ if self.listener == ListenerKind::Local => CallerIdentity::Local,
            None if self.listener == ListenerKind::Insecure => CallerIdentity::Insecure,
            value => self.owner(value.and_then(|value| value.to_str().ok()).unwrap_or_default())?,
        };
        // A caller without a valid token does not learn which methods exist.
        let row = row.ok_or_else(token_errors::not_permitted)?;
        // The socket serves nothing else, and no other listener serves it.
        let is_served = (row.reach == Reach::Local) == (self.listener == ListenerKind::Local);
        is_served.then_some(()).ok_or_else(token_errors::not_permitted)?;
        if let CallerIdentity::Token { rights, tenants, .. } = &identity {
            let reaches = row.reach != Reach::Cluster || tenants.includes(None);
            (rights.contains(row.needs) && reaches).then_some(()).ok_or_else(token_errors::not_permitted)?;
        }
        Ok(Some(ApiCaller { identity, row }))
    }

    /// Returns the owner of the token in this header.
    fn owner(&self, header: &str) -> ApiResult<CallerIdentity> {
        let is_bearer = header.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
        let token: Option<TokenText> = is_bearer.then(|| header[SCHEME.len()..].parse().ok()).flatten();
        let (known, is_ready) = self.context.replica.read(|ledger| {
            let id = token.as_ref().map(|token| token.id);
            let known = id.and_then(|id| ledger.tokens().get(&id)).filter(|known| known.is_valid(ledger.head().now));
            (known.map(|known| known.grant.clone()), !ledger.tokens().is_empty())
        });
        // Without a token in its state, the node is joining or being founded.
        is_ready.then_some(()).ok_or_else(token_errors::no_tokens_yet)?;
        let token = token.ok_or_else(token_errors::token_not_valid)?;
        // An unknown id takes the same time as a wrong secret.
        let hash = known.as_ref().map_or(Hash([0; 32]), |grant| grant.hash);
        let is_right = token.has_hash(&hash);
        let grant = known.filter(|_| is_right).ok_or_else(token_errors::token_not_valid)?;
        Ok(CallerIdentity::Token { id: token.id, rights: grant.rights, tenants: grant.tenants })
    }
}
