//! Generates schedule names from commands, unique within the file.

use std::collections::BTreeSet;

use super::mailer;
use super::shell::{Joint, Simple};

/// Limit of a name's characters without prefix and number, so that it is easy to type.
const NAME_CHARACTERS_MAX: usize = 40;
/// Endings of script names that are left out.
const ENDINGS: [&str; 8] = [".sh", ".bash", ".py", ".pl", ".rb", ".php", ".js", ".lua"];

/// The names already given in a file.
#[derive(Debug, Default)]
pub struct Names {
    prefix: String,
    taken: BTreeSet<String>,
}

impl Names {
    /// Creates an empty set. Each name begins with `prefix`.
    pub fn new(prefix: &str) -> Names {
        Names { prefix: prefix.to_owned(), taken: BTreeSet::new() }
    }

    /// Returns a name made of these words. A second equal name ends in `-2`, and so on.
    pub fn give(&mut self, words: &str) -> String {
        let slug = format!("{}{}", self.prefix, slug(words));
        let mut name = slug.clone();
        let mut number = 1_u32;
        while !self.taken.insert(name.clone()) {
            number += 1;
            name = format!("{slug}-{number}");
        }
        name
    }
}

/// Returns the words that name a command: those of its last command that is not behind a pipe, with the program's file
/// name only. Commands before it prepare it, and commands behind the pipe only process its output.
pub fn words_of(command: &str, commands: &[Simple]) -> String {
    let main = commands.iter().rfind(|simple| simple.joint != Joint::Pipe);
    let words = main.map(|main| mailer::program(&main.words)).unwrap_or_default();
    let Some((program, arguments)) = words.split_first() else { return command.to_owned() };
    let program = program.text.rsplit('/').next().unwrap_or_default();
    let program = ENDINGS.iter().find_map(|ending| program.strip_suffix(ending)).unwrap_or(program);
    let mut named = program.to_owned();
    for argument in arguments {
        named.push(' ');
        named.push_str(&argument.text);
    }
    named
}

/// Returns lower-case letters and digits with hyphens between them. Too long a name is cut between words if possible.
fn slug(words: &str) -> String {
    let mut slug = String::new();
    for piece in words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|piece| !piece.is_empty()) {
        let length = slug.len() + usize::from(!slug.is_empty()) + piece.len();
        if length > NAME_CHARACTERS_MAX {
            if slug.is_empty() {
                slug.extend(piece.chars().take(NAME_CHARACTERS_MAX));
            }
            break;
        }
        if !slug.is_empty() {
            slug.push('-');
        }
        slug.push_str(piece);
    }
    if slug.is_empty() { "job".to_owned() } else { slug.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::super::shell;
    use super::*;

    #[test]
    fn command_is_named_by_its_program_and_its_words() {
        for (command, name) in [
            ("/usr/local/bin/backup.sh --full > /dev/null 2>&1", "backup-full"),
            ("cd / && run-parts --report /etc/cron.hourly", "run-parts-report-etc-cron-hourly"),
            ("test -x /usr/sbin/anacron || ( cd / && run-parts /etc/cron.daily )", "run-parts-etc-cron-daily"),
            ("df -h | grep sda", "df-h"),
            ("LANG=C nice /opt/Report", "report"),
            ("echo 'open", "echo-open"),
            ("Ünïcödé", "n-c-d"),
            ("***", "job"),
            ("x aaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "x-aaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ] {
            let words = words_of(command, &shell::read(command).unwrap_or_default());
            assert_eq!(Names::default().give(&words), name, "{command}");
        }
        assert_eq!(Names::default().give(&"y".repeat(99)).len(), NAME_CHARACTERS_MAX);
    }

    #[test]
    fn no_name_is_given_twice() {
        let mut names = Names::new("old-");
        let given: Vec<String> = ["a b", "a.b", "a b 2", "a-b"].into_iter().map(|words| names.give(words)).collect();
        assert_eq!(given, ["old-a-b", "old-a-b-2", "old-a-b-2-2", "old-a-b-3"]);
    }
}
