//! Tests that every command in a help text, a page or a message can be typed: each example parses, and each named
//! command exists with its flags.

#[path = "../../tests/docs/blocks.rs"]
mod blocks;

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};
use reveille_proto::admin::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::command_tree::Cli;
use super::failure::{Exit, Failure};
use super::import::shell;
use blocks::{Block, blocks, pages, root};

/// Folders of pages about `reveille`. The next constant lists pages about the judge's own commands.
const FOLDERS: [&str; 3] = ["docs/tutorial", "docs/how-to", "docs/reference"];
const ABOUT_THE_JUDGE: [&str; 2] = ["docs/reference/fault-runs.md", "docs/reference/simulation.md"];

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect("a page")
}

/// Builds the whole tree of commands, with global flags and `help` in every command.
fn tree() -> Command {
    let mut tree = Cli::command();
    tree.build();
    tree
}

/// Returns all commands without subcommands, each with its full name.
fn leaves(command: &Command, way: &str) -> Vec<(String, Command)> {
    let way = if way.is_empty() { command.get_name().to_owned() } else { format!("{way} {}", command.get_name()) };
    let below: Vec<&Command> = command.get_subcommands().filter(|below| below.get_name() != "help").collect();
    match below.is_empty() {
        true => vec![(way, command.clone())],
        false => below.into_iter().flat_map(|below| leaves(below, &way)).collect(),
    }
}

/// Parses every `reveille …` of a shell command. Commands of other programs are ignored.
fn can_be_typed(command: &str) -> Result<usize, String> {
    let command = without_comment(&command.replace("\\\n", " "));
    let simple = shell::read(&command).ok_or_else(|| format!("no shell takes this: {command}"))?;
    let mut typed = 0;
    for one in simple {
        let words: Vec<&str> = one.words.iter().map(|word| word.text.as_str()).collect();
        let begin = words.iter().position(|word| *word == "reveille");
        // An environment variable may come first, as in `NAME=value reveille …`.
        let Some(begin) = begin.filter(|begin| words[..*begin].iter().all(|word| word.contains('='))) else { continue };
        if let Err(error) = Cli::try_parse_from(&words[begin..])
            && !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
        {
            return Err(format!("{command}\n{error}"));
        }
        typed += 1;
    }
    Ok(typed)
}

/// Removes a comment: the text after a `#` that begins a word outside of quotes.
fn without_comment(command: &str) -> String {
    let (mut quote, mut before) = (None, ' ');
    for (place, one) in command.char_indices() {
        match (quote, one) {
            (None, '\'' | '"') => quote = Some(one),
            (Some(open), _) if open == one => quote = None,
            (None, '#') if before.is_whitespace() => return command[..place].to_owned(),
            _ => {}
        }
        before = one;
    }
    command.to_owned()
}

/// Checks that these words begin with an existing command and its flags. Words in capitals, braces or other signs are
/// placeholders.
fn exists(words: &str, tree: &Command) -> Result<(), String> {
    let mut command = tree;
    let mut is_on_the_way = true;
    for raw in words.split_whitespace() {
        let word = raw.trim_end_matches([',', '.', ';', ':', ')', '\'', '"', '`']).trim_start_matches(['\'', '"', '(']);
        if let Some(flag) = word.strip_prefix("--") {
            let flag = flag.split('=').next().unwrap_or_default();
            let known = ["help", "version"].contains(&flag)
                || command.get_arguments().any(|argument| argument.get_long() == Some(flag));
            if !known {
                return Err(format!("`{words}`: {} has no --{flag}", command.get_name()));
            }
            is_on_the_way = false;
        } else if is_on_the_way && command.has_subcommands() {
            let is_word = word.starts_with(|one: char| one.is_ascii_lowercase());
            match command.find_subcommand(word) {
                Some(below) => command = below,
                None if is_word => return Err(format!("`{words}`: {} has no `{word}`", command.get_name())),
                None => is_on_the_way = false,
            }
        }
        if raw.ends_with([',', ';', ':']) {
            break;
        }
    }
    Ok(())
}

#[test]
fn every_command_shows_how_it_is_typed_and_it_can_be() {
    let mut without = Vec::new();
    for (way, command) in leaves(&tree(), "") {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let examples = Block {
            line: 0,
            purpose: blocks::Purpose::Script,
            indent: 0,
            // Only indented lines are examples: a sentence of the help text may begin with `reveille`, too.
            lines: help.lines().filter_map(|line| line.strip_prefix("  ").map(str::to_owned)).collect(),
        };
        let mut typed = 0;
        for step in examples.steps().iter().filter(|step| step.command.contains("reveille ")) {
            typed += can_be_typed(&step.command).unwrap_or_else(|why| panic!("help of {way}: {why}"));
        }
        if typed == 0 {
            without.push(way);
        }
    }
    assert!(without.is_empty(), "no example that can be typed: {without:#?}");
    let first = Cli::command().get_after_long_help().map(ToString::to_string).unwrap_or_default();
    assert!(first.contains("reveille cluster status"), "{first}");
}

