//! Selection of the best connected GPUs of a node, for allocations that do not use all GPUs.

use super::{Distance, Topology};
use crate::Reading;

/// Maximum number of groups that are tested exhaustively; with more, a group is grown greedily. 16 GPUs have 12,870
/// groups of 8.
const MAX_EXHAUSTIVE_GROUPS: u64 = 20_000;

impl Topology {
    /// Indices in `gpus` of the `count` GPUs with the strongest weakest connection. `gpus` holds device names as in
    /// [`Topology::pairs`] (`gpu.3`). Ties are broken by the sum of all connections, then by order. Returns all GPUs if
    /// there are no more than `count`. A connection is stronger with more NVLinks, then with a shorter PCIe distance;
    /// an unknown one is the weakest.
    #[must_use]
    pub fn best_connected(&self, gpus: &[String], count: usize) -> Vec<usize> {
        if count >= gpus.len() {
            return (0..gpus.len()).collect();
        }
        let strengths = ConnectionStrengths::new(self, gpus);
        match count_groups(gpus.len() as u64, count as u64) <= MAX_EXHAUSTIVE_GROUPS {
            true => strengths.best(count),
            false => strengths.grow_greedily(count),
        }
    }

    /// Strength of the connection of two GPUs; 0 if unknown.
    fn strength(&self, one: &str, other: &str) -> u32 {
        let pcie = match self.distance(one, other) {
            Reading::Present(Distance::Pix) => 5,
            Reading::Present(Distance::Pxb) => 4,
            Reading::Present(Distance::Phb) => 3,
            Reading::Present(Distance::Node) => 2,
            Reading::Present(Distance::Sys) => 1,
            _ => 0,
        };
        let links = self.nvlinks_between(one, other);
        links.saturating_mul(10).saturating_add(pcie)
    }

    /// NVLinks between two GPUs: the direct ones, or those through switches (the smaller number of both GPUs),
    /// whichever are more.
    fn nvlinks_between(&self, one: &str, other: &str) -> u32 {
        let links = |from: &str, to: &str| {
            let ends = self.nvlinks.iter();
            let ends = ends.filter(|peer| from == format!("gpu.{}", peer.gpu));
            let there = ends.filter(|peer| matches!(&peer.to, Reading::Present(end) if end == to));
            there.map(|peer| peer.links).sum::<u32>()
        };
        let direct = links(one, other);
        let switched = links(one, "switch").min(links(other, "switch"));
        direct.max(switched)
    }
}

/// Number of groups of `count` GPUs among `gpus`; the calculation stops above [`MAX_EXHAUSTIVE_GROUPS`].
fn count_groups(gpus: u64, count: u64) -> u64 {
    let count = count.min(gpus - count);
    let mut groups = 1_u64;
    for n in 0..count {
        groups = groups.saturating_mul(gpus - n) / (n + 1);
        if groups > MAX_EXHAUSTIVE_GROUPS {
            break;
        }
    }
    groups
}

/// Strength of each connection.
struct ConnectionStrengths {
    gpus: usize,
    strengths: Vec<u32>,
}

/// Rank of a group: its weakest connection, and the sum of all its connections.
type GroupRank = (u32, u64);

impl ConnectionStrengths {
    fn new(topology: &Topology, names: &[String]) -> Self {
        let gpus = names.len();
        let mut of = vec![0; gpus * gpus];
        for (one, name) in names.iter().enumerate() {
            for (other, to) in names.iter().enumerate().skip(one + 1) {
                let strength = topology.strength(name, to);
                of[one * gpus + other] = strength;
                of[other * gpus + one] = strength;
            }
        }
        Self {
            gpus,
            strengths: of,
        }
    }

    fn between(&self, one: usize, other: usize) -> u32 {
        self.strengths[one * self.gpus + other]
    }

