//! Alibaba's list of nodes (cluster-trace-gpu-v2023, `openb_node_list_*.csv`) with their hardware. The topology is not
//! published, so all nodes are in one group.

use super::{Cluster, ClusterError, Host, VclusterSetup, conformance, healthy_facts};
use lattice_placement::NodeFacts;
use lattice_quorum_types::{NodeId, VclusterName, vcluster::DEFAULT_VCLUSTER};
use std::path::Path;

const COLUMNS: [&str; 5] = ["sn", "cpu_milli", "memory_mib", "gpu", "model"];
const MIB: u64 = 1 << 20;

pub(super) fn is_header(line: &str) -> bool {
    line.split(',').map(str::trim).eq(COLUMNS)
}

pub(super) fn read(text: &str, path: &Path) -> Result<Cluster, ClusterError> {
    let vcluster = VclusterName::new(DEFAULT_VCLUSTER)?;
    let mut cluster = Cluster::default();
    let mut faults = Vec::new();
    for (number, line) in (2..).zip(text.lines().skip(1)) {
        if line.trim().is_empty() {
            continue;
        }
        match host(line, &vcluster) {
            Ok((name, host)) => drop(cluster.nodes.insert(name, host)),
            Err(reason) => faults.push(format!("line {number}: {reason}")),
        }
    }
    if cluster.nodes.is_empty() && faults.is_empty() {
        faults.push("the file lists no nodes".to_owned());
    }
    if !faults.is_empty() {
        return Err(ClusterError::Faults {
            path: path.to_owned(),
            faults,
        });
    }
    cluster.vclusters.insert(vcluster, VclusterSetup::default());
    Ok(cluster)
}

fn host(line: &str, vcluster: &VclusterName) -> Result<(NodeId, Host), String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let [name, _, memory, gpus, model] = cells[..] else {
        return Err(format!(
            "the line has {} columns; 5 are required",
            cells.len()
        ));
    };
    let number = |column: &str, text: &str| {
        let wrong = |_| format!("{column}: {text:?} is not a whole number");
        text.parse::<u64>().map_err(wrong)
    };
    let name = NodeId::new(name).map_err(|error| error.to_string())?;
    let gpus = u32::try_from(number("gpu", gpus)?).map_err(|_| "gpu: too many".to_owned())?;
    let memory_mib = number("memory_mib", memory)?;
    let facts = NodeFacts {
        group: Some("all".to_owned()),
        conformance: conformance(&format!("{model} {gpus} {memory_mib}")),
        gpu_count: Some(gpus),
        gpu_model: Some(model)
            .filter(|model| !model.is_empty())
            .map(str::to_owned),
        memory_bytes: memory_mib.checked_mul(MIB),
        ..healthy_facts()
    };
    Ok((
        name,
        Host {
            vcluster: vcluster.clone(),
            facts,
        },
    ))
}
