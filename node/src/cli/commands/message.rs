//! `reveille message …`: sends one email under a key, shows it, cancels it.

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use reveille_proto::admin::v1::{
    CancelMessageRequest, GetMessageRequest, KeyRule, Message, MessageRecipient, Policies, SendMessageRequest,
};

use super::schedule::body;
use super::{CHECKED, CommandContext, ContentOrTemplateArgs, OfTenant, Stop, View, Watch, duration_to_wire, to_wire};
use crate::api_json::word;
use crate::cli::args::content::parse_address;
use crate::cli::args::parse_request_id;
use crate::cli::instant::{parse_duration, parse_instant};
use crate::cli::view::barrier::sentence;
use crate::cli::view::some;

#[derive(Debug, Subcommand)]
pub enum MessageCommand {
    /// Send one email under a key, now or at an instant; the same key never sends a second one
    ///
    /// A repeat with another content, recipient or instant is an error, unless --first-wins says that the first call
    /// counts. A key is known until 30 days after its run was archived.
    #[command(after_long_help = "\
Examples:
  reveille message send order-1 --to ann@example.com --sender shop@example.com --subject Thanks --inline-text Hi
  reveille message send remind-7 --to ann@example.com --sender shop@example.com --subject Soon \\
      --text soon.txt --at 2027-03-08T09:00:00Z")]
    Send(Box<SendMessageArgs>),
    /// One message: its run, and the state of each recipient
    #[command(after_long_help = "Example:\n  reveille message show order-1 -o json")]
    Show {
        /// Its key
        #[arg(value_parser = parse_request_id)]
        key: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Cancel what a message has not sent, for good; answers when it holds on every node
    #[command(after_long_help = "Example:\n  reveille message cancel remind-7 --yes")]
    Cancel {
        /// Its key
        #[arg(value_parser = parse_request_id)]
        key: String,
        /// Show what would be cancelled, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// `message send`.
#[derive(Debug, Args)]
pub struct SendMessageArgs {
    /// Its key, unique in the tenant
    #[arg(value_parser = parse_request_id)]
    pub key: String,
    /// An address; may be repeated
    #[arg(long, value_name = "ADDRESS", required = true, value_parser = parse_address)]
    pub to: Vec<String>,
    /// When it is sent [default: now]
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub at: Option<Timestamp>,
    /// If the key was used: the first call counts, whatever it sent
    #[arg(long)]
    pub first_wins: bool,
    /// What is not sent this long after its instant expires [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub finish_by: Option<SignedDuration>,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Higher goes first within the tenant
    #[arg(long, value_name = "0-255", default_value_t = 0)]
    pub priority: u8,
    /// Check it with the cluster, and send nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub content: ContentOrTemplateArgs,
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<MessageCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        MessageCommand::Send(args) => send(context, tenant, *args).await,
        MessageCommand::Show { key, watch } => {
            let request = GetMessageRequest { tenant, key, stale: context.stale };
            context.show(watch, request, |answer| (answer.freshness, answer.message)).await
        }
        MessageCommand::Cancel { key, dry_run } => {
            cancel(context, CancelMessageRequest { tenant, key, validate_only: dry_run }).await
        }
    }
}

/// The rule that a flag `--first-wins` chooses.
pub(super) fn key_rule(first_wins: bool) -> i32 {
    if first_wins { KeyRule::FirstWins.into() } else { KeyRule::Strict.into() }
}

async fn send(context: &CommandContext<'_>, tenant: String, args: SendMessageArgs) -> Result<(), Stop> {
    let SendMessageArgs { key, to, at, first_wins, finish_by, pool, priority, dry_run, content } = args;
    let (content, template) = body::content_or_template(content)?;
    let request = SendMessageRequest {
        tenant,
        key,
        template,
        key_rule: key_rule(first_wins),
        content,
        to,
        send_time: at.map(to_wire),
        pool,
        priority: priority.into(),
        policies: Some(Policies { finish_by: finish_by.map(duration_to_wire), ..Policies::default() }),
        validate_only: dry_run,
        ..SendMessageRequest::default()
    };
    let answer = context.change(request).await?;
    context.warn(&answer.warnings, None);
    context.terminal.answer(&answer, answer.message.as_ref())?;
    context.terminal.say(match (dry_run, answer.replayed) {
        (true, _) => CHECKED,
        (false, true) => "an earlier call with this key sent it; nothing more is sent",
        (false, false) => "taken: it is on its way, or waits for its instant",
    });
    Ok(())
}

async fn cancel(context: &CommandContext<'_>, request: CancelMessageRequest) -> Result<(), Stop> {
    let dry_run = request.validate_only;
    let question = format!("Cancel what message {} has not sent? It is never sent then.", request.key);
    context.confirm_unless(dry_run, &question).await?;
    let answer = context.change(request).await?;
    if !dry_run {
        context.terminal.say(&format!("cancelled: {}", sentence(answer.barrier.as_ref())));
    }
    context.answer(&answer, answer.message.as_ref(), dry_run)
}

impl View for Message {
    const NAME: &'static str = "key";

    fn text(&self, paint: bool) -> String {
        let recipient = |one: &MessageRecipient| {
            let address = some(&one.address).map_or_else(|| format!("#{}", one.number), str::to_owned);
            format!("{address}: {}", word(one.state().as_str_name()).replace('_', " "))
        };
        let mut lines = vec![self.run.clone().unwrap_or_default().text(paint)];
        lines.extend(self.recipients.iter().map(recipient));
        lines.join("\n")
    }
}
