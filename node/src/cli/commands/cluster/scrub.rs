//! `reveille cluster scrub`: reads all files of all members, and prints damaged ones.

use std::time::Duration;

use reveille_proto::admin::v1::ScrubRequest;
use tokio::time::{Instant, sleep};

use crate::cli::commands::{CommandContext, Stop, WITHIN};
use crate::cli::view::scrub;

/// Pause between two requests of a scrub.
const SCRUB_ASKED_EVERY: Duration = Duration::from_millis(500);

/// Lets all members check their files, and repeats the request until none does so.
pub async fn run(context: &CommandContext<'_>) -> Result<(), Stop> {
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
