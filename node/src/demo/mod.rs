//! `reveille demo`: three real nodes, one mailbox, two kills, and a judgement by what arrived.
//!
//! It starts node processes of this same binary, a mailbox that records every email before it answers, a
//! daily schedule and a campaign; kills the leader and then a sending node with `kill -9` while a dialogue of
//! theirs is open, starts them again, and at the end compares the ledger with the mailbox. It uses the
//! public admin API alone.
//!
//! Reading order: this page, `processes.rs`, `client.rs`, `kills.rs`, `judgement.rs`, `progress.rs`.

mod client;
mod judgement;
mod kills;
mod processes;
mod progress;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reveille_node_client::{AdminClient, ClientAccess};
use reveille_sink::{Sink, SinkOptions};

use judgement::Judgement;
use kills::{Kill, Kills};
use processes::Nodes;
use progress::DemoProgress;

/// Minimum length of the campaign. The relay's rate stretches it, so that kills meet open dialogues.
const SENDING_SECONDS: u32 = 18;
/// Additional length per kill: its victim returns before the next kill.
const SECONDS_A_KILL: u32 = 9;
/// Maximum time by which the campaign may end later than planned, kills included.
const CAMPAIGN_TIMEOUT: Duration = Duration::from_secs(240);
/// Maximum time for doubts to resolve after their node has returned with its journal.
const DOUBT_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval at which the run is read.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Sessions to the mailbox on each node.
const SESSIONS: u32 = 4;
/// Usual port of the mailbox. If it is taken, the system chooses another.
const MAILBOX_PORT: u16 = 7625;

/// Options of `reveille demo`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  reveille demo
  reveille demo --once --recipients 2000 --kill leader,leader,worker

Exit codes:
  0 nothing was lost and nothing came twice   1 something was, or did")]
pub struct Args {
    /// Nodes in the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub nodes: u8,
    /// Recipients of the campaign.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub recipients: u32,
    /// Which node to kill mid-send, in this order; `none` kills none.
    #[arg(long, value_delimiter = ',', default_value = "leader,worker")]
    pub kill: Vec<Kill>,
    /// End after the judgement instead of staying up.
    #[arg(long)]
    pub once: bool,
    /// Keep data and logs of the nodes here [default: a temporary folder, removed at the end].
    #[arg(long, value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,
}

