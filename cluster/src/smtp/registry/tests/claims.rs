//! Claims, the turns of their tenants, and the relays of a pool together.
//!
//! A feeder takes one recipient after the other from the queue, when a relay has a session, and does not wait for its
//! dialogue. Each tenant has some recipients claimed ahead. A recipient whose dialogue ends is claimed again a while
//! later.

use super::*;
use crate::worker::pool_queue::{PoolQueue, PoolQueues, WaitingClaim};

/// Time between a dialogue's end and the claim that replaces it.
const AROUND: Duration = Duration::from_millis(50);

/// One tenant: its share, its number of claimed recipients, and the maximum size of its claims.
#[derive(Clone, Copy)]
struct Tenant {
    share: u32,
    claimed: u32,
    claim_max: u32,
}

/// State that the claims of one node share.
struct Node {
    relays: RelayRegistry,
    queues: PoolQueues<usize>,
    /// Duration of a dialogue with each relay.
    dialogues: BTreeMap<&'static str, Duration>,
    /// Number of dialogues that have ended, by tenant and relay.
    ended: Mutex<BTreeMap<(usize, String), u32>>,
    /// Number of recipients of each tenant that may be claimed.
    credit: Vec<AtomicU32>,
}

impl Node {
    fn queue(self: &Arc<Node>, tenant: usize, share: u32, recipients: u32) {
        let deadline = Instant::now() + Duration::from_secs(3_600);
        let recipients = (0..recipients as usize).collect();
        let name = tenant.to_string().as_str().into();
        let waiting = WaitingClaim { claim: tenant, tenant: name, share, recipients, deadline };
        if let Some(queue) = self.queues.push("default", waiting) {
            tokio::spawn(Arc::clone(self).feed(queue));
        }
    }

    async fn feed(self: Arc<Node>, queue: Arc<PoolQueue<usize>>) {
        while let Some(deadline) = queue.earliest() {
            let permit = self.relays.acquire("default", deadline).await.expect("a session");
            let (tenant, _, _) = queue.next_if(|_, _| true).expect("a recipient");
            let node = Arc::clone(&self);
            tokio::spawn(async move {
                tokio::time::sleep(node.dialogues[permit.relay()]).await;
                *node.ended.lock().entry((tenant, permit.relay().to_owned())).or_default() += 1;
                drop(permit);
                node.credit[tenant].fetch_add(1, Ordering::Relaxed);
            });
        }
    }
}

/// Returns how many dialogues of each tenant end at each relay within `seconds`. Each relay has ten sessions.
async fn ended(
    tenants: &[Tenant],
    dialogues: BTreeMap<&'static str, Duration>,
    seconds: u64,
) -> BTreeMap<(usize, String), u32> {
    let node = Arc::new(Node {
        relays: relays_of(dialogues.keys().map(|name| relay(name, 10))),
        queues: PoolQueues::default(),
        dialogues,
        ended: Mutex::default(),
        credit: tenants.iter().map(|tenant| AtomicU32::new(tenant.claimed)).collect(),
    });
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        for (number, tenant) in tenants.iter().enumerate() {
            let mut claimed = node.credit[number].swap(0, Ordering::Relaxed);
            while claimed > 0 {
                let recipients = claimed.min(tenant.claim_max);
                claimed -= recipients;
                node.queue(number, tenant.share, recipients);
            }
        }
        tokio::time::sleep(AROUND).await;
    }
    node.ended.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn pool_speed_is_the_sum_of_its_relays() {
    let dialogues = [("slow", Duration::from_secs(2)), ("fast", Duration::from_millis(5))];
    let tenant = Tenant { share: 1, claimed: 230, claim_max: 256 };
    for tenants in [&[tenant][..], &[tenant, tenant]] {
        let ended = ended(tenants, dialogues.into(), 6).await;
        let ended_of =
            |name: &str| ended.iter().filter(|((_, relay), _)| relay == name).map(|(_, ended)| ended).sum::<u32>();
        assert!((20..=30).contains(&ended_of("slow")), "ten in two seconds: {ended:?}");
        assert!((10_000..=12_000).contains(&ended_of("fast")), "two thousand a second: {ended:?}");
    }
}

/// Each tenant has claimed its share of two recipients for each session of a slow relay. So each has a waiting claim
/// whenever a session becomes free.
#[tokio::test(start_paused = true)]
async fn sessions_go_by_shares_whatever_the_claim_sizes() {
    let large = |claim_max| Tenant { share: 4, claimed: 20, claim_max };
    let small = |claim_max| Tenant { share: 1, claimed: 5, claim_max };
    let least = |claim_max| Tenant { share: 1, claimed: 2, claim_max };
    let equal = |claim_max| Tenant { share: 1, claimed: 20, claim_max };
    for (tenants, expected) in [
        ([large(256), small(256)], 4.0),
        ([large(1), small(256)], 4.0),
        ([large(256), small(1)], 4.0),
        ([equal(1), equal(256)], 1.0),
        ([Tenant { share: 10, ..large(256) }, least(256)], 10.0),
        // More claimed recipients than the other tenant's make no difference.
        ([Tenant { claimed: 200, ..large(1) }, small(256)], 4.0),
        ([Tenant { claimed: 200, ..equal(1) }, equal(256)], 1.0),
    ] {
        let ended = ended(&tenants, [("slow", Duration::from_secs(2))].into(), 200).await;
        let ended_of = |tenant| f64::from(ended[&(tenant, "slow".to_owned())]);
        let ratio = ended_of(0) / ended_of(1);
        assert!(ended_of(0) + ended_of(1) >= 960.0, "ten in two seconds: {ended:?}");
        assert!((expected * 0.9..=expected * 1.1).contains(&ratio), "{expected} is expected: {ended:?}");
    }
}
