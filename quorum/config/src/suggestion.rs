//! Suggestions for misspelt keys ("did you mean").

/// Returns the known key nearest to `key`, if it is near enough. The limit of the edit distance, without case and
/// separators, is a third of the known key's length, but at least 1 and at most 3.
pub(crate) fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bare = normalized(key);
    known
        .map(|k| (strsim::levenshtein(&bare, &normalized(k)), k))
        .filter(|(d, k)| *d <= (k.len() / 3).clamp(1, 3))
        .min()
        .map(|(_, k)| k)
}

fn normalized(text: &str) -> String {
    text.chars()
        .filter(|c| *c != '_' && *c != '-')
        .flat_map(char::to_lowercase)
        .collect()
}
