//! Captured hosts and recorded workload of the demo.

use anyhow::{Context as _, bail};
use lattice_quorum_types::NodeId;
use serde::Deserialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

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

/// Data of the demo: `fixtures/` of the source tree.
#[derive(Debug, Clone)]
pub struct Fixtures {
    dir: PathBuf,
}

impl Fixtures {
    /// Returns the folder `explicit`, else a `fixtures` folder above the running program or the working directory.
    pub fn find(explicit: Option<&Path>) -> anyhow::Result<Fixtures> {
        if let Some(dir) = explicit {
            return Self::checked(dir.to_owned())
                .with_context(|| format!("--fixtures {}", dir.display()));
        }
        let program = std::env::current_exe().context("cannot find the running program")?;
        let here = std::env::current_dir().context("cannot find the working directory")?;
        let above = |start: &Path| {
            start
                .ancestors()
                .map(|up| up.join("fixtures"))
                .find_map(|d| Self::checked(d).ok())
        };
        match above(&program).or_else(|| above(&here)) {
            Some(found) => Ok(found),
            None => bail!(
                "the demo's captured hosts were not found above {} or {}; give --fixtures DIR",
                program.display(),
                here.display()
            ),
        }
    }

    fn checked(dir: PathBuf) -> anyhow::Result<Fixtures> {
        let file = dir.join("hosts/cluster.yaml");
        if !file.is_file() {
            bail!("{} is missing", file.display());
        }
        Ok(Fixtures { dir })
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
    /// new names, with the same hardware and the same differences.
    pub fn nodes(&self, count: usize, this_machine: NodeId) -> anyhow::Result<Vec<DemoNode>> {
        let path = self.dir.join("hosts/cluster.yaml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let file: ClusterFile =
            serde_yaml_ng::from_str(&text).with_context(|| path.display().to_string())?;
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
                    cell: node.cell.clone(),
                });
            }
        }
        Ok(nodes)
    }
}