    /// The rank of a group after adding one GPU.
    fn rank_with(&self, group: &[usize], worth: GroupRank, more: usize) -> GroupRank {
        let strengths = group.iter().map(|slot| self.between(*slot, more));
        strengths.fold(worth, |(weakest, sum), strength| {
            (weakest.min(strength), sum + u64::from(strength))
        })
    }

    /// Tests every group.
    fn best(&self, count: usize) -> Vec<usize> {
        let mut best = ((0, 0), Vec::new());
        self.search(
            &mut Vec::with_capacity(count),
            (u32::MAX, 0),
            count,
            &mut best,
        );
        best.1
    }

    fn search(
        &self,
        group: &mut Vec<usize>,
        worth: GroupRank,
        count: usize,
        best: &mut (GroupRank, Vec<usize>),
    ) {
        if group.len() == count {
            // Groups are generated in slot order, so the first of equal ones is kept.
            if best.1.is_empty() || worth > best.0 {
                *best = (worth, group.clone());
            }
            return;
        }
        let from = group.last().map_or(0, |last| last + 1);
        let missing = count - group.len();
        for slot in from..=self.gpus - missing {
            let worth = self.rank_with(group, worth, slot);
            group.push(slot);
            self.search(group, worth, count, best);
            group.pop();
        }
    }

