//! Classification of message texts. Redfish has no field for the subject, so it is derived from the vendor's words.

/// Nouns: components that can be updated.
const COMPONENT_NOUNS: &[&str] = &[
    "firmware",
    "bios",
    "uefi",
    "cpld",
    "fpga",
    "microcode",
    "bmc",
    "idrac",
    "ilo",
    "image",
    "component",
    "rom",
    "driver",
];
/// Verbs for an update.
const UPDATE_VERBS: &[&str] = &[
    "updat", "upgrad", "downgrad", "flash", "install", "activat", "rollback", "rolled", "recover",
];
/// Words after a component that exclude an update of it: "iLO time updated".
const CLOCK: &[&str] = &["time", "clock", "date"];
/// Nouns for configuration.
const SETTINGS: &[&str] = &["configuration", "setting", "attribute"];
/// Verbs for a change of configuration.
const CHANGE_VERBS: &[&str] = &[
    "chang", "modif", "appl", "reset", "restor", "import", "updat", "cleared",
];

/// The words of a text, in lower case: three in `SystemRomUpdated`, one in `iLO` and `iDRAC`.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in text.chars() {
        let begins = c.is_uppercase() && was_lower && words.last().is_some_and(|word| word != "i");
        if !c.is_alphanumeric() || begins {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase().filter(|c| c.is_alphanumeric()));
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn any_starts_with(words: &[String], all: &[&str]) -> bool {
    let begins = |word: &String| all.iter().any(|one| word.starts_with(one));
    words.iter().any(begins)
}

/// Whether the list contains the word, in singular or plural form.
fn is_among(word: &str, all: &[&str]) -> bool {
    all.contains(&word) || word.strip_suffix('s').is_some_and(|one| all.contains(&one))
}

fn contains_any(words: &[String], all: &[&str]) -> bool {
    words.iter().any(|word| is_among(word, all))
}

/// Whether one of the words is a component, and not only the clock of one.
fn names_component(words: &[String]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let next = words.get(at + 1);
        is_among(word, COMPONENT_NOUNS) && !next.is_some_and(|next| is_among(next, CLOCK))
    })
}

/// Whether an entry below Warning reports an update or a change of configuration.
pub(super) fn is_update_text(text: &str) -> bool {
    let words = words(text);
    let is_versions = words.windows(2).any(|two| two == ["version", "change"]);
    (names_component(&words) && (any_starts_with(&words, UPDATE_VERBS) || is_versions))
        || (contains_any(&words, SETTINGS) && any_starts_with(&words, CHANGE_VERBS))
}

/// Whether a message id belongs to the update registry (DSP8011).
pub(super) fn is_update_code(code: &str) -> bool {
    code.starts_with("Update.")
}

/// Whether the origin is the update service, or firmware listed there.
pub(super) fn is_update_origin(path: &str) -> bool {
    path.split('/').any(|part| part == "UpdateService")
}

/// Whether a task concerns firmware, BIOS or configuration, by one of its texts.
pub(super) fn is_setup_text(text: &str) -> bool {
    let words = words(text);
    contains_any(
        &words,
        &["firmware", "bios", "uefi", "cpld", "fpga", "microcode"],
    ) || any_starts_with(
        &words,
        &["updat", "upgrad", "downgrad", "flash", "config", "install"],
    ) || contains_any(&words, &["setting"])
}
