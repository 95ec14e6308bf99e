//! Authenticates each call before anything of its message is read.
//!
//! It looks into the state of this node only. So a token is known here once this node has applied its entry, and a
//! revoked one is refused once this node has applied that. Reads and writes check again.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use reveille_cluster::process::context::NodeContext;
use reveille_ledger::ids::{Hash, TokenId};
use reveille_ledger::token::{Rights, TenantScope};
use reveille_raft::LogInterval;
use reveille_raft::listen::{CONNECTIONS_OF_TENANTS_MAX, CONNECTIONS_OF_TOKEN_MAX, CallingToken, Client};
use tonic::{Code, Status};

use super::rights::VIEW;
use super::table::{MethodRow, Reach, row_of};
use crate::server::admin::places::share_used;
use crate::server::admin::{ApiError, ApiResult, error_texts};
use crate::token_text::TokenText;

/// Scheme of the header `authorization`.
const SCHEME: &str = "Bearer ";
/// Path of the only page that needs a token, for the count of denied calls.
const PAGE: &str = "/metrics";

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
    pub row: &'static MethodRow,
}

/// Who calls.
#[derive(Clone)]
pub enum CallerIdentity {
    /// A caller without a token, at a listener that needs none.
    Insecure,
    /// A process on this machine, under the user of this node or root.
    Local,
    /// The owner of a valid token.
    Token { id: TokenId, rights: Rights, tenants: TenantScope },
}

impl CallerIdentity {
    fn token(&self) -> Option<CallingToken> {
        match self {
            CallerIdentity::Token { id, tenants, .. } => {
                Some(CallingToken { id: *id, spans_tenants: *tenants == TenantScope::All })
            }
            CallerIdentity::Insecure | CallerIdentity::Local => None,
        }
    }
}

/// Refuses the call, or adds its [`ApiCaller`] to the extensions of the request.
pub async fn authenticate(State(by): State<Authenticator>, mut request: Request, next: Next) -> Response {
    let (row, given) = (row_of(request.uri().path()), GivenToken::of(request.headers()));
    let client = request.extensions().get::<Client>();
    let response = match by.caller(row, &given) {
        Ok(Some(caller)) if client.is_some_and(|client| !client.permit(caller.identity.token())) => {
            Status::from(too_many_connections()).into_http()
        }
        Ok(Some(caller)) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Ok(None) => next.run(request).await,
        Err(refused) => {
            if let (Some(client), Some(id), Code::Unauthenticated) = (client, given.id(), refused.code()) {
                client.deny(id);
            }
            Status::from(refused).into_http()
        }
    };
    if let Some(code @ (Code::Unauthenticated | Code::PermissionDenied)) = code_of(&response) {
        count_denied(code, row.map_or("no method", |row| row.path), given.id());
    }
    response
}

fn too_many_connections() -> ApiError {
    share_used(&format!(
        "the token has {CONNECTIONS_OF_TOKEN_MAX} other connections to this node, or tokens of tenants have \
         {CONNECTIONS_OF_TENANTS_MAX}: as many as they may"
    ))
}

/// Answers a request for a page about the whole cluster only if its token may view that.
pub async fn authenticate_page(State(context): State<Arc<NodeContext>>, request: Request, next: Next) -> Response {
    let by = Authenticator { context, listener: ListenerKind::Tokens };
    let given = GivenToken::of(request.headers());
    let Err(refused) = by.may_view_cluster(&given) else { return next.run(request).await };
    let status = match refused.code() {
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        _ => return (StatusCode::SERVICE_UNAVAILABLE, format!("{refused}\n")).into_response(),
    };
    count_denied(refused.code(), PAGE, given.id());
    (status, [(header::WWW_AUTHENTICATE, SCHEME.trim_end())], format!("{refused}\n")).into_response()
}

/// What a request has in its header `authorization`.
enum GivenToken {
    None,
    /// Something that is not a token.
    Other,
    Token(TokenText),
}

impl GivenToken {
    fn of(headers: &HeaderMap) -> GivenToken {
        let Some(value) = headers.get(header::AUTHORIZATION) else { return GivenToken::None };
        let value = value.to_str().unwrap_or_default();
        let is_bearer = value.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
        let token = is_bearer.then(|| value[SCHEME.len()..].parse().ok()).flatten();
        token.map_or(GivenToken::Other, GivenToken::Token)
    }

