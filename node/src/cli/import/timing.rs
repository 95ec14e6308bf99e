//! Converts the time fields of a crontab line to a cron expression with the same meaning in Reveille.
//!
//! Cron differs from Reveille's calendar in four ways:
//! - `@reboot` is no time, and `~` (cronie's random choice) has no equivalent. Both are refused.
//! - Cron treats a day field that begins with `*`, such as `*/2`, as unrestricted. Together with a restricted day field
//!   this means AND. Here only a plain `*` is unrestricted, so the AND is written as `+`.
//! - `-` before the minutes (cronie: do not log this line) says nothing about time and is removed.
//!
//! Source: crontab(5) of Debian's cron and of cronie 1.7. In cron's `entry.c`, the first letter sets the star flags.

use reveille_ledger::calendar::{Pattern, When};

/// The time fields of a line, and the text after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing<'a> {
    /// Five fields or a nickname, checked by the calendar.
    pub cron: String,
    /// The rest of the line without leading blanks.
    pub rest: &'a str,
    /// Changes made to the expression.
    pub warnings: Vec<String>,
}

/// Reads the time fields at the beginning of a job's line.
///
/// # Errors
/// Fails if the line cannot be imported; the text names the reason and the next step.
pub fn read(line: &str) -> Result<Timing<'_>, String> {
    let mut warnings = Vec::new();
    let line = line.trim_start_matches(BLANKS);
    let (cron, rest) = if line.starts_with('@') {
        let (nickname, rest) = word(line);
        (nickname_of(nickname)?, rest)
    } else {
        let (fields, rest) = five(line)?;
        (expression(fields, &mut warnings)?, rest)
    };
    let when = When::Cron { expression: cron.as_str().into() };
    Pattern::compile(&when).map_err(|error| error.to_string())?;
    Ok(Timing { cron, rest, warnings })
}

/// Characters that cron treats as blanks.
pub const BLANKS: [char; 2] = [' ', '\t'];

/// Returns the first word, and the rest without leading blanks.
pub fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(BLANKS).unwrap_or((text, ""));
    (word, rest.trim_start_matches(BLANKS))
}

fn nickname_of(nickname: &str) -> Result<String, String> {
    if nickname.eq_ignore_ascii_case("@reboot") {
        let why = "@reboot is no time, and a schedule belongs to no machine that starts";
        return Err(format!("{why}; to send once, use `reveille schedule create --at INSTANT`"));
    }
    Ok(nickname.to_owned())
}

fn five(line: &str) -> Result<([&str; 5], &str), String> {
    let (mut fields, mut rest) = ([""; 5], line);
    for (place, field) in fields.iter_mut().enumerate() {
        (*field, rest) = word(rest);
        if field.is_empty() {
            return Err(format!(
                "only {place} of the five time fields (minute hour day-of-month month weekday) are there"
            ));
        }
    }
    Ok((fields, rest))
}

fn expression([minute, hour, day, month, weekday]: [&str; 5], warnings: &mut Vec<String>) -> Result<String, String> {
    if let Some(field) = [minute, hour, day, month, weekday].iter().find(|field| field.contains('~')) {
        let why = format!("`{field}` is a random choice of cronie's, drawn anew whenever its daemon starts");
        return Err(format!("{why}; choose a value yourself, such as 17 for a minute"));
    }
    let minute = minute.strip_prefix('-').unwrap_or(minute);
    let begins_with_star = |field: &str| field.starts_with('*') && field != "*";
    let both_count = day != "*" && weekday != "*";
    let and = both_count && (begins_with_star(day) || begins_with_star(weekday));
    if and {
        warnings.push(format!(
            "cron takes day `{day}` and weekday `{weekday}` together as AND, because one begins with `*`; written so"
        ));
    }
    let and = if and { "+" } else { "" };
    Ok(format!("{minute} {hour} {day} {month} {and}{weekday}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_with_equal_meaning_is_taken_unchanged() {
        for (line, cron, rest) in [
            ("30 2 * * 1-5 /bin/a  b", "30 2 * * 1-5", "/bin/a  b"),
            ("\t*/15\t8-18/2  1,15 jan-mar Mon,FRI\tx", "*/15 8-18/2 1,15 jan-mar Mon,FRI", "x"),
            ("0 9 * * 7 x", "0 9 * * 7", "x"),
            ("0 9 * * 5-7 x", "0 9 * * 5-7", "x"),
            ("0 9 * * 0-7 x", "0 9 * * 0-7", "x"),
            ("0 9 13 * 5 x", "0 9 13 * 5", "x"),
            ("-0 9 * * * x", "0 9 * * *", "x"),
            ("@daily x y", "@daily", "x y"),
            ("@Midnight\tx", "@Midnight", "x"),
            ("0 0 * * *", "0 0 * * *", ""),
        ] {
            let read = read(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!((read.cron.as_str(), read.rest, read.warnings), (cron, rest, vec![]), "{line}");
        }
    }

    #[test]
    fn days_that_cron_takes_together_are_written_so() {
        for (line, cron) in [
            ("0 0 */2 * 1 x", "0 0 */2 * +1"),
            ("0 0 1 * */2 x", "0 0 1 * +*/2"),
            ("0 0 */2 * */3 x", "0 0 */2 * +*/3"),
        ] {
            let read = read(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!((read.cron.as_str(), read.warnings.len()), (cron, 1), "{line}");
        }
        for line in ["0 0 */2 * * x", "0 0 * * */2 x", "0 0 1 * 1 x"] {
            assert!(read(line).is_ok_and(|read| read.warnings.is_empty() && !read.cron.contains('+')), "{line}");
        }
    }

    #[test]
    fn invalid_time_is_refused_with_next_step() {
        for (line, words) in [
            ("@reboot x", "--at INSTANT"),
            ("0~30 9 * * * x", "choose a value yourself, such as 17"),
            ("~ 9 * * * x", "random choice"),
            ("@every_minute x", "is not a nickname; use @hourly"),
            ("60 9 * * * x", "minute field `60`"),
            ("0 9 * * 8 x", "weekday field `8`"),
            ("0 9 31 2 * x", "never fires"),
            ("0 9 * x y", "month field `x`"),
            ("0 9 * x", "only 4 of the five time fields"),
            ("hello world", "only 2 of the five time fields"),
        ] {
            let refused = read(line).map(|read| panic!("{line} taken as {read:?}")).unwrap_or_else(|error| error);
            assert!(refused.contains(words), "{line}: {refused}");
        }
    }
}
