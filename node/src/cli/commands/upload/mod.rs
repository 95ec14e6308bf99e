//! `reveille audience import`: reads the list twice, sends the missing parts and requests the seal.
//!
//! An import leaves only its parts on the nodes, named by hash. After an interruption anywhere, the same command
//! continues: it asks for each part whether the nodes have it.

mod progress;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use parking_lot::Mutex;
use reveille_ledger::bitmap::CHUNK;
use reveille_proto::admin::v1::audience_service_client::AudienceServiceClient as Service;
use reveille_proto::admin::v1::{
    PrepareAudienceRequest, PutPartRequest, PutPartResponse, SealAudienceRequest, SealedAudience,
};
use serde::Serialize;
use tokio::sync::{Mutex as Turn, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use self::progress::Progress;
use super::{BadRows, Client, CommandContext, Exit, Failure, RetrySafety, Stop, View, format};
use crate::cli::client::is_passing;
use crate::cli::recipients::parts::{List, Part, Report, Survey};
use crate::cli::view::layout::{Cell, Tone, card};
use crate::cli::view::own_objects;
use crate::cli::{instant, recipients};

/// `audience import`.
#[derive(Debug, Args)]
pub struct ImportAudienceArgs {
    /// Its name, unique in the tenant
    pub name: String,
    /// The recipients: CSV with a header, or that packed by gzip or zstd
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Leave out rows that cannot be used; without it nothing is sealed when there are any
    #[arg(long)]
    pub skip_bad_rows: bool,
    /// Write every row that is left out to this file, as line,kind,problem
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Parts sent at the same time: about 12 MB of memory here, and at most three parts of the largest size.
const AT_ONCE: usize = 3;
/// Bytes of one message of a part.
const PIECE: usize = 512 * 1024;
/// Interval of progress lines.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// Interval of progress lines while nothing changes.
const REPEAT_EVERY: Duration = Duration::from_secs(10);
/// Time limit of retries while the cluster accepts no part. A restarting node is back by then.
const ENDURE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);

/// One import.
struct Import<'a> {
    context: &'a CommandContext<'a>,
    /// Tries each address once per call: [`Import::enduring`] retries and reports.
    client: Client,
    tenant: String,
    args: ImportAudienceArgs,
    progress: Arc<Progress>,
}

/// Imports the audience.
pub async fn run(context: &CommandContext<'_>, tenant: String, args: ImportAudienceArgs) -> Result<(), Stop> {
    let (target, request_id) = (Arc::clone(&context.target), context.client.request_id().to_owned());
    // The client has no timeout. It is applied below, so that its failure can name what the import waited for.
    let client = Client::new(target, None, request_id).without_retries();
    let import = Import { context, client, tenant, args, progress: Arc::default() };
    let Some(within) = context.global.timeout else { return import.go().await };
    let progress = &import.progress;
    timeout(within, import.go()).await.unwrap_or_else(|_| Err(progress.cut_short(progress.late()).into()))
}

