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
/// What of such a thing is no update of it: "iLO time updated".
const CLOCK: &[&str] = &["time", "clock", "date"];
/// What else is set up.
const SETTINGS: &[&str] = &["configuration", "setting", "attribute"];
/// And what becomes of it.
const CHANGED: &[&str] = &[
    "chang", "modif", "appl", "reset", "restor", "import", "updat", "cleared",
];

/// The words of a text, in lower case; of `SystemRomUpdated` three, of `iLO` and `iDRAC` one.
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

fn begins(words: &[String], all: &[&str]) -> bool {
    let begins = |word: &String| all.iter().any(|one| word.starts_with(one));
    words.iter().any(begins)
}

/// Whether the word itself is among them, or as several of it.
fn is_among(word: &str, all: &[&str]) -> bool {
    all.contains(&word) || word.strip_suffix('s').is_some_and(|one| all.contains(&one))
}

fn names(words: &[String], all: &[&str]) -> bool {
    words.iter().any(|word| is_among(word, all))
}

/// Whether one of them is a thing that is updated, and not only its clock is.
fn names_thing(words: &[String]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let next = words.get(at + 1);
        is_among(word, THINGS) && !next.is_some_and(|next| is_among(next, CLOCK))
    })
}

/// Whether an entry that is no warning tells of an update or a change of configuration.
pub(super) fn is_update_of(text: &str) -> bool {
    let words = words(text);
    let is_versions = words.windows(2).any(|two| two == ["version", "change"]);
    (names_thing(&words) && (begins(&words, UPDATED) || is_versions))
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
