//! What a user asks for.

mod demand;

pub use demand::{Demand, InvalidDemand};

use crate::{AllocationId, NodeId, ProjectPath, VclusterName, terms::Terms};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest script plus environment plus arguments accepted with a submit, in bytes.
pub const MAX_WORKLOAD_BYTES: usize = 64 * 1024;

/// What runs on each node of the allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Program and arguments. Empty only when `script` is given.
    pub argv: Vec<String>,
    /// A script, written to a private file and run by its own `#!` line (default `/bin/sh`).
    pub script: Option<String>,
    /// Environment added to a minimal one. Never logged; shown redacted.
    pub env: BTreeMap<String, String>,
    /// Working directory; the user's home, else `/`, when absent.
    pub working_dir: Option<String>,
    /// Files of the user's own for the output. What has none is captured by the agent.
    #[serde(default)]
    pub output: OutputFiles,
}

/// Where a rank's output goes; relative paths are below the working directory. `%j` stands for the
/// allocation's number, `%r` for the rank, `%n` for the node, `%%` for a percent sign. `%A` is the number of
/// the array that it is an element of, its own where it is of none, and `%a` its index there. Control fills in
/// these two, so that agents need not know of arrays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputFiles {
    /// Standard output; opened as the user, made when missing, appended to.
    pub stdout: Option<String>,
    /// Standard error.
    pub stderr: Option<String>,
}

impl Workload {
    /// Bytes counted against [`MAX_WORKLOAD_BYTES`].
    pub fn bytes(&self) -> usize {
        self.argv.iter().map(String::len).sum::<usize>()
            + self.script.as_ref().map_or(0, String::len)
            + self
                .env
                .iter()
                .map(|(k, v)| k.len() + v.len())
                .sum::<usize>()
            + self.output.stdout.as_ref().map_or(0, String::len)
            + self.output.stderr.as_ref().map_or(0, String::len)
    }
}

/// Why a text is no file for output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutputFile {
    /// Nothing at all.
    #[error("it is empty")]
    Empty,
    /// A percent sign that stands for nothing.
    #[error(
        "after % comes j (allocation), A (array), a (index), r (rank), n (node), or another % for a percent \
         sign, not {}",
        .found.map_or("the end".to_owned(), |c| format!("{c:?}"))
    )]
    Placeholder {
        /// What follows it; `None` at the end.
        found: Option<char>,
    },
    /// An index is asked for where there is none.
    #[error("%a is the index of an array's element, and this is no array; write %j")]
    NoIndex,
}

impl OutputFiles {
    /// The file that `pattern` stands for on one rank.
    pub fn file_of(
        pattern: &str,
        id: AllocationId,
        rank: u32,
        node: &NodeId,
    ) -> Result<String, InvalidOutputFile> {
        fill_in(pattern, |placeholder| match placeholder {
            'j' => Some(id.to_string()),
            'r' => Some(rank.to_string()),
            'n' => Some(node.to_string()),
            _ => None,
        })
    }

    /// `pattern` with the array and the index of an element filled in, and the rest as it is. What has no
    /// index has none filled in.
    pub fn of_element(pattern: &str, array: AllocationId, index: Option<u32>) -> String {
        let mut filled = String::with_capacity(pattern.len());
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            if character != '%' {
                filled.push(character);
                continue;
            }
            match (characters.next(), index) {
                (Some('A'), _) => filled += &array.to_string(),
                (Some('a'), Some(index)) => filled += &index.to_string(),
                (Some(other), _) => filled.extend(['%', other]),
                (None, _) => filled.push('%'),
            }
        }
        filled
    }

    /// Whether `pattern` stands for a file on every rank, of an array for each element.
    pub fn check(pattern: &str, is_array: bool) -> Result<(), InvalidOutputFile> {
        let known = |placeholder| match placeholder {
            'j' | 'r' | 'n' | 'A' => Some("1".to_owned()),
            'a' if is_array => Some("1".to_owned()),
            _ => None,
        };
        match fill_in(pattern, known) {
            Err(InvalidOutputFile::Placeholder { found: Some('a') }) => {
                Err(InvalidOutputFile::NoIndex)
            }
            other => other.map(drop),
        }
    }
}

fn fill_in(
    pattern: &str,
    stands_for: impl Fn(char) -> Option<String>,
) -> Result<String, InvalidOutputFile> {
    let mut path = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            path.push(character);
            continue;
        }
        let found = characters.next();
        let known = match found {
            Some('%') => Some("%".to_owned()),
            Some(other) => stands_for(other),
            None => None,
        };
        path += &known.ok_or(InvalidOutputFile::Placeholder { found })?;
    }
    if path.is_empty() {
        return Err(InvalidOutputFile::Empty);
    }
    Ok(path)
}

