//! Compares the output of a command with the output on the page.
//!
//! The output on a page is from an earlier day. Values that differ from day to day match any value of the same kind:
//! instants, fences, hashes. Runs are matched by name: a run on the page stands for the same run of today in all output
//! and commands. Any number of blanks matches one blank. `[..]` matches a part of a line, and a line `...` matches any
//! lines.

use std::collections::BTreeMap;

/// Maps names of runs on the page to the names of today's runs.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeMap<String, String>);

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<'a> {
    Blank,
    Word(&'a str),
    Run(&'a str),
    Kind(Kind),
    /// `[..]`
    Any,
}

/// A kind of value that differs from day to day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Instant,
    Date,
    Fence,
    Id,
    Number,
}

impl Names {
    /// Returns a command of the page with the names of today's runs.
    pub fn typed(&self, command: &str) -> String {
        replaced(command, |run| self.0.get(run).map(String::as_str))
    }

    /// Returns today's output with the run names of the page. A new run gets the next name in `shown` that is not used
    /// yet.
    pub fn renamed(&mut self, printed: &str, shown: &[String]) -> String {
        let of_page: Vec<String> = shown.iter().flat_map(|line| runs(line)).map(str::to_owned).collect();
        for run in runs(printed) {
            if !self.0.values().any(|known| known == run) {
                let free = of_page.iter().find(|name| !self.0.contains_key(*name)).cloned();
                self.0.insert(free.unwrap_or_else(|| run.to_owned()), run.to_owned());
            }
        }
        let back: BTreeMap<&str, &str> = self.0.iter().map(|(name, run)| (run.as_str(), name.as_str())).collect();
        replaced(printed, |run| back.get(run).copied())
    }

    fn meet(&mut self, name: &str, run: &str) -> bool {
        match self.0.get(name) {
            Some(known) => known == run,
            None if self.0.values().any(|known| known == run) => false,
            None => {
                self.0.insert(name.to_owned(), run.to_owned());
                true
            }
        }
    }
}

/// Returns true if the printed lines match those of the page.
pub fn same(shown: &[String], printed: &[String], any_number: bool, names: &mut Names) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((first, more)), _) if first == "..." => {
            any_rest(printed, names, |rest, names| same(more, rest, any_number, names))
        }
        (Some(_), None) => false,
        (Some((first, more)), Some((line, others))) => {
            fits(&parts(first, any_number), &parts(line, any_number), names) && same(more, others, any_number, names)
        }
    }
}

/// Returns true if the rest of the lines matches after some are left out. Keeps the names only of the attempt that
/// matches.
fn any_rest<T>(printed: &[T], names: &mut Names, fits: impl Fn(&[T], &mut Names) -> bool) -> bool {
    (0..=printed.len()).any(|left_out| {
        let mut met = names.clone();
        let fits = fits(&printed[left_out..], &mut met);
        if fits {
            *names = met;
        }
        fits
    })
}

fn fits(shown: &[Part<'_>], printed: &[Part<'_>], names: &mut Names) -> bool {
    match (shown, printed) {
        ([], []) => true,
        ([Part::Any, more @ ..], _) => any_rest(printed, names, |rest, names| fits(more, rest, names)),
        ([Part::Run(name), more @ ..], [Part::Run(run), others @ ..]) => {
            names.meet(name, run) && fits(more, others, names)
        }
        ([one, more @ ..], [other, others @ ..]) => one == other && fits(more, others, names),
        _ => false,
    }
}

/// Returns the parts of a line, without blanks at its end.
fn parts(line: &str, any_number: bool) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut left = line.trim_end();
    let mut inside_word = false;
    while let Some(first) = left.chars().next() {
        let blanks = left.len() - left.trim_start().len();
        let (part, length) = if blanks > 0 {
            (Part::Blank, blanks)
        } else if left.starts_with("[..]") {
            (Part::Any, 4)
        } else {
            let special = if inside_word { None } else { special(left) };
            let special = special.filter(|(part, _)| any_number || *part != Part::Kind(Kind::Number));
            special.unwrap_or((Part::Word(&left[..first.len_utf8()]), first.len_utf8()))
        };
        inside_word = matches!(part, Part::Word(_)) && first.is_alphanumeric();
        parts.push(part);
        left = &left[length..];
    }
    parts
}

