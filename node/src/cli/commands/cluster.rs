//! Implements `reveille cluster …`.

use std::time::Duration;

use jiff::SignedDuration;
use reveille_proto::admin::v1::{
    AcceptArchiveLossRequest, AddMemberRequest, ArchiveContent, DrainMemberRequest, FinishUpgradeRequest,
    GetArchiveLossRequest, GetClusterStatusRequest, GetClusterStatusResponse, GetUpgradeRequest, GetUpgradeResponse,
    ListMembersRequest, LostPart, Member, RemoveMemberRequest, ScrubRequest, TransferLeaderRequest,
};
use reveille_raft::tls::{NodeTls, last_certificate};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    Answer, ClusterCommand, CommandContext, Exit, Failure, InitArgs, ListPage, MemberCommand, Own, Paging, RetrySafety,
    Seen, Stop, UpgradeCommand, WITHIN, authority, config, context::say_in_use, duration_to_wire, format,
};
use crate::cli::contexts::{BearerToken, Context, Contexts};
use crate::cli::view::cluster::problems;
use crate::cli::view::layout::card;
use crate::cli::view::scrub;
use crate::cli::view::upgrade::{can_rise_to, remarks};
use crate::server::config::{Config, file_or_default};
use crate::server::{bootstrap, first_token};
use crate::token_text::TokenText;

/// Digits of a cluster's id that name the context of a second cluster.
const CLUSTER_DIGITS: usize = 8;
/// Time limit of the question whether a member drains, after the command has failed.
const DRAINS_WITHIN: Duration = Duration::from_secs(3);
/// Pause between two requests of a scrub.
const SCRUB_ASKED_EVERY: Duration = Duration::from_millis(500);

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: ClusterCommand) -> Result<(), Stop> {
    match command {
        ClusterCommand::Init(args) => init(context, *args),
        ClusterCommand::Status(watch) => context.one(watch, async || status(context).await).await,
        ClusterCommand::Member(MemberCommand::Add { valid_for }) => add_member(context, valid_for).await,
        ClusterCommand::Member(MemberCommand::Drain { member, undo }) => drain_member(context, member, undo).await,
        ClusterCommand::Member(MemberCommand::Remove { member, dead }) => remove_member(context, member, dead).await,
        ClusterCommand::Member(MemberCommand::List(watch)) => {
            let paging = Paging { limit: u32::MAX, watch };
            context.list(paging, |_, _| members(context)).await
        }
        ClusterCommand::TransferLeader { to } => transfer_leader(context, to).await,
        ClusterCommand::Scrub => check_files(context).await,
        ClusterCommand::ArchiveLoss { accept } => archive_loss(context, accept).await,
        ClusterCommand::Upgrade(UpgradeCommand::Status(watch)) => {
            context.one(watch, async || upgrade(context).await).await
        }
        ClusterCommand::Upgrade(UpgradeCommand::Finish) => finish_upgrade(context).await,
        ClusterCommand::Ca(command) => authority::run(context, command).await,
    }
}

/// Prepares the data folder of the first node of a new cluster.
fn init(context: &CommandContext<'_>, args: InitArgs) -> Result<(), Stop> {
    let file = file_or_default(args.config);
    let config = Config::load(file.as_deref(), std::env::vars(), args.settings).map_err(config::failure)?;
    let mut contexts = Contexts::read()?;
    let tls = bootstrap::found(&config.data_dir, args.test_clock).map_err(|error| {
        let next = "give a data folder in which no node has run, or join a cluster: reveille start --join file:/PATH";
        Failure::new(Exit::General, "DATA_FOLDER", error.to_string(), next)
    })?;
    let cluster = tls.authority().cluster().to_string();
    let former = contexts.current.clone();
    let stored = if config.insecure { None } else { Some(first_context(&mut contexts, &config, &tls)?) };
    let Config { name, advertise, data_dir, .. } = config;
    let folder = data_dir.display().to_string();
    // `context` is null if clients need none.
    let own = json!({
        "cluster": cluster, "node": name, "address": advertise, "folder": folder, "context": stored,
    });
    let words = format!("cluster {cluster} of node {name} at {advertise}; keys and certificates are in {folder}/tls");
    context.terminal.show(&Answer::new(&Own(own), cluster, words))?;
    if stored.is_some() {
        say_in_use(context, &contexts, former.as_deref());
    }
    if args.test_clock {
        context.terminal.say("its clock is a test's, for good: no mail of it ever leaves this machine");
    }
    let next = "next: reveille start with the same settings; then, for each other node: reveille cluster member add";
    context.terminal.say(next);
    Ok(())
}

