//! What stands on a page of the handbook: its fenced blocks, and what each of them is for.
//!
//! The words behind the language of a fence say it, and a reader does not see them:
//!
//! - `console`: commands behind `$ `, each with what it prints. They end with 0, or say `error:`, or as
//!   `console exit=1` says. `console any-number`: other figures will do
//! - `sh`: commands alone; each of them succeeds
//! - any language and `file=NAME`: a file of that name
//! - any language and `not-run: WHY`: what needs more than a test has; counted and listed
//! - `text`: nothing to type
//!
//! `<!-- typed` on a line of its own opens commands that the page needs and a reader does not; `-->` ends them.

use std::path::{Path, PathBuf};

/// A block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its first line within the page, from 1: that of the fence.
    pub line: usize,
    /// What it is for.
    pub purpose: Purpose,
    /// What stands in it.
    pub lines: Vec<String>,
}

/// What a block is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Commands with what they print.
    Console {
        /// Other figures than those that are shown will do.
        any_number: bool,
        /// How they end, other than by 0.
        exit: Option<i32>,
    },
    /// Commands that succeed.
    Script,
    /// A file.
    File(String),
    /// Not for a test, and why.
    NotRun(String),
    /// Nothing to type.
    Text,
}

/// A command of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its line within the page, from 1.
    pub line: usize,
    /// What is typed; several lines where they end with `\`.
    pub command: String,
    /// What is shown below it, and from which line to which; none in a script.
    pub shown: Option<Shown>,
}

/// Lines of output on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The first of them, from 1.
    pub first: usize,
    /// They themselves, without blank ones at the end.
    pub lines: Vec<String>,
}

/// All pages of the handbook.
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

/// The folder of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// The blocks of a page, in order.
///
/// # Panics
/// A fence does not say what it is for, or does not end.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let (purpose, end) = match line.strip_prefix("```") {
            Some(info) => (purpose(info).unwrap_or_else(|why| panic!("line {}: {why}", number + 1)), "```"),
            None if line == "<!-- typed" => (Purpose::Script, "-->"),
            None => continue,
        };
        let mut inside = Vec::new();
        loop {
            let (_, line) = lines.next().unwrap_or_else(|| panic!("line {}: the block does not end", number + 1));
            if line == end {
                break;
            }
            inside.push(line.to_owned());
        }
        blocks.push(Block { line: number + 1, purpose, lines: inside });
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
        ("sh", "") => Ok(Purpose::Script),
        ("text", "") => Ok(Purpose::Text),
        _ => Err(format!("`{info}` does not say what the block is for: see node/tests/docs/blocks.rs")),
    }
}

impl Block {
    /// Its commands. What is not run has them too, where it is written in the language of a shell.
    pub fn steps(&self) -> Vec<Step> {
        match self.purpose {
            Purpose::Console { .. } => self.console(),
            Purpose::Script | Purpose::NotRun(_) => self.script(),
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
                Some(last) if last.command.ends_with('\\') => last.command = format!("{}\n{line}", last.command),
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
                let shown = Some(Shown { first: number + 1, lines: Vec::new() });
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
