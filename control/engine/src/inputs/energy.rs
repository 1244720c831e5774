//! Energy price series: parsing, price in force, and normalization.
//!
//! A series is text with one price per line: `timestamp,price`. A timestamp is RFC 3339 with an offset, or seconds
//! since 1970; each is later than the one before. A price is any finite number, also a negative one, in the site's
//! unit. A line without a price means that the price is unknown from that time on. A price holds until the next line;
//! the last price holds as long as the one before it did. The first line may be the header `timestamp,price`, and lines
//! that begin with `#` are comments.
//!
//! A normalized price is its linear position between the lowest (0) and the highest (1) price of the whole series; 0.5
//! if all prices are equal. A series gives the best spread if it covers the period that a site compares, such as the
//! days around today.

use lattice_placement::Fraction;
use lattice_quorum_types::{UnixMillis, text};
use std::fmt;

use super::Price;

/// Largest series that is read, in bytes: ten years of quarter hours.
pub(crate) const MOST_BYTES: usize = 16 << 20;
/// Largest accepted absolute price, in any unit, so that no difference is infinite.
const MOST_PRICE: f64 = 1e15;
/// Maximum number of mistakes listed; the others are counted.
const MOST_FAULTS: usize = 5;
/// Maximum bytes of an invalid field shown in an error.
const SHOWN: usize = 40;

/// Energy prices over time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    /// Start time of each price, in order of time; `None` where the price is unknown.
    steps: Vec<(UnixMillis, Option<f64>)>,
    /// Time from which on the price is unknown.
    ends_at: UnixMillis,
    lowest: f64,
    highest: f64,
}

/// Mistakes in a series: the first ones, and the number of the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    first: Vec<Fault>,
    more: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    /// Line number, starting at 1; `None` concerns the whole series.
    line: Option<u64>,
    field: &'static str,
    reason: String,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.first.iter().enumerate() {
            if n > 0 {
                f.write_str("; ")?;
            }
            match fault.line {
                Some(line) => write!(f, "line {line}: {}: {}", fault.field, fault.reason)?,
                None => f.write_str(&fault.reason)?,
            }
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Faults {}

impl Faults {
    fn add(&mut self, line: Option<u64>, field: &'static str, reason: impl Into<String>) {
        if self.first.len() >= MOST_FAULTS {
            self.more += 1;
            return;
        }
        self.first.push(Fault {
            line,
            field,
            reason: reason.into(),
        });
    }
}

impl Series {
    /// Parses a series, or returns its mistakes by line and field.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let mut steps: Vec<(UnixMillis, Option<f64>)> = Vec::new();
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .comment(Some(b'#'))
            .trim(csv::Trim::All)
            .from_reader(bytes);
        for (n, row) in reader.records().enumerate() {
            let row = match row {
                Ok(row) => row,
                Err(error) => {
                    let line = error.position().map(csv::Position::line);
                    faults.add(line, "text", "is not valid UTF-8");
                    continue;
                }
            };
            if n == 0 && row.iter().eq(["timestamp", "price"]) {
                continue;
            }
            let line = row.position().map(csv::Position::line);
            match step(&row) {
                Ok((at, price)) => match steps.last() {
                    Some((before, _)) if *before >= at => {
                        let reason = "is not later than the previous timestamp; sort the lines and \
                                      remove duplicates";
                        faults.add(line, "timestamp", reason);
                    }
                    _ => steps.push((at, price)),
                },
                Err((field, reason)) => faults.add(line, field, reason),
            }
        }
        if !faults.first.is_empty() {
            return Err(faults);
        }
        Self::new(steps).map_err(|reason| {
            faults.add(None, "", reason);
            faults
        })
    }

    fn new(steps: Vec<(UnixMillis, Option<f64>)>) -> Result<Self, &'static str> {
        let prices = || steps.iter().filter_map(|(_, price)| *price);
        let (lowest, highest) = (prices().reduce(f64::min), prices().reduce(f64::max));
        let (Some(lowest), Some(highest)) = (lowest, highest) else {
            return Err("it has no price; write lines like 2026-11-23T14:00:00Z,87.5");
        };
        let ends_at = match steps.as_slice() {
            [.., (last, None)] => *last,
            [.., (before, _), (last, Some(_))] => last.after(last.since(*before)),
            _ => {
                return Err(
                    "a series with one line has no end; add a line with the end time and an empty \
                     price, such as 2026-11-24T00:00:00Z,",
                );
            }
        };
        Ok(Self {
            steps,
            ends_at,
            lowest,
            highest,
        })
    }

    /// Time from which on the price is unknown.
    pub(crate) const fn ends_at(&self) -> UnixMillis {
        self.ends_at
    }

    /// The price in force: the last one at or before `now`. `None` before the first line, after the end, and where a
    /// line has no price.
    pub(crate) fn at(&self, now: UnixMillis) -> Option<Price> {
        if now >= self.ends_at {
            return None;
        }
        let begun = self.steps.partition_point(|(from, _)| *from <= now);
        let price = self.steps[..begun].last()?.1?;
        let span = self.highest - self.lowest;
        let place = if span > 0.0 {
            (price - self.lowest) / span
        } else {
            0.5
        };
        // Between 0 and 1 except for rounding.
        let normalized = Fraction::new(place.clamp(0.0, 1.0)).ok()?;
        Some(Price { price, normalized })
    }
}

type FieldFault = (&'static str, String);

fn step(row: &csv::StringRecord) -> Result<(UnixMillis, Option<f64>), FieldFault> {
    let (time, price) = match (row.get(0), row.get(1), row.len()) {
        (Some(time), Some(price), 2) => (time, price),
        (_, None, _) => return Err(("price", "is missing; write timestamp,price".to_owned())),
        _ => {
            let reason = format!(
                "there are {} fields instead of timestamp,price; a number has a point, no comma",
                row.len()
            );
            return Err(("price", reason));
        }
    };
    let at = timestamp(time).map_err(|reason| ("timestamp", reason))?;
    if price.is_empty() {
        return Ok((at, None));
    }
    let wrong = |what: &str| ("price", format!("{} is not a {what}", shown(price)));
    let number: f64 = price.parse().map_err(|_| wrong("number"))?;
    if !number.is_finite() {
        return Err(wrong("finite number; leave it out where none is known"));
    }
    if number.abs() > MOST_PRICE {
        return Err(wrong("price: it is beyond 1e15"));
    }
    Ok((at, Some(number)))
}

fn timestamp(text: &str) -> Result<UnixMillis, String> {
    let is_seconds = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let stamp = match is_seconds {
        true => {
            let seconds = text.parse::<i64>().ok();
            seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        }
        false => text.parse::<jiff::Timestamp>().ok(),
    };
    let millis = stamp.and_then(|stamp| u64::try_from(stamp.as_millisecond()).ok());
    millis.map(UnixMillis).ok_or_else(|| {
        format!(
            "{} is not a valid time; write one with its offset, like 2026-11-23T14:00:00Z or \
             2026-11-23T15:00:00+01:00, or seconds since 1970",
            shown(text)
        )
    })
}

/// A field as shown in an error: in quotes, and shortened if it is long.
fn shown(text: &str) -> String {
    let prefix = text::truncated(text, SHOWN);
    match prefix.len() == text.len() {
        true => format!("{text:?}"),
        false => format!("{prefix:?}…"),
    }
}
