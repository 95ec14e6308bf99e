//! Output of `campaign …`.

use std::collections::BTreeMap;

use reveille_proto::admin::v1;
use serde::Serialize;

use super::barrier::BarrierView;
use super::fields::view;
use super::forecast::{ForecastView, ProgressView};
use super::layout::{Cell, Tone, card};
use super::run::RunView;
use super::{Row, View};
use crate::cli::instant::duration_ms;
use crate::cli::word::word;
use crate::format;

view! {
    /// A campaign.
    pub struct CampaignView of v1::Campaign as campaign {
        tenant: String,
        name: String,
        state: String = word("CAMPAIGN_STATE_", campaign.state().as_str_name()),
        reason: Option<String>,
        audience: String,
        recipients: u32,
        at: Option<String>,
        zone: String,
        pool: String,
        priority: u32,
        labels: BTreeMap<String, String>,
        content_hash: String,
        /// The version of a template that has the content; null if the content was given.
        template: Option<String>,
        launched_at: Option<String>,
        start_within_ms: Option<i64> = campaign.policies.and_then(|policies| policies.start_within.as_ref().map(duration_ms)),
        finish_by: Option<String>,
        forecast: Option<ForecastView>,
        canary: Option<CanaryView> = campaign.canary.map(|canary| CanaryView { percent: canary.percent, hold_percent: canary.hold_percent.unwrap_or_default()}),
        run: Option<RunView>,
        progress: Option<ProgressView>,
        index: u64,
        /// Set only in the answer to a pause or a cancellation while the campaign is being sent.
        #[serde(skip_serializing_if = "Option::is_none")]
        barrier: Option<BarrierView> = None,
    }
}

/// The canary: the percentage sent first, and the failure percentage above which the rest is held.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct CanaryView {
    percent: f64,
    hold_percent: f64,
}

impl CampaignView {
    /// Adds the result of the barrier.
    pub fn with_barrier(self, barrier: Option<BarrierView>) -> CampaignView {
        CampaignView { barrier, ..self }
    }

    /// Returns the name of the campaign's run, if it has opened.
    pub fn run_name(&self) -> Option<String> {
        self.run.as_ref().map(View::name)
    }

    /// True if the campaign has not opened, and still may.
    pub fn may_open(&self) -> bool {
        matches!(self.state.as_str(), "draft" | "waiting" | "launched" | "paused" | "blocked")
    }

    /// Returns the campaign's state in one line.
    pub fn sentence(&self) -> String {
        let at = self.at.as_deref().unwrap_or("no instant");
        match &self.reason {
            Some(reason) => format!("{} is {} for {at}: {reason}", self.name, self.state),
            None => format!("{} is {} for {at}", self.name, self.state),
        }
    }

    fn tone(&self) -> Tone {
        match self.state.as_str() {
            "missed" | "blocked" | "expired" => Tone::Bad,
            "waiting" | "paused" | "cancelled" => Tone::Notable,
            "open" | "finished" => Tone::Good,
            _ => Tone::Plain,
        }
    }

    fn recipients(&self) -> Cell {
        match self.recipients {
            0 => Cell::or_dash(None),
            recipients => format::count(recipients.into()).into(),
        }
    }
}

impl View for CampaignView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        let labels = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
        let forecast = self.forecast.as_ref().map(ForecastView::sentence);
        let start_within = self.start_within_ms.map(format::duration);
        let mut pairs = vec![
            ("campaign", format!("{} ({})", self.name, self.tenant).into()),
            ("state", Cell::toned(self.state.as_str(), self.tone())),
            ("reason", Cell::or_dash(self.reason.as_deref())),
            ("at", format!("{} ({})", self.at.as_deref().unwrap_or("-"), self.zone).into()),
            ("audience", self.audience.as_str().into()),
            ("recipients", self.recipients()),
            ("labels", Cell::or_dash(Some(labels.as_str()).filter(|labels| !labels.is_empty()))),
            ("pool", self.pool.as_str().into()),
            ("launched", Cell::or_dash(self.launched_at.as_deref())),
            ("start within", Cell::or_dash(start_within.as_deref())),
            ("finish by", Cell::or_dash(self.finish_by.as_deref())),
            ("forecast", Cell::or_dash(forecast.as_deref())),
        ];
        if let Some(CanaryView { percent, hold_percent }) = &self.canary {
            let stands = self.run.as_ref().and_then(RunView::canary).map(|words| format!(": {words}"));
            let words = format!("{percent} % first, held above {hold_percent} %{}", stands.unwrap_or_default());
            pairs.push(("canary", words.into()));
        }
        if let Some(run) = &self.run {
            pairs.push(("run", run.sentence().into()));
        }
        if let Some(progress) = &self.progress {
            pairs.push(("progress", progress.sentence().into()));
        }
        let card = card(pairs, paint);
        match &self.barrier {
            Some(barrier) => format!("{card}\n{}", barrier.sentence()),
            None => card,
        }
    }
}

impl Row for CampaignView {
    const NOUN: &'static str = "campaigns";
    const COLUMNS: &'static [&'static str] = &["NAME", "STATE", "AT", "AUDIENCE", "RECIPIENTS", "RUN"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            Cell::toned(self.state.as_str(), self.tone()),
            Cell::or_dash(self.at.as_deref()),
            self.audience.as_str().into(),
            self.recipients(),
            Cell::or_dash(self.run.as_ref().map(RunView::sentence).as_deref()),
        ]
    }
}
