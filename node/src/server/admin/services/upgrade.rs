//! Ends a rolling upgrade with the entry that raises the ledger's level, and reports what prevents it (P23).

use std::collections::BTreeMap;

use reveille_ledger::Ledger;
use reveille_ledger::command::{Command, RaiseLevel};
use reveille_ledger::ids::NodeId;
use reveille_proto::admin::v1::{
    ErrorReason, FinishUpgradeRequest, FinishUpgradeResponse, GetUpgradeRequest, GetUpgradeResponse, UpgradeNode,
};
use reveille_raft::Member;

use crate::server::admin::deadline::DESCRIBED_WITHIN;
use crate::server::admin::{Admin, ApiError, ApiResult, Call, error_texts, views};

/// The levels of the ledger and of each node.
#[derive(Debug, PartialEq, Eq)]
struct Levels {
    ledger: u32,
    nodes: BTreeMap<NodeId, NodeLevel>,
}

#[derive(Debug, PartialEq, Eq)]
struct NodeLevel {
    name: String,
    votes: bool,
    /// 0 if the node has never started.
    announced: u32,
}

impl Levels {
    fn of(ledger: &Ledger, members: &BTreeMap<NodeId, Member>) -> Levels {
        let voters: Vec<NodeId> = members.iter().filter(|(_, member)| member.votes).map(|(id, _)| *id).collect();
        let level = |(id, announced): (NodeId, u32)| {
            let own = ledger.nodes().get(&id).map(|node| node.name.clone());
            let name = members.get(&id).map(|member| member.name.clone()).or(own).unwrap_or_else(|| id.to_string());
            (id, NodeLevel { name, votes: voters.contains(&id), announced })
        };
        let nodes = ledger.announced_levels(&voters).into_iter().map(level).collect();
        Levels { ledger: ledger.head().level, nodes }
    }

    fn announced(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.values().map(|node| node.announced)
    }

    /// Returns the highest level that all nodes can apply.
    fn target(&self) -> u32 {
        self.announced().min().unwrap_or(0).max(self.ledger)
    }

    fn highest(&self) -> u32 {
        self.announced().max().unwrap_or(0).max(self.ledger)
    }

    /// Returns what prevents the level from rising to `requested`.
    fn obstacles(&self, requested: u32) -> Vec<String> {
        let below = self.nodes.values().filter(|node| node.announced < requested);
        let sentence = |NodeLevel { name, announced, .. }: &NodeLevel| match announced {
            0 => format!("node {name} has never come up; start it with the new release"),
            _ => format!(
                "node {name} applies ledger level {announced} and not {requested}; install the new release on it and restart it"
            ),
        };
        below.map(sentence).collect()
    }
}

/// A node that answers, and for how long its process runs.
struct RunningNode<'a> {
    version: &'a str,
    level: u32,
    up_ms: u64,
}