/// Runs the demo. Returns true if nothing was lost and nothing came twice.
pub async fn run(args: Args) -> Result<bool> {
    let folder = Folder::open(args.data_dir.clone())?;
    let sink = mailbox()?;
    eprintln!("mailbox    smtp://{}", sink.address());
    let mut nodes = Nodes::new(&folder.path, &folder.journals, usize::from(args.nodes))?;
    let outcome = tokio::select! {
        // `show` first: at its end it waits for Ctrl-C itself.
        biased;
        outcome = show(&args, &folder, &sink, &mut nodes) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    nodes.stop().await;
    sink.stop().await;
    folder.close(outcome.as_ref().is_ok_and(|valid| *valid));
    outcome
}

async fn show(args: &Args, folder: &Folder, sink: &Sink, nodes: &mut Nodes) -> Result<bool> {
    let binary = std::env::current_exe().context("where this program is")?;
    let admin = AdminClient::new(binary, nodes.endpoints(), ClientAccess::default())?;
    nodes.form_cluster(&admin).await.context("the cluster could not be made")?;
    let leader = client::leader(&admin).await?;
    eprintln!("cluster    {} nodes, {leader} leads", args.nodes);
    let seconds = SENDING_SECONDS.max(SECONDS_A_KILL * args.kill.len() as u32);
    let rate = f64::from(args.recipients) / f64::from(seconds);
    admin.add_relay_of(("mailbox", "default"), sink.address(), (SESSIONS, rate.max(1.0))).await?;
    client::create_daily(&admin, "daily-report").await?;
    let run = client::start_campaign(&admin, "campaign", args.recipients).await?;
    eprintln!("campaign   {} recipients, {rate:.0} emails/s over the cluster, run {run}", args.recipients);
    let mut kills = Kills::plan(&args.kill, args.recipients);
    let mut progress = DemoProgress::new(args.recipients);
    let limit = CAMPAIGN_TIMEOUT + Duration::from_secs(seconds.into());
    let until = Instant::now() + limit;
    loop {
        kills.act(&run, sink, nodes, &admin, &mut progress).await?;
        let counts = admin.counts(&run).await.ok();
        progress.show(sink.accepted_count(), counts.as_ref());
        if counts.is_some_and(|counts| client::is_finished(&counts)) && kills.are_done() {
            break;
        }
        if Instant::now() > until {
            bail!("the campaign did not end within {} s", limit.as_secs());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    progress.note("everything was handed off; waiting for nodes that came back to settle what they had begun");
    let judgement = judge(args, sink, &admin, &run, &kills).await?;
    progress.end();
    println!("{}", judgement.table());
    if !args.once {
        stay_up(sink, nodes, folder).await?;
    }
    println!("{}", judgement.json());
    Ok(judgement.is_valid())
}

/// Judges again until nothing is in doubt, or until [`DOUBT_TIMEOUT`].
async fn judge(args: &Args, sink: &Sink, admin: &AdminClient, run: &str, kills: &Kills) -> Result<Judgement> {
    let until = Instant::now() + DOUBT_TIMEOUT;
    loop {
        let (counts, doubts) = (admin.counts(run).await?, admin.doubts(run).await?);
        let judgement =
            Judgement::new(args.recipients, run, &sink.emails(), counts.sent, &doubts, kills.failovers_ms());
        if doubts.is_empty() || Instant::now() > until {
            return Ok(judgement);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

fn mailbox() -> Result<Sink> {
    let options =
        |port| SinkOptions { listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port), ..SinkOptions::default() };
    Sink::start(options(MAILBOX_PORT)).or_else(|_| Sink::start(options(0))).context("the mailbox could not be started")
}

async fn stay_up(sink: &Sink, nodes: &Nodes, folder: &Folder) -> Result<()> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    eprintln!("\nmailbox    http://{}/mailbox", listener.local_addr()?);
    eprintln!("admin      export REVEILLE_URL=http://{}", nodes.endpoints().join(",http://"));
    eprintln!("data       {}", folder.path.display());
    eprintln!("try        reveille run list; reveille explain RUN RECIPIENT; reveille cluster status");
    eprintln!("Ctrl-C ends it.");
    let pages = axum::Router::new().nest("/mailbox", crate::mailbox::pages(sink.handle()));
    tokio::select! {
        served = axum::serve(listener, pages) => served.context("the mailbox page"),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// The folders of the nodes and the mailbox.
struct Folder {
    path: PathBuf,
    /// Folder of the journals, in memory if there is such a file system (P11).
    journals: PathBuf,
    temporary: bool,
}

impl Folder {
    fn open(given: Option<PathBuf>) -> Result<Folder> {
        let temporary = given.is_none();
        let path = given
            .unwrap_or_else(|| std::env::temp_dir().join(format!("reveille-demo-{}", uuid::Uuid::new_v4().simple())));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        if std::fs::read_dir(&path)?.next().is_some() {
            bail!("{} is not empty; give an empty folder with --data-dir", path.display());
        }
        let memory = std::path::Path::new("/dev/shm");
        let journals = match path.file_name() {
            Some(name) if memory.is_dir() => memory.join(format!("{}-{}", name.display(), std::process::id())),
            _ => path.join("journals"),
        };
        Ok(Folder { path, journals, temporary })
    }

    /// Removes a temporary folder, unless it holds something to inspect.
    fn close(self, valid: bool) {
        // Journals of a demo that is over are of no use; where there are none, nothing is to be removed.
        let _ = std::fs::remove_dir_all(&self.journals);
        if !valid {
            eprintln!("data and logs of the nodes stay in {}", self.path.display());
        } else if self.temporary
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("{} could not be removed: {error}", self.path.display());
        }
    }
}
