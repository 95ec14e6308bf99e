//! `reveille optout …`.

use reveille_proto::admin::v1::opt_out_service_client::OptOutServiceClient as Service;
use reveille_proto::admin::v1::{AddOptOutRequest, CheckOptOutRequest};

use super::Desk;
use crate::cli::args::{OptOutArgs, OptOutCommand};
use crate::cli::client::Nature;
use crate::cli::failure::Stop;
use crate::cli::view::opt_out::{OptOutCheckView, OptedOutView};

/// Does what the verb says.
pub async fn run(desk: &Desk<'_>, args: OptOutArgs) -> Result<(), Stop> {
    match args.command {
        OptOutCommand::Add { recipient } => add(desk, args.tenant, recipient).await,
        OptOutCommand::Check { recipient } => check(desk, args.tenant, recipient).await,
    }
}

async fn add(desk: &Desk<'_>, tenant: String, recipient: String) -> Result<(), Stop> {
    let question = AddOptOutRequest { tenant, recipient, request_id: desk.client.request_id().to_owned() };
    let call = |channel, question| async move { Service::new(channel).add_opt_out(question).await };
    let answer = desk.change(question, call).await?;
    desk.terminal.show(&OptedOutView::from(answer))
}

async fn check(desk: &Desk<'_>, tenant: String, recipient: String) -> Result<(), Stop> {
    let question = CheckOptOutRequest { tenant, recipient, stale: desk.stale };
    let call = |channel, question| async move { Service::new(channel).check_opt_out(question).await };
    let answer = desk.client.ask(Nature::Read, question, call).await?;
    desk.note(answer.freshness.as_ref());
    desk.terminal.show(&OptOutCheckView::from(answer))
}
