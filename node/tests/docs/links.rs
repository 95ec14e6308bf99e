//! Checks links between pages, and from comments to pages: the file must exist, and the heading if one is named. Checks
//! also that the tests that pages name exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::blocks::{pages, root};

/// Returns the page without its fenced blocks.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the targets of all links that are not web addresses.
fn targets(page: &str) -> Vec<String> {
    let prose = prose(page);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next().map(str::to_owned));
    targets.filter(|target| !target.contains("://")).collect()
}

/// Returns the anchors of the headings in GitHub's form.
fn anchors(page: &str) -> Vec<String> {
    let prose = prose(page);
    let headings = prose
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let anchor = |heading: &str| -> String {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|one| one.is_alphanumeric() || ['-', '_'].contains(one)).collect()
    };
    let numbered = headings.map(|heading| {
        let anchor = anchor(heading);
        let count = seen.entry(anchor.clone()).and_modify(|count| *count += 1).or_default();
        if *count == 0 { anchor } else { format!("{anchor}-{count}") }
    });
    numbered.collect()
}

#[test]
fn each_link_of_a_page_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        for target in targets(&text) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { page.clone() } else { page.parent().expect("a folder").join(file) };
            let has_anchor =
                || std::fs::read_to_string(&file).is_ok_and(|text| anchors(&text).iter().any(|one| one == anchor));
            if !file.exists() || (!anchor.is_empty() && !has_anchor()) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Finds files in a folder of the repository that may refer to a page.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let kind = entry.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        if entry.is_dir() {
            sources(&entry, found);
        } else if ["rs", "toml", "proto", "md"].contains(&kind) {
            found.push(entry);
        }
    }
}

/// Returns the files of the repository that may refer to a page.
fn all_sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["cluster", "jepsen", "node", "proto", "raft"] {
        sources(&root().join(folder), &mut files);
    }
    files
}

#[test]
fn each_page_that_code_names_exists() {
    let mut missing = Vec::new();
    for file in all_sources() {
        let text = std::fs::read_to_string(&file).expect("a source");
        for rest in text.split("docs/").skip(1) {
            let end = rest.find(|one: char| !(one.is_ascii_alphanumeric() || "/-_.".contains(one)));
            let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            let is_page = [".md", ".jsonl"].iter().any(|kind| name.ends_with(kind));
            if is_page && !root().join("docs").join(name).exists() {
                missing.push(format!("{}: docs/{name}", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// True if a word in code style is the name of a test: it has three underscores, or ends in the number of a rule. Other
/// words are fields, options and metrics.
fn is_test(word: &str) -> bool {
    let is_name = word.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_');
    let has_rule = word.rsplit_once("_p").is_some_and(|(_, rule)| rule.parse::<u8>().is_ok());
    is_name && !word.starts_with("reveille_") && (has_rule || word.matches('_').count() >= 3)
}

#[test]
fn each_test_that_a_page_names_exists() {
    let mut functions = BTreeSet::new();
    for file in all_sources() {
        let text = std::fs::read_to_string(&file).expect("a source");
        let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
        functions.extend(names.map(str::to_owned));
    }
    let mut missing = Vec::new();
    for page in pages() {
        let text = prose(&std::fs::read_to_string(&page).expect("a page"));
        for name in text.split('`').skip(1).step_by(2).filter(|word| is_test(word)) {
            let script = root().join("raft/ledger/tests/scripts").join(name).with_extension("txt");
            if !functions.contains(name) && !script.exists() {
                missing.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
