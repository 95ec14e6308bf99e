//! Time zones by name: the database that came with the binary, never the machine's by accident.
//!
//! Called by the timer and by the validation of schedules. The version travels in every entry that a
//! calendar computation ends in, and `version` and `cluster status` print it.

use jiff::tz::TimeZoneDatabase;
use reveille_ledger::calendar::nearest_names;
use reveille_ledger::decide::timing::Zone;

/// Names offered for one that is unknown.
const SUGGESTIONS: usize = 3;

/// The zone database.
#[derive(Clone, Debug)]
pub struct Zones {
    database: TimeZoneDatabase,
    version: String,
}

/// A name that the database does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone '{name}'{}", suggestion(.nearest))]
pub struct UnknownZone {
    /// The name.
    pub name: String,
    /// Names that look like it.
    pub nearest: Vec<String>,
}

fn suggestion(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) }
}

impl Zones {
    /// The database that came with the binary; `version` is its release, such as `2026f`.
    pub fn bundled(version: &str) -> Zones {
        Zones { database: TimeZoneDatabase::bundled(), version: version.to_owned() }
    }

    /// The release of the database.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The zone of that name.
    pub fn get(&self, name: &str) -> Result<Zone, UnknownZone> {
        match self.database.get(name) {
            Ok(rules) => Ok(Zone { rules, tzdb: self.version.clone() }),
            Err(_) => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> UnknownZone {
        let names: Vec<String> = self.database.available().map(|name| name.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let nearest = nearest_names(name, &names).into_iter().take(SUGGESTIONS).map(str::to_owned).collect();
        UnknownZone { name: name.to_owned(), nearest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_zone_is_refused_with_names_that_look_like_it() {
        let zones = Zones::bundled("2026x");
        assert!(zones.get("Europe/Berlin").is_ok());
        let unknown = zones.get("Europe/Berlni").expect_err("no such zone");
        assert!(unknown.nearest.contains(&"Europe/Berlin".to_owned()), "{unknown}");
    }
}
