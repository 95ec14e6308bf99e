//! Validates audiences: parses every address, removes and reports duplicate keys, and checks sizes.

use std::collections::BTreeMap;

use reveille_cluster::compose::{Compiled, VALUE_BYTES_MAX, built_in, control_in};
use reveille_ledger::address::Address;
use reveille_ledger::content::{Audience, AudienceChoice, NamedAudience, Recipient};
use reveille_ledger::limits::LedgerLimits;
use reveille_proto::admin::v1::{self, ErrorReason};

use super::Fields;

/// Maximum number of variables per recipient.
const COLUMNS_MAX: usize = 64;
/// Maximum length of a variable's name, in characters.
const COLUMN_NAME_MAX: usize = 64;

/// The recipients of a request after the check.
pub struct CheckedAudience {
    /// The listed recipients without duplicates, or the named sealed audience.
    pub to: AudienceChoice,
    /// Names of the recipients' variables.
    pub columns: Vec<String>,
    /// Index of each kept recipient in the request.
    places: Vec<u32>,
    /// Recipients that were removed because another has the same key.
    pub duplicates: Vec<v1::Duplicate>,
}

impl CheckedAudience {
    /// Refuses recipients whose values do not fit the content. Otherwise each would become a dead letter.
    pub fn fit(&self, fields: &mut Fields, content: &Compiled) {
        // A sealed audience is not read here. Its recipients that do not fit the content become dead letters.
        let AudienceChoice::Listed(audience) = &self.to else { return };
        for (place, recipient) in self.places.iter().zip(&audience.recipients) {
            for (column, why) in content.misfits(&recipient.values) {
                let path = format!("schedule.audience.recipients[{place}].values[{column}]");
                fields.refuse(path, in_column(&self.columns, column, &why));
            }
        }
    }
}

/// Returns the named sealed audience. It cannot be combined with listed recipients. `known` is the ledger's audience of
/// that name.
fn named(
    fields: &mut Fields,
    requested: &v1::Audience,
    known: Option<(NamedAudience, Vec<String>)>,
) -> Option<CheckedAudience> {
    if !requested.recipients.is_empty() || !requested.columns.is_empty() {
        fields.refuse("schedule.audience.sealed", "is named, and recipients are listed; choose one");
        return None;
    }
    if known.is_none() {
        let message = format!("no sealed audience is named {:?}", requested.sealed);
        fields.refuse("schedule.audience.sealed", message);
    }
    let (named, columns) = known?;
    Some(CheckedAudience { to: AudienceChoice::Sealed(named), columns, places: Vec::new(), duplicates: Vec::new() })
}

/// Returns the checked audience with the list of its duplicates. `known`: see [`named`].
pub fn audience(
    fields: &mut Fields,
    requested: Option<v1::Audience>,
    known: Option<(NamedAudience, Vec<String>)>,
    limits: &LedgerLimits,
) -> Option<CheckedAudience> {
    let requested = requested.unwrap_or_default();
    if !requested.sealed.is_empty() {
        return named(fields, &requested, known);
    }
    if requested.recipients.is_empty() {
        fields.refuse("schedule.audience.recipients", "is empty; give at least one recipient");
        return None;
    }
    let (given, most) = (requested.recipients.len(), limits.inline_recipients_max);
    if given > most {
        let message = format!("{given} recipients, at most {most}; split them over schedules");
        fields.refuse_as(ErrorReason::TooLarge, "schedule.audience.recipients", message);
        return None;
    }
    columns(fields, "schedule.audience.columns", &requested.columns);
    let mut audience =
        Audience { columns: requested.columns, recipients: Vec::with_capacity(requested.recipients.len()) };
    let (mut duplicates, mut kept) = (Vec::new(), Vec::new());
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for (place, recipient) in (0_u32..).zip(requested.recipients) {
        let path = format!("schedule.audience.recipients[{place}]");
        values(fields, &path, &recipient.values, &audience.columns);
        let address = fields.take(&format!("{path}.address"), Address::parse(&recipient.address));
        let Some(address) = address else { continue };
        let key = address.key();
        match numbers.get(&key) {
            Some(number) => duplicates.push(v1::Duplicate {
                recipient: place,
                same_as: kept[*number],
                values_differ: audience.recipients[*number].values != recipient.values,
            }),
            None => {
                numbers.insert(key.clone(), kept.len());
                kept.push(place);
                let address = address.as_given().to_owned();
                audience.recipients.push(Recipient { address, key, values: recipient.values });
            }
        }
    }
    let (bytes, most) = (audience.encoded_len(), limits.inline_bytes_max);
    if bytes > most {
        let message = format!("has {bytes} bytes, more than {most}; split it over schedules");
        fields.refuse_as(ErrorReason::TooLarge, "schedule.audience", message);
    }
    let columns = audience.columns.clone();
    Some(CheckedAudience { to: AudienceChoice::Listed(audience), columns, places: kept, duplicates })
}

/// Refuses recipients with the address of another one and other values: an address gets one email a run, so the second
/// one's values would not be sent.
pub fn refuse_differing(fields: &mut Fields, path: &str, duplicates: &[v1::Duplicate]) {
    for duplicate in duplicates.iter().filter(|duplicate| duplicate.values_differ) {
        let message = format!(
            "has the address of recipient {} and other values; send each in a message of its own",
            duplicate.same_as
        );
        fields.refuse(format!("{path}[{}]", duplicate.recipient), message);
    }
}

/// Checks the names of variables. `path` is that of the list in the request.
pub fn columns(fields: &mut Fields, path: &str, columns: &[String]) {
    if columns.len() > COLUMNS_MAX {
        let message = format!("{} columns, at most {COLUMNS_MAX}; leave out what no template uses", columns.len());
        fields.refuse_as(ErrorReason::TooLarge, path, message);
    }
    for (place, column) in columns.iter().enumerate() {
        let length = column.chars().count();
        if length == 0 || length > COLUMN_NAME_MAX || column.chars().any(char::is_control) {
            let message = format!("is not the name of a column; give 1 to {COLUMN_NAME_MAX} characters on one line");
            fields.refuse(format!("{path}[{place}]"), message);
        } else if let Some(value) = built_in(column) {
            let message = format!("'{column}' is a built-in variable ({value}); rename the column");
            fields.refuse(format!("{path}[{place}]"), message);
        }
    }
}

fn in_column(columns: &[String], place: usize, why: &str) -> String {
    format!("column `{}` {why}", columns.get(place).map(String::as_str).unwrap_or_default())
}

fn values(fields: &mut Fields, path: &str, values: &[String], columns: &[String]) {
    if values.len() != columns.len() {
        let message = format!("{} values for {} columns; give one each", values.len(), columns.len());
        fields.refuse(format!("{path}.values"), message);
    }
    for (place, value) in values.iter().enumerate() {
        if value.len() > VALUE_BYTES_MAX {
            let message = in_column(columns, place, &format!("has {} bytes, at most {VALUE_BYTES_MAX}", value.len()));
            fields.refuse_as(ErrorReason::TooLarge, format!("{path}.values[{place}]"), message);
        }
        if let Some(why) = control_in(value) {
            fields.refuse(format!("{path}.values[{place}]"), in_column(columns, place, &why));
        }
    }
}
