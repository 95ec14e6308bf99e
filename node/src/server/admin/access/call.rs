//! A call that the access rules permit: its deadline, and the actor of its entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use reveille_ledger::command::Actor;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::token::{Rights, TenantScope};
use reveille_ledger::{DEFAULT_TENANT, Ledger};
use tonic::{Code, Request, Status};

use super::layer::{ApiCaller, CallerIdentity};
use super::subject::Subject;
use super::table::Reach;
use crate::server::admin::{ApiResult, deadline, error_texts, validate};

const EVERYTHING: Rights = Rights(u32::MAX);

/// A permitted call. Handlers read and write with it.
#[derive(Clone, Debug)]
pub struct Call {
    /// When its response is due.
    pub deadline: Instant,
    actor: Actor,
    /// All rights of the caller.
    rights: Rights,
    /// All tenants of the caller.
    tenants: TenantScope,
    /// The id with which the request can be repeated. Empty if it has none.
    request_id: String,
    /// Index of the last entry that the call has committed; 0: none yet.
    written: Arc<AtomicU64>,
}

impl Call {
    fn new(deadline: Instant, actor: Actor, rights: Rights, tenants: TenantScope) -> Call {
        Call { deadline, actor, rights, tenants, request_id: String::new(), written: Arc::default() }
    }

    /// A call of the node itself.
    pub fn of_system(deadline: Instant) -> Call {
        Call::of_all(deadline, Actor::System)
    }

    fn of_all(deadline: Instant, actor: Actor) -> Call {
        Call::new(deadline, actor, EVERYTHING, TenantScope::All)
    }

    /// The same call, of a request that can be repeated with this id. A text that is no id is left out of its errors.
    pub fn named(self, request_id: &str) -> Call {
        let request_id = Some(request_id).filter(|id| validate::is_key(id)).unwrap_or_default().to_owned();
        Call { request_id, ..self }
    }

    /// The same call with another deadline, for work that continues after its response has begun.
    pub fn until(&self, deadline: Instant) -> Call {
        Call { deadline, ..self.clone() }
    }

    /// The actor of the entries that this call proposes.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// The id with which the request can be repeated. Empty if it has none.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Records that an entry of this call is committed.
    pub fn wrote(&self, index: u64) {
        self.written.store(index, Ordering::Relaxed);
    }

    /// Returns the error of the call. A step that found no leader after another one was committed is no error that says
    /// that nothing happened.
    pub fn outcome(&self, error: Status) -> Status {
        match self.written.load(Ordering::Relaxed) {
            index if index > 0 && error.code() == Code::Unavailable => {
                error_texts::not_finished(index).request(&self.request_id).into()
            }
            _ => error,
        }
    }

    /// The tenants that the caller reaches.
    pub fn tenants(&self) -> &TenantScope {
        &self.tenants
    }

    /// True if the caller has all of these rights.
    pub fn has(&self, rights: Rights) -> bool {
        self.rights.contains(rights)
    }

    /// Checks the call against this state: the token may have been revoked since the call began.
    pub fn check(&self, ledger: &Ledger) -> ApiResult<()> {
        ledger.authorise(&self.actor).map_err(|refusal| match refusal {
            CommandRefusal::TokenNotValid => error_texts::token_not_valid(),
            _ => error_texts::not_permitted(),
        })
    }
}

/// Checks the message of a request, and returns it with its call. Every handler gets its message from here. A message
/// that names no tenant names the default tenant afterwards.
pub fn authorise<T: Subject>(request: Request<T>) -> ApiResult<(Call, T)> {
    let deadline = deadline::of(&request);
    // Only the layer adds it. So a service that is served without the layer permits nothing.
    let caller = request.extensions().get::<ApiCaller>().cloned().ok_or_else(error_texts::not_permitted)?;
    let mut message = request.into_inner();
    let mut named: Vec<String> = Vec::new();
    message.visit_tenants(&mut |tenant: &mut String| {
        if tenant.is_empty() {
            DEFAULT_TENANT.clone_into(tenant);
        }
        if !named.contains(tenant) {
            named.push(tenant.clone());
        }
    });
    let (id, rights, tenants) = match caller.identity {
        CallerIdentity::Insecure => return Ok((Call::of_all(deadline, Actor::Insecure), message)),
        CallerIdentity::Local => return Ok((Call::of_all(deadline, Actor::Local), message)),
        CallerIdentity::Token { id, rights, tenants } => (id, rights, tenants),
    };
    let needs = caller.row.needs.union(message.needs_more());
    let tenant = match (caller.row.reach, named.as_mut_slice()) {
        (Reach::Tenant, [tenant]) => Some(std::mem::take(tenant)),
        // A message that names several tenants is one entry, so its caller must reach all of them.
        _ => None,
    };
    let reaches = caller.row.reach == Reach::NoTenant || tenants.includes(tenant.as_deref());
    (rights.contains(needs) && reaches).then_some(()).ok_or_else(error_texts::not_permitted)?;
    let actor = Actor::Operator { token: id, needs, tenant };
    Ok((Call::new(deadline, actor, rights, tenants), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_after_a_committed_entry_does_not_say_that_nothing_happened() {
        let call = Call::of_system(Instant::now());
        let of_call = |code| call.outcome(Status::new(code, "nothing happened"));
        assert_eq!(of_call(Code::Unavailable).code(), Code::Unavailable);
        call.clone().wrote(7);
        let unknown = of_call(Code::Unavailable);
        assert_eq!(unknown.code(), Code::DeadlineExceeded);
        assert!(unknown.message().starts_with("entry 7 of this call is in force"), "{unknown}");
        assert_eq!(of_call(Code::FailedPrecondition).message(), "nothing happened");
    }
}
