//! Three voters in one process, over loopback, with all their actors.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::clock::{Clock, SystemClock};
use reveille_cluster::desk::{Desk, Introduction};
use reveille_cluster::relay::TcpDialer;
use reveille_cluster::site::Site;
use reveille_cluster::station::{Leading, Options, Station};
use reveille_cluster::zones::Zones;
use reveille_ledger::command::{Command, Next, ScheduleCreate};
use reveille_ledger::content::{Audience, Content, Recipient};
use reveille_ledger::decide::calendar::When;
use reveille_ledger::ids::{Epoch, Holder, Incarnation, NodeId, Nominal};
use reveille_ledger::policy::Policies;
use reveille_raft::{ClusterId, GrpcTransport, Member, Replica};
use tokio_util::sync::CancellationToken;

/// Far beyond what any step takes, so that a loaded machine fails no test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Three stations of a new cluster; `change` sees the options of each replica.
pub async fn started(folder: &Path, change: impl Fn(&mut reveille_raft::Options)) -> Vec<Station> {
    let nodes = three(folder, change).await;
    futures::future::join_all(nodes.into_iter().map(|node| station(node, folder))).await
}

/// Ends them all.
pub async fn stopped(stations: Vec<Station>) {
    let sites: Vec<Arc<Site>> = stations.iter().map(|station| Arc::clone(&station.site)).collect();
    futures::future::join_all(stations.into_iter().map(|station| station.stop(Duration::from_secs(10)))).await;
    for site in &sites {
        assert!(site.replica.shutdown(Instant::now() + PATIENCE).await, "a replica stops");
    }
}

async fn three(folder: &Path, change: impl Fn(&mut reveille_raft::Options)) -> Vec<(Arc<Site>, Leading)> {
    let mut nodes = Vec::new();
    let mut members = BTreeMap::new();
    for number in 1..=3 {
        let transport = GrpcTransport::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).expect("a port");
        let (address, name) = (transport.address().to_string(), format!("n{number}"));
        let me = Holder { node: NodeId(number), incarnation: Incarnation(1) };
        members.insert(me.node, Member { name: name.clone(), address: address.clone(), votes: true });
        let introduction = Introduction { name: name.clone(), address, version: "test".into(), tzdb: "test".into() };
        let desk = Arc::new(Desk::new(Arc::new(SystemClock), introduction.clone()));
        let mut options = reveille_raft::Options::new(folder.join(&name), me.node, Arc::new(transport));
        // Calm: on a small machine all of this, and whatever else it does, share two cores.
        options.heartbeat_ms = 100;
        options.election_ms = 2_000..4_000;
        options.startup_delay = Duration::ZERO;
        change(&mut options);
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

/// Waits on a thread of its own, which no runtime has to wake.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One mail, due soon.
pub fn due_in(milliseconds: i64) -> Command {
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

/// The epoch in the state of a node.
pub fn epoch(site: &Site) -> Option<Epoch> {
    site.replica.read(|ledger| ledger.head().epoch.map(|epoch| epoch.epoch))
}
