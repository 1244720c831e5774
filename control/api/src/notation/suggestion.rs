//! "Did you mean": suggests the field of a request, or the setting, closest to a misspelt name. `lattice-config` has
//! the equivalent for the files of daemons; a client does not need that crate.

/// Returns the known name closest to `name` by edit distance, ignoring case and the difference between `-` and `_`. The
/// distance must be at most a third of the known name's length, and at most 4; distance 1 is always accepted.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bare = normal(name);
    let away = |known: &'a str| (strsim::levenshtein(&bare, &normal(known)), known);
    let near = known
        .map(away)
        .filter(|(away, known)| *away <= (known.len() / 3).clamp(1, 4));
    near.min().map(|(_, known)| known)
}

fn normal(name: &str) -> String {
    let lower = name.chars().flat_map(char::to_lowercase);
    lower.map(|c| if c == '-' { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_found_and_nothing_else() {
        let known = ["sharing.lending_limit", "sharing.borrowing_limit", "on"];
        for (name, expected) in [
            ("sharing.lend_limit", Some("sharing.lending_limit")),
            ("sharing.borowing-limit", Some("sharing.borrowing_limit")),
            ("of", Some("on")),
            ("quota", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known.into_iter()), expected, "{name}");
        }
    }
}
