//! Severity that a driver names in its message.
//!
//! From NVLink 5 on, one XID covers errors that the hardware corrected and errors that ended a link; the message names
//! the severity (`145, RLW_REMAP Nonfatal XC0 …`). So do the messages of NVSwitches (`12028, Non-fatal, Link 32 …`).

/// Maximum length of the name of a process, in bytes, without the final NUL (`TASK_COMM_LEN`).
const MAX_PROCESS_NAME_BYTES: usize = 15;

/// Severity of an error in the words of NVIDIA's drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageSeverity {
    /// The hardware or the driver has recovered from the error.
    Nonfatal,
    /// The error ended the use of the part.
    Fatal,
}

impl MessageSeverity {
    /// The first severity in `message`, the text after the code of an error; `None` if the message names none. Drivers
    /// differ in spelling and punctuation (`Nonfatal`, `severity=NON_FATAL`, `[Non-Fatal]`), so any character other than
    /// a letter or digit ends a word. The name of a process in the message is skipped: its owner chooses it.
    #[must_use]
    pub fn of(message: &str) -> Option<Self> {
        let (before, after) = around_process(message);
        Self::in_words(before).or_else(|| Self::in_words(after))
    }

    fn in_words(text: &str) -> Option<Self> {
        let words = text.split(|c: char| !c.is_alphanumeric());
        let mut before = String::new();
        for word in words.filter(|word| !word.is_empty()) {
            let word = word.to_ascii_lowercase();
            match word.as_str() {
                "nonfatal" => return Some(Self::Nonfatal),
                "fatal" if before == "non" || before == "not" => return Some(Self::Nonfatal),
                "fatal" => return Some(Self::Fatal),
                _ => before = word,
            }
        }
        None
    }
}

/// The parts of the message before and after the process that it names: `pid=4711, name=python, …`. The name may contain
/// any character, so it ends at the last separator that its maximum length permits.
fn around_process(message: &str) -> (&str, &str) {
    const SEPARATOR: &str = ", ";
    let is_joined = |at: usize| message[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let mut places = message.match_indices("pid=").map(|(at, _)| at);
    let Some(at) = places.find(|at| !is_joined(*at)) else {
        return (message, "");
    };
    let (before, process) = message.split_at(at);
    let Some((_, rest)) = process.split_once(SEPARATOR) else {
        return (before, "");
    };
    let Some(name) = rest.strip_prefix("name=") else {
        return (before, rest);
    };
    let ends = name.match_indices(SEPARATOR).map(|(at, _)| at);
    let end = ends.take_while(|at| *at <= MAX_PROCESS_NAME_BYTES).last();
    (before, end.map_or("", |end| &name[end + SEPARATOR.len()..]))
}

#[cfg(test)]
mod tests {
    use super::MessageSeverity::{Fatal, Nonfatal};
    use super::*;

    #[test]
    fn the_severity_is_a_word_of_the_message() {
        for (message, severity) in [
            (
                "RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000004)",
                Some(Nonfatal),
            ),
            (
                "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)",
                Some(Fatal),
            ),
            ("SAW_MVB, Non-fatal, Link 12", Some(Nonfatal)),
            ("Fatal, Link 30 LTSSM Fault Up (First)", Some(Fatal)),
            (
                "NVLink: fatal error detected on link 11(0x0, 0x0)",
                Some(Fatal),
            ),
            ("an error that is not fatal.", Some(Nonfatal)),
            ("Non fatal", Some(Nonfatal)),
            ("NONFATAL", Some(Nonfatal)),
            ("severity=Nonfatal", Some(Nonfatal)),
            ("severity=Fatal, Link 3", Some(Fatal)),
            ("Nonfatal/RLW_REMAP XC0", Some(Nonfatal)),
            ("Fatal/NETIR_LINK_EVT", Some(Fatal)),
            ("[Non-Fatal] Link 12", Some(Nonfatal)),
            ("NON_FATAL", Some(Nonfatal)),
            ("<non--fatal>", Some(Nonfatal)),
            ("NonFatal|Link 3", Some(Nonfatal)),
            ("an error\u{2014}fatal", Some(Fatal)),
            (
                "pid='<unknown>', name=<unknown>, TLW_RX Nonfatal XC1",
                Some(Nonfatal),
            ),
            ("pid=4711, name=python, TLW_RX Fatal XC1", Some(Fatal)),
            ("pid=4711, Nonfatal", Some(Nonfatal)),
            ("Fatal, pid=4711, name=Nonfatal, x", Some(Fatal)),
            ("RLW, stupid=1, Nonfatal", Some(Nonfatal)),
            ("GPU has fallen off the bus.", None),
            ("Severity 1 Engine instance 60 Sub-engine instance 00", None),
            ("GPU_FATALITY fatally prefatal", None),
            ("", None),
        ] {
            assert_eq!(MessageSeverity::of(message), severity, "{message}");
        }
    }

    #[test]
    fn the_name_of_a_process_is_no_severity() {
        for message in [
            "pid=4711, name=Nonfatal, GPU has fallen off the bus.",
            "pid=4711, name=a, Nonfatal, GPU has fallen off the bus.",
            "pid=4711, name=not fatal x, GPU has fallen off the bus.",
            "pid=4711, name=Fatal",
            "pid=4711",
            "pid=Fatal",
            "Ch 00000010, pid=4711, name=my_fatal_job, off the bus",
            "[pid=4711, name=[non-fatal], off the bus",
        ] {
            assert_eq!(MessageSeverity::of(message), None, "{message}");
        }
    }
}