/// Parses all commands of the pages, because the test of the pages does not run all of them.
#[test]
fn every_command_of_the_handbook_can_be_typed() {
    let mut typed = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        for step in blocks(&text).iter().flat_map(Block::steps) {
            let place = format!("{}:{}", page.display(), step.line);
            // The page shows a mistake on purpose.
            let is_wrong = step.shown.is_some_and(|shown| shown.lines.iter().any(|line| line.starts_with("error: ")));
            if !is_wrong {
                typed += can_be_typed(&step.command).unwrap_or_else(|why| panic!("{place}: {why}"));
            }
        }
    }
    assert!(typed > 30, "{typed}");
}

#[test]
fn every_command_that_a_page_names_exists() {
    let tree = tree();
    let nouns: BTreeSet<&str> = tree.get_subcommands().map(Command::get_name).collect();
    let flags: BTreeSet<String> = leaves(&tree, "")
        .iter()
        .flat_map(|(_, command)| command.get_arguments().filter_map(|argument| argument.get_long()))
        .map(|flag| format!("--{flag}"))
        .collect();
    let is_checked = |page: &PathBuf| {
        let is_in_folder = FOLDERS.iter().any(|folder| page.starts_with(root().join(folder)));
        let is_named = |names: &[&str]| names.iter().any(|name| *page == root().join(name));
        is_named(&["README.md", "docs/protocol.md"]) || is_in_folder && !is_named(&ABOUT_THE_JUDGE)
    };
    for page in pages().into_iter().filter(is_checked) {
        let (text, name) = (std::fs::read_to_string(&page).expect("a page"), page.display());
        for (number, line) in text.lines().enumerate() {
            for code in line.split('`').skip(1).step_by(2) {
                let first = code.split_whitespace().next().unwrap_or_default();
                let named = match code.strip_prefix("reveille ") {
                    Some(words) => Some(words),
                    None => (nouns.contains(first) && code.contains(' ')).then_some(code),
                };
                let found = named.map_or(Ok(()), |words| exists(words, &tree));
                assert!(found.is_ok(), "{name}:{}: {found:?}", number + 1);
                assert!(!first.starts_with("--") || flags.contains(first), "{name}:{}: {first}", number + 1);
            }
        }
    }
}

/// Checks the next steps in errors, warnings and findings.
#[test]
fn every_command_that_a_message_names_exists() {
    let tree = tree();
    let mut named = 0;
    let mut folders = vec![root().join("node/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            let text = std::fs::read_to_string(&entry).expect("a source");
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code.filter(|line| line.contains('"')) {
                for words in line.split("reveille ").skip(1) {
                    let words = words.split(['"', '`', '\\']).next().unwrap_or_default();
                    let found = exists(words, &tree);
                    assert!(found.is_ok(), "{}: {found:?} in {line}", entry.display());
                    named += 1;
                }
            }
        }
    }
    assert!(named > 60, "{named}");
}

/// Files of the server, or below it, whose texts only an operator at a node's machine reads: what a node says when it
/// does not start, the configuration, and lines of its log.
const OF_A_NODE: [&str; 11] = [
    "node/src/server/bootstrap.rs",
    "node/src/server/config",
    "node/src/server/node.rs",
    "node/src/server/node_identity.rs",
    "node/src/server/start.rs",
    "cluster/src/leader/auditor/mod.rs",
    "cluster/src/process/lifecycle.rs",
    "cluster/src/smtp/registry/mod.rs",
    "cluster/src/worker/context.rs",
    "cluster/src/worker/journal",
    "raft/ledger/src/apply/epoch.rs",
];

/// A text that may reach an answer of the API names no command of ours and no flag: the command line adds them.
#[test]
fn no_text_of_the_server_names_a_command() {
    let tree = tree();
    let flags: BTreeSet<String> = leaves(&tree, "")
        .iter()
        .flat_map(|(_, command)| command.get_arguments().filter_map(|argument| argument.get_long()))
        .map(|flag| format!("--{flag}"))
        .collect();
    let nouns: BTreeSet<&str> = tree.get_subcommands().map(Command::get_name).collect();
    let word = |text: &str| {
        text.split(|one: char| !one.is_ascii_lowercase() && one != '-').next().unwrap_or_default().to_owned()
    };
    let names_a_command = |line: &str| {
        let command = line.split("reveille ").skip(1).any(|rest| nouns.contains(word(rest).as_str()));
        let flag = line.match_indices("--").any(|(place, _)| flags.contains(&word(&line[place..])));
        command || flag
    };
    assert!(names_a_command("\"as reveille run list shows\"") && names_a_command("\"say --stale\""));
    assert!(!names_a_command("\"a node of reveille\"") && !names_a_command("\"a -- b\""));
    let mut read = 0;
    let mut places: Vec<PathBuf> = ["node/src/server", "cluster/src", "raft/src", "raft/ledger/src"]
        .iter()
        .map(|place| root().join(place))
        .collect();
    while let Some(place) = places.pop() {
        let name = place.strip_prefix(root()).expect("a place in the workspace").display().to_string();
        if OF_A_NODE.contains(&name.as_str()) || name.ends_with("/tests") || name.ends_with("tests.rs") {
            continue;
        }
        if place.is_dir() {
            places.extend(std::fs::read_dir(&place).expect("a folder").map(|entry| entry.expect("an entry").path()));
            continue;
        }
        read += 1;
        let text = std::fs::read_to_string(&place).expect("a source");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (number, line) in lines {
            assert!(!names_a_command(line), "{name}:{}: {line}", number + 1);
        }
    }
    assert!(read > 300, "{read}");
}

