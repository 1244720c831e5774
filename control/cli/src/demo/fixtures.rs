//! Captured hosts and recorded workload of the demo.

use super::packed;
use crate::output;
use anyhow::{Context as _, bail};
use lattice_config::{Problems, Source};
use lattice_quorum_types::NodeId;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Number of times that the captured trees are used in one gossip cell. A larger demo has more cells, not larger ones:
/// the traffic of a cell grows with the square of its size.
const ROUNDS_PER_CELL: usize = 4;

/// Contents of `fixtures/hosts/cluster.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFile {
    nodes: Vec<ClusterNode>,
    live: NodeLocation,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterNode {
    name: NodeId,
    model: String,
    group: String,
    cell: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeLocation {
    group: String,
    cell: String,
}

/// Node of the demo, with one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoNode {
    /// Node name.
    pub name: NodeId,
    /// Tree that the agent probes; `None` for this machine.
    pub root: Option<PathBuf>,
    /// Model of the captured host; `None` for this machine.
    pub model: Option<String>,
    /// Dragonfly group.
    pub group: String,
    /// Gossip cell.
    pub cell: String,
}

impl DemoNode {
    /// Whether this is a captured host of the model.
    pub fn is_model(&self, model: &str) -> bool {
        self.model.as_deref() == Some(model)
    }
}

/// Difference that was planted in the captured hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlantedDifference {
    pub tree: &'static str,
    pub key: &'static str,
}

impl PlantedDifference {
    /// Whether the difference is in this node's tree.
    pub fn is_in(&self, node: &DemoNode) -> bool {
        let tree = node.root.as_ref().and_then(|root| root.file_name());
        tree.is_some_and(|tree| tree == self.tree)
    }
}

/// Firmware of one NIC and one kernel argument: see the `ORIGIN` file of each tree.
pub const PLANTED: [PlantedDifference; 2] = [
    PlantedDifference {
        tree: "gpu005",
        key: "nic.0.firmware",
    },
    PlantedDifference {
        tree: "gpu108",
        key: "kernel.cmdline",
    },
];

/// Source of the demo's data.
#[derive(Debug, Clone)]
pub enum FixtureSource {
    /// `fixtures/` of a checkout, or a folder like it.
    Folder(Fixtures),
    /// The copy in the program.
    Program,
}

impl FixtureSource {
    /// Returns the folder `explicit`, else a `fixtures` folder above the running program or the working directory, else
    /// the copy in the program.
    ///
    /// # Errors
    /// `explicit` is not such a folder, or the program or the working directory cannot be found.
    pub fn find(explicit: Option<&Path>) -> anyhow::Result<FixtureSource> {
        if let Some(dir) = explicit {
            return Fixtures::open(dir.to_owned())
                .map(FixtureSource::Folder)
                .with_context(|| {
                    format!(
                        "--fixtures {}: not the folder `fixtures` of a checkout of Lattice; leave the option out to \
                         use the hosts in the program",
                        dir.display()
                    )
                });
        }
        let program = std::env::current_exe().context("cannot find the running program")?;
        let here = std::env::current_dir().context("cannot find the working directory")?;
        let above = |start: &Path| {
            start
                .ancestors()
                .map(|up| up.join("fixtures"))
                .find_map(|dir| Fixtures::open(dir).ok())
        };
        let found = above(&program).or_else(|| above(&here));
        Ok(found.map_or(FixtureSource::Program, FixtureSource::Folder))
    }

    /// Returns the data in a folder. The copy in the program is unpacked into the subfolder `fixtures` of `folder`,
    /// unless it is there already.
    pub fn unpacked_in(self, folder: &Path) -> anyhow::Result<Fixtures> {
        match self {
            FixtureSource::Folder(fixtures) => Ok(fixtures),
            FixtureSource::Program => {
                let dir = folder.join("fixtures");
                if let Some(earlier) = packed::unpack(&dir)? {
                    output::message!(
                        "the hosts in {} were incomplete or of another version of the program; they are kept in {}",
                        dir.display(),
                        earlier.display()
                    );
                }
                Fixtures::open(dir)
            }
        }
    }
}

/// Data of the demo in a folder: `fixtures/` of the source tree, or a copy of its part that the demo reads.
#[derive(Debug, Clone)]
pub struct Fixtures {
    dir: PathBuf,
}

