//! Tokens of the API: create, list, revoke.

use std::ops::Bound;

use reveille_ledger::command::Command;
use reveille_ledger::ids::{Time, TokenId};
use reveille_ledger::token::{AdminToken, Rights, TenantScope, TokenCreate};
use reveille_proto::admin::v1::token_service_server::TokenService;
use reveille_proto::admin::v1::{
    CreateTokenRequest, CreateTokenResponse, ListTokensRequest, ListTokensResponse, RevokeTokenRequest,
    RevokeTokenResponse, Token,
};

use crate::server::admin::access::role_names;
use crate::server::admin::paging::Paging;
use crate::server::admin::{Admin, ApiResult, Call, token_errors, validate, views};
use crate::token_text::TokenText;

serve! {
    TokenService {
        create_token(CreateTokenRequest) -> CreateTokenResponse;
        list_tokens(ListTokensRequest) -> ListTokensResponse;
        revoke_token(RevokeTokenRequest) -> RevokeTokenResponse;
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
        roles: role_names(grant.rights),
        tenants,
        all_tenants: grant.tenants == TenantScope::All,
        created_at: Some(views::timestamp(*created_at)),
        expires_at: grant.expires_at.map(views::timestamp),
        revoked_at: revoked_at.map(views::timestamp),
        created_by: creator.map(|creator| creator.to_string()).unwrap_or_default(),
        valid: token.is_valid(now),
    }
}

impl Admin {
    async fn create_token(&self, request: CreateTokenRequest, call: &Call) -> ApiResult<CreateTokenResponse> {
        let secret = TokenText::generate();
        let now = self.read_latest(call, |ledger| ledger.head().now).await?;
        let (id, grant) = (secret.id, validate::token_grant(request, secret.hash(), self.now(now))?);
        let create = TokenCreate { id, grant, revokes: Rights::default() };
        self.write(Command::TokenCreate(Box::new(create)), "", call).await?;
        let token = self.context.replica.read(|ledger| {
            let known = ledger.tokens().get(&id);
            known.map(|known| shown(id, known, ledger.head().now))
        });
        Ok(CreateTokenResponse { token, secret: secret.to_string() })
    }

    async fn list_tokens(&self, request: ListTokensRequest, call: &Call) -> ApiResult<ListTokensResponse> {
        let paging: Paging<TokenId> = Paging::new("tokens", request.page_size, &request.page_token)?;
        let first = paging.after.map_or(Bound::Unbounded, Bound::Excluded);
        let query = self.read(request.stale, call, |ledger| {
            let rows = ledger.tokens().range((first, Bound::Unbounded)).take(paging.size + 1);
            rows.map(|(id, token)| (*id, shown(*id, token, ledger.head().now))).collect::<Vec<_>>()
        });
        let (mut rows, freshness) = query.await?;
        let next_page_token = paging.cut(&mut rows, |(id, _)| id);
        let tokens = rows.into_iter().map(|(_, token)| token).collect();
        Ok(ListTokensResponse { tokens, next_page_token, freshness })
    }

    async fn revoke_token(&self, request: RevokeTokenRequest, call: &Call) -> ApiResult<RevokeTokenResponse> {
        let id: TokenId = request.id.parse().map_err(|_| token_errors::no_token(&request.id))?;
        let reply = self.write(Command::TokenRevoke(id), "", call).await?;
        Ok(RevokeTokenResponse { index: reply.index })
    }
}