#[test]
fn exit_codes_are_those_of_the_handbook() {
    #[rustfmt::skip]
    let codes = [
        Exit::Done, Exit::General, Exit::Usage, Exit::NotFound, Exit::Conflict, Exit::NoQuorum, Exit::Denied, Exit::Partly,
        Exit::TimedOut, Exit::Interrupted,
    ];
    let page = page("docs/reference/cli.md");
    let section =
        page.split("\n## Exit codes\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()?.parse::<u8>().ok());
    assert_eq!(rows.collect::<Vec<_>>(), codes.map(Exit::code));
    let help = Cli::command().get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let (_, documented) = help.split_once("Exit codes:").expect("a section");
    let documented: Vec<u8> = documented.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(documented, codes.map(Exit::code));
}

#[test]
fn every_reason_of_a_refusal_has_a_next_step() {
    let reasons = (1..).map_while(|number| ErrorReason::try_from(number).ok());
    let mut documented = 0;
    for reason in reasons {
        let name = reason.as_str_name().trim_start_matches("ERROR_REASON_");
        let mut details = ErrorDetails::new();
        details.set_error_info(name, "reveille", std::collections::HashMap::new());
        let failure = Failure::of_status(&Status::with_error_details(Code::FailedPrecondition, "no", details));
        assert!(failure.next.is_some(), "{name}");
        documented += 1;
    }
    assert!(documented >= 20, "{documented}");
}

/// Returns all string literals in the code of `doctor`, which include the names of its checks.
fn texts_of_doctor() -> BTreeSet<String> {
    let mut files = vec![root().join("node/src/cli/commands/doctor.rs")];
    let folder = std::fs::read_dir(root().join("node/src/cli/doctor")).expect("a folder");
    files.extend(folder.map(|entry| entry.expect("an entry").path()));
    let sources = files.iter().map(|file| std::fs::read_to_string(file).expect("a source"));
    let code: String = sources.map(|text| text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()).collect();
    code.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn handbook_has_a_line_for_each_check_of_doctor() {
    let page = page("docs/reference/monitoring.md");
    let table = page.split("\n| check | problem | warning |\n").nth(1).expect("a table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let documented: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let texts = texts_of_doctor();
    let unknown: Vec<&&str> = documented.iter().filter(|check| !texts.contains(**check)).collect();
    assert!(unknown.is_empty(), "in the handbook, and nowhere in the code: {unknown:?}");
    let constructors = ["Finding::problem(", "Finding::warning(", "finding("];
    let folder = root().join("node/src/cli/doctor");
    for file in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let text = std::fs::read_to_string(&file).expect("a source");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for words in constructors.iter().flat_map(|call| code.split(call).skip(1)) {
            let Some(check) = words.strip_prefix('"').and_then(|rest| rest.split('"').next()) else { continue };
            assert!(documented.contains(check), "{}: the handbook has no line for `{check}`", file.display());
        }
    }
}

#[test]
fn policies_have_the_values_and_defaults_of_the_handbook() {
    let page = page("docs/reference/schedules.md");
    let table = page.split("\n## Policies\n").nth(1).expect("a section");
    let tree = tree();
    let create = tree.find_subcommand("schedule").and_then(|schedule| schedule.find_subcommand("create"));
    let mut policies = 0;
    for argument in create.expect("a command").get_arguments() {
        let (Some("Policies"), Some(flag)) = (argument.get_help_heading(), argument.get_long()) else { continue };
        policies += 1;
        let row = table.lines().find(|line| line.starts_with(&format!("| `--{flag}` |")));
        let Some(row) = row else {
            assert!(page.contains(&format!("`--{flag}")), "the handbook has no --{flag}");
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let values: BTreeSet<String> =
            argument.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect();
        let documented = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
        if values.is_empty() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("[default: {}]", cells[2])), "{row}\n{help}");
            continue;
        }
        let default: BTreeSet<String> =
            argument.get_default_values().iter().map(|one| one.to_string_lossy().into_owned()).collect();
        assert_eq!(documented(cells[2]), default, "{row}");
        assert_eq!(documented(cells[3]), values.difference(&default).cloned().collect(), "{row}");
    }
    assert!(policies >= 9, "{policies}");
}
