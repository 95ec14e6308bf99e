//! Output of `campaign …`.

use reveille_proto::admin::v1::{Campaign, CampaignState};

use super::{Cell, Tone, View, card, duration_ms, forecast, format, history, run, text, word};
use crate::cli::wording;

/// True if the campaign has not opened, and still may.
pub fn may_open(campaign: &Campaign) -> bool {
    use CampaignState::{Blocked, Draft, Launched, Paused, Waiting};
    matches!(campaign.state(), Draft | Waiting | Launched | Paused | Blocked)
}

/// Returns the campaign's state in one line.
pub fn sentence(campaign: &Campaign) -> String {
    let at = text(campaign.send_time.as_ref()).unwrap_or_else(|| "no instant".to_owned());
    let stands = format!("{} is {} for {at}", campaign.name, state(campaign));
    let reason = reason(campaign);
    if reason.is_empty() { stands } else { format!("{stands}: {reason}") }
}

/// Returns why the campaign has not opened, or why its run is paused, blocked, over, or late.
pub fn reason(campaign: &Campaign) -> String {
    match (&campaign.run, campaign.state()) {
        (Some(run), _) => {
            let missing = run.blocked.as_ref().map(wording::missing_file).unwrap_or_default();
            let reasons = [wording::why(run), missing, history::why_it_opened(run)];
            reasons.into_iter().find(|reason| !reason.is_empty()).unwrap_or_default()
        }
        // Until the audience is sealed, its recipients are not known, and the content cannot be checked against them.
        (None, CampaignState::Draft | CampaignState::Waiting) if campaign.recipients == 0 => {
            format!("its audience '{}' is not sealed yet", campaign.audience)
        }
        (None, _) => match &campaign.miss {
            Some(miss) => wording::missed(campaign, miss),
            None => wording::stopped(campaign.pause.as_ref(), campaign.block.as_ref()),
        },
    }
}

fn state(campaign: &Campaign) -> String {
    word(campaign.state().as_str_name())
}

fn tone(campaign: &Campaign) -> Tone {
    match campaign.state() {
        CampaignState::Missed | CampaignState::Blocked | CampaignState::Expired => Tone::Bad,
        CampaignState::Waiting | CampaignState::Paused | CampaignState::Cancelled => Tone::Notable,
        CampaignState::Open | CampaignState::Finished => Tone::Good,
        CampaignState::Draft | CampaignState::Launched | CampaignState::Unspecified => Tone::Plain,
    }
}

fn recipients(campaign: &Campaign) -> Cell {
    match campaign.recipients {
        0 => Cell::or_dash(None),
        recipients => format::count(recipients.into()).into(),
    }
}

impl View for Campaign {
    const NOUN: &'static str = "campaigns";
    const COLUMNS: &'static [&'static str] = &["NAME", "STATE", "AT", "AUDIENCE", "RECIPIENTS", "RUN"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            Cell::toned(state(self), tone(self)),
            Cell::at(self.send_time.as_ref()),
            self.audience.as_str().into(),
            recipients(self),
            Cell::or_dash(self.run.as_ref().map(run::sentence).as_deref()),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let labels = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
        let start_within = self.policies.as_ref().and_then(|policies| policies.start_within.as_ref());
        let start_within = start_within.map(|within| format::duration(duration_ms(within)));
        let at = text(self.send_time.as_ref()).unwrap_or_else(|| "-".to_owned());
        let mut pairs = vec![
            ("campaign", format!("{} ({})", self.name, self.tenant).into()),
            ("state", Cell::toned(state(self), tone(self))),
            ("reason", Cell::or_dash(reason(self).as_str())),
            ("at", format!("{at} ({})", self.zone).into()),
            ("audience", self.audience.as_str().into()),
            ("recipients", recipients(self)),
            ("labels", Cell::or_dash(labels.as_str())),
            ("pool", self.pool.as_str().into()),
            ("launched", Cell::at(self.launch_time.as_ref())),
            ("start within", Cell::or_dash(start_within.as_deref())),
            ("finish by", Cell::at(self.finish_by_time.as_ref())),
            ("forecast", Cell::or_dash(self.forecast.as_ref().map(forecast::sentence).as_deref())),
        ];
        if let Some(canary) = &self.canary {
            let stands = self.run.as_ref().and_then(|run| run.canary.as_ref()).map(run::canary_words);
            let stands = stands.map(|words| format!(": {words}")).unwrap_or_default();
            let (percent, hold) = (canary.percent, canary.hold_percent.unwrap_or_default());
            pairs.push(("canary", format!("{percent} % first, held above {hold} %{stands}").into()));
        }
        pairs.extend(self.run.as_ref().map(|run| ("run", run::sentence(run).into())));
        pairs.extend(self.progress.as_ref().map(|progress| ("progress", forecast::progress_sentence(progress).into())));
        card(pairs, paint)
    }
}
