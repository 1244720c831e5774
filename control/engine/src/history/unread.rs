//! Lines that an older control stored unread, because their agent was newer.

use super::{
    entry::{HistoryEntry, Source},
    event::PositionedEvent,
    line_kind::LineKind,
    tables::{ENTRIES, EVENTS, Failure, MARKS, ORDER, TIMES, UNREAD, encode, read_event},
};
use redb::{ReadableTable as _, WriteTransaction};

/// Parses lines that an older control stored unread and that this control can read.
pub(super) fn parse_unread_lines(txn: &WriteTransaction) -> Result<(), Failure> {
    let mut marks = txn.open_table(MARKS)?;
    // Without the mark every line of every node would be read at each start.
    if marks.get(UNREAD)?.is_some_and(|any| any.value() == 0) {
        return Ok(());
    }
    let mut order = txn.open_table(ORDER)?;
    let mut entries = txn.open_table(ENTRIES)?;
    let mut events = txn.open_table(EVENTS)?;
    let mut is_any_left = false;
    let mut unread = Vec::new();
    for row in order.iter()? {
        let (key, kind) = row?;
        if kind.value() == LineKind::Unread as u8 {
            let (node, when, number) = key.value();
            unread.push((node.to_owned(), when, number));
        }
    }
    let mut times = txn.open_table(TIMES)?;
    for (node, when, number) in unread {
        let node = node.as_str();
        let Some(json) = events
            .get((node, number))?
            .map(|json| json.value().to_vec())
        else {
            continue;
        };
        let happened: PositionedEvent = read_event(node, number, &json)?;
        let kind = match happened.what.entry() {
            Some(entry) => {
                let history_entry = HistoryEntry {
                    number,
                    when,
                    source: Source::Agent,
                    entry,
                    left_out: 0,
                };
                let json = serde_json::to_vec(&history_entry).map_err(encode)?;
                entries.insert((node, number), json.as_slice())?;
                times.insert((when, node, number), ())?;
                events.remove((node, number))?;
                LineKind::Change
            }
            None => LineKind::of_event(&happened.what),
        };
        is_any_left |= kind == LineKind::Unread;
        if kind == LineKind::Event {
            let json = serde_json::to_vec(&happened).map_err(encode)?;
            events.insert((node, number), json.as_slice())?;
        }
        order.insert((node, when, number), kind as u8)?;
    }
    marks.insert(UNREAD, u64::from(is_any_left))?;
    Ok(())
}
