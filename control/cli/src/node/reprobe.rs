//! `lattice node reprobe`.

use super::node_args::{check_all_exist, expand, with_node_name};
use crate::{
    connect::Connection,
    failure::Failure,
    output::{Columns, ResultList, or_dash, short},
};
use clap::Args;
use futures::{StreamExt as _, stream};
use lattice_api::node::ReprobeResult;
use lattice_quorum_types::NodeId;

#[derive(Args)]
pub struct ReprobeArgs {
    /// Nodes: gpu007, gpu[001-004].
    #[arg(required = true, value_name = "NODES")]
    nodes: Vec<String>,
}

fn in_words(read: &ReprobeResult) -> String {
    let incomplete = read.classes.iter().filter(|(_, c)| c.state == "incomplete");
    let incomplete: Vec<_> = incomplete.map(|(class, _)| class.as_str()).collect();
    let mut text = match &read.fingerprint {
        Some(digest) => format!("{}: fingerprint {}", read.node, short(digest)),
        None => format!("{}: incomplete: {}", read.node, incomplete.join(", ")),
    };
    text.push_str(&match read.differs.is_empty() {
        true => "; unchanged".to_owned(),
        false => format!(
            "; differs from the published inventory: {} (published after a second reading)",
            read.differs.join(", ")
        ),
    });
    match &read.bmc {
        None => {}
        Some(bmc) => text.push_str(&match (&bmc.error, bmc.differs.is_empty()) {
            (Some(why), _) => format!("; BMC not read: {why}"),
            (None, true) => "; BMC unchanged".to_owned(),
            (None, false) => format!(
                "; BMC changed: {} (counts after a second reading)",
                bmc.differs.join(", ")
            ),
        }),
    }
    text
}

/// Nodes probed concurrently: each takes seconds, and its BMC up to a minute.
const MAX_CONCURRENT_PROBES: usize = 16;

/// Probes all nodes, several concurrently, and prints the results in order. The first failure determines the exit code.
pub async fn reprobe(args: &ReprobeArgs, connection: &Connection) -> Result<(), Failure> {
    let nodes = expand(&args.nodes)?;
    check_all_exist(&nodes, "nothing is probed", connection).await?;
    let mut all = ResultList::new(connection.format);
    let ask = |node: NodeId| async move {
        let read = connection.client.reprobe(node.as_str()).await;
        (node, read)
    };
    let mut answers = stream::iter(nodes).map(ask).buffered(MAX_CONCURRENT_PROBES);
    while let Some((node, read)) = answers.next().await {
        match read {
            Ok(read) => {
                let words = in_words(&read);
                all.add(read, &words);
            }
            Err(error) => all.refuse(node.as_str(), with_node_name(&node, error.into())),
        }
    }
    let columns = Columns::only(&["node", "fingerprint", "differs", "bmc_differs", "bmc_error"]);
    all.finish(columns, |read| {
        let bmc = read.bmc.as_ref();
        vec![
            read.node.clone(),
            or_dash(read.fingerprint.as_deref()),
            or_dash(Some(&read.differs.join(","))),
            or_dash(bmc.map(|bmc| bmc.differs.join(",")).as_deref()),
            or_dash(bmc.and_then(|bmc| bmc.error.as_deref())),
        ]
    })
}