impl Import<'_> {
    async fn go(&self) -> Result<(), Stop> {
        let (source, survey) = self.survey().await?;
        self.check_survey(&survey)?;
        // For the first request, a client retries only as long as any command does, if no node answers. The time limit
        // begins after the list was read.
        self.context.restart_default_limit();
        self.prepare(&self.context.client, &survey, Vec::new()).await?;
        let survey = Arc::new(survey);
        let hashes = self.upload(source, &survey).await?;
        let audience = self.seal(&survey, hashes).await?;
        let (rows, refused, duplicates) = (survey.rows, survey.refused, survey.duplicates());
        let (parts_sent, parts_there) = self.progress.parts();
        self.context.terminal.show(&ImportedAudience { audience, rows, refused, duplicates, parts_sent, parts_there })
    }

    /// Reads the list a second time and sends its parts. Returns the hashes of all parts.
    async fn upload(&self, mut source: Source, survey: &Arc<Survey>) -> Result<Vec<Vec<u8>>, Failure> {
        let all = survey.recipients.div_ceil(CHUNK);
        let (parts, waiting) = mpsc::channel::<Part>(1);
        let reading = Arc::clone(survey);
        let maker = tokio::task::spawn_blocking(move || {
            source.list().parts(&reading, |part| parts.blocking_send(part).is_ok())
        });
        let (waiting, hashes) = (Turn::new(waiting), Mutex::new(vec![Vec::new(); all as usize]));
        let words = || {
            let (sent, there) = self.progress.parts();
            let were = if there > 0 { format!(", {there} of them were there") } else { String::new() };
            let all = format::counted(all.into(), "part");
            self.progress.line(format!("{} of {all} on a majority{were}", sent + there))
        };
        {
            let sender = || Box::pin(self.send(survey, &waiting, &hashes));
            let [one, two, three]: [_; AT_ONCE] = std::array::from_fn(|_| sender());
            self.reporting(words, async { tokio::try_join!(one, two, three) }).await?;
        }
        let ended = |why: String| Failure::general(why, "the same command again");
        match maker.await {
            Ok(Ok(true)) => Ok(hashes.into_inner()),
            Ok(Ok(false)) => Err(ended("not all parts were sent".to_owned())),
            Ok(Err(failure)) => Err(failure),
            Err(panic) => Err(ended(format!("reading failed: {panic}"))),
        }
    }

    /// Reads the list a first time, on a blocking thread.
    async fn survey(&self) -> Result<(Source, Survey), Failure> {
        let report = self.args.report.as_deref().map(|report| Report::create(report, &self.args.file)).transpose()?;
        let mut source = Source { path: self.args.file.clone(), report, progress: Arc::clone(&self.progress) };
        let reading = tokio::task::spawn_blocking(move || {
            let survey = source.list().survey();
            survey.map(|survey| (source, survey))
        });
        let words = || format!("{} read", format::counted(self.progress.read.load(Ordering::Relaxed), "row"));
        let failed =
            |panic: tokio::task::JoinError| Failure::general(format!("reading failed: {panic}"), "the same again");
        self.reporting(words, reading).await.map_err(failed)?
    }

    /// Fails if the list cannot be imported. Reports the rows that are left out.
    fn check_survey(&self, survey: &Survey) -> Result<(), Failure> {
        let place = self.args.file.display().to_string();
        if survey.refused > 0 && !self.args.skip_bad_rows {
            let all = match &self.args.report {
                Some(report) => format!("all of them are in {}", report.display()),
                None => "--report FILE names them all".to_owned(),
            };
            let bad = BadRows { count: survey.refused, shown: survey.shown.clone() };
            return Err(Failure::bad_rows(&self.args.file, "sealed", bad, Some(all)));
        }
        if survey.recipients == 0 {
            return Err(Failure::file(place, "no row holds a recipient"));
        }
        if let Some(unusable) = recipients::unusable(&survey.columns) {
            self.context.terminal.say(&format!("warning: {place}: {unusable}"));
        }
        for bad in &survey.shown {
            self.context.terminal.say(&format!("left out: {bad}"));
        }
        if let Some(more) = survey.refused.checked_sub(survey.shown.len() as u64).filter(|more| *more > 0) {
            self.context.terminal.say(&format!("left out: {} more", format::counted(more, "row")));
        }
        if survey.duplicates() > 0 {
            let duplicates = format::counted(survey.duplicates().into(), "duplicate");
            self.context.terminal.say(&format!("{duplicates} left out: the first row of an address stays"));
        }
        Ok(())
    }

    /// Sends one part after another until the reader has no more.
    async fn send(
        &self,
        survey: &Survey,
        waiting: &Turn<mpsc::Receiver<Part>>,
        hashes: &Mutex<Vec<Vec<u8>>>,
    ) -> Result<(), Failure> {
        loop {
            let Some(part) = waiting.lock().await.recv().await else { return Ok(()) };
            let (number, hash) = (part.number as usize, part.hash.0.to_vec());
            self.send_one(survey, Arc::new(part)).await?;
            if let Some(place) = hashes.lock().get_mut(number) {
                *place = hash;
            }
        }
    }

    /// Sends a part unless a majority of nodes has it already.
    async fn send_one(&self, survey: &Survey, part: Arc<Part>) -> Result<(), Failure> {
        let brought = self.enduring(format!("part {}", part.number), async || {
            let missing = self.prepare(&self.client, survey, vec![part.hash.0.to_vec()]).await?;
            if missing.is_empty() {
                return Ok(&self.progress.there);
            }
            self.client.call(RetrySafety::Repeatable, Arc::clone(&part), put).await?;
            Ok(&self.progress.sent)
        });
        brought.await?.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Repeats the attempt while the cluster cannot accept it. Reports the cause meanwhile.
    async fn enduring<T>(&self, what: String, attempt: impl AsyncFn() -> Result<T, Failure>) -> Result<T, Failure> {
        let mut until = None;
        loop {
            let failure = match attempt().await {
                Ok(done) => {
                    self.progress.goes_on(&what);
                    return Ok(done);
                }
                Err(failure) => failure,
            };
            if !matches!(failure.exit, Exit::NoQuorum | Exit::TimedOut) {
                return Err(failure);
            }
            // One attempt may take minutes, so the time limit starts at the first failure.
            if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + ENDURE) {
                return Err(self.progress.cut_short(failure));
            }
            self.context.terminal.detail(&format!("{what} waits: {}", failure.message));
            self.progress.waits(&what, &failure);
            sleep(PAUSE).await;
        }
    }

    /// Checks that the audience may be sealed. Returns which of these parts are missing.
    async fn prepare(&self, client: &Client, survey: &Survey, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Failure> {
        let (tenant, name, columns) = (self.tenant.clone(), self.args.name.clone(), survey.columns.clone());
        let request = PrepareAudienceRequest { tenant, name, recipients: survey.recipients, columns, parts };
        Ok(client.ask(RetrySafety::Read, request).await?.missing)
    }

    async fn seal(&self, survey: &Survey, parts: Vec<Vec<u8>>) -> Result<SealedAudience, Failure> {
        let (tenant, name, columns) = (self.tenant.clone(), self.args.name.clone(), survey.columns.clone());
        let request_id = self.client.request_id().to_owned();
        let request = SealAudienceRequest { tenant, name, recipients: survey.recipients, columns, parts, request_id };
        let words = || {
            let (checked, parts) = (self.progress.checked.load(Ordering::Relaxed), request.parts.len() as u64);
            self.progress.line(format!("{checked} of {} checked", format::counted(parts, "part")))
        };
        let sealed = self.enduring("the seal".to_owned(), async || self.sealed(request.clone()).await);
        self.reporting(words, sealed).await
    }

    async fn sealed(&self, request: SealAudienceRequest) -> Result<SealedAudience, Failure> {
        let call = |channel, request| async move { Service::new(channel).seal_audience(request).await };
        let mut stream = self.client.call(RetrySafety::Repeatable, request, call).await?;
        loop {
            match stream.message().await {
                Ok(Some(word)) => {
                    if let Some(audience) = word.audience {
                        return Ok(audience);
                    }
                    self.progress.checked.store(word.checked, Ordering::Relaxed);
                }
                Ok(None) => return Err(lost("the node ended before its last word")),
                Err(status) if is_passing(&status) => return Err(lost(status.message())),
                Err(status) => return Err(Failure::of_status(&status)),
            }
        }
    }

    /// Reports progress once a second while it changes, until the work is done.
    async fn reporting<T>(&self, words: impl Fn() -> String, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let (mut said, mut at) = (String::new(), Instant::now());
        loop {
            if let Ok(done) = timeout(SAY_EVERY, &mut work).await {
                return done;
            }
            let words = words();
            if words != said || at.elapsed() >= REPEAT_EVERY {
                self.context.terminal.remark(&words);
                (said, at) = (words, Instant::now());
            }
        }
    }
}