/// How to lay the nodes over dragonfly groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Fewest groups.
    #[default]
    Tight,
    /// As many groups as possible.
    Spread,
    /// Whatever is free first.
    Any,
}

/// What the nodes must be like. Every field absent or empty means "any".
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Constraints {
    /// Acceptable GPU models, any one of them: in any case, and as a part of what the driver calls it that
    /// begins with a word and does not end within a number ("h100" of "NVIDIA H100 80GB HBM3").
    pub gpu_models: Vec<String>,
    /// GPUs each node must have at least.
    pub gpus_per_node: Option<u32>,
    /// Memory each node must have at least, bytes.
    pub memory_bytes: Option<u64>,
    /// Features every node must carry.
    pub features: Vec<String>,
    /// Only these nodes, when not empty.
    pub nodelist: Vec<NodeId>,
    /// None of these.
    pub exclude: Vec<NodeId>,
    /// Layout over groups.
    pub spread: Spread,
}

/// What happens to an allocation whose node is lost. An attempt of which it is certain that nothing
/// was ever started is put back whatever this says, and not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeue {
    /// It fails.
    #[default]
    Never,
    /// It is queued again at most once.
    Once,
    /// It is queued again each time.
    Always,
}

/// A request for nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationSpec {
    /// A name for people.
    pub name: Option<String>,
    /// The project that pays and whose limits apply.
    pub project: ProjectPath,
    /// The vCluster whose scheduler places it.
    pub vcluster: VclusterName,
    /// Number of nodes, at least 1.
    pub nodes: u32,
    /// What runs.
    pub workload: Workload,
    /// Longest run time, milliseconds; `None` is unbounded (never backfilled).
    pub walltime_ms: Option<u64>,
    /// Priority class 0-10.
    pub class: u8,
    /// Conformance becomes a hard filter.
    pub sensitive: bool,
    /// What the nodes must be like.
    pub constraints: Constraints,
    /// What happens on node loss.
    pub requeue: Requeue,
    /// Submit on hold.
    pub hold: bool,
    /// What it needs besides nodes, and how ready it is.
    #[serde(default)]
    pub demand: Demand,
    /// After what, when, how often, and what may be done to it meanwhile.
    #[serde(default)]
    pub terms: Terms,
}

impl AllocationSpec {
    /// The priority class of work that names none.
    pub const CLASS: u8 = 5;

    /// A request that says what it must and nothing else.
    pub fn new(
        project: ProjectPath,
        vcluster: VclusterName,
        nodes: u32,
        workload: Workload,
    ) -> Self {
        Self {
            name: None,
            project,
            vcluster,
            nodes,
            workload,
            walltime_ms: None,
            class: Self::CLASS,
            sensitive: false,
            constraints: Constraints::default(),
            requeue: Requeue::default(),
            hold: false,
            demand: Demand::default(),
            terms: Terms::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_output_file_is_another_one_on_every_rank() {
        let node = NodeId::new("gpu007").unwrap();
        let file = |pattern| OutputFiles::file_of(pattern, AllocationId(42), 3, &node);
        assert_eq!(file("out/%j.%r-%n.100%%").unwrap(), "out/42.3-gpu007.100%");
        for (pattern, why) in [
            ("", "it is empty"),
            ("out-%", "not the end"),
            ("out-%x", "not 'x'"),
        ] {
            let error = file(pattern).unwrap_err();
            assert!(error.to_string().contains(why), "{pattern}: {error}");
            assert_eq!(OutputFiles::check(pattern, true), Err(error));
        }
        assert_eq!(OutputFiles::check("%j", false), Ok(()));
    }

    #[test]
    fn an_element_has_its_array_and_its_index_in_its_files_and_others_their_own_number() {
        let of = |pattern, index| OutputFiles::of_element(pattern, AllocationId(7), index);
        assert_eq!(of("%A/%a.%j-%r.%n", Some(3)), "7/3.%j-%r.%n");
        assert_eq!(of("100%%A.%A.%", None), "100%%A.7.%");
        assert_eq!(of("%%%a", Some(0)), "%%0");
        let node = NodeId::new("n1").unwrap();
        let file = OutputFiles::file_of(&of("%A/%a.%j", Some(3)), AllocationId(11), 0, &node);
        assert_eq!(file.unwrap(), "7/3.11");
    }

    #[test]
    fn only_an_array_has_an_index() {
        OutputFiles::check("%A.%a", true).unwrap();
        OutputFiles::check("%A.%j", false).unwrap();
        let refused = |pattern| OutputFiles::check(pattern, false).unwrap_err().to_string();
        assert!(refused("%a").contains("this is no array"));
        assert!(refused("%x").contains("a (index)"));
    }
}
