//! Permits for proposals in flight on one node, by count and by bytes.
//!
//! A proposal acquires a permit before it is stamped. The permit is released when its write is done, even if the caller
//! has stopped waiting. A proposal that gets no permit by its deadline did not happen.

use std::sync::Arc;
use std::time::Instant;

use reveille_ledger::command::ENTRY_BYTES_MAX;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use crate::proposer::ProposeError;

/// Maximum number of proposals in flight: enough for many disk writes, few enough to be applied within a second.
pub(crate) const IN_FLIGHT_MAX: usize = 4_096;
/// Maximum bytes in flight: about what the log and two peers accept in a second.
const IN_FLIGHT_BYTES_MAX: usize = 32 * 1024 * 1024;

// The largest proposal can get a permit, and the number of bytes fits the semaphore's counter.
const _: () = assert!(ENTRY_BYTES_MAX <= IN_FLIGHT_BYTES_MAX);
const _: () = assert!(IN_FLIGHT_BYTES_MAX <= u32::MAX as usize);

/// All permits of one node. A proposal takes one of the count, and its size of the bytes.
pub(crate) struct InFlight {
    count: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

/// Permit for one proposal. Dropping it releases it.
pub(crate) struct InFlightPermit {
    _count: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl InFlight {
    pub fn new() -> InFlight {
        InFlight::of(IN_FLIGHT_MAX, IN_FLIGHT_BYTES_MAX)
    }

    fn of(count: usize, bytes: usize) -> InFlight {
        InFlight { count: Arc::new(Semaphore::new(count)), bytes: Arc::new(Semaphore::new(bytes)) }
    }

    /// Waits for a permit until the deadline, in order of arrival. Fails with `Busy` at the deadline.
    pub async fn acquire(&self, bytes: usize, deadline: Instant) -> Result<Arc<InFlightPermit>, ProposeError> {
        let charge = u32::try_from(bytes).unwrap_or(u32::MAX);
        let both = async {
            let count = Arc::clone(&self.count).acquire_owned().await?;
            let bytes = Arc::clone(&self.bytes).acquire_many_owned(charge).await?;
            Ok::<_, AcquireError>(Arc::new(InFlightPermit { _count: count, _bytes: bytes }))
        };
        match timeout_at(deadline.into(), both).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(ProposeError::Stopped),
            Err(_) => Err(ProposeError::Busy),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn proposal_without_permit_fails_at_its_deadline() {
        let in_flight = InFlight::of(2, 100);
        let first = in_flight.acquire(60, soon()).await.expect("there is room");
        let past = Instant::now();
        assert_eq!(in_flight.acquire(60, past).await.err(), Some(ProposeError::Busy), "too many bytes");
        let _second = in_flight.acquire(40, soon()).await.expect("just enough room");
        assert_eq!(in_flight.acquire(0, past).await.err(), Some(ProposeError::Busy), "too many");
        drop(first);
        in_flight.acquire(60, soon()).await.expect("what is done gives its permit back");
    }
}
