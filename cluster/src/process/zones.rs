//! Time zones by name, from the database in the binary and never from the machine.
//!
//! The timer and the validation of schedules call it. Every entry with a result of a calendar has the version of the
//! database; `version` and `cluster status` print it.

use jiff::tz::TimeZoneDatabase;
use reveille_ledger::calendar::nearest_names;
use reveille_ledger::planning::timing::Zone;

/// Number of names that are suggested for an unknown one.
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
    /// The unknown name.
    pub name: String,
    /// Similar names, at most three.
    pub nearest: Vec<String>,
}

fn suggestion(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) }
}

impl Zones {
    /// Returns the database in the binary. `version` is its release, for example `2026f`.
    pub fn bundled(version: &str) -> Zones {
        Zones { database: TimeZoneDatabase::bundled(), version: version.to_owned() }
    }

    /// Returns the release of the database.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the zone with this name. Fails with similar names if it is unknown.
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
    fn unknown_zone_is_refused_with_similar_names() {
        let zones = Zones::bundled("2026x");
        assert!(zones.get("Europe/Berlin").is_ok());
        let unknown = zones.get("Europe/Berlni").expect_err("no such zone");
        assert!(unknown.nearest.contains(&"Europe/Berlin".to_owned()), "{unknown}");
    }
}
