//! Tokens of the API: create, show, list, revoke.

use reveille_ledger::command::{Actor, Command};
use reveille_ledger::ids::{Time, TokenId};
use reveille_ledger::token::{AdminToken, Rights, TenantScope, TokenCreate, TokenGrant};
use reveille_proto::admin::v1::{
    CreateTokenRequest, CreateTokenResponse, GetOwnTokenRequest, GetOwnTokenResponse, ListTokensRequest,
    ListTokensResponse, ResetTokensRequest, ResetTokensResponse, RevokeTokenRequest, RevokeTokenResponse, Token,
};

use crate::server::admin::access::{ADMIN, all_rights, roles_of};
use crate::server::admin::paging::Paging;
use crate::server::admin::{Admin, ApiResult, Call, error_texts, validate, views};
use crate::token_text::TokenText;

/// Name of a token that `token reset` made.
const RESET_NAME: &str = "reset";

serve! {
    token_service_server::TokenService {
        cluster create_token(CreateTokenRequest) -> CreateTokenResponse;
        cluster get_own_token(GetOwnTokenRequest) -> GetOwnTokenResponse;
        cluster list_tokens(ListTokensRequest) -> ListTokensResponse;
        cluster revoke_token(RevokeTokenRequest) -> RevokeTokenResponse;
        cluster reset_tokens(ResetTokensRequest) -> ResetTokensResponse;
    }
}

fn shown(id: TokenId, token: &AdminToken, now: Time) -> Token {
    let AdminToken { grant, creator, created_at, revoked_at, .. } = token;
    let tenants = match &grant.tenants {
        TenantScope::All => Vec::new(),
        TenantScope::Only(tenants) => tenants.iter().cloned().collect(),
    };
    Token {
        id: id.to_string(),
        name: grant.name.clone(),
        roles: roles_of(grant.rights).into_iter().map(i32::from).collect(),
        tenants,
        all_tenants: grant.tenants == TenantScope::All,
        create_time: Some(views::timestamp(*created_at)),
        expire_time: grant.expires_at.map(views::timestamp),
        revoke_time: revoked_at.map(views::timestamp),
        created_by: creator.map(|creator| creator.to_string()).unwrap_or_default(),
        valid: token.is_valid(now),
    }
}

impl Admin {
    async fn create_token(&self, request: CreateTokenRequest, call: &Call) -> ApiResult<CreateTokenResponse> {
        let secret = TokenText::generate();
        let now = self.read_latest(call, |ledger| ledger.head().now).await?;
        let (id, grant) = (secret.id, validate::token_grant(request, secret.hash(), self.now(now))?);
        let token = self.put_token(TokenCreate { id, grant, revokes: Rights::default() }, call).await?;
        Ok(CreateTokenResponse { token, secret: secret.to_string() })
    }

    async fn reset_tokens(&self, request: ResetTokensRequest, call: &Call) -> ApiResult<ResetTokensResponse> {
        let secret = TokenText::generate();
        let (name, hash) = (RESET_NAME.to_owned(), secret.hash());
        let grant = TokenGrant { name, hash, rights: all_rights(), tenants: TenantScope::All, expires_at: None };
        let revokes = if request.keep { Rights::default() } else { ADMIN };
        let token = self.put_token(TokenCreate { id: secret.id, grant, revokes }, call).await?;
        Ok(ResetTokensResponse { token, secret: secret.to_string() })
    }

    async fn put_token(&self, create: TokenCreate, call: &Call) -> ApiResult<Option<Token>> {
        let id = create.id;
        self.write(Command::TokenCreate(Box::new(create)), call).await?;
        Ok(self.context.replica.read(|ledger| {
            let known = ledger.tokens().get(&id);
            known.map(|known| shown(id, known, ledger.head().now))
        }))
    }

    async fn get_own_token(&self, _: GetOwnTokenRequest, call: &Call) -> ApiResult<GetOwnTokenResponse> {
        // The state of this node permitted the call just now. A check for all tenants would refuse those of one.
        let token = self.context.replica.read(|ledger| match call.actor() {
            Actor::Operator { token: id, .. } => {
                ledger.tokens().get(id).map(|token| shown(*id, token, ledger.head().now))
            }
            Actor::System | Actor::Insecure | Actor::Local => None,
        });
        let cluster = self.context.replica.cluster().map(|cluster| cluster.to_string()).unwrap_or_default();
        Ok(GetOwnTokenResponse { cluster, token })
    }

    async fn list_tokens(&self, request: ListTokensRequest, call: &Call) -> ApiResult<ListTokensResponse> {
        let paging: Paging<TokenId> = Paging::new("tokens", request.page_size, &request.page_token)?;
        let query = self.read(request.stale, call, |ledger| {
            let rows = ledger.tokens().range(paging.rest()).take(paging.size + 1);
            rows.map(|(id, token)| (*id, shown(*id, token, ledger.head().now))).collect::<Vec<_>>()
        });
        let (mut rows, freshness) = query.await?;
        let next_page_token = paging.cut(&mut rows, |(id, _)| id);
        let tokens = rows.into_iter().map(|(_, token)| token).collect();
        Ok(ListTokensResponse { tokens, next_page_token, freshness })
    }

    async fn revoke_token(&self, request: RevokeTokenRequest, call: &Call) -> ApiResult<RevokeTokenResponse> {
        let id: TokenId = request.id.parse().map_err(|_| error_texts::no_token(&request.id))?;
        let reply = self.write(Command::TokenRevoke(id), call).await?;
        Ok(RevokeTokenResponse { index: reply.index })
    }
}