    /// Returns the id of the token, which is no secret.
    fn id(&self) -> Option<TokenId> {
        match self {
            GivenToken::Token(token) => Some(token.id),
            GivenToken::None | GivenToken::Other => None,
        }
    }
}

/// Returns the status of a response that was refused before its first message.
fn code_of(response: &Response) -> Option<Code> {
    Status::from_header_map(response.headers()).map(|status| status.code())
}

impl Authenticator {
    /// Returns the caller; `None` if the method is open.
    fn caller(&self, row: Option<&'static MethodRow>, given: &GivenToken) -> ApiResult<Option<ApiCaller>> {
        if row.is_some_and(|row| row.reach == Reach::Open) {
            return Ok(None);
        }
        let identity = match self.listener {
            ListenerKind::Local => CallerIdentity::Local,
            // Where there are no tokens, as in `reveille dev`, a program may still send the one that it has elsewhere.
            ListenerKind::Insecure if matches!(given, GivenToken::None) || !self.has_tokens() => {
                CallerIdentity::Insecure
            }
            ListenerKind::Insecure | ListenerKind::Tokens => self.owner(given)?,
        };
        // A caller without a valid token does not learn which methods exist.
        let row = row.ok_or_else(error_texts::not_permitted)?;
        // The socket serves nothing else, and no other listener serves it.
        let is_served = (row.reach == Reach::Local) == (self.listener == ListenerKind::Local);
        is_served.then_some(()).ok_or_else(error_texts::not_permitted)?;
        if let CallerIdentity::Token { rights, tenants, .. } = &identity {
            let reaches = row.reach != Reach::Cluster || tenants.includes(None);
            (rights.contains(row.needs) && reaches).then_some(()).ok_or_else(error_texts::not_permitted)?;
        }
        Ok(Some(ApiCaller { identity, row }))
    }

    fn may_view_cluster(&self, given: &GivenToken) -> ApiResult<()> {
        let CallerIdentity::Token { rights, tenants, .. } = self.owner(given)? else { return Ok(()) };
        (rights.contains(VIEW) && tenants.includes(None)).then_some(()).ok_or_else(error_texts::not_permitted)
    }

    fn has_tokens(&self) -> bool {
        self.context.replica.read(|ledger| !ledger.tokens().is_empty())
    }

    /// Returns the owner of a token.
    fn owner(&self, given: &GivenToken) -> ApiResult<CallerIdentity> {
        let (known, is_ready) = self.context.replica.read(|ledger| {
            let known = given.id().and_then(|id| ledger.tokens().get(&id));
            let known = known.filter(|known| known.is_valid(ledger.head().now));
            (known.map(|known| known.grant.clone()), !ledger.tokens().is_empty())
        });
        // Without a token in its state, the node is joining or being founded.
        is_ready.then_some(()).ok_or_else(error_texts::no_tokens_yet)?;
        let GivenToken::Token(token) = given else { return Err(error_texts::token_not_valid()) };
        // An unknown id takes the same time as a wrong secret.
        let hash = known.as_ref().map_or(Hash([0; 32]), |grant| grant.hash);
        let is_right = token.has_hash(&hash);
        let grant = known.filter(|_| is_right).ok_or_else(error_texts::token_not_valid)?;
        Ok(CallerIdentity::Token { id: token.id, rights: grant.rights, tenants: grant.tenants })
    }
}

/// Counts a denied call, and logs one now and then, without its token. `path` is one of the server's own paths, never a
/// text of the caller.
fn count_denied(code: Code, path: &'static str, token: Option<TokenId>) {
    static LOGGED: LogInterval = LogInterval::new();
    let reason = match code {
        Code::Unauthenticated => "token_not_valid",
        _ => "not_permitted",
    };
    metrics::counter!("reveille_calls_denied_total", "reason" => reason).increment(1);
    if LOGGED.is_due() {
        tracing::warn!(path, token = token.map(tracing::field::display), reason, "a call was denied");
    }
}
