//! `lattice conformance changes`.

use super::only::OnlyArgs;
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, contrast, time},
};
use clap::Args;

#[derive(Args)]
pub struct ChangesArgs {
    #[command(flatten)]
    only: OnlyArgs,
    /// From this moment on: 2026-11-21, 2026-11-21T09:30:00Z, 09:30 (of today), yesterday, or how
    /// long ago: 2d. UTC where no offset is written. A day when left out.
    #[arg(long)]
    since: Option<String>,
}

/// Shows what changed anywhere, what most nodes did first.
pub async fn changes(args: &ChangesArgs, connection: &Connection) -> Result<(), Failure> {
    let since = args.since.as_deref();
    let since = since.map(|text| output::moment("--since", text));
    let since = since.transpose()?;
    let only = args.only.read(connection).await?;
    let mut found = connection.client.changes(since.as_deref()).await?;
    only.changes(&mut found);
    if !found.changes.is_empty() {
        output::title(connection.format, &format!("since {}", time(&found.since)))?;
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
    output::print(connection.format, &found, columns, rows)?;
    if found.changes.is_empty() {
        eprintln!("nothing changed since {}", time(&found.since));
    }
    if !found.new.is_empty() {
        eprintln!("read for the first time since then: {}", found.new);
    }
    if found.left_out > 0 {
        eprintln!(
            "{} entries are not shown in full: ask `lattice node history` of a node, or from a \
             later moment on",
            found.left_out
        );
    }
    Ok(())
}
