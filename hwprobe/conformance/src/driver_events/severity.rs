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
    /// The first severity in `message`, the text after the code of an error; `None` if the message names none. The name
    /// of a process in the message is skipped: its owner chooses it.
    #[must_use]
    pub fn of(message: &str) -> Option<Self> {
        let is_separator = |c: char| c.is_whitespace() || ",;:.()[]".contains(c);
        let words = without_process(message).split(is_separator);
        let mut before = String::new();
        for word in words.filter(|word| !word.is_empty()) {
            let word = word.to_ascii_lowercase();
            match word.as_str() {
                "nonfatal" | "non-fatal" | "non_fatal" => return Some(Self::Nonfatal),
                "fatal" if before == "non" || before == "not" => return Some(Self::Nonfatal),
                "fatal" => return Some(Self::Fatal),
                _ => before = word,
            }
        }
        None
    }
}

/// The message without the process that it names first: `pid=4711, name=python, …`. The name may contain any character,
/// so it ends at the last separator that its maximum length permits.
fn without_process(message: &str) -> &str {
    const SEPARATOR: &str = ", ";
    let Some(process) = message.strip_prefix("pid=") else {
        return message;
    };
    let Some((_, rest)) = process.split_once(SEPARATOR) else {
        return "";
    };
    let Some(name) = rest.strip_prefix("name=") else {
        return rest;
    };
    let ends = name.match_indices(SEPARATOR).map(|(at, _)| at);
    let end = ends.take_while(|at| *at <= MAX_PROCESS_NAME_BYTES).last();
    end.map_or("", |end| &name[end + SEPARATOR.len()..])
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
            (
                "pid='<unknown>', name=<unknown>, TLW_RX Nonfatal XC1",
                Some(Nonfatal),
            ),
            ("pid=4711, name=python, TLW_RX Fatal XC1", Some(Fatal)),
            ("pid=4711, Nonfatal", Some(Nonfatal)),
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
        ] {
            assert_eq!(MessageSeverity::of(message), None, "{message}");
        }
    }
}
