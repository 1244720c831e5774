//! "Did you mean": the known key that a misspelt one resembles.

/// The known key nearest to `key`, if it is near: equal without case and separators, or at most
/// a third of its letters (2 at least) away.
pub(crate) fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bare = normal(key);
    known
        .map(|k| (strsim::levenshtein(&bare, &normal(k)), k))
        .filter(|(d, k)| *d <= (k.len() / 3).clamp(1, 3))
        .min()
        .map(|(_, k)| k)
}

fn normal(text: &str) -> String {
    text.chars()
        .filter(|c| *c != '_' && *c != '-')
        .flat_map(char::to_lowercase)
        .collect()
}