/// Returns for how long an upgrade is under way at least: as long as two nodes of different versions, or one above the
/// ledger's level, have run. No entry records when it began. `None`: no nodes differ.
fn unfinished_ms(ledger: u32, running: &[RunningNode<'_>]) -> Option<u64> {
    let above = running.iter().filter(|node| node.level > ledger).map(|node| node.up_ms);
    let pairs = running.iter().flat_map(|one| running.iter().map(move |other| (one, other)));
    let differ = pairs.filter(|(one, other)| one.version != other.version);
    above.chain(differ.map(|(one, other)| one.up_ms.min(other.up_ms))).max()
}

impl Admin {
    /// Returns the progress of the upgrade as this node knows it.
    pub(crate) async fn get_upgrade(&self, _: GetUpgradeRequest, _: &Call) -> ApiResult<GetUpgradeResponse> {
        let levels = self.levels();
        let described = self.descriptions(levels.nodes.keys().copied(), DESCRIBED_WITHIN).await;
        let node = |(id, node): (&NodeId, &NodeLevel)| UpgradeNode {
            id: id.to_string(),
            name: node.name.clone(),
            votes: node.votes,
            level: node.announced,
            version: described.get(id).map(|described| described.description.version.clone()),
        };
        let mut nodes: Vec<UpgradeNode> = levels.nodes.iter().map(node).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let running = levels.nodes.iter().filter_map(|(id, node)| {
            let description = &described.get(id)?.description;
            Some(RunningNode { version: &description.version, level: node.announced, up_ms: description.up_ms? })
        });
        let unfinished_ms = unfinished_ms(levels.ledger, &running.collect::<Vec<_>>());
        Ok(GetUpgradeResponse {
            unfinished_for: unfinished_ms.map(|ms| views::duration(i64::try_from(ms).unwrap_or(i64::MAX))),
            level: levels.ledger,
            target_level: levels.target(),
            highest_level: levels.highest(),
            nodes,
        })
    }

    fn levels(&self) -> Levels {
        let members = self.context.replica.members();
        self.context.replica.read(|ledger| Levels::of(ledger, &members))
    }

    /// Raises the ledger's level.
    pub(crate) async fn finish_upgrade(
        &self,
        request: FinishUpgradeRequest,
        call: &Call,
    ) -> ApiResult<FinishUpgradeResponse> {
        let FinishUpgradeRequest { level: requested, .. } = request;
        // After this read, this node also knows nodes that have just started.
        self.read_latest(call, |_| ()).await?;
        let levels = self.levels();
        let level = if requested == 0 { levels.target() } else { requested };
        if level == levels.ledger {
            let obstacles = levels.obstacles(levels.highest());
            let waits = requested == 0 && !obstacles.is_empty();
            return match waits {
                true => Err(obstructed(&obstacles)),
                false => Ok(FinishUpgradeResponse { level, raised: false }),
            };
        }
        let obstacles = levels.obstacles(level);
        if !obstacles.is_empty() {
            return Err(obstructed(&obstacles));
        }
        let voters = levels.nodes.iter().filter(|(_, node)| node.votes).map(|(id, _)| *id).collect();
        self.write(Command::RaiseLevel(RaiseLevel { level, voters }), call).await?;
        Ok(FinishUpgradeResponse { level, raised: true })
    }
}

/// Says which nodes cannot apply the level.
fn obstructed(obstacles: &[String]) -> ApiError {
    error_texts::precondition(ErrorReason::UpgradeNotFinished, obstacles.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(ledger: u32, announced: [u32; 3]) -> Levels {
        let node = |(name, announced): (&str, u32)| NodeLevel { name: name.to_owned(), votes: true, announced };
        let nodes = ["a", "b", "c"].into_iter().zip(announced).map(node);
        Levels { ledger, nodes: (1..).map(NodeId).zip(nodes).collect() }
    }

    #[test]
    fn target_is_highest_level_that_all_nodes_announced() {
        let numbers = |levels: &Levels| (levels.target(), levels.highest(), levels.obstacles(levels.highest()).len());
        assert_eq!(numbers(&levels(1, [1, 1, 1])), (1, 1, 0), "nothing to do");
        assert_eq!(numbers(&levels(1, [2, 2, 2])), (2, 2, 0));
        assert_eq!(numbers(&levels(1, [3, 2, 3])), (2, 3, 1), "a node skipped a release");
        assert_eq!(numbers(&levels(2, [2, 2, 2])), (2, 2, 0));
        assert_eq!(numbers(&levels(1, [2, 1, 0])), (1, 2, 2));
    }

    #[test]
    fn upgrade_is_unfinished_for_as_long_as_differing_nodes_run() {
        let unfinished = |nodes: &[(&'static str, u32, u64)]| {
            let running = nodes.iter().map(|&(version, level, up_ms)| RunningNode { version, level, up_ms });
            unfinished_ms(1, &running.collect::<Vec<_>>())
        };
        assert_eq!(unfinished(&[("a", 1, 50), ("a", 1, 9)]), None);
        assert_eq!(unfinished(&[("a", 1, 50), ("b", 1, 9), ("b", 1, 7)]), Some(9), "a patch release on two of three");
        assert_eq!(unfinished(&[("b", 2, 5), ("b", 2, 8)]), Some(8), "the level was not raised");
        assert_eq!(unfinished(&[]), None);
    }

    #[test]
    fn obstacle_names_the_node_and_what_helps() {
        let obstacles = levels(1, [2, 1, 0]).obstacles(2);
        let expected = [
            "node b applies ledger level 1 and not 2; install the new release on it and restart it",
            "node c has never come up; start it with the new release",
        ];
        assert_eq!(obstacles, expected);
    }
}
