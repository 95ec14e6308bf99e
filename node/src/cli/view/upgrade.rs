//! Output of `cluster upgrade …`.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::View;
use super::fields::view;
use super::layout::{Cell, Tone, card, table};

view! {
    /// Progress of a rolling upgrade.
    pub struct UpgradeView of v1::GetUpgradeResponse as upgrade {
        /// Present level of the ledger.
        pub level: u32,
        /// The highest level that all nodes have announced.
        target_level: u32,
        /// The highest level that any node has announced.
        highest_level: u32,
        nodes: Vec<UpgradeNodeView>,
        /// Why the level cannot yet rise to `highest_level`.
        obstacles: Vec<String>,
    }
}

/// A node and its release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpgradeNodeView {
    id: String,
    name: String,
    votes: bool,
    /// Null if the node has never started in this cluster.
    level: Option<u32>,
    /// Null if the node does not answer.
    version: Option<String>,
}

/// Result of finishing an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FinishedView {
    /// Present level of the ledger.
    pub level: u32,
    /// True if this command raised the level.
    pub raised: bool,
}

impl From<v1::UpgradeNode> for UpgradeNodeView {
    fn from(node: v1::UpgradeNode) -> UpgradeNodeView {
        let level = (node.level > 0).then_some(node.level);
        UpgradeNodeView { id: node.id, name: node.name, votes: node.votes, level, version: node.version }
    }
}

impl UpgradeView {
    /// Returns the level to which the ledger can be raised now, or `None`.
    pub fn can_rise_to(&self) -> Option<u32> {
        (self.target_level > self.level).then_some(self.target_level)
    }

    /// Returns the obstacles and the next command.
    pub fn remarks(&self) -> Vec<String> {
        let next = self
            .can_rise_to()
            .map(|level| format!("all nodes apply ledger level {level}; next: reveille cluster upgrade finish"));
        let nothing = (self.highest_level == self.level)
            .then(|| format!("nothing to finish: no node has announced more than ledger level {}", self.level));
        self.obstacles.iter().cloned().chain(next).chain(nothing).collect()
    }
}

impl View for UpgradeView {
    fn name(&self) -> String {
        self.level.to_string()
    }

    fn text(&self, paint: bool) -> String {
        let cells = |node: &UpgradeNodeView| {
            let tone = if node.level.unwrap_or(0) < self.highest_level { Tone::Notable } else { Tone::Plain };
            let level = node.level.map_or_else(|| "none".to_owned(), |level| level.to_string());
            let votes = if node.votes { "yes".into() } else { Cell::toned("no", Tone::Dim) };
            vec![node.name.as_str().into(), votes, Cell::toned(level, tone), Cell::or_dash(node.version.as_deref())]
        };
        let nodes = table(&["NAME", "VOTES", "LEVEL", "VERSION"], self.nodes.iter().map(cells).collect(), paint);
        format!("{}\n\n{nodes}", card(vec![("ledger level", self.level.to_string().into())], paint))
    }
}

impl View for FinishedView {
    fn name(&self) -> String {
        self.level.to_string()
    }

    fn text(&self, paint: bool) -> String {
        card(vec![("ledger level", self.level.to_string().into())], paint)
    }
}
