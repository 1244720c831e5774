//! Lists at several widths, with long values and characters of two columns.

use super::*;

/// Columns of the queue, with the order in which they are left out.
const QUEUE: [&str; 8] = [
    "ID",
    "NAME",
    "PROJECT",
    "STATE",
    "NODES",
    "NODELIST",
    "STATE_SINCE",
    "REASON",
];
const QUEUE_DROPPED: [usize; 5] = [6, 1, 4, 5, 2];

fn lines(rows: &[&[&str]]) -> Vec<Vec<String>> {
    let row = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
    rows.iter().map(row).collect()
}

fn queue() -> Vec<Vec<String>> {
    lines(&[
        &QUEUE,
        &[
            "3",
            "train",
            "atlas/operations/web",
            "running",
            "20",
            "gpu[001-012,101-107,109]",
            "2026-11-21T07:25:39Z",
            "-",
        ],
        &[
            "232_50",
            "hyper-parameter-search-of-a-large-model",
            "atlas/physics/simulation/lattice-qcd",
            "pending",
            "20",
            "-",
            "2026-11-21T07:25:39Z",
            "needs 20 of 24 nodes: 4 free; waiting for 16 more to be free; estimated start 2026-11-21 07:26 UTC",
        ],
        &[
            "4",
            "日本語の名前がとても長いジョブ",
            "atlas/operations/web",
            "running",
            "1",
            "gpu112",
            "2026-11-21T07:25:39Z",
            "-",
        ],
    ])
}

/// Returns the lines as printed, each at most `columns` wide.
fn fitted(mut table: Vec<Vec<String>>, dropped: &[usize], columns: usize) -> Vec<Vec<String>> {
    fit(&mut table, dropped, columns);
    let widths = column_widths(&table, text_width, text_width);
    let width = line_width(&widths, &vec![true; widths.len()]);
    assert!(width <= columns, "{width} > {columns}: {table:?}");
    assert!(table.iter().flatten().all(|cell| !cell.contains('\n')));
    table
}

#[test]
fn what_fits_is_complete() {
    let table = lines(&[&["NAME", "STATE"], &["gpu001", "ready"]]);
    assert_eq!(fitted(table.clone(), &[1], 13), table);
    assert_eq!(fitted(queue(), &QUEUE_DROPPED, 400), queue());
}

/// Every width has one line per row, with the identifying columns complete.
#[test]
fn queue_fits_80_100_and_120_columns() {
    for columns in [80, 100, 120] {
        let table = fitted(queue(), &QUEUE_DROPPED, columns);
        assert_eq!(table.len(), 4);
        let ids: Vec<&str> = table.iter().map(|line| line[0].as_str()).collect();
        assert_eq!(ids, ["ID", "3", "232_50", "4"]);
        let column = |name: &str| table[0].iter().position(|header| header == name);
        let state = column("STATE").map(|at| table[2][at].as_str());
        assert_eq!(state, Some("pending"), "{columns}");
        let reason = column("REASON").map(|at| table[2][at].as_str());
        assert!(
            reason.is_some_and(|reason| reason.starts_with("needs 20 of 24")),
            "{columns}: {reason:?}"
        );
    }
}

#[test]
fn columns_drop_in_their_order() {
    let headers = |columns| {
        let table = fitted(queue(), &QUEUE_DROPPED, columns);
        table[0].join(" ")
    };
    assert_eq!(headers(124), QUEUE.join(" "));
    assert_eq!(headers(120), "ID NAME PROJECT STATE NODES NODELIST REASON");
    assert_eq!(headers(100), "ID PROJECT STATE NODES NODELIST REASON");
    assert_eq!(headers(80), "ID PROJECT STATE NODELIST REASON");
    assert_eq!(headers(50), "ID STATE REASON");
}

#[test]
fn times_are_complete_or_left_out() {
    let table = lines(&[
        &["NODE", "SINCE"],
        &["gpu005", "2026-11-21T20:49:35Z or before"],
        &["gpu006", "2026-11-21T20:49:35Z"],
    ]);
    let narrow = fitted(table.clone(), &[1], 32);
    assert_eq!(narrow[1][1], "2026-11-21T20:49:35Z or…");
    assert_eq!(narrow[2][1], "2026-11-21T20:49:35Z");
    assert_eq!(fitted(table, &[1], 31)[0], ["NODE"]);
}

#[test]
fn middles_are_shortened() {
    for (text, columns, short) in [
        ("gpu[001-012,101-107,109-112]", 14, "gpu[001-0…112]"),
        ("atlas/operations/web", 11, "atlas/…/web"),
        ("atlas/operations/web", 20, "atlas/operations/web"),
        ("atlas/physics/simulation/web", 22, "atlas/…/simulation/web"),
        // The ends of the path do not fit.
        ("atlas/operations/websites", 12, "atlas/op…tes"),
        ("a/long-name-of-a-project", 12, "a/long-n…ect"),
        ("needs 20 of 24 nodes", 12, "needs 20 of…"),
        ("needs 20 of 24 nodes", 6, "needs…"),
        // A character of two columns is not cut in half.
        ("日本語の名前がとても長い", 10, "日本語…い"),
        ("abcdef", 3, "ab…"),
        ("abcdef", 1, "…"),
        ("abcdef", 0, ""),
        ("abc", 3, "abc"),
    ] {
        let got = shorten(text, columns);
        assert_eq!(got, short, "{text:?} in {columns}");
        assert!(text_width(&got) <= columns, "{got:?}");
    }
}

/// Expected and found values of drift must not look equal because they are cut where they differ.
#[test]
fn different_values_stay_different() {
    let (expected, found) = (
        "ConnectX-7-firmware-28.41.1000-signed-release",
        "ConnectX-7-firmware-28.39.2048-signed-release",
    );
    let table = lines(&[&["NODE", "EXPECTED", "FOUND"], &["gpu005", expected, found]]);
    let table = fitted(table, &[], 46);
    assert_ne!(table[1][1], table[1][2]);
    assert!(table[1][1].contains("28.41"), "{table:?}");
    assert!(table[1][2].contains("28.39"), "{table:?}");
}

/// Without columns to leave out, every value is cut, so that no terminal breaks the lines.
#[test]
fn narrowest_terminals_have_one_line_per_row() {
    let table = fitted(queue(), &QUEUE_DROPPED, 20);
    assert_eq!((table.len(), table[0].len()), (4, 3));
}
