//! `lattice node history`: changes and events of a node.

use super::node_args::single_node;
use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, Format, contrast, time},
};
use clap::Args;
use lattice_api::{
    history::{HistoryEntryView, KeyChangeView},
    text::{self, read_time, rounded_duration},
};
use lattice_client::HistoryQuery;
use lattice_quorum_types::UnixMillis;
use std::fmt;

/// Show the history of a node: changes with their time, and other events.
#[derive(Args)]
pub struct HistoryArgs {
    /// Node name.
    node: String,
    /// Start of the range: 2026-11-21, 2026-11-21T09:30:00Z, 09:30 (of today), yesterday, or an age: 2d. UTC without an
    /// offset.
    #[arg(long)]
    since: Option<String>,
    /// Show only changes of this class.
    #[arg(long)]
    class: Option<String>,
    /// Show only these kinds: change, boot, agent, driver, device, xid, health, cleared, drain, lifecycle, liveness,
    /// audit, bmc.
    #[arg(long, value_delimiter = ',')]
    kind: Vec<String>,
    /// Show events around the line with this number, or around this time, written as for --since.
    #[arg(long, value_name = "NUMBER|MOMENT")]
    around: Option<String>,
    /// Duration before and after the line or time of --around, with its unit: 90s, 10m, 2h.
    #[arg(long, default_value = "10m", requires = "around")]
    within: String,
    /// Maximum number of entries, newest first. A change of several keys has one line per key.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=5000))]
    limit: u32,
}

const COLUMNS: Columns<'_> = Columns {
    narrow: &["at", "number", "kind", "what"],
    wide: &[
        "source", "class", "key", "from", "to", "occasion", "boot_id",
    ],
};

const CONTEXT_COLUMNS: Columns<'_> = Columns {
    narrow: &["at", "distance", "number", "kind", "what"],
    wide: COLUMNS.wide,
};

/// Centre of the shown lines, parsed from `--around`.
enum ContextCentre {
    /// Line with this number.
    Line(u64),
    /// Time, RFC 3339.
    Moment(String),
}

impl ContextCentre {
    fn read(text: &str) -> Result<Self, Failure> {
        match text.trim().parse() {
            Ok(number) => Ok(Self::Line(number)),
            Err(_) => output::moment("--around", text).map(Self::Moment),
        }
    }
}

impl fmt::Display for ContextCentre {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "{number}"),
            Self::Moment(at) => f.write_str(at),
        }
    }
}

/// Time of the centre, milliseconds since the epoch, if it is known.
struct CentreTime(Option<u64>);

impl CentreTime {
    /// Finds the time of the centre. The line may be missing on the page, because of a filter or because too many lines
    /// are newer; it is then requested separately.
    async fn of(
        around: &ContextCentre,
        page: &[HistoryEntryView],
        (node, connection): (&str, &Connection),
    ) -> Result<Self, Failure> {
        let ContextCentre::Line(number) = around else {
            return Ok(Self(read_time(&around.to_string()).map(|at| at.0)));
        };
        let is_it = |item: &&HistoryEntryView| item.number == *number;
        if let Some(line) = page.iter().find(is_it) {
            return Ok(Self(read_time(&line.at).map(|at| at.0)));
        }
        let alone = HistoryQuery {
            around: Some(around.to_string()),
            within: Some("1ms".to_owned()),
            ..HistoryQuery::default()
        };
        let found = connection.client.history(node, &alone).await?;
        let line = found.items.iter().find(is_it);
        Ok(Self(
            line.and_then(|line| read_time(&line.at)).map(|at| at.0),
        ))
    }

    /// Formats the distance from the centre: `3 min before`, `here`.
    fn distance(&self, at: &str) -> String {
        let at = read_time(at).map(|at| at.0);
        let (Some(here), Some(at)) = (self.0, at) else {
            return String::new();
        };
        match at.cmp(&here) {
            std::cmp::Ordering::Equal => "here".to_owned(),
            std::cmp::Ordering::Less => format!("{} before", rounded_duration(here - at)),
            std::cmp::Ordering::Greater => format!("{} after", rounded_duration(at - here)),
        }
    }
}

/// Returns the table rows of one history line: one per changed key and one for the number of keys left out, or a single
/// row for a line without keys.
fn rows(item: &HistoryEntryView, format: Format, centre: Option<&CentreTime>) -> Vec<Vec<String>> {
    let row = |what: String, [key, from, to]: [&str; 3]| {
        let mut row = vec![time(&item.at)];
        row.extend(centre.map(|centre| centre.distance(&item.at)));
        row.extend([
            item.number.to_string(),
            item.kind.clone(),
            what,
            item.source.clone(),
            item.class.clone(),
            key.to_owned(),
            from.to_owned(),
            to.to_owned(),
            item.occasion.clone(),
            item.boot_id.clone(),
        ]);
        row
    };
    let one = |change: &KeyChangeView| {
        let (from, to) = contrast(format, &change.from, &change.to);
        let what = format!("{} {from} -> {to} ({})", change.key, item.occasion);
        row(what, [&change.key, &change.from, &change.to])
    };
    let mut rows: Vec<_> = item.changes.iter().map(one).collect();
    if rows.is_empty() {
        let from = item.from.as_deref().unwrap_or_default();
        return vec![row(item.what.clone(), ["", from, &item.to])];
    }
    if item.more > 0 {
        let more = output::counted(item.more, "more key");
        rows.push(row(format!("… and {more}"), ["", "", ""]));
    }
    rows
}

