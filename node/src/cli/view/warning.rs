//! Warnings of answers, as sentences with the command to try next.

use reveille_proto::admin::v1::{Campaign, Forecast, ForecastBound, Warning, WarningReason};

use super::{duration_ms, format, text, word};
use crate::cli::next_step::add_relay;
use crate::cli::wording;

/// Returns the sentence of a warning. `campaign` is the one that the answer has, if it has one.
pub fn sentence(warning: &Warning, campaign: Option<&Campaign>) -> String {
    let Warning { pool, audience, suppressed, recipients, .. } = warning;
    let at = |time: Option<&prost_types::Timestamp>| text(time).unwrap_or_default();
    let (due, expires) = (at(warning.due_time.as_ref()), at(warning.expire_time.as_ref()));
    match warning.reason() {
        WarningReason::NoRelay => {
            let add = add_relay(pool);
            format!("no relay is in pool {pool}: its emails wait until they expire, and never go by another; {add}")
        }
        WarningReason::PoolUnused => {
            format!("no relay is in pool {pool}: nothing goes by it, and no email is limited by this")
        }
        WarningReason::NoUnsubscribe => {
            "this node sends no bulk email: its configuration has no unsubscribe.url, by which each would carry its \
             way to opt out; what it is given waits for another node"
                .to_owned()
        }
        WarningReason::AudienceNotSealed => {
            format!("audience '{audience}' is not sealed: unless it is at {due}, the campaign does not open")
        }
        WarningReason::CampaignBlocked => {
            let name = campaign.map(|campaign| campaign.name.as_str()).unwrap_or_default();
            let cause = warning.block.as_ref().map(wording::block).unwrap_or_default();
            format!("it is blocked, and no launch changes that: {cause}; reveille campaign resume {name}")
        }
        WarningReason::OpensLate => format!(
            "its instant, {due}, is past: it opens at once, goes as what is late does, and what is not sent at \
             {expires} expires"
        ),
        WarningReason::EndsTooLate => {
            let (limits, ends) = limits(warning, campaign);
            format!("{limits}: would end at {ends}, and what is not sent at {expires} expires")
        }
        WarningReason::TakesDays => {
            let (limits, ends) = limits(warning, campaign);
            format!("{limits}: ends at {ends}")
        }
        WarningReason::InsideMinGap => {
            let gap = format::duration(warning.min_gap.as_ref().map(duration_ms).unwrap_or_default());
            inside_min_gap((*suppressed).into(), (*recipients).into(), &gap)
        }
        WarningReason::Unspecified => {
            format!("{}: this version does not know the warning", word(warning.reason().as_str_name()))
        }
    }
}

/// Says how many recipients an email of another run keeps from getting one.
fn inside_min_gap(suppressed: u64, recipients: u64, gap: &str) -> String {
    let who = match recipients {
        1 => "its recipient".to_owned(),
        _ => format!("{} of {}", format::count(suppressed), format::count(recipients)),
    };
    let get = if suppressed == 1 { "gets" } else { "get" };
    format!("min_gap: {who} got an email less than {gap} away, and {get} none")
}

/// Returns what a campaign needs and which limit decides, and its end.
fn limits(warning: &Warning, campaign: Option<&Campaign>) -> (String, String) {
    let recipients = campaign.map_or(0, |campaign| campaign.recipients);
    let forecast = campaign.and_then(|campaign| campaign.forecast).unwrap_or_default();
    let Forecast { needed_per_second, budget_per_second, first_day_room, .. } = forecast;
    let (pool, needs) = (&warning.pool, format!("needs {} emails/s", format::rate(needed_per_second)));
    let gives = format::rate(budget_per_second.unwrap_or_default());
    let limits = match forecast.bound() {
        ForecastBound::Relays => format!("{needs}, and the relays of pool {pool} give {gives}"),
        ForecastBound::LateRates => format!("{needs}, and the relays of pool {pool} give {gives} to what is late"),
        ForecastBound::Tenant => format!("{needs}, and the rate of its tenant gives {gives}"),
        ForecastBound::WarmUp => {
            let (rows, room) =
                (format::count(recipients.into()), format::count(first_day_room.unwrap_or_default().into()));
            let opens = text(warning.open_time.as_ref()).unwrap_or_default();
            let day = opens.split('T').next().unwrap_or_default();
            format!("has {rows} emails, and the warm-up of pool {pool} lets {room} go on {day} and the rest later")
        }
        ForecastBound::Unspecified | ForecastBound::NoRelay | ForecastBound::Nothing => needs,
    };
    (limits, text(forecast.end_time.as_ref()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    #[test]
    fn singular_and_plural_are_worded() {
        let reason = |suppressed, recipients| inside_min_gap(suppressed, recipients, "20 h");
        assert_eq!(reason(1, 1), "min_gap: its recipient got an email less than 20 h away, and gets none");
        assert_eq!(reason(1, 3), "min_gap: 1 of 3 got an email less than 20 h away, and gets none");
        assert_eq!(reason(2, 3), "min_gap: 2 of 3 got an email less than 20 h away, and get none");
    }

    #[test]
    fn warning_about_an_end_names_the_limit_that_decides() {
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let forecast = Forecast {
            needed_per_second: 5.0,
            budget_per_second: Some(4.0),
            end_time: at(75),
            bound: ForecastBound::Tenant.into(),
            ..Forecast::default()
        };
        let campaign = Campaign { recipients: 300, forecast: Some(forecast), ..Campaign::default() };
        let warning = |reason: WarningReason| Warning {
            reason: reason.into(),
            pool: "bulk".into(),
            open_time: at(0),
            expire_time: at(60),
            ..Warning::default()
        };
        let late = "needs 5 emails/s, and the rate of its tenant gives 4: would end at 1970-01-01T00:01:15Z, and what is \
                    not sent at 1970-01-01T00:01:00Z expires";
        assert_eq!(sentence(&warning(WarningReason::EndsTooLate), Some(&campaign)), late);
        let forecast = Forecast { bound: ForecastBound::WarmUp.into(), first_day_room: Some(40), ..forecast };
        let campaign = Campaign { forecast: Some(forecast), ..campaign };
        let days = "has 300 emails, and the warm-up of pool bulk lets 40 go on 1970-01-01 and the rest later: ends at \
                    1970-01-01T00:01:15Z";
        assert_eq!(sentence(&warning(WarningReason::TakesDays), Some(&campaign)), days);
    }

    #[test]
    fn warning_about_a_pool_names_the_command_that_helps() {
        let warning = Warning { reason: WarningReason::NoRelay.into(), pool: "bulk".into(), ..Warning::default() };
        let add = "reveille relay add NAME --pool bulk --host HOST --port PORT --tls starttls";
        assert!(sentence(&warning, None).ends_with(add), "{}", sentence(&warning, None));
    }
}
