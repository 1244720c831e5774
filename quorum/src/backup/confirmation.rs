//! Confirmation of a restore by the operator, after its consequences are listed.

use std::io::{self, BufRead, IsTerminal as _, Write};

/// Reasons why a restore is not confirmed.
#[derive(Debug, thiserror::Error)]
pub enum NotConfirmed {
    /// There is no terminal to answer on.
    #[error(
        "a restore needs confirmation, and standard input is not a terminal; read the list above, and repeat the \
         command with --yes"
    )]
    NoTerminal,
    /// The operator gave another answer than `yes`.
    #[error("not confirmed; nothing was changed")]
    Declined,
    /// Standard input or the output of the question failed.
    #[error("the confirmation could not be read")]
    Io(#[from] io::Error),
}

/// Asks on the terminal for the answer `yes`; the question is written to `output`.
///
/// # Errors
/// The operator declines, or cannot answer.
pub fn confirm(question: &str, output: impl Write) -> Result<(), NotConfirmed> {
    let stdin = io::stdin();
    match stdin.is_terminal() {
        true => ask(question, stdin.lock(), output),
        false => Err(NotConfirmed::NoTerminal),
    }
}

fn ask(
    question: &str,
    mut input: impl BufRead,
    mut output: impl Write,
) -> Result<(), NotConfirmed> {
    write!(output, "{question} Type yes: ")?;
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err(NotConfirmed::Declined),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_yes_confirms() {
        let mut asked = Vec::new();
        ask("Restore?", &b" yes\n"[..], &mut asked).unwrap();
        assert_eq!(asked, b"Restore? Type yes: ");
        for answer in ["", "\n", "y\n", "no\n", "yes please\n"] {
            let declined = ask("Restore?", answer.as_bytes(), Vec::new());
            assert!(
                matches!(declined, Err(NotConfirmed::Declined)),
                "{answer:?}"
            );
        }
    }
}
