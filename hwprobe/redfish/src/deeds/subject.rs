//! What a text of a BMC is about. Redfish has no field for it: vendors say it in words.

/// What is updated.
const THINGS: &[&str] = &[
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
/// How.
const UPDATED: &[&str] = &[
    "updat", "upgrad", "downgrad", "flash", "install", "activat", "rollback", "rolled", "recover",
];
/// What else is set up.
const SETTINGS: &[&str] = &["configuration", "setting", "attribute"];
/// And what becomes of it.
const CHANGED: &[&str] = &[
    "chang", "modif", "appl", "reset", "restor", "import", "updat", "cleared",
];

/// The words of a text, in lower case; of `SystemRomUpdated` three.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in text.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_lower) {
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

fn begins(words: &[String], all: &[&str]) -> bool {
    let begins = |word: &String| all.iter().any(|one| word.starts_with(one));
    words.iter().any(begins)
}

/// Whether the word itself is among them, or as several of it.
fn names(words: &[String], all: &[&str]) -> bool {
    let is = |word: &String| all.contains(&word.trim_end_matches('s'));
    words.iter().any(is)
}

/// Whether an entry that is no warning tells of an update or a change of configuration.
pub(super) fn is_update_of(text: &str) -> bool {
    let words = words(text);
    let is_versions = words.windows(2).any(|two| two == ["version", "change"]);
    (names(&words, THINGS) && (begins(&words, UPDATED) || is_versions))
        || (names(&words, SETTINGS) && begins(&words, CHANGED))
}

/// Whether a message's id is of the registry for updates (DSP8011).
pub(super) fn is_update_code(code: &str) -> bool {
    code.starts_with("Update.")
}

/// Whether what it came of is the service for updates, or a firmware there.
pub(super) fn is_update_origin(path: &str) -> bool {
    path.split('/').any(|part| part == "UpdateService")
}

/// Whether a task is about firmware, BIOS or configuration, by one of its texts.
pub(super) fn is_of_setup(text: &str) -> bool {
    let words = words(text);
    names(
        &words,
        &["firmware", "bios", "uefi", "cpld", "fpga", "microcode"],
    ) || begins(
        &words,
        &["updat", "upgrad", "downgrad", "flash", "config", "install"],
    ) || names(&words, &["setting"])
}
