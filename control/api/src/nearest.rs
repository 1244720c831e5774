//! "Did you mean": the name of a request's field, or of a setting, that a misspelt one resembles. Daemons'
//! files have the like in `lattice-config`, which a client needs nothing of.

/// The one nearest to `name`, if it is near: at most a third of its letters, and four, away.
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
