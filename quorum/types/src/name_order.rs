//! Numerical order of names: `n8`, `n9`, `n10`. Nodes with adjacent numbers are adjacent in the rack and on the switch,
//! so ranks, hostlists and tables follow the numbers in names, not the text.
//!
//! A name is compared part by part, where a part is a number or a single character that is not a digit. Numbers are
//! compared by value; of two numbers with the same value (`01`, `1`) the smaller text comes first. The order is total,
//! and two names are equal only if their texts are equal.

use std::cmp::Ordering;

/// Compares two names in numerical order.
pub fn compare_names(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let Some(at) = a.iter().zip(b).position(|(x, y)| x != y) else {
        // One name is the beginning of the other.
        return a.len().cmp(&b.len());
    };
    // Most names have numbers of one width, so the first different bytes decide. Maps of nodes compare names all the
    // time.
    let is_decided = match (a[at].is_ascii_digit(), b[at].is_ascii_digit()) {
        (false, false) => true,
        (true, true) => leading_digits(&a[at..]).len() == leading_digits(&b[at..]).len(),
        _ => at == 0 || !a[at - 1].is_ascii_digit(),
    };
    match is_decided {
        true => a[at].cmp(&b[at]),
        false => compare_by_numbers(a, b, at),
    }
}

/// Compares two names that are equal up to `common`, by the numbers there.
fn compare_by_numbers(a: &[u8], b: &[u8], common: usize) -> Ordering {
    // The first different number may begin with digits that both names share.
    let start = a[..common]
        .iter()
        .rposition(|byte| !byte.is_ascii_digit())
        .map_or(0, |last| last + 1);
    let (x, y) = (leading_digits(&a[start..]), leading_digits(&b[start..]));
    let numbers = match x.is_empty() || y.is_empty() {
        true => Ordering::Equal,
        false => compare_numbers(x, y),
    };
    numbers.then_with(|| a[common..].cmp(&b[common..]))
}

fn leading_digits(text: &[u8]) -> &[u8] {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    &text[..count]
}

/// Compares numbers of any length by value, then as text.
fn compare_numbers(x: &[u8], y: &[u8]) -> Ordering {
    let zeros = |digits: &[u8]| digits.iter().take_while(|digit| **digit == b'0').count();
    let (value_x, value_y) = (&x[zeros(x)..], &y[zeros(y)..]);
    (value_x.len().cmp(&value_y.len()))
        .then_with(|| value_x.cmp(value_y))
        .then_with(|| x.cmp(y))
}

/// Name with the order of [`compare_names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OrderedName<'a>(pub &'a str);

impl Ord for OrderedName<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_names(self.0, other.0)
    }
}

impl PartialOrd for OrderedName<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_in_names_compare_by_value() {
        for ordered in [
            &["n8", "n9", "n10", "n11", "n99", "n100"][..],
            &["rack2n10", "rack10n1", "rack10n2"],
            &["a1-ib", "a2-ib", "a10-ib"],
            &["gpu", "gpu001", "gpu002", "gpu100", "gpu1000"],
            &["9", "10", "10a", "a", "a-1", "a.1", "a1", "a_1", "b"],
            // The same value with another number of zeros is another name.
            &["n001", "n01", "n1", "n02", "n2"],
            &["n18446744073709551615", "n18446744073709551616"],
        ] {
            for (i, one) in ordered.iter().enumerate() {
                for (k, other) in ordered.iter().enumerate() {
                    assert_eq!(compare_names(one, other), i.cmp(&k), "{one} {other}");
                }
            }
        }
    }

    proptest! {
        /// Sets and maps of names require a total order in which only equal texts are equal.
        #[test]
        fn order_is_total(
            a in "[a1.-]{0,2}[0-9]{0,4}[a-]?[0-2]{0,3}",
            b in "[a1.-]{0,2}[0-9]{0,4}[a-]?[0-2]{0,3}",
            c in "[a1.-]{0,2}[0-9]{0,4}[a-]?[0-2]{0,3}",
        ) {
            prop_assert_eq!(compare_names(&a, &b), compare_names(&b, &a).reverse());
            prop_assert_eq!(compare_names(&a, &b).is_eq(), a == b);
            let common = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
            let by_numbers = compare_by_numbers(a.as_bytes(), b.as_bytes(), common);
            prop_assert_eq!(compare_names(&a, &b), by_numbers);
            let mut all = [OrderedName(&a), OrderedName(&b), OrderedName(&c)];
            all.sort_unstable();
            prop_assert!(all[0] <= all[1] && all[1] <= all[2] && all[0] <= all[2]);
        }
    }
}
