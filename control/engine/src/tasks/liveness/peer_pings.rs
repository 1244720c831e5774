//! Independent evidence of liveness: other agents ping a node that is silent to this control.

use super::judge::PeerReports;
use crate::core::Core;
use futures::future::join_all;
use lattice_agent_rpc::{PingPeer, PingReply};
use lattice_quorum_types::NodeId;
use lattice_view::View;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Number of agents that ping one node per round.
pub(super) const PEERS_PER_ROUND: usize = 3;
/// Number of those agents taken from the node's own cell; the others come from other cells, if available.
const NEIGHBOURS: usize = 2;
/// Timeout of an agent for its ping to the node.
const PING_TIMEOUT: Duration = Duration::from_millis(2000);
/// Timeout of this control for the call to the agent.
const CALL_TIMEOUT: Duration = Duration::from_millis(3500);

/// Agents that answer now, each with its cell.
pub(super) type AnsweringAgents = Vec<(NodeId, String)>;

/// Chooses agents that ping a node of `cell`. `turn` rotates the choice over all agents that answer.
pub(super) fn choose(
    alive: &AnsweringAgents,
    node: &NodeId,
    cell: &str,
    turn: usize,
) -> AnsweringAgents {
    let others = alive.iter().filter(|(other, _)| other != node);
    let (near, far): (Vec<_>, Vec<_>) = others.cloned().partition(|(_, of)| of == cell);
    let rotated = |mut all: AnsweringAgents| {
        let by = turn.checked_rem(all.len()).unwrap_or(0);
        all.rotate_left(by);
        all
    };
    let (near, far) = (rotated(near), rotated(far));
    let of_near = near
        .len()
        .min(NEIGHBOURS.max(PEERS_PER_ROUND.saturating_sub(far.len())));
    let of_near = of_near.min(PEERS_PER_ROUND);
    let mut chosen: AnsweringAgents = near.into_iter().take(of_near).collect();
    chosen.extend(far.into_iter().take(PEERS_PER_ROUND - of_near));
    chosen
}

/// Has all chosen agents ping the node concurrently.
pub(super) async fn ask(
    core: Arc<Core>,
    view: Arc<View>,
    node: NodeId,
    addrs: Vec<SocketAddr>,
    witnesses: AnsweringAgents,
) -> (NodeId, PeerReports) {
    let (core, view, node) = (&core, &view, &node);
    let asked = witnesses.into_iter().flat_map(|witness| {
        let ask = move |addr| {
            let witness = witness.clone();
            async move {
                let request = PingPeer {
                    node: node.clone(),
                    addr,
                    timeout_ms: u64::try_from(PING_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
                };
                let called = core
                    .agents
                    .call(view, &witness.0, &request, CALL_TIMEOUT)
                    .await;
                (witness, called)
            }
        };
        addrs.clone().into_iter().map(ask)
    });
    let answers = join_all(asked).await;
    let answers = answers
        .into_iter()
        // An agent that could not be queried is no evidence.
        .filter_map(|(witness, called)| Some((witness, called.ok()?)));
    (node.clone(), sum_up(node, answers, Instant::now()))
}

fn sum_up(
    node: &NodeId,
    answers: impl Iterator<Item = ((NodeId, String), Result<PingReply, String>)>,
    at: Instant,
) -> PeerReports {
    let mut said = PeerReports {
        at,
        reached_by: None,
        missed_by: Vec::new(),
    };
    for (witness, found) in answers {
        if found.is_ok_and(|pong| pong.node == *node) {
            said.reached_by.get_or_insert(witness.0);
        } else if !said.missed_by.contains(&witness) {
            said.missed_by.push(witness);
        }
    }
    said
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_quorum_types::UnixMillis;

    fn id(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn alive(names: &[(&str, &str)]) -> AnsweringAgents {
        let one = |(name, cell): &(&str, &str)| (id(name), (*cell).to_owned());
        names.iter().map(one).collect()
    }

    fn chosen(among: &AnsweringAgents, turn: usize) -> Vec<String> {
        let chosen = choose(among, &id("a"), "c0", turn);
        chosen
            .into_iter()
            .map(|(node, _)| node.to_string())
            .collect()
    }

    #[test]
    fn asks_neighbours_and_one_remote_node() {
        let all = [
            ("a", "c0"),
            ("b", "c0"),
            ("c", "c0"),
            ("d", "c0"),
            ("x", "c1"),
        ];
        assert_eq!(chosen(&alive(&all), 0), ["b", "c", "x"]);
        assert_eq!(chosen(&alive(&all), 1), ["c", "d", "x"]);
        assert_eq!(chosen(&alive(&all[..4]), 0), ["b", "c", "d"]);
        let far = [
            ("a", "c0"),
            ("x", "c1"),
            ("y", "c1"),
            ("z", "c2"),
            ("w", "c2"),
        ];
        assert_eq!(chosen(&alive(&far), 0), ["x", "y", "z"]);
        assert_eq!(chosen(&alive(&far[..1]), 0), [""; 0]);
    }

    #[test]
    fn only_an_answer_of_the_node_itself_reaches_it() {
        let pong = |name: &str| PingReply {
            node: id(name),
            boot_id: "b".to_owned(),
            at: UnixMillis(1),
        };
        let of = |name: &str, found| ((id(name), "c0".to_owned()), found);
        let now = Instant::now();
        let said = sum_up(
            &id("a"),
            [
                of("b", Err("no".to_owned())),
                of("b", Err("no".to_owned())),
                of("c", Ok(pong("z"))),
            ]
            .into_iter(),
            now,
        );
        assert_eq!(said.reached_by, None);
        assert_eq!(said.missed_by.len(), 2);
        let said = sum_up(
            &id("a"),
            [of("b", Err("no".to_owned())), of("c", Ok(pong("a")))].into_iter(),
            now,
        );
        assert_eq!(said.reached_by, Some(id("c")));
    }
}