    /// Grows a group from each GPU, always adding the GPU that keeps the group strongest.
    fn grow_greedily(&self, count: usize) -> Vec<usize> {
        let grown = |first: usize| {
            let (mut group, mut worth) = (vec![first], (u32::MAX, 0));
            while group.len() < count {
                let others = (0..self.gpus).filter(|slot| !group.contains(slot));
                let next = others
                    .map(|slot| (self.rank_with(&group, worth, slot), std::cmp::Reverse(slot)))
                    .max();
                let Some((next_worth, slot)) = next else {
                    break;
                };
                worth = next_worth;
                group.push(slot.0);
            }
            group.sort_unstable();
            (worth, std::cmp::Reverse(group))
        };
        let best = (0..self.gpus).map(grown).max();
        best.map(|(_, group)| group.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NvlinkPeer, Pair};
    use super::*;

    fn chosen(topology: &Topology, gpus: u32, count: usize) -> Vec<usize> {
        let names: Vec<String> = (0..gpus).map(|slot| format!("gpu.{slot}")).collect();
        topology.best_connected(&names, count)
    }

    fn linked(links: &[(u32, &str, u32)]) -> Topology {
        let peers = links.iter().map(|(gpu, to, links)| NvlinkPeer {
            gpu: *gpu,
            to: Reading::Present((*to).to_owned()),
            links: *links,
        });
        Topology {
            nvlinks: peers.collect(),
            ..Topology::default()
        }
    }

    fn near(mut topology: Topology, pairs: &[(u32, u32, Distance)]) -> Topology {
        topology
            .pairs
            .extend(pairs.iter().map(|(a, b, distance)| Pair {
                a: format!("gpu.{a}"),
                b: format!("gpu.{b}"),
                distance: Reading::Present(*distance),
            }));
        topology
    }

    /// Four GPUs in two NVLinked pairs, 0 with 2 and 1 with 3.
    #[test]
    fn a_linked_pair_comes_before_neighbours() {
        let topology = linked(&[
            (0, "gpu.2", 4),
            (2, "gpu.0", 4),
            (1, "gpu.3", 4),
            (3, "gpu.1", 4),
        ]);
        let topology = near(topology, &[(0, 1, Distance::Pix), (2, 3, Distance::Pix)]);
        assert_eq!(chosen(&topology, 4, 2), [0, 2]);
    }

    #[test]
    fn the_weakest_connection_decides() {
        // 0, 1 and 2 are connected pairwise by one link; 3 is connected to 0 by eight links, and to no other GPU.
        let topology = linked(&[
            (0, "gpu.1", 1),
            (0, "gpu.2", 1),
            (1, "gpu.2", 1),
            (0, "gpu.3", 8),
        ]);
        assert_eq!(chosen(&topology, 4, 3), [0, 1, 2]);
        assert_eq!(chosen(&topology, 4, 2), [0, 3]);
    }

    #[test]
    fn behind_a_switch_all_are_alike() {
        let topology = linked(&[
            (0, "switch", 18),
            (1, "switch", 18),
            (2, "switch", 9),
            (3, "switch", 18),
        ]);
        assert_eq!(chosen(&topology, 4, 2), [0, 1]);
        assert_eq!(chosen(&topology, 4, 3), [0, 1, 3]);
    }

    /// Eight GPUs on NVSwitches in two halves; one GPU has lost some of its links.
    #[test]
    fn with_as_many_links_less_pcie_is_better() {
        let links = |slot| if slot == 1 { 9 } else { 18 };
        let peers: Vec<_> = (0..8).map(|slot| (slot, "switch", links(slot))).collect();
        let pairs = (0..8).flat_map(|a| (a + 1..8).map(move |b| (a, b)));
        let half = |(a, b): (u32, u32)| match a / 4 == b / 4 {
            true => (a, b, Distance::Node),
            false => (a, b, Distance::Sys),
        };
        let topology = near(linked(&peers), &pairs.map(half).collect::<Vec<_>>());
        assert_eq!(chosen(&topology, 8, 4), [4, 5, 6, 7]);
        assert_eq!(chosen(&topology, 8, 3), [0, 2, 3]);
        assert_eq!(chosen(&topology, 8, 7), [0, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn gpus_go_by_their_names_in_pairs() {
        let pair = |a: &str, b: &str, distance| Pair {
            a: a.to_owned(),
            b: b.to_owned(),
            distance: Reading::Present(distance),
        };
        let topology = Topology {
            pairs: vec![
                pair("gpu.amd.0", "gpu.amd.2", Distance::Sys),
                pair("gpu.amd.2", "gpu.amd.5", Distance::Phb),
                pair("gpu.amd.0", "gpu.amd.5", Distance::Sys),
            ],
            ..Topology::default()
        };
        let names = ["gpu.amd.0", "gpu.amd.2", "gpu.amd.5"].map(str::to_owned);
        assert_eq!(topology.best_connected(&names, 2), [1, 2]);
    }

    #[test]
    fn without_nvlink_less_pcie_is_better() {
        use Distance::{Node, Phb, Pix, Sys};
        let topology = near(
            Topology::default(),
            &[
                (0, 1, Node),
                (0, 2, Sys),
                (0, 3, Sys),
                (1, 2, Phb),
                (1, 3, Sys),
                (2, 3, Pix),
            ],
        );
        assert_eq!(chosen(&topology, 4, 2), [2, 3]);
        assert_eq!(chosen(&topology, 4, 1), [0]);
    }

    #[test]
    fn unknown_slots_sort_lowest() {
        assert_eq!(chosen(&Topology::default(), 8, 3), [0, 1, 2]);
        assert_eq!(chosen(&Topology::default(), 2, 5), [0, 1]);
        assert_eq!(chosen(&Topology::default(), 0, 1), [0; 0]);
    }

    /// 32 GPUs in four islands of eight.
    #[test]
    fn many_gpus_are_not_looked_at_in_every_way() {
        let island = |slot: u32| (slot % 4, slot);
        let mut links = Vec::new();
        for one in 0..32 {
            for other in (0..32).filter(|other| *other != one && island(*other).0 == island(one).0)
            {
                links.push((one, format!("gpu.{other}"), 2));
            }
        }
        let links: Vec<(u32, &str, u32)> =
            links.iter().map(|(a, b, n)| (*a, b.as_str(), *n)).collect();
        let found = chosen(&linked(&links), 32, 8);
        assert_eq!(found, [0, 4, 8, 12, 16, 20, 24, 28]);
    }
}