/// Makes the first admin token of the new cluster, and stores how this user reaches it.
fn first_context(contexts: &mut Contexts, config: &Config, tls: &NodeTls) -> Result<String, Failure> {
    let token = first_token::make(&config.data_dir);
    let token = token.map_err(|error| Failure::general(error.to_string(), "make the data folder writable"))?;
    store(contexts, config, tls, &token)
}

/// Stores how this user reaches a new cluster, with its first admin token. Returns the name of the context.
pub(super) fn store(
    contexts: &mut Contexts,
    config: &Config,
    tls: &NodeTls,
    token: &TokenText,
) -> Result<String, Failure> {
    let (ca, cluster) = (client_authority(config, tls)?, tls.authority().cluster().to_string());
    let name = contexts.name_for(&ca, cluster.get(..CLUSTER_DIGITS).unwrap_or(&cluster));
    let (host, port) = (config.listen.ip(), config.listen.port());
    let address = match config.advertise.rsplit_once(':') {
        Some((advertised, _)) if host.is_unspecified() => format!("{advertised}:{port}"),
        _ => config.listen.to_string(),
    };
    contexts.put(&name, Context { endpoints: vec![address], ca, token: Some(BearerToken(token.to_string())) });
    contexts.write()?;
    Ok(name)
}

/// Returns the authority that this user trusts: with a certificate of the operator, the last one of its chain. If only
/// the authority above it is trusted, `login --ca` names that.
fn client_authority(config: &Config, tls: &NodeTls) -> Result<String, Failure> {
    let Some(own) = &config.tls else { return Ok(tls.authority().certificate_pem().to_owned()) };
    let bad = |why: String| {
        Failure::general(format!("{}: {why}", own.certificate.display()), "give a certificate with its chain, as PEM")
    };
    let text = std::fs::read_to_string(&own.certificate).map_err(|error| bad(error.to_string()))?;
    last_certificate(&text).map_err(|error| bad(error.to_string()))
}

/// Prints a join token.
async fn add_member(context: &CommandContext<'_>, valid_for: SignedDuration) -> Result<(), Stop> {
    let request = AddMemberRequest { valid_for: Some(duration_to_wire(valid_for)) };
    let answer = context.client.ask(RetrySafety::Once, request).await?;
    context.terminal.show(&answer)?;
    let next = "next: put it into a file on the new machine, and there: reveille start --join file:/PATH, with a --name \
                of its own";
    context.terminal.say(next);
    Ok(())
}

async fn drain_member(context: &CommandContext<'_>, member: String, undo: bool) -> Result<(), Stop> {
    let request = DrainMemberRequest { member: member.clone(), undo };
    let answer = match context.change(request).await {
        Err(failure) if !undo => return Err(still_drains(context, &member, failure).await.into()),
        answer => answer?,
    };
    context.terminal.answer(&answer, answer.member.as_ref())?;
    if !undo {
        let next = format!("next: stop it, or reveille cluster member remove {member}");
        context.terminal.say(&format!("it has no emails left; {next}"));
    }
    Ok(())
}

/// Removes a member, and shows the members that are left.
async fn remove_member(context: &CommandContext<'_>, member: String, dead: bool) -> Result<(), Stop> {
    let how = if dead { "What it had in flight stays in doubt, and it" } else { "It is drained first, and" };
    context.terminal.check_columns::<Member>()?;
    context.terminal.confirm(&format!("Remove {member} for good? {how} can never return."))?;
    let request = RemoveMemberRequest { member: member.clone(), dead };
    let answer = match context.change(request).await {
        Err(failure) => return Err(still_drains(context, &member, failure).await.into()),
        Ok(answer) => answer,
    };
    context.terminal.list(&answer.members)?;
    if answer.in_doubt > 0 {
        let emails = format::counted(answer.in_doubt, "email");
        let next = "reveille in-doubt list, with --tenant NAME for each other tenant";
        context.terminal.say(&format!("{emails} of {member} are in doubt; next: {next}"));
    }
    let voters = answer.members.iter().filter(|member| member.votes).count();
    if voters % 2 == 0 {
        context.terminal.say(&format!(
            "{voters} nodes vote and survive the loss of {}, as {} would; next: reveille cluster member add",
            voters / 2 - 1,
            voters - 1
        ));
    }
    Ok(())
}

/// Adds to the next step of a drain or a removal that failed how the member gets emails again, if it drains.
async fn still_drains(context: &CommandContext<'_>, member: &str, failure: Failure) -> Failure {
    context.client.set_timeout(DRAINS_WITHIN);
    let drains = |one: &Member| one.drains && (one.name == member || one.id == member);
    match members(context).await {
        Ok(page) if page.rows.iter().any(drains) => {
            let undo = format!("reveille cluster member drain {member} --undo lets it get emails again");
            let next = failure.next.as_ref().map_or(undo.clone(), |next| format!("{next}; {undo}"));
            failure.then(next)
        }
        _ => failure,
    }
}

