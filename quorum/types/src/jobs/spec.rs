//! Allocation requests.

mod demand;
mod script;

pub use demand::{Demand, InvalidDemand};
pub use script::{InvalidScript, check_script};

use crate::{AllocationId, NodeId, ProjectPath, VclusterName, terms::Terms};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest accepted sum of script, environment, arguments and output file names of a submit, bytes.
pub const MAX_WORKLOAD_BYTES: usize = 64 * 1024;

/// Program that runs on each node of the allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Program and arguments. May be empty only if `script` is given.
    pub argv: Vec<String>,
    /// Script, which is written to a private file and run by its own `#!` line. The API rejects a script without one;
    /// agents run such a script with `/bin/sh`.
    pub script: Option<String>,
    /// Environment variables, added to a minimal environment. Never logged, and redacted in listings.
    pub env: BTreeMap<String, String>,
    /// Working directory; if `None`, that of the node's configuration, or the home directory of the job's account.
    pub working_dir: Option<String>,
    /// Output files of the user. The agent captures a stream that has no file.
    #[serde(default)]
    pub output: OutputFiles,
}

/// Output files of a rank. Relative paths are below the working directory. Placeholders:
///
/// * `%j`: number of the allocation
/// * `%r`: rank
/// * `%n`: node
/// * `%A`: number of the job array, or of the allocation itself if it is not an array element
/// * `%a`: index in the job array
/// * `%%`: percent sign
///
/// Control fills in `%A` and `%a`, so agents need no array data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputFiles {
    /// File for standard output. It is opened as the user, created if missing, and appended to.
    pub stdout: Option<String>,
    /// File for standard error, opened as the file for standard output is.
    pub stderr: Option<String>,
}

impl Workload {
    /// Size in bytes that counts against [`MAX_WORKLOAD_BYTES`].
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

/// Reasons why a text is not a valid output file pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutputFile {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// A percent sign without a valid placeholder.
    #[error(
        "after % write j (allocation), A (array), a (index), r (rank), n (node), or another % for \
         a percent sign, not {}",
        .found.map_or("the end".to_owned(), |c| format!("{c:?}"))
    )]
    Placeholder {
        /// Character after the percent sign; `None` at the end of the text.
        found: Option<char>,
    },
    /// `%a` in an allocation that is not a job array.
    #[error("%a is the index of an array element, and this is not an array; write %j")]
    NoIndex,
    /// Default of a site without `%j`.
    #[error("%j (allocation) is missing: the output of all allocations would go to one file")]
    NoNumber,
    /// Default of a site that is not the name of a file.
    #[error("it ends with / or contains a control character: give the name of a file")]
    NotAFile,
}

impl OutputFiles {
    /// Returns the file that `pattern` names for one rank.
    pub fn file_of(
        pattern: &str,
        id: AllocationId,
        rank: u32,
        node: &NodeId,
    ) -> Result<String, InvalidOutputFile> {
        expand_pattern(pattern, |placeholder| match placeholder {
            'j' => Some(id.to_string()),
            'r' => Some(rank.to_string()),
            'n' => Some(node.to_string()),
            _ => None,
        })
    }

    /// Fills in `%A` and `%a` of `pattern` for an array element and leaves the rest. Without an index, `%a` stays as it
    /// is.
    pub fn of_element(pattern: &str, array: AllocationId, index: Option<u32>) -> String {
        replace_placeholders(pattern, |placeholder| match (placeholder, index) {
            ('A', _) => Some(array.to_string()),
            ('a', Some(index)) => Some(index.to_string()),
            _ => None,
        })
    }

    /// Fills in `%j` of `pattern`, and leaves what differs between ranks.
    pub fn of_allocation(pattern: &str, id: AllocationId) -> String {
        replace_placeholders(pattern, |placeholder| {
            (placeholder == 'j').then(|| id.to_string())
        })
    }

