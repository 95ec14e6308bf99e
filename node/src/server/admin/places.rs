//! Places for work of one kind that a node does at once. Tokens of one tenant get at most half of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use reveille_ledger::token::TenantScope;
use reveille_proto::admin::v1::ErrorReason;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Code;

use super::ApiError;

/// A place, until it is dropped.
pub type Place = Vec<OwnedSemaphorePermit>;

/// The places of one kind.
pub struct Places {
    all: Arc<Semaphore>,
    share: usize,
    /// The shares that are in use.
    shares: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Places {
    pub fn new(count: usize) -> Places {
        Places { all: Arc::new(Semaphore::new(count)), share: count / 2, shares: Mutex::default() }
    }

    /// Waits for a place in the share of each of these tenants.
    pub async fn take(&self, tenants: &TenantScope) -> Place {
        let mut place = Vec::new();
        for semaphore in self.semaphores(tenants) {
            // It is never closed.
            place.extend(semaphore.acquire_owned().await);
        }
        place
    }

    /// Returns a place if there is one. `what` names them in errors.
    pub fn try_take(&self, tenants: &TenantScope, what: &str) -> Result<Place, ApiError> {
        let permits = self.semaphores(tenants).into_iter().map(Semaphore::try_acquire_owned);
        permits.collect::<Result<_, _>>().map_err(|_| self.refused(tenants, what))
    }

    /// Returns the error of a caller for which there is no place.
    pub fn refused(&self, tenants: &TenantScope, what: &str) -> ApiError {
        let is_used = |share: &Arc<Semaphore>| !Arc::ptr_eq(share, &self.all) && share.available_permits() == 0;
        match self.semaphores(tenants).iter().any(is_used) {
            true => share_used(&format!("the tenant has {} {what} at this node, its share", self.share)),
            false => {
                let message = format!("this node has too many {what}; nothing happened");
                ApiError::new(Code::Unavailable, ErrorReason::Busy, message)
            }
        }
    }

    /// Returns the semaphores that a place needs. A tenant's share comes first: a caller that waits for its own share
    /// takes no place from others. All callers take shares in the same order, so none waits for another in a circle.
    fn semaphores(&self, tenants: &TenantScope) -> Vec<Arc<Semaphore>> {
        let mut semaphores = Vec::new();
        if let TenantScope::Only(tenants) = tenants {
            let mut shares = self.shares.lock();
            shares.retain(|_, share| Arc::strong_count(share) > 1);
            let new = || Arc::new(Semaphore::new(self.share));
            semaphores.extend(tenants.iter().map(|name| Arc::clone(shares.entry(name.clone()).or_insert_with(new))));
        }
        semaphores.push(Arc::clone(&self.all));
        semaphores
    }
}

/// The caller has its share of what this node does at once. `what` says of what.
pub fn share_used(what: &str) -> ApiError {
    ApiError::new(Code::ResourceExhausted, ErrorReason::ShareUsed, format!("{what}; nothing happened"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(tenants: &[&str]) -> TenantScope {
        TenantScope::Only(tenants.iter().map(|&name| name.to_owned()).collect())
    }

    #[tokio::test]
    async fn tenant_takes_half_of_the_places() {
        let places = Places::new(4);
        let refused = |tenants: &TenantScope| places.try_take(tenants, "streams").map(drop).map_err(|no| no.reason());
        let mut taken = vec![places.take(&only(&["evil"])).await];
        taken.push(places.try_take(&only(&["evil", "acme"]), "streams").expect("a place"));
        assert_eq!(refused(&only(&["evil"])), Err(ErrorReason::ShareUsed));
        assert_eq!(refused(&only(&["acme", "evil"])), Err(ErrorReason::ShareUsed), "it is in the share of both");
        taken.push(places.take(&only(&["acme"])).await);
        taken.push(places.take(&TenantScope::All).await);
        assert_eq!(refused(&TenantScope::All), Err(ErrorReason::Busy));
        taken.clear();
        assert_eq!(refused(&only(&["evil"])), Ok(()), "its places are free again");
    }
}
