//! Reads the fenced blocks of a page of the handbook, and the purpose of each.
//!
//! The words after the language of a fence name the purpose. Readers do not see them:
//!
//! - `console`: commands after `$ `, each with its output. The exit code must be 0, unless the output has `error:` or
//!   the fence has `exit=1`. With `any-number`, other numbers in the output are accepted
//! - `sh`: commands only; each must succeed
//! - `sh on=a,b`: the same, as root of each of these machines, in one shell for the block
//! - any language and `file=NAME`: a file of that name
//! - any language and `not-run: WHY`: cannot run in a test; counted and listed
//! - `text`: nothing to run
//!
//! `<!-- typed` on a separate line begins commands that the page needs but readers do not see; `-->` ends them. It may
//! have `on=a,b` too. A block in a list is indented: the blanks before its fence are cut from each of its lines.

use std::path::{Path, PathBuf};

/// A fenced block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Line number of the fence within the page, from 1.
    pub line: usize,
    /// Purpose of the block.
    pub purpose: Purpose,
    /// Number of blanks before the fence.
    pub indent: usize,
    /// Lines between the fences, without the indentation.
    pub lines: Vec<String>,
}

/// The purpose of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Commands with their output.
    Console {
        /// True if other numbers in the output are accepted.
        any_number: bool,
        /// Expected exit code, if it is not 0.
        exit: Option<i32>,
    },
    /// Commands that must succeed.
    Script,
    /// Commands that must succeed on each of these machines.
    Machines(Vec<String>),
    /// A file with this name.
    File(String),
    /// Not run by the test, for this reason.
    NotRun(String),
    /// Nothing to run.
    Text,
}

/// A command of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Line number of the command within the page, from 1.
    pub line: usize,
    /// The command. It has several lines if they end with `\`, or if it has a text up to `END`.
    pub command: String,
    /// The expected output. `None` in a script.
    pub shown: Option<Shown>,
}

/// Expected output on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Line number of the first line, from 1.
    pub first: usize,
    /// Number of blanks before each line on the page.
    pub indent: usize,
    /// The lines, without empty ones at the end.
    pub lines: Vec<String>,
}

/// Returns all pages of the handbook.
pub fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of pages").map(|entry| entry.expect("an entry").path())
        {
            match entry.extension() {
                _ if entry.is_dir() => folders.push(entry),
                Some(kind) if kind == "md" => pages.push(entry),
                _ => {}
            }
        }
    }
    pages.sort();
    pages
}

/// Returns the folder of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// Returns the blocks of a page, in order.
///
/// # Panics
/// If a fence does not name its purpose or has no end, or if a line is indented less than the fence before it.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let fence = line.trim_start();
        let indent = line.len() - fence.len();
        let (purpose, end) = match fence.strip_prefix("```") {
            Some(info) => (purpose(info).unwrap_or_else(|why| panic!("line {}: {why}", number + 1)), "```"),
            None => match fence.strip_prefix("<!-- typed") {
                Some(words) => (script(words.trim()).expect("`on=` or nothing"), "-->"),
                None => continue,
            },
        };
        let mut inside = Vec::new();
        loop {
            let (at, line) = lines.next().unwrap_or_else(|| panic!("line {}: the block does not end", number + 1));
            let (blanks, line) = line.split_at_checked(indent).unwrap_or((line, ""));
            assert!(blanks.trim().is_empty(), "line {}: it is indented less than the fence above", at + 1);
            if line == end {
                break;
            }
            inside.push(line.to_owned());
        }
        blocks.push(Block { line: number + 1, purpose, indent, lines: inside });
    }
    blocks
}

fn purpose(info: &str) -> Result<Purpose, String> {
    let (language, words) = info.split_once(' ').unwrap_or((info, ""));
    if let Some(why) = words.strip_prefix("not-run: ") {
        return Ok(Purpose::NotRun(why.to_owned()));
    }
    if let Some(name) = words.strip_prefix("file=") {
        return Ok(Purpose::File(name.to_owned()));
    }
    match (language, words) {
        ("console", words) => {
            let (mut any_number, mut exit) = (false, None);
            for word in words.split_whitespace() {
                match word.strip_prefix("exit=").and_then(|code| code.parse().ok()) {
                    Some(code) => exit = Some(code),
                    None if word == "any-number" => any_number = true,
                    None => return Err(format!("`{word}` says nothing of a console")),
                }
            }
            Ok(Purpose::Console { any_number, exit })
        }
        ("sh", words) => script(words).ok_or_else(|| format!("`{words}` says nothing of a script")),
        ("text", "") => Ok(Purpose::Text),
        _ => Err(format!("`{info}` does not say what the block is for: see node/tests/docs/blocks.rs")),
    }
}

/// Returns the purpose of a script by the words of its fence.
fn script(words: &str) -> Option<Purpose> {
    match words.strip_prefix("on=") {
        Some(machines) => Some(Purpose::Machines(machines.split(',').map(str::to_owned).collect())),
        None => words.is_empty().then_some(Purpose::Script),
    }
}

impl Block {
    /// Returns the commands of the block. A block that is not run has commands too; its lines are read like a script.
    pub fn steps(&self) -> Vec<Step> {
        match self.purpose {
            Purpose::Console { .. } => self.console(),
            Purpose::Script | Purpose::Machines(_) | Purpose::NotRun(_) => self.script(),
            Purpose::File(_) | Purpose::Text => Vec::new(),
        }
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &String)> {
        self.lines.iter().enumerate().map(|(place, line)| (self.line + 1 + place, line))
    }

    fn script(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (number, line) in self.numbered() {
            match steps.last_mut() {
                Some(last) if goes_on(&last.command) => last.command = format!("{}\n{line}", last.command),
                _ if line.trim().is_empty() || line.starts_with('#') => {}
                _ => steps.push(Step { line: number, command: line.clone(), shown: None }),
            }
        }
        steps
    }

    fn console(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (number, line) in self.numbered() {
            if let Some(command) = line.strip_prefix("$ ") {
                let shown = Some(Shown { first: number + 1, indent: self.indent, lines: Vec::new() });
                steps.push(Step { line: number, command: command.to_owned(), shown });
                continue;
            }
            let Some(Step { command, shown: Some(shown), .. }) = steps.last_mut() else {
                panic!("line {number}: a console begins with `$ `");
            };
            if shown.lines.is_empty() && command.ends_with('\\') {
                *command = format!("{command}\n{line}");
                shown.first = number + 1;
            } else {
                shown.lines.push(line.clone());
            }
        }
        for shown in steps.iter_mut().filter_map(|step| step.shown.as_mut()) {
            while shown.lines.last().is_some_and(String::is_empty) {
                shown.lines.pop();
            }
        }
        steps
    }
}

/// Returns true if the next line belongs to this command.
fn goes_on(command: &str) -> bool {
    command.ends_with('\\') || (command.contains("<<'END'") && !command.ends_with("\nEND"))
}
