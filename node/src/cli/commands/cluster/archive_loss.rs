//! `reveille cluster archive-loss`.

use reveille_proto::admin::v1::{AcceptArchiveLossRequest, ArchiveContent, GetArchiveLossRequest, LostPart};

use crate::cli::commands::{CommandContext, Stop, View, format};
use crate::cli::view::layout::{Cell, Tone};

/// Shows the lost parts of the archive, and accepts their loss.
pub async fn run(context: &CommandContext<'_>, accept: bool) -> Result<(), Stop> {
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
    context.confirm(&question).await?;
    let request = AcceptArchiveLossRequest { parts: lost.into_iter().map(|part| part.part).collect() };
    let answer = context.change(request).await?;
    context.terminal.list(&answer.parts)?;
    context.terminal.say(&format!("{parts} accepted as lost; next: reveille backup create"));
    if answer.parts.iter().any(|part| part.content() == ArchiveContent::Events) {
        context.terminal.say("readers of events must begin anew");
    }
    Ok(())
}

impl View for LostPart {
    const NAME: &'static str = "part";
    const NOUN: &'static str = "lost parts of the archive";
    const COLUMNS: &'static [&'static str] = &["PART", "CONTENT", "FROM", "TO", "LOST", "ACCEPTED"];

    fn cells(&self) -> Vec<Cell> {
        let content = match self.content() {
            ArchiveContent::AuditRecords => "audit records".to_owned(),
            ArchiveContent::Events => "events".to_owned(),
            _ => format::counted(self.runs.into(), "run"),
        };
        let lost = match (self.details, self.summaries) {
            (true, false) => "results of recipients",
            (false, true) if self.content() == ArchiveContent::Runs => "counts, after the retention",
            _ => "all",
        };
        let accepted = match &self.accept_time {
            Some(at) => Cell::at(Some(at)),
            None => Cell::toned("no", Tone::Bad),
        };
        vec![
            self.part.as_str().into(),
            content.into(),
            Cell::at(self.from_time.as_ref()),
            Cell::at(self.to_time.as_ref()),
            lost.into(),
            accepted,
        ]
    }
}