/// Describes the parsed query, for use after the node's name: ` of kind xid since …`.
fn query_text(
    query: &HistoryQuery,
    around: Option<&ContextCentre>,
    centre: Option<&CentreTime>,
) -> String {
    let mut words = String::new();
    if let Some(kind) = &query.kind {
        words.push_str(&format!(" of kind {}", kind.replace(',', " or ")));
    }
    if let Some(class) = &query.class {
        words.push_str(&format!(" of class {class}"));
    }
    if let Some(since) = &query.since {
        words.push_str(&format!(" since {}", time(since)));
    }
    let at = centre.and_then(|centre| Some(text::time(UnixMillis(centre.0?))));
    let at = at.as_deref().map(time).unwrap_or_default();
    let within = query.within.as_deref().unwrap_or_default();
    match around {
        Some(ContextCentre::Line(number)) => {
            words.push_str(&format!(" within {within} of line {number}, {at}"));
        }
        Some(ContextCentre::Moment(_)) => words.push_str(&format!(" within {within} of {at}")),
        None => {}
    }
    words
}

/// Shows changes and other events of a node, newest first.
pub async fn history(args: HistoryArgs, connection: &Connection) -> Result<(), Failure> {
    single_node(&args.node, |list| {
        format!("`lattice conformance changes '{list}'`")
    })?;
    let since = args.since.map(|text| output::moment("--since", &text));
    let around = args
        .around
        .as_deref()
        .map(ContextCentre::read)
        .transpose()?;
    let query = HistoryQuery {
        since: since.transpose()?,
        class: args.class,
        kind: (!args.kind.is_empty()).then(|| args.kind.join(",")),
        within: around.is_some().then_some(args.within),
        around: around.as_ref().map(ContextCentre::to_string),
        limit: Some(args.limit),
        cursor: None,
    };
    let page = connection.client.history(&args.node, &query).await?;
    let format = connection.format;
    let centre = match &around {
        Some(around) => Some(CentreTime::of(around, &page.items, (&args.node, connection)).await?),
        None => None,
    };
    let asked = query_text(&query, around.as_ref(), centre.as_ref());
    if !asked.is_empty() && !page.items.is_empty() {
        output::title(format, &format!("lines of {}{asked}", args.node))?;
    }
    // The distance is for reading; the entries have none.
    let centre = centre.filter(|_| format.is_for_reading());
    let items = page.items.iter();
    let rows = items.flat_map(|item| rows(item, format, centre.as_ref()));
    let columns = match centre {
        Some(_) => CONTEXT_COLUMNS,
        None => COLUMNS,
    };
    let dropped_first = &["kind", "number", "distance", "at"];
    output::print_fitted(
        format,
        &page.items,
        columns,
        Fitting::Texts(dropped_first),
        rows,
    )?;
    if page.items.is_empty() {
        match asked.is_empty() {
            true => output::message!("no history of {} is kept yet", args.node),
            false => output::message!("no line of {}{asked}", args.node),
        }
    }
    if page.next_cursor.is_some() {
        output::message!("more lines exist: raise --limit");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_moment_has_a_middle_however_it_is_written() {
        for text in ["2m", "yesterday", "00:00", "2026-11-21T09:30", "2026-11-21"] {
            let ContextCentre::Moment(at) = ContextCentre::read(text).unwrap() else {
                panic!("{text} is no line's number");
            };
            assert!(read_time(&at).is_some(), "{text}: {at}");
        }
        assert!(matches!(
            ContextCentre::read("16").unwrap(),
            ContextCentre::Line(16)
        ));
        let refused = ContextCentre::read("2099-01-01").err().unwrap();
        assert!(refused.text.starts_with("--around: "), "{refused}");
        assert_eq!(refused.code, 2);
    }

    #[test]
    fn echoes_request() {
        let query = HistoryQuery {
            kind: Some("xid,boot".to_owned()),
            since: Some("2026-11-22T02:00:00.000Z".to_owned()),
            within: Some("10m".to_owned()),
            ..HistoryQuery::default()
        };
        let around = ContextCentre::Moment("2026-11-22T02:12:00.000Z".to_owned());
        let centre = CentreTime(read_time("2026-11-22T02:12:00.000Z").map(|at| at.0));
        assert_eq!(
            query_text(&query, Some(&around), Some(&centre)),
            " of kind xid or boot since 2026-11-22T02:00:00Z within 10m of 2026-11-22T02:12:00Z"
        );
        assert_eq!(query_text(&HistoryQuery::default(), None, None), "");
    }
}
