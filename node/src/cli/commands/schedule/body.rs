//! The body of a request that creates or changes a schedule: labels, content and recipients, from flags and files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reveille_proto::admin::v1::{Audience, Content, Field, Recipient};

use crate::cli::args::content::TextArgs;
use crate::cli::attachments;
use crate::cli::commands::{
    BadRows, CommandContext, ContentArgs, ContentOrTemplateArgs, Failure, RecipientArgs, input,
};
use crate::cli::failure::BAD_ROWS_SHOWN;
use crate::cli::recipients::{self, Recipients};

/// Returns the labels as a map. Fails if a key occurs twice, because neither value can be preferred.
pub fn labels(pairs: Vec<(String, String)>) -> Result<BTreeMap<String, String>, Failure> {
    let mut labels = BTreeMap::new();
    for (key, value) in pairs {
        if let Some(other) = labels.insert(key.clone(), value) {
            let message = format!("label {key} is given twice, once as {other:?}");
            return Err(Failure::usage("--label", message, "give each key once"));
        }
    }
    Ok(labels)
}

/// Reads the recipients from the command line or from a file. Fails if the file has bad rows, unless `--skip-bad-rows`
/// leaves them out.
pub fn recipients(args: &RecipientArgs) -> Result<Recipients, Failure> {
    if let Some(name) = &args.sealed {
        let audience = Audience { sealed: name.clone(), ..Audience::default() };
        return Ok(Recipients { audience, lines: Vec::new(), bad: Vec::new() });
    }
    let Some(path) = &args.recipients else {
        let recipient = |address: &String| Recipient { address: address.clone(), values: Vec::new() };
        let recipients = args.to.iter().map(recipient).collect();
        let audience = Audience { recipients, ..Audience::default() };
        let lines = (1..=args.to.len() as u64).collect();
        return Ok(Recipients { audience, lines, bad: Vec::new() });
    };
    let read = recipients::read(path)?;
    if !read.bad.is_empty() && !args.skip_bad_rows {
        return Err(bad_rows(path, &read));
    }
    if read.lines.is_empty() {
        return Err(Failure::file(path.display().to_string(), "no row holds a recipient".to_owned()));
    }
    Ok(read)
}

/// Warns of columns that no text can use, and names the rows that `--skip-bad-rows` leaves out.
pub fn say_left_out(context: &CommandContext<'_>, recipients: &Recipients) {
    if let Some(unusable) = recipients::unusable(&recipients.audience.columns) {
        context.terminal.say(&format!("warning: {unusable}"));
    }
    for bad in &recipients.bad {
        context.terminal.say(&format!("left out: {bad}"));
    }
}

fn bad_rows(path: &Path, read: &Recipients) -> Failure {
    let shown = read.bad.iter().take(BAD_ROWS_SHOWN).cloned().collect();
    Failure::bad_rows(path, "done", BadRows { count: read.bad.len() as u64, shown }, None)
}

/// Returns the content that the flags give, or the name of a template.
pub fn content_or_template(args: ContentOrTemplateArgs) -> Result<(Option<Content>, String), Failure> {
    match args.template {
        Some(template) => Ok((None, template)),
        None => Ok((Some(content(args.content)?), String::new())),
    }
}

/// Returns the content fields that the flags set.
pub fn content(args: ContentArgs) -> Result<Content, Failure> {
    let fields = |pairs: Vec<(String, String)>| pairs.into_iter().map(|(name, value)| Field { name, value }).collect();
    let (text, html) = texts(args.texts)?;
    Ok(Content {
        sender: args.sender.unwrap_or_default(),
        reply_to: args.reply_to.unwrap_or_default(),
        cc: args.cc,
        subject: args.subject.unwrap_or_default(),
        text,
        html,
        headers: fields(args.headers),
        variables: fields(args.variables),
        bulk: args.bulk,
        attachments: attachments::read(&args.attachments)?,
    })
}

/// Returns the templates of text and HTML, each from its file or inline.
pub fn texts(args: TextArgs) -> Result<(Option<String>, Option<String>), Failure> {
    let read = |file: Option<PathBuf>, inline| file.map_or(Ok(inline), |path| input::text_file(&path).map(Some));
    Ok((read(args.text, args.inline_text)?, read(args.html, args.inline_html)?))
}

/// What may be before [`IN_REQUEST`].
const OF_SCHEDULE: &str = "schedule.";
/// Prefix of a recipient's index in the field path of a request.
const IN_REQUEST: &str = "audience.recipients[";

/// Replaces a recipient's index in the request by its line in the file, so that the user can find it.
pub fn at_line(mut failure: Failure, args: &RecipientArgs, recipients: &Recipients) -> Failure {
    let line_of = |place: &str| recipients.lines.get(place.parse::<usize>().ok()?);
    let line = failure.field.as_deref().and_then(|field| {
        let (_, rest) = field.split_once(IN_REQUEST)?;
        line_of(rest.split_once(']')?.0)
    });
    let noun = if args.recipients.is_some() { "line" } else { "--to, place" };
    failure.message = by_line(&failure.message, |place| line_of(place).map(|line| format!("{noun} {line}")));
    match (line, &args.recipients) {
        (Some(line), Some(path)) => Failure { field: Some(format!("{}:{line}", path.display())), ..failure },
        (Some(line), None) => Failure { field: Some(format!("--to, the one at place {line}")), ..failure },
        (None, _) => failure,
    }
}

/// Returns the message with text such as `line 7` in place of the field path of a recipient or of one of its parts.
fn by_line(message: &str, line_of: impl Fn(&str) -> Option<String>) -> String {
    let mut pieces = message.split(IN_REQUEST);
    let mut message = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let named = piece.split_once(']').and_then(|(place, rest)| Some((line_of(place)?, rest)));
        match named {
            Some((line, rest)) => {
                let part = rest
                    .find(": ")
                    .filter(|end| !rest.get(..*end).unwrap_or_default().contains(' '))
                    .unwrap_or_default();
                message.truncate(message.strip_suffix(OF_SCHEDULE).map_or(message.len(), str::len));
                message.push_str(&line);
                message.push_str(rest.get(part..).unwrap_or_default());
            }
            None => {
                message.push_str(IN_REQUEST);
                message.push_str(piece);
            }
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_are_named_by_their_lines() {
        let line_of = |place: &str| (place == "1").then(|| "line 7".to_owned());
        let message = by_line("schedule.audience.recipients[1].values[0]: is bad (and 1 more field)\n  x", line_of);
        assert_eq!(message, "line 7: is bad (and 1 more field)\n  x");
        let message =
            by_line("a; schedule.audience.recipients[1].address: b\n  schedule.audience.recipients[2]: c", line_of);
        assert_eq!(message, "a; line 7: b\n  schedule.audience.recipients[2]: c");
        assert_eq!(by_line("audience.recipients[1]: is bad", line_of), "line 7: is bad");
    }
}