async fn status(context: &CommandContext<'_>) -> Result<Seen<GetClusterStatusResponse>, Failure> {
    let view = context.read(GetClusterStatusRequest {}).await?;
    let remarks = problems(&view);
    Ok(Seen { view, freshness: None, remarks })
}

async fn members(context: &CommandContext<'_>) -> Result<ListPage<Member>, Failure> {
    let answer = context.read(ListMembersRequest {}).await?;
    let (next, freshness) = (String::new(), answer.freshness);
    Ok(ListPage { rows: answer.members, next, freshness, incomplete: false, lost_parts: Vec::new() })
}

async fn transfer_leader(context: &CommandContext<'_>, to: Option<String>) -> Result<(), Stop> {
    let request = TransferLeaderRequest { to: to.unwrap_or_default() };
    let answer = context.client.ask(RetrySafety::Once, request).await?;
    let card = card(vec![("leader", answer.leader.as_str().into())], context.terminal.paints());
    context.terminal.show(&Answer::new(&answer, answer.leader.as_str(), card))
}

/// Lets all members check their files, and repeats the request until none does so.
async fn check_files(context: &CommandContext<'_>) -> Result<(), Stop> {
    let until = context.global.timeout.map(|timeout| Instant::now() + timeout);
    let mut begin = true;
    loop {
        context.client.set_timeout(WITHIN);
        let members = context.change(ScrubRequest { start: begin }).await?.members;
        let running = members.iter().any(|member| member.running);
        if begin || running && until.is_none_or(|until| Instant::now() < until) {
            begin = false;
            sleep(SCRUB_ASKED_EVERY).await;
            continue;
        }
        context.terminal.list(&members)?;
        members.iter().flat_map(scrub::remarks).for_each(|remark| context.terminal.say(&remark));
        return if members.iter().all(scrub::is_well) { Ok(()) } else { Err(Stop::No) };
    }
}

/// Shows the lost parts of the archive, and accepts their loss.
async fn archive_loss(context: &CommandContext<'_>, accept: bool) -> Result<(), Stop> {
    let seen = context.read(GetArchiveLossRequest {}).await?;
    let lost: Vec<LostPart> = seen.parts.iter().filter(|part| part.accept_time.is_none()).cloned().collect();
    if !accept || lost.is_empty() {
        context.terminal.list(&seen.parts)?;
        seen.silent.iter().for_each(|silent| context.terminal.say(&format!("may have the blocks: {silent}")));
        if !lost.is_empty() {
            context.terminal.say("next: start what may have them; else reveille cluster archive-loss --accept");
        }
        return Ok(());
    }
    let runs: u64 = lost.iter().map(|part| u64::from(part.runs)).sum();
    let (parts, runs) = (format::counted(lost.len() as u64, "part"), format::counted(runs, "run"));
    context.terminal.check_columns::<LostPart>()?;
    let question = format!("Accept the loss of {parts} with {runs}? They are not looked for any more.");
    context.terminal.table(&lost)?.lines().for_each(|line| context.terminal.say(line));
    context.terminal.confirm(&question)?;
    let request = AcceptArchiveLossRequest { parts: lost.into_iter().map(|part| part.part).collect() };
    let answer = context.change(request).await?;
    context.terminal.list(&answer.parts)?;
    context.terminal.say(&format!("{parts} accepted as lost; next: reveille backup create"));
    if answer.parts.iter().any(|part| part.content() == ArchiveContent::Events) {
        context.terminal.say("readers of events must begin anew");
    }
    Ok(())
}

async fn upgrade(context: &CommandContext<'_>) -> Result<Seen<GetUpgradeResponse>, Failure> {
    let view = context.read(GetUpgradeRequest {}).await?;
    let remarks = remarks(&view);
    Ok(Seen { view, freshness: None, remarks })
}

/// Raises the ledger to the level that the user confirmed, even if nodes announce a higher one meanwhile.
async fn finish_upgrade(context: &CommandContext<'_>) -> Result<(), Stop> {
    let seen = upgrade(context).await?.view;
    let level = can_rise_to(&seen).unwrap_or_default();
    if level > 0 {
        context.terminal.confirm(&format!(
            "Raise the ledger's level from {} to {level}? Afterwards no node can go back to the former release.",
            seen.level
        ))?;
    }
    let request_id = context.client.request_id().to_owned();
    let answer = context.change(FinishUpgradeRequest { level, request_id }).await?;
    context.terminal.show(&answer)?;
    if !answer.raised {
        context.terminal.say("the ledger is at this level already; nothing was changed");
    }
    Ok(())
}
