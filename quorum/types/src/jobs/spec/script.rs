//! Scripts that nodes can run: the rule of the API and of the command line.

/// Reasons why a text is not a script that nodes can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScript {
    /// The text has no commands.
    #[error("it is empty; write the commands to run after a first line such as #!/bin/bash")]
    Empty,
    /// A line ends with a carriage return.
    #[error(
        "it has DOS line endings, and the interpreter would read the carriage return as part of the line; remove the \
         carriage returns: sed -i 's/\\r$//' FILE"
    )]
    DosLineEnding {
        /// First such line, from 1.
        line: usize,
    },
    /// The text begins with a byte-order mark.
    #[error(
        "it begins with a byte-order mark, so its first line has no effect; save it as UTF-8 without the mark"
    )]
    ByteOrderMark,
    /// The first line names no interpreter.
    #[error(
        "it does not begin with #! and the path of an interpreter; put one on the first line, as #!/bin/bash"
    )]
    NoInterpreter,
}

impl InvalidScript {
    /// Line of the fault, from 1; `None` for an empty text.
    pub fn line(self) -> Option<usize> {
        match self {
            Self::Empty => None,
            Self::DosLineEnding { line } => Some(line),
            Self::ByteOrderMark | Self::NoInterpreter => Some(1),
        }
    }
}

/// Checks that a text is a script that nodes can run: not empty, without DOS line endings, and with the interpreter in
/// its first line. Everything else in a script depends on these.
///
/// # Errors
/// The first fault.
pub fn check_script(text: &str) -> Result<(), InvalidScript> {
    if text.trim().is_empty() {
        return Err(InvalidScript::Empty);
    }
    if let Some(before) = text.split('\n').position(|line| line.ends_with('\r')) {
        return Err(InvalidScript::DosLineEnding { line: before + 1 });
    }
    if text.starts_with('\u{feff}') {
        return Err(InvalidScript::ByteOrderMark);
    }
    let first = text.lines().next().unwrap_or_default();
    let interpreter = first.strip_prefix("#!").map(str::trim);
    match interpreter.is_some_and(|interpreter| !interpreter.is_empty()) {
        true => Ok(()),
        false => Err(InvalidScript::NoInterpreter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_needs_commands_and_an_interpreter() {
        use InvalidScript::{ByteOrderMark, DosLineEnding, Empty, NoInterpreter};
        for (text, expected) in [
            ("#!/bin/sh\ntrue\n", Ok(())),
            ("#! /usr/bin/env python3\nprint(1)", Ok(())),
            ("", Err(Empty)),
            (" \r\n\t", Err(Empty)),
            ("hostname", Err(NoInterpreter)),
            ("#!\ntrue\n", Err(NoInterpreter)),
            (" #!/bin/sh\n", Err(NoInterpreter)),
            ("\n#!/bin/sh\n", Err(NoInterpreter)),
            ("#!/bin/sh\r\ntrue\r\n", Err(DosLineEnding { line: 1 })),
            ("#!/bin/sh\ntrue\r\n", Err(DosLineEnding { line: 2 })),
            ("\u{feff}#!/bin/sh\n", Err(ByteOrderMark)),
        ] {
            assert_eq!(check_script(text), expected, "{text:?}");
        }
    }
}
