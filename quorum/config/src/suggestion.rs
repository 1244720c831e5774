//! Suggestions for misspelt keys and variables ("did you mean").

/// Key that a variable without `__` resembles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VariableHint {
    /// Path of the key.
    pub(crate) path: Vec<String>,
    /// Whether only the separators differ: a single underscore stands between two levels.
    pub(crate) is_same_name: bool,
}

/// Returns the key that the variable's name `word`, in lower case and without prefix, resembles. `known` are the paths
/// of all keys. A word that begins with the path of a section names a key in it, if no key is nearer.
pub(crate) fn variable(
    word: &str,
    known: impl Iterator<Item = Vec<String>>,
) -> Option<VariableHint> {
    let bare = normalized(word);
    let mut nearest: Option<(usize, Vec<String>)> = None;
    let mut section: Option<Vec<String>> = None;
    for path in known {
        let name = path.join("_");
        let distance = strsim::levenshtein(&bare, &normalized(&name));
        let is_near = distance <= limit(&name);
        let is_nearer = nearest
            .as_ref()
            .is_none_or(|(least, other)| (distance, &path) < (*least, other));
        let rest = word
            .strip_prefix(&name)
            .and_then(|rest| rest.strip_prefix('_'));
        let is_deeper = section
            .as_ref()
            .is_none_or(|other| other.len() <= path.len());
        if let Some(rest) = rest.filter(|rest| !rest.is_empty() && is_deeper) {
            let mut inner = path.clone();
            inner.push(rest.to_owned());
            section = Some(inner);
        }
        if is_near && is_nearer {
            nearest = Some((distance, path));
        }
    }
    let near = nearest.map(|(distance, path)| VariableHint {
        path,
        is_same_name: distance == 0,
    });
    near.or(section.map(|path| VariableHint {
        path,
        is_same_name: false,
    }))
}

/// Returns the known key nearest to `key`, if it is near enough. The limit of the edit distance, without case and
/// separators, is a third of the known key's length, but at least 1 and at most 3.
pub(crate) fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bare = normalized(key);
    known
        .map(|k| (strsim::levenshtein(&bare, &normalized(k)), k))
        .filter(|(d, k)| *d <= limit(k))
        .min()
        .map(|(_, k)| k)
}

/// Largest edit distance at which a word resembles `known`.
fn limit(known: &str) -> usize {
    (known.len() / 3).clamp(1, 3)
}

fn normalized(text: &str) -> String {
    text.chars()
        .filter(|c| *c != '_' && *c != '-')
        .flat_map(char::to_lowercase)
        .collect()
}