impl Fixtures {
    /// Opens the folder `dir`.
    pub fn open(dir: PathBuf) -> anyhow::Result<Fixtures> {
        let file = dir.join("hosts/cluster.yaml");
        if !file.is_file() {
            bail!("{} is missing", file.display());
        }
        Ok(Fixtures { dir })
    }

    /// Opens the folder of the source tree, for tests.
    #[cfg(test)]
    pub fn of_checkout() -> Fixtures {
        Fixtures {
            dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures"),
        }
    }

    /// Returns the path of a file in the fixtures folder.
    pub fn file(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    /// Returns the path of the recorded jobs.
    pub fn trace(&self) -> PathBuf {
        self.file("traces/KTH-SP2-1996-2.first200.swf")
    }

    /// Returns `count` nodes: this machine, then the captured trees. If there are fewer trees, they are reused under
    /// new names, with the same hardware and the same differences, and after some rounds in further gossip cells.
    pub fn nodes(&self, count: usize, this_machine: NodeId) -> anyhow::Result<Vec<DemoNode>> {
        let path = self.dir.join("hosts/cluster.yaml");
        let no_check = |_: &ClusterFile, _: &mut Problems| {};
        let file = lattice_config::load_named(Source::File(&path), no_check)?;
        if file.nodes.is_empty() {
            bail!("{} lists no nodes", path.display());
        }
        let live = DemoNode {
            name: this_machine,
            root: None,
            model: None,
            group: file.live.group,
            cell: file.live.cell,
        };
        let mut nodes = vec![live];
        for round in 0.. {
            for node in &file.nodes {
                if nodes.len() >= count {
                    return Ok(nodes);
                }
                let name = match round {
                    0 => node.name.clone(),
                    n => NodeId::new(format!("r{n}-{}", node.name))?,
                };
                nodes.push(DemoNode {
                    name,
                    root: Some(self.dir.join("hosts").join(node.name.as_str())),
                    model: Some(node.model.clone()),
                    group: node.group.clone(),
                    cell: match round / ROUNDS_PER_CELL {
                        0 => node.cell.clone(),
                        n => format!("{}-{n}", node.cell),
                    },
                });
            }
        }
        Ok(nodes)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::{collections::BTreeMap, fs};

    fn cell_sizes(count: usize) -> BTreeMap<String, usize> {
        let here = NodeId::new("here").unwrap();
        let nodes = Fixtures::of_checkout().nodes(count, here).unwrap();
        assert_eq!(nodes.len(), count);
        let mut sizes = BTreeMap::new();
        for node in nodes {
            *sizes.entry(node.cell).or_default() += 1;
        }
        sizes
    }

    #[test]
    fn edited_list_of_nodes_reports_all_mistakes() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("hosts")).unwrap();
        let text = "nodes: [{name: gpu001, model: h100, group: g0, cel: a}]\nlive: here\n";
        fs::write(folder.path().join("hosts/cluster.yaml"), text).unwrap();
        let fixtures = Fixtures {
            dir: folder.path().to_owned(),
        };
        let error = fixtures.nodes(2, NodeId::new("here").unwrap()).err();
        let error = error.unwrap().to_string();
        for part in [
            "hosts/cluster.yaml has 2 mistakes:\n  ",
            "nodes.0.cel: unknown key; did you mean nodes.0.cell? That key is required and missing",
            "live: must be keys and values",
        ] {
            assert!(error.contains(part), "{part}\nis missing in: {error}");
        }
    }

    #[test]
    fn larger_demos_have_more_cells_of_the_same_size() {
        assert_eq!(cell_sizes(24).into_values().sum::<usize>(), 24);
        assert_eq!(cell_sizes(24).len(), 2);
        let sizes = cell_sizes(512);
        assert_eq!(sizes.len(), 12);
        assert!(sizes.values().all(|size| *size <= 48), "{sizes:?}");
        assert_eq!(sizes["c0"], 48);
    }

    #[test]
    fn another_folder_is_refused_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let error = FixtureSource::find(Some(folder.path())).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("leave the option out"), "{text}");
        assert!(text.contains("cluster.yaml is missing"), "{text}");
    }
}
