//! Tokens of the admin API: which entries they permit, and how they are created and revoked.
//!
//! An entry is authorised by the state at its own index. So a token that was revoked before it permits nothing,
//! whatever the node had applied that proposed the entry.

use super::Context;
use super::bounds::{bounded, refuse_if};
use crate::command::Actor;
use crate::model::{
    AdminToken, CommandOutcome, CommandRefusal, Impossible, Ledger, LimitedQuantity, TenantScope, Time, TokenCreate,
    TokenId,
};

impl Ledger {
    /// Checks whether the state permits this actor what it states. Readers of the state use it too.
    ///
    /// # Errors
    /// [`CommandRefusal::TokenNotValid`] if the token is unknown, revoked or expired, and
    /// [`CommandRefusal::NotPermitted`] if it has not the rights or not the tenant.
    pub fn authorise(&self, actor: &Actor) -> Result<(), CommandRefusal> {
        self.authorise_at(actor, self.head.now)
    }

    pub(super) fn authorise_at(&self, actor: &Actor, now: Time) -> Result<(), CommandRefusal> {
        let Actor::Operator { token, needs, tenant } = actor else { return Ok(()) };
        let known = self.tokens.get(token).filter(|known| known.is_valid(now)).ok_or(CommandRefusal::TokenNotValid)?;
        let permits = known.grant.rights.contains(*needs) && known.grant.tenants.includes(tenant.as_deref());
        refuse_if(!permits, CommandRefusal::NotPermitted)
    }

    /// Creates a token. A repeat with the same id and the same grant changes nothing.
    pub(super) fn token_create(
        &mut self,
        context: &Context,
        create: &TokenCreate,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let TokenCreate { id, grant, revokes } = create;
        if let Some(known) = self.tokens.get(id) {
            refuse_if(known.grant != *grant, CommandRefusal::TokenIdTaken(*id))?;
            return Ok(CommandOutcome::Done);
        }
        let limits = self.limits();
        bounded(LimitedQuantity::TokenNameBytes, grant.name.len(), limits.token_name_bytes_max)?;
        if let TenantScope::Only(tenants) = &grant.tenants {
            bounded(LimitedQuantity::TokenTenants, tenants.len(), limits.token_tenants_max)?;
            let longest = tenants.iter().map(String::len).max().unwrap_or_default();
            bounded(LimitedQuantity::TokenNameBytes, longest, limits.token_name_bytes_max)?;
        }
        refuse_if(grant.expires_at.is_some_and(|end| end <= context.now), Impossible::TokenEnded)?;
        let creator = match &context.actor {
            Actor::Operator { token, .. } => Some(*token),
            Actor::System | Actor::Insecure | Actor::Local => None,
        };
        // No token permits more than the one that created it.
        let within =
            |of: &AdminToken| of.grant.rights.contains(grant.rights) && of.grant.tenants.includes_all(&grant.tenants);
        let exceeds = creator.is_some_and(|creator| !self.tokens.get(&creator).is_some_and(within));
        refuse_if(exceeds, CommandRefusal::NotPermitted)?;
        let revoked = self.tokens.iter().filter(|(_, known)| known.grant.rights.overlaps(*revokes));
        let revoked: Vec<TokenId> = revoked.map(|(id, _)| *id).collect();
        self.forget_tokens(context, limits.tokens_max, &revoked)?;
        for id in revoked {
            self.end_token(context, id);
        }
        let (created_at, index) = (context.now, context.index);
        let token = AdminToken { grant: grant.clone(), creator, created_at, index, revoked_at: None };
        self.tokens.put(*id, token);
        Ok(CommandOutcome::Done)
    }

    /// Revokes a token. A repeat changes nothing.
    pub(super) fn token_revoke(&mut self, context: &Context, id: TokenId) -> Result<CommandOutcome, CommandRefusal> {
        refuse_if(!self.tokens.contains(&id), CommandRefusal::NoSuchToken(id))?;
        self.end_token(context, id);
        Ok(CommandOutcome::Done)
    }

    fn end_token(&mut self, context: &Context, id: TokenId) {
        let valid = self.tokens.get(&id).is_some_and(|known| known.is_valid(context.now));
        if let Some(token) = valid.then(|| self.tokens.edit(&id)).flatten() {
            token.revoked_at = Some(context.now);
        }
    }

    /// Removes tokens that ended long ago. If `most` tokens leave no place for one more, it also removes ended tokens,
    /// those that ended first. Tokens that end in this entry count as ended.
    fn forget_tokens(&mut self, context: &Context, most: usize, ending: &[TokenId]) -> Result<(), CommandRefusal> {
        let end = |id: &TokenId, known: &AdminToken| {
            let ends_now = ending.contains(id).then_some(context.now);
            known.ends_at().into_iter().chain(ends_now).min().filter(|end| *end <= context.now)
        };
        let mut ended: Vec<_> = self.tokens.iter().filter_map(|(id, known)| Some((end(id, known)?, *id))).collect();
        ended.sort_unstable();
        let surplus = (self.tokens.len() + 1).saturating_sub(most);
        refuse_if(
            surplus > ended.len(),
            CommandRefusal::TooLarge { what: LimitedQuantity::Tokens, bound: most as u64 },
        )?;
        let kept_ms = self.limits().token_kept_ms;
        for (place, (end, id)) in ended.into_iter().enumerate() {
            if place < surplus || context.now.since_ms(end) > kept_ms {
                self.tokens.remove(&id);
            }
        }
        Ok(())
    }
}