/// Returns the value at the start of `text` that differs from day to day, and its length.
fn special(text: &str) -> Option<(Part<'_>, usize)> {
    if let Some(length) = shaped(text, "r0.0") {
        return Some((Part::Run(&text[..length]), length));
    }
    let date = shaped(text, "####-##-##");
    let instant = shaped(text, "####-##-##T##:##:##").map(|length| length + rest_of_instant(&text[length..]));
    let id = text.bytes().take_while(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte) || *byte == b'-');
    let id =
        Some(id.count()).filter(|length| *length >= 16 && text[..*length].contains(|one: char| one.is_ascii_digit()));
    let number = text.bytes().take_while(|byte| byte.is_ascii_digit() || b",.".contains(byte)).count();
    let number = text[..number].trim_end_matches([',', '.']).len();
    let kinds = [
        (Kind::Instant, instant),
        (Kind::Id, id),
        (Kind::Date, date),
        // The first number of a fence is the Raft group, which is always 1.
        (Kind::Fence, shaped(text, "0.0.0.0").filter(|_| text.starts_with("1."))),
        (Kind::Number, Some(number).filter(|length| *length > 0)),
    ];
    kinds.into_iter().find_map(|(kind, length)| length.map(|length| (Part::Kind(kind), length)))
}

/// Returns the length of a fraction and a zone offset.
fn rest_of_instant(text: &str) -> usize {
    let fraction = shaped(text, ".0").unwrap_or_default();
    let text = &text[fraction..];
    fraction + shaped(text, "Z").or(shaped(text, "+##:##")).or(shaped(text, "-##:##")).unwrap_or_default()
}

/// Returns the length of the start of `text` that has this shape. `#` is one digit, `0` is one or more.
fn shaped(text: &str, shape: &str) -> Option<usize> {
    let mut left = text;
    for one in shape.chars() {
        let length = match one {
            '#' => left.bytes().take(1).filter(u8::is_ascii_digit).count(),
            '0' => left.bytes().take_while(u8::is_ascii_digit).count(),
            other => usize::from(left.starts_with(other)),
        };
        if length == 0 {
            return None;
        }
        left = &left[length..];
    }
    Some(text.len() - left.len())
}

/// Returns the runs that a text names.
fn runs(text: &str) -> Vec<&str> {
    let mut runs = Vec::new();
    for line in text.lines() {
        runs.extend(parts(line, false).into_iter().filter_map(|part| match part {
            Part::Run(name) => Some(name),
            _ => None,
        }));
    }
    runs
}

fn replaced<'a>(text: &str, other: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut replaced = String::new();
    let (mut left, mut inside_word) = (text, false);
    while let Some(first) = left.chars().next() {
        let run = if inside_word { None } else { shaped(left, "r0.0") };
        let length = run.unwrap_or(first.len_utf8());
        replaced.push_str(run.and_then(|length| other(&left[..length])).unwrap_or(&left[..length]));
        inside_word = run.is_none() && first.is_alphanumeric();
        left = &left[length..];
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn is_same(shown: &str, printed: &str) -> bool {
        same(&lines(shown), &lines(printed), false, &mut Names::default())
    }

    #[test]
    fn varying_values_are_compared_by_kind() {
        for (shown, printed, expected) in [
            ("sent  1", "sent 1", true),
            ("sent 1", "sent 2", false),
            ("at 2026-11-22T09:00:00Z", "at 2027-01-02T03:04:05.678Z", true),
            ("at 2026-11-22T09:00:00+01:00", "at 2026-05-22T09:00:00+02:00", true),
            ("at 2026-11-22", "at 2026-11-22T09:00:00", false),
            ("fence 1.7.1042.3", "fence 1.8.99.0", true),
            ("host 127.0.0.1", "host 127.0.0.2", false),
            ("r12.0 open", "r9.1 open", true),
            ("r12.0 open", "r9.1 finished", false),
            ("r12.0 after r12.0", "r9.1 after r8.1", false),
            ("r12.0 after r11.0", "r9.1 after r9.1", false),
            ("hash b5bb9d8014a0f9b1", "hash 7d865e959b2466918c98", true),
            ("hash b5bb9d8014a0f9b1", "hash none", false),
            ("took [..] s, sent 1", "took 0.4 s, sent 1", true),
            ("took [..] s, sent 1", "took 0.4 s, sent 2", false),
            ("a\n...\nz", "a\nb\nc\nz", true),
            ("a\n...\nz", "a\nb\nc", false),
            ("", "something", false),
        ] {
            assert_eq!(is_same(shown, printed), expected, "{shown} and {printed}");
        }
        let any = |shown, printed| same(&lines(shown), &lines(printed), true, &mut Names::default());
        assert!(any("index 1,042", "index 7") && !any("index 7", "index none"));
    }

    #[test]
    fn run_keeps_the_name_of_the_page() {
        let mut names = Names::default();
        assert!(same(&lines("opened r12.0"), &lines("opened r9.1"), false, &mut names));
        assert_eq!(names.typed("reveille explain r12.0 '#1' err12.0"), "reveille explain r9.1 '#1' err12.0");
        let shown = lines("r12.0\nr13.0");
        assert_eq!(names.renamed("r9.1\nr20.0\nr9.1", &shown), "r12.0\nr13.0\nr12.0");
        assert_eq!(names.typed("r13.0"), "r20.0");
    }
}
