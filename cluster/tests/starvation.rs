//! A node whose work takes every thread that it has: Raft, its leader's actors and its lease go on all the same.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reveille_cluster::clock::{Clock, SystemClock};
use reveille_cluster::desk::{Desk, Introduction};
use reveille_cluster::lease::LEASE;
use reveille_cluster::relay::TcpDialer;
use reveille_cluster::site::Site;
use reveille_cluster::station::{Leading, Options, Station};
use reveille_cluster::zones::Zones;
use reveille_ledger::command::{Command, Next, ScheduleCreate};
use reveille_ledger::content::{Audience, Content, Recipient};
use reveille_ledger::decide::calendar::When;
use reveille_ledger::ids::{Epoch, Holder, Incarnation, NodeId, Nominal};
use reveille_ledger::policy::Policies;
use reveille_ledger::reply::Outcome;
use reveille_raft::{ClusterId, GrpcTransport, Member, Replica, Role};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);
/// Threads of the runtime that is starved.
const WORKERS: usize = 2;

/// Three voters: the only one that can call an election is a voter that hears no leader.
async fn three(folder: &Path) -> Vec<(Arc<Site>, Leading)> {
    let mut nodes = Vec::new();
    let mut members = std::collections::BTreeMap::new();
    for number in 1..=3 {
        let transport = GrpcTransport::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).expect("a port");
        let (address, name) = (transport.address().to_string(), format!("n{number}"));
        let me = Holder { node: NodeId(number), incarnation: Incarnation(1) };
        members.insert(me.node, Member { name: name.clone(), address: address.clone(), votes: true });
        let introduction = Introduction { name: name.clone(), address, version: "test".into(), tzdb: "test".into() };
        let desk = Arc::new(Desk::new(Arc::new(SystemClock), introduction.clone()));
        let mut options = reveille_raft::Options::new(folder.join(&name), me.node, Arc::new(transport));
        // Calm: on a small machine the spinning threads and Raft's are on the same two cores.
        options.heartbeat_ms = 100;
        options.election_ms = 2_000..4_000;
        options.startup_delay = Duration::ZERO;
        let replica = Replica::start(options, desk.clone()).await.expect("a replica");
        let site = Arc::new(Site::new(replica, me, introduction, Arc::new(SystemClock), Zones::bundled("test")));
        desk.open(&site);
        let leading = Station::lead(&site);
        nodes.push((site, leading));
    }
    nodes[0].0.replica.initialize(ClusterId(9), &members).await.expect("a cluster");
    nodes
}

async fn station((site, leading): (Arc<Site>, Leading), folder: &Path) -> Station {
    let name = site.introduction.name.clone();
    let journal_dir = folder.join(format!("{name}-journal"));
    let options = Options { name, life: 1, journal_dir, dialer: Arc::new(TcpDialer::new(Duration::from_secs(5))) };
    Station::start(site, leading, options, &CancellationToken::new()).await.expect("a station")
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().expect("a runtime")
}

/// Waits on a thread of its own, which no runtime has to wake.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Takes every thread of a runtime until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn all_threads_of(runtime: &Runtime) -> Busy {
        let (over, spinning) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..WORKERS {
            let (over, spinning) = (Arc::clone(&over), Arc::clone(&spinning));
            runtime.spawn(async move {
                spinning.fetch_add(1, Ordering::SeqCst);
                while !over.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
            });
        }
        until("every thread spins", || spinning.load(Ordering::SeqCst) == WORKERS);
        Busy(over)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn due_in(milliseconds: i64) -> Command {
    let now = SystemClock.wall();
    let due = now.plus_ms(milliseconds);
    let recipient =
        Recipient { address: "a@example.net".into(), key: "a@example.net".into(), values: vec!["reader".into()] };
    Command::ScheduleCreate(Box::new(ScheduleCreate {
        request: None,
        tenant: "default".into(),
        name: "once".into(),
        when: When::At { instant_ms: due.0 },
        zone: "UTC".into(),
        start: None,
        end: None,
        max_runs: None,
        policies: Policies::default(),
        pool: "default".into(),
        priority: 0,
        paused: None,
        content: Content {
            sender: "Reveille <from@example.org>".into(),
            reply_to: None,
            subject: "Hello".into(),
            text: Some("Good morning\n".into()),
            html: None,
            headers: vec![],
            variables: vec![],
        },
        audience: Audience { columns: vec!["name".into()], recipients: vec![recipient] },
        after: now,
        next: Some(Next { nominal: Nominal::Instant(due), due }),
        tzdb: "test".into(),
    }))
}

fn epoch(site: &Site) -> Option<Epoch> {
    site.replica.read(|ledger| ledger.head().epoch.map(|epoch| epoch.epoch))
}

fn has_lease(site: &Site) -> bool {
    let applied = site.replica.read(|ledger| ledger.head().applied);
    site.lease.runs(site.clock.boot(), applied)
}

#[test]
fn with_every_work_thread_busy_nobody_is_elected_the_timer_fires_and_leases_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let (work, hand) = (runtime(), runtime());
    let stations: Vec<Station> = work.block_on(async {
        let nodes = three(folder.path()).await;
        futures::future::join_all(nodes.into_iter().map(|node| station(node, folder.path()))).await
    });
    let sites: Vec<Arc<Site>> = stations.iter().map(|station| Arc::clone(&station.site)).collect();
    until("all have leases", || sites.iter().all(|site| has_lease(site)));
    let roles: Vec<Role> = sites.iter().map(|site| *site.replica.role().borrow()).collect();
    let began = epoch(&sites[0]);

    let busy = Busy::all_threads_of(&work);
    let since = Instant::now();
    let created = hand.block_on(sites[0].replica.propose(&due_in(500), Instant::now() + PATIENCE));
    assert!(matches!(created.expect("an answer").outcome, Outcome::Schedule(_)));
    until("the schedule fired", || sites[0].replica.read(|ledger| ledger.runs().next().is_some()));
    // Longer than a lease: whoever has one now has asked for it meanwhile.
    until("a lease has passed", || since.elapsed() > LEASE + Duration::from_secs(1));
    assert!(sites.iter().all(|site| has_lease(site)), "the keeper goes on");
    let now: Vec<Role> = sites.iter().map(|site| *site.replica.role().borrow()).collect();
    assert_eq!(now, roles, "no election");
    assert_eq!(epoch(&sites[0]), began, "and no other epoch");
    drop(busy);

    work.block_on(async {
        futures::future::join_all(stations.into_iter().map(|station| station.stop(Duration::from_secs(10)))).await;
        for site in &sites {
            assert!(site.replica.shutdown(Instant::now() + PATIENCE).await, "a replica stops");
        }
    });
}
