//! Sanitization of agent reports: texts are bounded before control uses them or writes them into the state.

use lattice_quorum_types::{
    allocation::RankExit,
    checkpoint::CheckpointOutcome,
    command::RankReport,
    progress::RankCheckpoint,
    text::{MAX_FREE_TEXT_BYTES, with_length_note},
};

/// Longest boot id; those of Linux have 36 characters.
const MAX_BOOT_ID_CHARS: usize = 64;

/// An agent's text, cut with a note if it is longer than the state accepts.
pub(crate) fn shortened(text: String) -> String {
    with_length_note(text, MAX_FREE_TEXT_BYTES)
}

/// A report with texts of bounded length.
pub(crate) fn shortened_report(report: RankReport) -> RankReport {
    match report {
        RankReport::Started { at } => RankReport::Started { at },
        RankReport::Ended { at, exit, fault } => RankReport::Ended {
            at,
            exit: match exit {
                RankExit::SpawnFailed { reason } => RankExit::SpawnFailed {
                    reason: shortened(reason),
                },
                // `NeverStarted` becomes `Lost`: only the dispatcher may report that no process ever existed.
                RankExit::Lost { evidence } | RankExit::NeverStarted { evidence } => {
                    RankExit::Lost {
                        evidence: shortened(evidence),
                    }
                }
                RankExit::Exited { .. }
                | RankExit::Signaled { .. }
                | RankExit::Walltime
                | RankExit::Stopped => exit,
            },
            fault: fault.map(shortened),
        },
        RankReport::Checkpoint {
            of:
                RankCheckpoint {
                    number,
                    outcome: CheckpointOutcome::Failed { at, cause, reason },
                },
        } => {
            let reason = shortened(reason);
            let outcome = CheckpointOutcome::Failed { at, cause, reason };
            RankReport::Checkpoint {
                of: RankCheckpoint { number, outcome },
            }
        }
        RankReport::Checkpoint { of } => RankReport::Checkpoint { of },
    }
}

/// Whether a text is a valid boot id. Any other text is rejected, because boot ids are stored with every rank and
/// compared.
pub(crate) fn is_boot_id(text: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
    (1..=MAX_BOOT_ID_CHARS).contains(&text.len()) && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_quorum_types::UnixMillis;

    #[test]
    fn every_text_of_a_report_is_bounded() {
        let long = || "y".repeat(5_000_000);
        let ended = |exit| RankReport::Ended {
            at: UnixMillis(1),
            exit,
            fault: Some(long()),
        };
        let (reason, evidence) = (long(), long());
        for exit in [
            RankExit::SpawnFailed { reason },
            RankExit::Lost { evidence },
        ] {
            let report = shortened_report(ended(exit));
            assert!(lattice_quorum_types::size::encoded_bytes(&report) < 3 * MAX_FREE_TEXT_BYTES);
        }
        let other = RankReport::Ended {
            at: UnixMillis(1),
            exit: RankExit::Exited { code: 3 },
            fault: None,
        };
        assert_eq!(shortened_report(other.clone()), other);
    }

    #[test]
    fn an_agent_cannot_say_that_nothing_ever_ran() {
        let ended = |exit| RankReport::Ended {
            at: UnixMillis(1),
            exit,
            fault: None,
        };
        let evidence = || "believe me".to_owned();
        let report = ended(RankExit::NeverStarted {
            evidence: evidence(),
        });
        let taken = ended(RankExit::Lost {
            evidence: evidence(),
        });
        assert_eq!(shortened_report(report), taken);
    }

    #[test]
    fn a_boot_id_is_short_and_plain() {
        assert!(is_boot_id("5a0c1d1e-3d5f-4a27-9b1c-2f0f4c7d8e9a"));
        assert!(is_boot_id(&"a".repeat(64)));
        for other in ["", "boot 7", "A", "é", &"a".repeat(65)] {
            assert!(!is_boot_id(other), "{other}");
        }
    }
}
