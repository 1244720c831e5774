//! "Did you mean": the known key that a misspelt one resembles.

/// The known key nearest to `key`, if it is near: equal without case and separators, or at most
/// a third of its letters (2 at least) away.
pub(crate) fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bare = normal(key);
    known
        .map(|k| (distance(&bare, &normal(k)), k))
        .filter(|(d, k)| *d <= (k.len() / 3).clamp(1, 3))
        .min()
        .map(|(_, k)| k)
}

fn normal(text: &str) -> Vec<char> {
    text.chars()
        .filter(|c| *c != '_' && *c != '-')
        .flat_map(char::to_lowercase)
        .collect()
}

/// Levenshtein: insertions, deletions and replacements to get from `a` to `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