    /// Checks a site's default for the output files of requests that name none.
    pub fn check_default(pattern: &str) -> Result<(), InvalidOutputFile> {
        Self::check(pattern, false)?;
        if pattern.ends_with('/') || pattern.chars().any(char::is_control) {
            return Err(InvalidOutputFile::NotAFile);
        }
        match placeholders(pattern).any(|placeholder| placeholder == 'j') {
            true => Ok(()),
            false => Err(InvalidOutputFile::NoNumber),
        }
    }

    /// Returns the pattern for a request from a site's default. In a job array `%j` becomes `%A_%a`, the name of an
    /// element. With several ranks, which could overwrite each other's output in a shared file system, `.%r` is added
    /// unless the pattern distinguishes ranks already.
    pub fn from_default(pattern: &str, is_array: bool, has_several_ranks: bool) -> String {
        let mut filled = replace_placeholders(pattern, |placeholder| {
            (placeholder == 'j' && is_array).then(|| "%A_%a".to_owned())
        });
        let is_of_rank = placeholders(pattern).any(|placeholder| matches!(placeholder, 'r' | 'n'));
        if has_several_ranks && !is_of_rank {
            filled += ".%r";
        }
        filled
    }

    /// Checks that `pattern` is valid for every rank, and for every element of a job array.
    pub fn check(pattern: &str, is_array: bool) -> Result<(), InvalidOutputFile> {
        let known = |placeholder| match placeholder {
            'j' | 'r' | 'n' | 'A' => Some("1".to_owned()),
            'a' if is_array => Some("1".to_owned()),
            _ => None,
        };
        match expand_pattern(pattern, known) {
            Err(InvalidOutputFile::Placeholder { found: Some('a') }) => {
                Err(InvalidOutputFile::NoIndex)
            }
            other => other.map(drop),
        }
    }
}

/// Replaces the placeholders that have a value, and leaves the rest of the pattern.
fn replace_placeholders(pattern: &str, value: impl Fn(char) -> Option<String>) -> String {
    let mut filled = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            filled.push(character);
            continue;
        }
        match characters.next() {
            Some(placeholder) => match value(placeholder) {
                Some(text) => filled += &text,
                None => filled.extend(['%', placeholder]),
            },
            None => filled.push('%'),
        }
    }
    filled
}

/// Characters after the percent signs of a valid pattern.
fn placeholders(pattern: &str) -> impl Iterator<Item = char> + '_ {
    let mut characters = pattern.chars();
    std::iter::from_fn(move || {
        characters.find(|character| *character == '%')?;
        characters.next()
    })
}

fn expand_pattern(
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

/// Placement of the nodes over dragonfly groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// As few groups as possible.
    #[default]
    Tight,
    /// As many groups as possible.
    Spread,
    /// The first free nodes, whatever their groups.
    Any,
}

/// Constraints on the nodes. An absent or empty field permits any node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Constraints {
    /// Acceptable GPU models; one of them must match. A model matches a part of the driver's name, ignoring case. The
    /// part must start at a word and must not end within a number ("h100" of "NVIDIA H100 80GB HBM3").
    pub gpu_models: Vec<String>,
    /// Smallest number of GPUs of each node.
    pub gpus_per_node: Option<u32>,
    /// Smallest memory of each node, bytes.
    pub memory_bytes: Option<u64>,
    /// Features that every node must have.
    pub features: Vec<String>,
    /// Only these nodes, unless empty.
    pub nodelist: Vec<NodeId>,
    /// Excluded nodes.
    pub exclude: Vec<NodeId>,
    /// Placement over dragonfly groups.
    pub spread: Spread,
}

/// Requeue policy after the loss of a node, and after a move off the nodes (preemption, reclaim or request) that left
/// no checkpoint. An attempt that certainly never started any process is requeued under every policy, and is not
/// counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeue {
    /// The allocation fails.
    #[default]
    Never,
    /// The allocation is requeued at most once.
    Once,
    /// The allocation is requeued each time.
    Always,
}

