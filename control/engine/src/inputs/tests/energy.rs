//! Price series as sites write them, and the price in force.

use crate::inputs::energy::Series;
use lattice_quorum_types::UnixMillis;

const HOUR: u64 = 3_600_000;
/// 2026-11-23T12:00:00Z.
const NOON: u64 = 1_795_435_200_000;

fn series(text: &str) -> Series {
    Series::parse(text.as_bytes()).unwrap()
}

fn faults(text: &str) -> String {
    Series::parse(text.as_bytes()).unwrap_err().to_string()
}

/// Price and normalized price at `hours` after noon.
fn at(series: &Series, hours: f64) -> Option<(f64, f64)> {
    let now = UnixMillis((NOON as f64 + hours * HOUR as f64) as u64);
    let price = series.at(now)?;
    Some((price.price, price.normalized.get()))
}

#[test]
fn the_last_price_at_or_before_now_is_in_force_and_the_last_one_ends() {
    let day = series(
        "timestamp,price\n# a comment\n2026-11-23T12:00:00Z,100\n2026-11-23T14:00:00+01:00, 50\n\
         2026-11-23T14:00:00Z,150\n",
    );
    assert_eq!(at(&day, -0.001), None);
    assert_eq!(at(&day, 0.0), Some((100.0, 0.5)));
    assert_eq!(at(&day, 0.999), Some((100.0, 0.5)));
    assert_eq!(at(&day, 1.0), Some((50.0, 0.0)));
    assert_eq!(at(&day, 2.0), Some((150.0, 1.0)));
    // The last price held for an hour, like the one before it, and is unknown from then on.
    assert_eq!(at(&day, 2.999), Some((150.0, 1.0)));
    assert_eq!(at(&day, 3.0), None);
    assert_eq!(day.ends_at(), UnixMillis(NOON + 3 * HOUR));
}

#[test]
fn prices_below_nothing_are_prices() {
    let windy = series("1795435200,-50\n1795438800,0\n1795442400,150\n");
    assert_eq!(at(&windy, 0.0), Some((-50.0, 0.0)));
    assert_eq!(at(&windy, 1.0), Some((0.0, 0.25)));
    assert_eq!(at(&windy, 2.0), Some((150.0, 1.0)));
    let all_below = series("1795435200,-50\n1795438800,-10\n");
    assert_eq!(at(&all_below, 0.0), Some((-50.0, 0.0)));
    assert_eq!(at(&all_below, 1.0), Some((-10.0, 1.0)));
}

#[test]
fn a_line_without_a_price_is_a_gap_or_the_end() {
    let gap = series("1795435200,1\n1795438800,\n1795442400,3\n1795449600,\n");
    assert_eq!(at(&gap, 0.5), Some((1.0, 0.0)));
    assert_eq!(at(&gap, 1.5), None);
    assert_eq!(at(&gap, 3.9), Some((3.0, 1.0)));
    assert_eq!(at(&gap, 4.0), None);
    // Equal prices: no hour is better than another.
    let flat = series("1795435200,80\n1795438800,\n");
    assert_eq!(at(&flat, 0.0), Some((80.0, 0.5)));
}

#[test]
fn a_spreadsheet_s_file_is_read() {
    let text = "\u{feff}timestamp,price\r\n\"2026-11-23T12:00:00Z\",\"100\"\r\n\
                2026-11-23T13:00:00Z,200\r\n\r\n";
    assert_eq!(at(&series(text), 1.0), Some((200.0, 1.0)));
}

#[test]
fn every_mistake_is_named_by_line_and_field() {
    let found_faults = faults(
        "timestamp,price\n2026-11-23T12:00:00Z,NaN\n2026-11-23T13:00:00,7\n\
         2026-11-23T14:00:00Z,12,5\n2026-11-23T15:00:00Z,cheap\n",
    );
    for part in [
        "line 2: price: \"NaN\" is not a finite number",
        "line 3: timestamp: \"2026-11-23T13:00:00\" is not a valid time; write one with its offset",
        "line 4: price: there are 3 fields",
        "line 5: price: \"cheap\" is not a number",
    ] {
        assert!(
            found_faults.contains(part),
            "{part:?} is missing in {found_faults}"
        );
    }
    let found_faults = faults("1795435200,1\n1795442400,2\n1795438800,3\n1795442400,4\n");
    assert_eq!(
        found_faults.matches("is not later than").count(),
        2,
        "{found_faults}"
    );
    assert!(found_faults.contains("line 3: timestamp"), "{found_faults}");
    for (text, part) in [
        ("", "it has no price"),
        ("timestamp,price\n", "it has no price"),
        ("1795435200,\n1795438800,\n", "it has no price"),
        ("1795435200,5\n", "a series with one line has no end"),
        ("1795435200\n1795438800,1\n", "line 1: price: is missing"),
        (
            "1795435200,inf\n1795438800,1\n",
            "line 1: price: \"inf\" is not a finite",
        ),
        ("1795435200,-1e300\n1795438800,1\n", "line 1: price"),
        ("-5,1\n1795438800,1\n", "line 1: timestamp"),
        (
            "99999999999999999999,1\n1795438800,1\n",
            "line 1: timestamp",
        ),
        (",1\n1795438800,1\n", "line 1: timestamp"),
        ("<html>\n<p>login</p>\n", "line 1: price: is missing"),
    ] {
        let found_faults = faults(text);
        assert!(found_faults.contains(part), "{text:?}: {found_faults}");
    }
    let found_faults = Series::parse(b"1795435200,1\n1795438800,\xff\n")
        .unwrap_err()
        .to_string();
    assert!(
        found_faults.contains("line 2: text: is not valid UTF-8"),
        "{found_faults}"
    );
    let many: String = (0..20).map(|n| format!("{n},x\n")).collect();
    assert!(
        faults(&many).ends_with("; and 15 more"),
        "{}",
        faults(&many)
    );
}

#[test]
fn reports_wrong_series_briefly() {
    let found_faults = faults(&"x\n".repeat(1 << 20));
    assert_eq!(
        found_faults.matches("price: is missing").count(),
        5,
        "{found_faults}"
    );
    assert!(
        found_faults.ends_with("; and 1048571 more"),
        "{found_faults}"
    );
    let long = "x".repeat(1 << 20);
    for line in [format!("{long},1\n"), format!("1795435200,{long}\n")] {
        let found_faults = faults(&line);
        assert!(found_faults.len() < 300, "{} bytes", found_faults.len());
        assert!(found_faults.contains("\"xxxx"), "{found_faults}");
    }
}
