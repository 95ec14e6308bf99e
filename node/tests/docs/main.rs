//! Runs the commands of the handbook, page by page and in order, and compares their output with the page.
//!
//! `UPDATE_GOLDENFILES=1` writes the new output into the pages. Check the difference before you commit it.

mod blocks;
mod compare;
mod links;
mod machines;
mod packaging;
#[path = "../../../cluster/tests/cluster/support/postfix.rs"]
mod postfix;
mod session;

use std::path::Path;

use blocks::{Block, Purpose, Step, blocks, pages, root};
use compare::{Names, same};
use machines::Machines;
use session::Session;

macro_rules! pages {
    ($($test:ident: $page:literal),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                type_in(&root().join($page));
            }
        )*
        const TYPED: &[&str] = &[$($page),*];
    };
}

pages! {
    readme: "README.md",
    backup_and_restore: "docs/how-to/backup-and-restore.md",
    campaigns: "docs/how-to/campaigns.md",
    cli: "docs/reference/cli.md",
    configuration: "docs/reference/configuration.md",
    doubt_and_dead_letters: "docs/how-to/doubt-and-dead-letters.md",
    erase_a_person: "docs/how-to/erase-a-person.md",
    from_cron: "docs/how-to/from-cron.md",
    http: "docs/reference/http.md",
    monitor: "docs/how-to/monitor.md",
    monitoring: "docs/reference/monitoring.md",
    relays: "docs/how-to/relays.md",
    replace_a_node: "docs/how-to/replace-a-node.md",
    rotate_the_authority: "docs/how-to/rotate-the-authority.md",
    run_nodes: "docs/how-to/run-nodes.md",
    schedules: "docs/how-to/schedules.md",
    tenants: "docs/how-to/tenants.md",
    three_machines: "docs/tutorial/three-machines.md",
}

/// Runs all commands of a page, and compares the output.
fn type_in(page: &Path) {
    let text = std::fs::read_to_string(page).expect("a page");
    if text.contains("a-upgrade") && !cfg!(feature = "next-level") {
        return reveille_strict::skip("the feature next-level is not compiled in");
    }
    let mut session = Session::open();
    let mut names = Names::default();
    let mut news: Vec<(Step, Vec<String>)> = Vec::new();
    let mut problems = Vec::new();
    let mut machines = None;
    for block in blocks(&text) {
        if let Purpose::Machines(names) = &block.purpose {
            if let Some(machines) = machines.get_or_insert_with(Machines::start) {
                names.iter().for_each(|name| machines.type_in(name, &block));
            }
            continue;
        }
        if let Purpose::File(name) = &block.purpose {
            session.write(name, &block.lines);
        }
        if matches!(block.purpose, Purpose::NotRun(_)) {
            continue;
        }
        for step in block.steps() {
            let ended = session.type_in(&names.typed(&step.command));
            let shown = step.shown.as_ref().map(|shown| shown.lines.clone());
            let printed: Vec<String> = ended.printed.lines().map(str::to_owned).collect();
            let (any_number, exit) = match block.purpose {
                Purpose::Console { any_number, exit } => (any_number, exit),
                _ => (false, None),
            };
            let is_shown = shown.is_some() && printed.iter().any(|line| line.starts_with("error: "));
            if ended.code != Some(exit.unwrap_or(0)) && !is_shown {
                problems
                    .push(format!("{}: {}\nended with {:?}:\n{}", step.line, step.command, ended.code, ended.printed));
            } else if let Some(shown) = shown
                && !same(&shown, &printed, any_number, &mut names)
            {
                let printed: Vec<String> =
                    names.renamed(&ended.printed, &shown).lines().map(|line| line.trim_end().to_owned()).collect();
                let words = "does not print what is shown, but:";
                problems.push(format!("{}: {}\n{words}\n{}", step.line, step.command, printed.join("\n")));
                news.push((step, printed));
            }
        }
    }
    if let Some(machines) = machines.flatten() {
        println!("{}: {}", page.display(), machines.end());
    }
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(page, updated(&text, &news)).expect("written");
    }
    assert!(problems.is_empty(), "{}:{}", page.display(), problems.join("\n\n"));
}

/// Returns the page with the new output.
fn updated(page: &str, news: &[(Step, Vec<String>)]) -> String {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    for (step, printed) in news.iter().rev() {
        if let Some(shown) = &step.shown {
            let (first, blanks) = (shown.first - 1, " ".repeat(shown.indent));
            let printed = printed.iter().map(|line| format!("{blanks}{line}").trim_end().to_owned());
            lines.splice(first..first + shown.lines.len(), printed);
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn shown_output_is_replaced_in_place() {
    let page = "```console\n$ one\n1\n\n$ two \\\n    more\n$ three\n3\n```\nend\n";
    let steps = blocks(page).remove(0).steps();
    let [one, two, _] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(two.command, "two \\\n    more");
    let news = [(one.clone(), vec!["eins".to_owned()]), (two.clone(), vec!["zwei".to_owned()])];
    let updated = updated(page, &news);
    assert_eq!(updated, "```console\n$ one\neins\n\n$ two \\\n    more\nzwei\n$ three\n3\n```\nend\n");
}

#[test]
fn block_of_a_list_is_read_and_replaced_with_its_indentation() {
    let page = "1. One:\n\n   ```console\n   $ one\n   1\n\n     2\n   ```\n\n   <!-- typed\n   two\n   -->\n";
    let [shown, typed] = <[Block; 2]>::try_from(blocks(page)).expect("two blocks");
    assert_eq!(
        (shown.lines.as_slice(), typed.lines),
        (["$ one", "1", "", "  2"].map(str::to_owned).as_slice(), vec!["two".to_owned()])
    );
    let news = [(shown.steps().remove(0), ["eins", "", "zwei"].map(str::to_owned).to_vec())];
    assert_eq!(updated(page, &news), page.replace("   1\n\n     2\n", "   eins\n\n   zwei\n"));
}

/// Every block has a purpose, every page with commands is run, and blocks that are not run are listed with the reason.
#[test]
fn every_block_is_typed_or_says_why_not() {
    let (mut typed, mut not_run) = (0, Vec::new());
    for page in pages() {
        let name = page.strip_prefix(root()).expect("a page of ours").display().to_string();
        let blocks = blocks(&std::fs::read_to_string(&page).expect("a page"));
        let typed_blocks = blocks.iter().filter(|block| !matches!(block.purpose, Purpose::NotRun(_)));
        let commands: usize = typed_blocks.map(|block| block.steps().len()).sum();
        assert!(commands == 0 || TYPED.contains(&name.as_str()), "{name} has commands and is not among the pages");
        for block in &blocks {
            match &block.purpose {
                Purpose::NotRun(why) => not_run.push(format!("{name}:{}: {why}", block.line)),
                Purpose::Text => assert!(has_no_command(block), "{name}:{}: what is typed is no `text`", block.line),
                _ => typed += block.steps().len(),
            }
        }
    }
    println!("{typed} commands are typed; not run are {}:\n{}", not_run.len(), not_run.join("\n"));
    assert!(not_run.iter().all(|line| !line.ends_with(": ")), "without a reason: {not_run:?}");
}

fn has_no_command(block: &Block) -> bool {
    // A line with `[--flag]` is a synopsis, not a command.
    let is_typed =
        |line: &&String| ["$ ", "reveille "].iter().any(|begin| line.starts_with(begin)) && !line.contains('[');
    !block.lines.iter().any(|line| is_typed(&line))
}
