//! Output of `cluster upgrade …`.

use reveille_proto::admin::v1::{FinishUpgradeResponse, GetUpgradeResponse, UpgradeNode};

use super::{Cell, Tone, View, card, duration_ms, format, table};

/// An upgrade that is not finished for so long is forgotten rather than under way.
const FORGOTTEN_AFTER_MS: i64 = 7 * 86_400_000;

/// Says for how long the upgrade is not finished, if that is too long.
pub fn forgotten(upgrade: &GetUpgradeResponse) -> Option<String> {
    let unfinished_ms = duration_ms(upgrade.unfinished_for.as_ref()?);
    (unfinished_ms >= FORGOTTEN_AFTER_MS)
        .then(|| format!("an upgrade is not finished for at least {}", format::duration(unfinished_ms)))
}

/// Returns the level to which the ledger can be raised now, or `None`.
pub fn can_rise_to(upgrade: &GetUpgradeResponse) -> Option<u32> {
    (upgrade.target_level > upgrade.level).then_some(upgrade.target_level)
}

/// Says why a node keeps the ledger from rising to a level, and what helps.
fn obstacle(UpgradeNode { name, level, .. }: &UpgradeNode, highest: u32) -> String {
    match level {
        0 => format!("node {name} has never come up; start it with the new release"),
        _ => format!(
            "node {name} applies ledger level {level} and not {highest}; install the new release on it and restart it"
        ),
    }
}

/// Returns the obstacles and the next command.
pub fn remarks(upgrade: &GetUpgradeResponse) -> Vec<String> {
    let next = can_rise_to(upgrade)
        .map(|level| format!("all nodes apply ledger level {level}; next: reveille cluster upgrade finish"));
    let nothing = (upgrade.highest_level == upgrade.level)
        .then(|| format!("nothing to finish: no node has announced more than ledger level {}", upgrade.level));
    let below = upgrade.nodes.iter().filter(|node| node.level < upgrade.highest_level);
    let obstacles = below.map(|node| obstacle(node, upgrade.highest_level));
    forgotten(upgrade).into_iter().chain(obstacles).chain(next).chain(nothing).collect()
}

impl View for GetUpgradeResponse {
    const NAME: &'static str = "level";

    fn text(&self, paint: bool) -> String {
        let cells = |node: &UpgradeNode| {
            let tone = if node.level < self.highest_level { Tone::Notable } else { Tone::Plain };
            // A node that has never started in this cluster has none.
            let level = if node.level == 0 { "none".to_owned() } else { node.level.to_string() };
            let votes = if node.votes { "yes".into() } else { Cell::toned("no", Tone::Dim) };
            vec![node.name.as_str().into(), votes, Cell::toned(level, tone), Cell::or_dash(node.version.as_deref())]
        };
        let nodes = table(&["NAME", "VOTES", "LEVEL", "VERSION"], self.nodes.iter().map(cells).collect(), paint);
        format!("{}\n\n{nodes}", card(vec![("ledger level", self.level.to_string().into())], paint))
    }
}

impl View for FinishUpgradeResponse {
    const NAME: &'static str = "level";

    fn text(&self, paint: bool) -> String {
        card(vec![("ledger level", self.level.to_string().into())], paint)
    }
}
