//! `lattice conformance changes`: changes on all nodes.

use super::selection::NodeClassArgs;
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, contrast, time},
};
use clap::Args;
use lattice_api::history::ChangesView;

#[derive(Args)]
pub struct ChangesArgs {
    #[command(flatten)]
    only: NodeClassArgs,
    /// Start of the range: 2026-11-21, 2026-11-21T09:30:00Z, 09:30 (of today), yesterday, or an age: 2d. A time without
    /// an offset is in UTC. The default is one day ago.
    #[arg(long)]
    since: Option<String>,
}

/// Shows the changes on all nodes: known differences first, then by number of nodes.
pub async fn changes(args: &ChangesArgs, connection: &Connection) -> Result<(), Failure> {
    let since = args.since.as_deref();
    let since = since.map(|text| output::moment("--since", text));
    let since = since.transpose()?;
    let only = args.only.read(connection).await?;
    let mut found = connection.client.changes(since.as_deref()).await?;
    only.retain_changes(&mut found);
    // The title covers only the range that was searched.
    let since = time(found.reaches_back_to.as_deref().unwrap_or(&found.since));
    if !found.changes.is_empty() {
        output::title(connection.format, &format!("since {since}"))?;
    }
    let rows = found.changes.iter().map(|change| {
        let (from, to) = contrast(connection.format, &change.change.from, &change.change.to);
        let causes = change.causes.iter();
        let causes: Vec<_> = causes
            .map(|(cause, count)| format!("{cause} {count}"))
            .collect();
        vec![
            change.verdict.clone(),
            change.count.to_string(),
            change.nodes.clone(),
            change.class.clone(),
            change.change.key.clone(),
            from,
            to,
            time(&change.last),
            time(&change.first),
            causes.join(", "),
        ]
    });
    let columns = Columns {
        narrow: &[
            "verdict", "count", "nodes", "class", "key", "from", "to", "last",
        ],
        wide: &["first", "causes"],
    };
    let dropped_first = &["last", "class", "verdict", "count"];
    output::print_fitted(
        connection.format,
        &found,
        columns,
        Fitting::Lines(dropped_first),
        rows,
    )?;
    if found.changes.is_empty() {
        output::message!("nothing changed since {since}");
    }
    for line in notes(&found) {
        output::message!("{line}");
    }
    Ok(())
}

/// Returns notes about data that the table does not show.
fn notes(found: &ChangesView) -> Vec<String> {
    let mut notes = Vec::new();
    if !found.new.is_empty() {
        notes.push(format!("read for the first time since then: {}", found.new));
    }
    if let Some(at) = &found.reaches_back_to {
        notes.push(format!(
            "changes between {} and {} are not listed, too many for one answer: `lattice node \
             history NODE --kind change` lists those of a node",
            time(&found.since),
            time(at)
        ));
    }
    match found.left_out {
        0 => {}
        1 => notes.push(
            "1 entry lists only some of its keys: `lattice node diff NODE --since` has all"
                .to_owned(),
        ),
        several => notes.push(format!(
            "{several} entries list only some of their keys: `lattice node diff NODE --since` has all"
        )),
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchecked_is_not_unchanged() {
        let mut found = ChangesView {
            since: "2026-11-15T00:00:00.000Z".to_owned(),
            changes: Vec::new(),
            new: String::new(),
            left_out: 0,
            reaches_back_to: None,
        };
        assert!(notes(&found).is_empty());
        found.reaches_back_to = Some("2026-11-21T09:30:00.000Z".to_owned());
        let lines = notes(&found);
        let part = "between 2026-11-15T00:00:00Z and 2026-11-21T09:30:00Z are not listed";
        assert!(lines.len() == 1 && lines[0].contains(part), "{lines:?}");
    }
}
