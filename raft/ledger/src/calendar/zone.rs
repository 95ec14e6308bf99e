//! Suggests names for a time zone that is not in the database.

/// Maximum number of suggested names.
const OFFERED_MAX: usize = 3;

/// Returns up to three names that are similar to `wanted`, best first.
///
/// Case, spaces instead of underscores, and a missing or wrong region have little influence: `berlin` finds
/// `Europe/Berlin`, and `US/New York` finds `America/New_York`.
pub fn nearest_names<'n, N: AsRef<str>>(wanted: &str, names: &'n [N]) -> Vec<&'n str> {
    let wanted = plain(wanted);
    let scored = names.iter().filter_map(|name| {
        let name = name.as_ref();
        score(&wanted, &plain(name)).map(|score| (score, name))
    });
    let mut scored: Vec<(usize, &str)> = scored.collect();
    scored.sort_unstable();
    scored.into_iter().take(OFFERED_MAX).map(|(_, name)| name).collect()
}

fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace([' ', '-'], "_")
}

/// Distance in edits; `None` if it is too large. The region may be missing, or wrong at the cost of one edit.
fn score(wanted: &str, name: &str) -> Option<usize> {
    let near = |from: &str, to: &str| {
        let bound = (from.chars().count() / 3).max(1);
        Some(strsim::levenshtein(from, to)).filter(|edits| *edits <= bound)
    };
    let (wanted_city, city) = (city(wanted), city(name));
    let region = usize::from(wanted.contains('/'));
    let regionless = near(wanted_city, city).map(|edits| edits + region);
    let part = (wanted_city.len() >= 4 && city.contains(wanted_city)).then_some(2);
    [near(wanted, name), regionless, part].into_iter().flatten().min()
}

fn city(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] =
        ["America/New_York", "Asia/Kolkata", "Europe/Berlin", "Europe/Dublin", "Europe/London", "UTC"];

    #[test]
    fn misspelt_zone_finds_its_name() {
        for (wanted, best) in [
            ("Europe/Berlim", "Europe/Berlin"),
            ("europe/berlin", "Europe/Berlin"),
            ("berlin", "Europe/Berlin"),
            ("US/New York", "America/New_York"),
            ("york", "America/New_York"),
            ("Asia/Kolkatta", "Asia/Kolkata"),
            ("utc", "UTC"),
        ] {
            assert_eq!(nearest_names(wanted, &NAMES).first(), Some(&best), "{wanted}");
        }
    }

    #[test]
    fn dissimilar_zone_finds_no_name() {
        assert!(nearest_names("Middle_earth/Mordor", &NAMES).is_empty());
        assert!(nearest_names("", &NAMES).is_empty());
    }
}