/// Inputs of both readings, which a blocking thread takes over.
struct Source {
    path: PathBuf,
    report: Option<Report>,
    progress: Arc<Progress>,
}

impl Source {
    fn list(&mut self) -> List<'_> {
        List { path: &self.path, report: self.report.as_mut(), read: &self.progress.read }
    }
}

fn lost(cause: &str) -> Failure {
    Failure { next: None, ..Failure::new(Exit::TimedOut, "ANSWER_LOST", cause, "") }
}

async fn put(channel: Channel, request: Request<Arc<Part>>) -> Result<Response<PutPartResponse>, Status> {
    let (metadata, extensions, part) = request.into_parts();
    let count = part.bytes.len().div_ceil(PIECE);
    let pieces = (0..count).map(move |place| {
        let piece = part.bytes.chunks(PIECE).nth(place).unwrap_or_default().to_vec();
        PutPartRequest { part: part.hash.0.to_vec(), number: part.number, piece }
    });
    Service::new(channel).put_part(Request::from_parts(metadata, extensions, tokio_stream::iter(pieces))).await
}

/// An imported audience, with the counts of its file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImportedAudience {
    /// The sealed audience.
    #[serde(serialize_with = "crate::api_json::serialize")]
    pub audience: SealedAudience,
    /// Rows of the file after its header.
    pub rows: u64,
    /// Unusable rows.
    pub refused: u64,
    /// Rows whose address an earlier row has.
    pub duplicates: u32,
    /// Parts that this command sent.
    pub parts_sent: u32,
    /// Parts that the nodes had before.
    pub parts_there: u32,
}

/// Returns what a sealed audience has.
pub fn pairs(audience: &SealedAudience) -> Vec<(&'static str, Cell)> {
    let sealed = instant::text(audience.seal_time.as_ref()).unwrap_or_default();
    vec![
        ("audience", audience.name.as_str().into()),
        ("tenant", audience.tenant.as_str().into()),
        ("recipients", format::count(audience.recipients.into()).into()),
        ("columns", Cell::or_dash(audience.columns.join(", ").as_str())),
        ("parts", audience.parts.to_string().into()),
        ("missing here", Cell::count(audience.missing.into(), Tone::Bad)),
        ("seal", audience.seal.as_str().into()),
        ("sealed", format!("{sealed}, log index {}", audience.index).into()),
    ]
}

own_objects!(ImportedAudience);

impl View for ImportedAudience {
    fn name(&self) -> String {
        self.audience.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = pairs(&self.audience);
        pairs.extend([
            ("rows read", format::count(self.rows).into()),
            ("refused", Cell::count(self.refused, Tone::Bad)),
            ("duplicates", format::count(self.duplicates.into()).into()),
            ("parts sent", format!("{}, and {} were there", self.parts_sent, self.parts_there).into()),
        ]);
        card(pairs, paint)
    }
}
