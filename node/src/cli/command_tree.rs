//! The tree of commands, with the help that teaches it. Each command's arguments are in its file in `commands`.

use clap::{Parser, Subcommand};

use super::args::{Global, OfTenant};
use super::commands::{
    apply::{ApplyArgs, DiffArgs, EditArgs},
    audience::AudienceCommand,
    audit::AuditCommand,
    backup::BackupCommand,
    campaign::CampaignCommand,
    clock::ClockCommand,
    cluster::ClusterCommand,
    completion::{CompletionArgs, ManArgs},
    config::ConfigCommand,
    context::ContextCommand,
    dead_letter::DeadLetterCommand,
    doctor::DoctorArgs,
    doubt::DoubtCommand,
    event::EventArgs,
    import::ImportCommand,
    login::LoginArgs,
    message::MessageCommand,
    names::NamesArgs,
    opt_out::OptOutCommand,
    pool::PoolCommand,
    recipient::RecipientCommand,
    recover::RecoverCommand,
    relay::RelayCommand,
    restore::RestoreCommand,
    run::{ExplainArgs, RunCommand},
    schedule::ScheduleCommand,
    template::TemplateCommand,
    tenant::TenantCommand,
    token::TokenCommand,
};

/// Schedules and sends emails from a replicated cluster, each email once.
///
/// Every command below speaks to a cluster through any of its nodes. Data goes to stdout, messages to stderr.
#[derive(Debug, Parser)]
#[command(name = "reveille", version, max_term_width = 100, after_long_help = AFTER)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER: &str = "\
To try it out, without a cluster:
  reveille dev

Examples:
  reveille cluster status
  reveille relay add main --host 127.0.0.1 --port 2525 --tls none
  reveille schedule create morning --daily 09:00 --zone Europe/Berlin --recipients people.csv \\
      --sender 'News <news@example.com>' --subject 'Good morning' --text body.txt
  reveille schedule trigger morning
  reveille run list --schedule morning
  reveille explain r1042.0 ann@example.com

Exit codes:
  0 done   1 failed   2 usage   3 not found   4 conflict   5 no leader or quorum
  6 denied   7 partly done   8 timed out, may have happened   130 interrupted";

/// What may be typed first.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run three nodes and a mailbox, kill two senders, and compare what arrived with what was due
    Demo(crate::demo::Args),
    /// Run one node with a mailbox that catches all email, for trials
    Dev(crate::dev::Args),
    /// A node of a real cluster
    Start(Box<crate::server::start::Args>),
    #[command(flatten)]
    Client(ClientCommand),
}

/// Commands that end by themselves or at Ctrl-C; most of them send requests to a cluster.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Create the cluster, show its nodes, transfer its leadership
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Backups: make one, list, verify and remove them
    #[command(subcommand)]
    Backup(BackupCommand),
    /// The test clock: show it, move it forward
    #[command(subcommand)]
    Clock(ClockCommand),
    /// A cluster that was restored from a backup: how it stands, and let it send
    #[command(subcommand)]
    Restore(RestoreCommand),
    /// What is left of a cluster whose majority is lost for good: look at it, and go on with it
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// SMTP relays that deliver the emails
    #[command(subcommand)]
    Relay(RelayCommand),
    /// Messages: single emails under a key, each sent once
    Message(OfTenant<MessageCommand>),
    /// Schedules: what is sent, to which recipients, and when
    Schedule(OfTenant<ScheduleCommand>),
    /// Make schedules, templates, relays, campaigns, tenants and pools as documents say
    Apply(ApplyArgs),
    /// What `apply` would change, field by field; exits with 1 if there is a change
    Diff(DiffArgs),
    /// Open one object as a document in an editor, and apply the edit
    Edit(EditArgs),
    /// Templates: contents under a name, in versions; render an email, send a test email
    Template(OfTenant<TemplateCommand>),
    /// Make documents of schedules from a crontab
    Import(OfTenant<ImportCommand>),
    /// Runs: occurrences that opened
    Run(OfTenant<RunCommand>),
    /// The history of one recipient in one run, by log index
    Explain(ExplainArgs),
    /// Emails whose handoff may or may not have happened
    InDoubt(OfTenant<DoubtCommand>),
    /// Recipients that were refused for good
    DeadLetter(OfTenant<DeadLetterCommand>),
    /// Sealed audiences: large lists, kept in files on the nodes
    Audience(OfTenant<AudienceCommand>),
    /// Campaigns: one content to one audience at one instant, sent once
    Campaign(OfTenant<CampaignCommand>),
    /// Recipients that get no more email
    Optout(OfTenant<OptOutCommand>),
    /// One person: where an address is, all that is known about it, and its erasure
    Recipient(OfTenant<RecipientCommand>),
    /// What happened to runs, recipients and opt-outs, in order: all of it, or what came after a cursor
    Events(EventArgs),
    /// Tenants: rate, concurrency and share of each
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Tokens of the admin API: what their owners may do
    #[command(subcommand)]
    Token(TokenCommand),
    /// Audit records: who wanted what, and what came of it
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Pools of relays: how each is warmed up, day by day
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Find problems, with their effect and the next command; exits with 1 if there is a problem
    Doctor(DoctorArgs),
    /// Store a cluster's certificate authority and your token
    Login(LoginArgs),
    /// The clusters that are stored on this machine: list them, choose one
    #[command(subcommand)]
    Context(ContextCommand),
    /// The configuration file of a node: a sample, a check, the effective values
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completion script for a shell
    Completion(CompletionArgs),
    /// Print the names that the last word may become, for completion scripts
    #[command(hide = true)]
    CompleteNames(NamesArgs),
    /// Print or write the manual pages
    Man(ManArgs),
    /// Versions of this binary, its time zones and its ledger
    #[command(after_long_help = "Example:\n  reveille version -o json")]
    Version,
}
