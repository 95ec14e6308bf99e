//! `reveille cluster member …`.

use std::time::Duration;

use clap::Subcommand;
use jiff::SignedDuration;
use reveille_proto::admin::v1::{
    AddMemberRequest, DrainMemberRequest, ListMembersRequest, Member, RemoveMemberRequest,
};

use crate::cli::commands::{CommandContext, Failure, ListPage, RetrySafety, Stop, Watch, duration_to_wire, format};
use crate::cli::instant::parse_duration;

/// The members of the cluster.
#[derive(Debug, Subcommand)]
pub enum MemberCommand {
    /// The members of the cluster
    #[command(after_long_help = "Example:\n  reveille cluster member list -o json")]
    List(Watch),
    /// Admit a new node: print a join token for it
    ///
    /// Give the token to the new node alone: `reveille start --join file:/PATH`. It admits one node, once. The node
    /// learns first, and votes when it has caught up. Any running member prints tokens.
    #[command(after_long_help = "\
Examples:
  reveille cluster member add
  reveille cluster member add --valid-for 10m -o json")]
    Add {
        /// How long the token is valid, from 1m to 7d
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1h")]
        valid_for: SignedDuration,
    },
    /// Give a node no more emails, and wait until it has none
    ///
    /// What it has begun is finished, and the rest goes to other nodes. It stays a member, and votes. If it leads, it
    /// hands over. Use it before work on a machine.
    #[command(after_long_help = "\
Examples:
  reveille cluster member drain n2
  reveille cluster member drain n2 --undo")]
    Drain {
        /// Name or id of the member
        member: String,
        /// Let it get emails again
        #[arg(long)]
        undo: bool,
    },
    /// Remove a node for good
    ///
    /// A node that runs is drained first; then its process ends by itself. A node that never comes back is removed
    /// with --dead: what it had in flight stays in doubt. Its id is never used again. To use the same machine again:
    /// remove the node first, then admit it anew, with an empty data folder.
    #[command(after_long_help = "\
Examples:
  reveille cluster member remove n2
  reveille cluster member remove n2 --dead --yes

What it left in doubt: reveille in-doubt list. A new node in its place: reveille cluster member add")]
    Remove {
        /// Name or id of the member
        member: String,
        /// It does not run, and never will
        #[arg(long)]
        dead: bool,
    },
}

/// Time limit of the question whether a member drains, after the command has failed.
const DRAINS_WITHIN: Duration = Duration::from_secs(3);

/// Prints a join token.
pub async fn add(context: &CommandContext<'_>, valid_for: SignedDuration) -> Result<(), Stop> {
    let request = AddMemberRequest { valid_for: Some(duration_to_wire(valid_for)) };
    let answer = context.client.ask(RetrySafety::Once, request).await?;
    context.terminal.show(&answer)?;
    let next = "next: put it into a file on the new machine, and there: reveille start --join file:/PATH, with a --name \
                of its own";
    context.terminal.say(next);
    Ok(())
}

pub async fn drain(context: &CommandContext<'_>, member: String, undo: bool) -> Result<(), Stop> {
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
pub async fn remove(context: &CommandContext<'_>, member: String, dead: bool) -> Result<(), Stop> {
    let how = if dead { "What it had in flight stays in doubt, and it" } else { "It is drained first, and" };
    context.terminal.check_columns::<Member>()?;
    context.confirm(&format!("Remove {member} for good? {how} can never return.")).await?;
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
    match all(context).await {
        Ok(page) if page.rows.iter().any(drains) => {
            let undo = format!("reveille cluster member drain {member} --undo lets it get emails again");
            let next = failure.next.as_ref().map_or(undo.clone(), |next| format!("{next}; {undo}"));
            failure.then(next)
        }
        _ => failure,
    }
}

pub async fn all(context: &CommandContext<'_>) -> Result<ListPage<Member>, Failure> {
    let answer = context.read(ListMembersRequest {}).await?;
    let (next, freshness) = (String::new(), answer.freshness);
    Ok(ListPage { rows: answer.members, next, freshness, incomplete: false, lost_parts: Vec::new() })
}
