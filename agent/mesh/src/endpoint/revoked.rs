//! Report of this process's own revocation: one log line per certificate, with the steps that admit the process again.
//!
//! A process that was offline when its certificate was revoked has no bundle that lists the revocation. Every peer
//! refuses its dials, and nothing else shows the cause.

use super::state::Core;
use crate::{Identity, Role};
use lattice_quorum_types::UnixMillis;
use parking_lot::Mutex;

/// Issue time of the revoked certificate that was logged.
#[derive(Debug, Default)]
pub(crate) struct RevocationReport(Mutex<Option<UnixMillis>>);

impl RevocationReport {
    /// Records that the certificate issued at `issued_at` is revoked. Returns whether that is new.
    fn record(&self, issued_at: UnixMillis) -> bool {
        self.0.lock().replace(issued_at) != Some(issued_at)
    }

    fn covers(&self, issued_at: UnixMillis) -> bool {
        *self.0.lock() == Some(issued_at)
    }
}

/// Returns the steps with which an operator lets a process with a revoked certificate enrol again.
fn enrolment_steps(identity: &Identity) -> String {
    let (role, id) = (identity.role(), identity.id());
    match role {
        Role::Agent => format!(
            "make a token with `lattice admin token create --role agent --nodes {id} --replace`, set join.token_file \
             and join.replace, remove the folder `identity` from the data directory, and restart the agent"
        ),
        Role::Control => format!(
            "make a token with `lattice admin token create --role control --nodes {id} --replace`, set join.token and \
             join.replace, empty the folder `credentials`, and restart the control"
        ),
        Role::Quorum => format!(
            "issue a certificate with `lattice admin ca issue --role quorum --id {id}` into the folder `credentials`, \
             and restart the member"
        ),
    }
}

impl Core {
    /// Logs, once per certificate, that this process's certificate is revoked. `source`: where that is known from.
    pub(crate) fn report_revoked(&self, source: &str) {
        let trust = self.trust();
        let own = &trust.credentials;
        if self.revocation_report.record(own.issued_at()) {
            let identity = own.identity();
            tracing::error!(
                %identity,
                source,
                "certificate of this process is revoked; to enrol it again, {}",
                enrolment_steps(identity)
            );
        }
    }

    /// Whether the revocation of the certificate in force was logged. Failures that follow from it need no further
    /// line.
    pub(crate) fn is_reported_revoked(&self) -> bool {
        let issued_at = self.trust().credentials.issued_at();
        self.revocation_report.covers(issued_at)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn each_certificate_is_reported_once() {
        let report = RevocationReport::default();
        let (first, second) = (UnixMillis(1000), UnixMillis(2000));
        assert!(!report.covers(first));
        assert!(report.record(first));
        assert!(!report.record(first), "every further attempt is silent");
        assert!(report.covers(first) && !report.covers(second));
        assert!(report.record(second), "a new certificate was revoked too");
    }

    #[test]
    fn steps_name_the_command_for_each_role() {
        let steps = |role| enrolment_steps(&Identity::new("c", role, "x7").unwrap());
        for (role, command) in [
            (
                Role::Agent,
                "token create --role agent --nodes x7 --replace",
            ),
            (
                Role::Control,
                "token create --role control --nodes x7 --replace",
            ),
            (Role::Quorum, "ca issue --role quorum --id x7"),
        ] {
            assert!(steps(role).contains(command), "{}", steps(role));
        }
    }
}