/// A request for an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationSpec {
    /// Name for display.
    pub name: Option<String>,
    /// Project that is charged; its limits apply.
    pub project: ProjectPath,
    /// vCluster of the allocation; its scheduler places the allocation.
    pub vcluster: VclusterName,
    /// Number of nodes, at least 1.
    pub nodes: u32,
    /// Program to run.
    pub workload: Workload,
    /// Walltime: longest run time, milliseconds; `None`: unbounded, and never backfilled.
    pub walltime_ms: Option<u64>,
    /// Priority class, 0-10.
    pub class: u8,
    /// Whether the allocation is sensitive: conformance of its nodes is then a hard requirement.
    pub sensitive: bool,
    /// Constraints on the nodes.
    pub constraints: Constraints,
    /// Requeue policy.
    pub requeue: Requeue,
    /// Whether to submit the allocation on hold.
    pub hold: bool,
    /// Requested resources in addition to nodes, and readiness of the input data.
    #[serde(default)]
    pub demand: Demand,
    /// Terms: dependencies, times, job array, checkpoints, scaling, reservation.
    #[serde(default)]
    pub terms: Terms,
}

impl AllocationSpec {
    /// Priority class of an allocation that names none.
    pub const DEFAULT_CLASS: u8 = 5;

    /// Creates a request with the required fields and defaults for all others.
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
            class: Self::DEFAULT_CLASS,
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
    fn element_files_carry_array_and_index() {
        let of = |pattern, index| OutputFiles::of_element(pattern, AllocationId(7), index);
        assert_eq!(of("%A/%a.%j-%r.%n", Some(3)), "7/3.%j-%r.%n");
        assert_eq!(of("100%%A.%A.%", None), "100%%A.7.%");
        assert_eq!(of("%%%a", Some(0)), "%%0");
        let of_allocation = |pattern| OutputFiles::of_allocation(pattern, AllocationId(11));
        assert_eq!(of_allocation("%%j/%j.%r-%n"), "%%j/11.%r-%n");
        let node = NodeId::new("n1").unwrap();
        let file = OutputFiles::file_of(&of("%A/%a.%j", Some(3)), AllocationId(11), 0, &node);
        assert_eq!(file.unwrap(), "7/3.11");
    }

    #[test]
    fn default_of_a_site_names_elements_and_separates_ranks() {
        let of = OutputFiles::from_default;
        assert_eq!(of("lattice-%j.out", false, false), "lattice-%j.out");
        assert_eq!(of("lattice-%j.out", true, false), "lattice-%A_%a.out");
        assert_eq!(of("lattice-%j.out", false, true), "lattice-%j.out.%r");
        assert_eq!(of("%j/%r-100%%j", true, true), "%A_%a/%r-100%%j");
        assert_eq!(of("logs/%n.%j", false, true), "logs/%n.%j");
        for (pattern, error) in [
            ("lattice-%j.out", None),
            ("/scratch/%A/%j", None),
            ("lattice.out", Some(InvalidOutputFile::NoNumber)),
            ("lattice-%%j.out", Some(InvalidOutputFile::NoNumber)),
            ("%j.%a", Some(InvalidOutputFile::NoIndex)),
            ("%j/", Some(InvalidOutputFile::NotAFile)),
            ("%j\n", Some(InvalidOutputFile::NotAFile)),
            ("", Some(InvalidOutputFile::Empty)),
        ] {
            assert_eq!(
                OutputFiles::check_default(pattern).err(),
                error,
                "{pattern}"
            );
        }
    }

    #[test]
    fn only_an_array_has_an_index() {
        OutputFiles::check("%A.%a", true).unwrap();
        OutputFiles::check("%A.%j", false).unwrap();
        let refused = |pattern| OutputFiles::check(pattern, false).unwrap_err().to_string();
        assert!(refused("%a").contains("this is not an array"));
        assert!(refused("%x").contains("a (index)"));
    }
}
