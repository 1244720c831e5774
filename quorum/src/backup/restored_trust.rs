//! Trust changes lost by a restore (revocations, and authorities added, promoted or retired after the backup), and the
//! operator's steps to repeat them. See `../../0009-backup.md`.

use jiff::Timestamp;
use lattice_mesh::TrustBundle;
use lattice_quorum_types::{
    UnixMillis,
    view::{Authority, TrustView},
};

/// Revocation made after the backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedSince {
    /// Revoked identity, such as `agent/gpu7`.
    pub name: String,
    /// Certificates issued before this moment were revoked; later ones are valid.
    pub issued_before: UnixMillis,
}

/// Trust changes made after a backup, which the cluster restored from that backup lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostTrustChanges {
    /// Identities revoked since the backup, or with a later revocation time than in the backup.
    pub revoked: Vec<RevokedSince>,
    /// Pins of authorities added since the backup, the issuing one first.
    pub added: Vec<String>,
    /// Pin of the authority that issues now, if it did not issue in the backup.
    pub promoted: Option<String>,
    /// Pins of authorities retired since the backup.
    pub retired: Vec<String>,
}

impl LostTrustChanges {
    /// Compares `known`, a trust bundle from before the restore, with the trust view of a backup. A bundle that is not
    /// later than the backup yields no changes: any additional entries in the bundle were removed or retired before the
    /// backup.
    pub fn of(backup: &TrustView, known: &TrustBundle) -> Self {
        if known.number <= backup.number.0 {
            return Self::default();
        }
        let is_revoked = |since: &&lattice_mesh::Revocation| {
            backup.revoked.iter().any(|then| {
                (then.role, &then.name) == (since.role, &since.name)
                    && then.issued_before >= since.issued_before
            })
        };
        let revoked = known.revoked.iter().filter(|since| !is_revoked(since));
        let of_backup = |pin: &str| backup.authorities.iter().find(|then| then.pin == pin);
        let pins = known.authorities.iter().map(|authority| {
            let pin = blake3::hash(&authority.certificate).to_hex().to_string();
            (pin, authority.issuing)
        });
        let mut pins: Vec<(String, bool)> = pins.collect();
        pins.sort_by_key(|(_, issuing)| !issuing);
        let promoted = pins.iter().find(|(pin, issuing)| {
            let issued_then = of_backup(pin).is_some_and(|then| then.issuing);
            *issuing && !issued_then
        });
        let is_trusted = |then: &Authority| pins.iter().any(|(pin, _)| *pin == then.pin);
        let retired = backup.authorities.iter().filter(|then| !is_trusted(then));
        Self {
            revoked: revoked
                .map(|since| RevokedSince {
                    name: format!("{}/{}", since.role, since.name),
                    issued_before: since.issued_before,
                })
                .collect(),
            retired: retired.map(|then| then.pin.clone()).collect(),
            promoted: promoted.map(|(pin, _)| pin.clone()),
            added: pins
                .iter()
                .filter(|(pin, _)| of_backup(pin).is_none())
                .map(|(pin, _)| pin.clone())
                .collect(),
        }
    }

    /// Lists the operator's steps in an order in which no step is refused and no process that is trusted now is cut
    /// off. The first trust change in the new cluster makes every process replace its earlier bundle, so the missing
    /// authorities are added first.
    fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        steps.extend(self.added.iter().map(|pin| {
            format!(
                "trust the authority that was added since:\n      lattice admin ca add FOLDER   \
                 (that of {pin}, with ca.pem)"
            )
        }));
        if !self.revoked.is_empty() {
            let revoked = self.revoked.iter().map(|since| {
                let RevokedSince {
                    name,
                    issued_before,
                } = since;
                let before = utc(*issued_before);
                format!(
                    "\n      {name}, issued before {before}: lattice admin certificate revoke {name} \
                     --reason 'as before the restore'"
                )
            });
            let revoked: String = revoked.collect();
            steps.push(format!(
                "check each name below: its certificates were revoked since, and those issued \
                 before the time shown are trusted again. The command revokes all certificates \
                 that were issued to the name so far, including valid ones issued after the \
                 revocation: a name that was enrolled again since must enrol once more. Run it \
                 where no process should hold a certificate of that name; `lattice admin certificate \
                 show FOLDER` on the machine shows when its own was issued:{revoked}"
            ));
        }
        steps.extend(self.promoted.iter().map(|pin| {
            format!(
                "promote the authority that issued last, once each member has its folder in \
                 enrolment.authority:\n      lattice admin ca promote {pin}"
            )
        }));
        steps.extend(self.retired.iter().map(|pin| {
            format!(
                "retire the authority that was retired since (at once, also while certificates of it \
                 are in use, with --force):\n      lattice admin ca retire {pin}"
            )
        }));
        steps
    }
}

/// Describes the operator's steps after a restore. `backup` and `at` are trust view and time of the backup. `known` is
/// the trust bundle of this machine, which shows the later changes.
pub fn restore_advice(backup: &TrustView, at: UnixMillis, known: Option<&TrustBundle>) -> String {
    let at = utc(at);
    let unknown = "revocations, and authorities that were added, promoted or retired";
    let Some(known) = known else {
        return format!(
            "then: the new cluster does not have {unknown} after {at}, and this machine has no \
             trust bundle that contains them. Repeat these changes before anything else: `lattice \
             admin ca add`, `lattice admin certificate revoke`, `lattice admin ca promote` and \
             `retire`, in this order"
        );
    };
    let number = known.number;
    let steps = LostTrustChanges::of(backup, known).steps();
    if steps.is_empty() {
        return format!(
            "then: this machine's trust bundle (number {number}) contains no change after {at}; \
             the new cluster does not have {unknown} later than that bundle"
        );
    }
    let steps = (1..).zip(steps).map(|(n, step)| format!("\n  {n}. {step}"));
    let steps: String = steps.collect();
    format!(
        "then, in this order and before anything else, repeat the changes after {at} that this \
         machine's trust bundle (number {number}) contains; the new cluster does not have these, \
         nor {unknown} later than that bundle:{steps}"
    )
}

/// Formats a time as RFC 3339 in UTC, to the second. A time beyond the calendar's end is formatted as its number.
pub fn utc(at: UnixMillis) -> String {
    let second = i64::try_from(at.0 / 1000).ok();
    let time = second.and_then(|second| Timestamp::from_second(second).ok());
    time.map_or_else(|| at.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use crate::backup::restored_trust::*;
    use bytes::Bytes;
    use lattice_mesh::TrustedAuthority;
    use lattice_quorum_types::{Revision, rpc::Role, view::Revoked};

    /// 2026-11-22T20:00:00Z.
    const AT: UnixMillis = UnixMillis(1_795_377_600_000);

    fn revoked(name: &str, after_s: u64) -> Revoked {
        Revoked {
            role: Role::Agent,
            name: name.to_owned(),
            issued_before: AT.after(after_s * 1000),
            forget_at: AT.after(9_000_000),
        }
    }

    fn pin(certificate: &str) -> String {
        blake3::hash(certificate.as_bytes()).to_hex().to_string()
    }

    /// Trust view of a backup, number 10. The first authority issues.
    fn then(authorities: &[&str], revoked: Vec<Revoked>) -> TrustView {
        let authorities = (0..).zip(authorities).map(|(n, certificate)| Authority {
            pin: pin(certificate),
            certificate: Bytes::copy_from_slice(certificate.as_bytes()),
            issuing: n == 0,
            since: UnixMillis(1),
        });
        TrustView {
            number: Revision(10),
            authorities: authorities.collect(),
            revoked,
        }
    }

    /// Trust bundle in which the last authority issues.
    fn bundle(number: u64, authorities: &[&str], revoked: Vec<Revoked>) -> TrustBundle {
        let trusted = (1..).zip(authorities).map(|(n, pem)| TrustedAuthority {
            certificate: Bytes::copy_from_slice(pem.as_bytes()),
            issuing: n == authorities.len(),
        });
        let revoked = revoked.into_iter().map(|revoked| lattice_mesh::Revocation {
            role: revoked.role,
            name: revoked.name,
            issued_before: revoked.issued_before,
            forget_at: revoked.forget_at,
        });
        TrustBundle {
            cluster: "site".to_owned(),
            number,
            authorities: trusted.collect(),
            revoked: revoked.collect(),
        }
    }

    /// Asserts that `text` contains all of `wanted`, in this order.
    fn in_order(text: &str, wanted: &[&str]) {
        let at = wanted.iter().map(|wanted| text.find(wanted));
        let at: Vec<usize> = at
            .map(|at| at.unwrap_or_else(|| panic!("{wanted:?} in {text}")))
            .collect();
        assert!(at.is_sorted(), "{at:?}: {text}");
    }

    #[test]
    fn a_revocation_of_since_is_named_with_its_time_and_what_a_new_one_does() {
        let backup = then(&["a"], vec![revoked("n1", 5), revoked("n2", 5)]);
        let since = vec![revoked("n1", 5), revoked("n2", 3605), revoked("n3", 7)];
        let text = restore_advice(&backup, AT, Some(&bundle(20, &["a"], since)));
        in_order(
            &text,
            &[
                "after 2026-11-22T20:00:00Z",
                "revokes all certificates that were issued to the name",
                "agent/n2, issued before 2026-11-22T21:00:05Z: lattice admin certificate revoke \
                 agent/n2",
                "agent/n3, issued before 2026-11-22T20:00:07Z",
            ],
        );
        assert!(!text.contains("agent/n1"), "{text}");
        assert!(!text.contains("admin ca"), "{text}");
        assert!(!text.contains(&AT.0.to_string()), "{text}");
    }

    /// The old authority issues in the backup: it cannot be retired before another one issues.
    #[test]
    fn authorities_are_added_promoted_and_retired_in_the_order_that_works() {
        let backup = then(&["old", "side"], Vec::new());
        let known = bundle(20, &["side", "other", "new"], vec![revoked("n1", 5)]);
        let text = restore_advice(&backup, AT, Some(&known));
        in_order(
            &text,
            &[
                &format!(
                    "1. trust the authority that was added since:\n      lattice admin ca add \
                     FOLDER   (that of {},",
                    pin("new")
                ),
                &format!("(that of {},", pin("other")),
                "lattice admin certificate revoke agent/n1",
                &format!("lattice admin ca promote {}", pin("new")),
                &format!(
                    "5. retire the authority that was retired since (at once, also while certificates \
                     of it are in use, with --force):\n      lattice admin ca retire {}",
                    pin("old")
                ),
            ],
        );
        assert!(!text.contains(&pin("side")), "{text}");
        // An authority that the backup contains now issues certificates.
        let again = LostTrustChanges::of(&backup, &bundle(20, &["old", "side"], Vec::new()));
        let expected = LostTrustChanges {
            promoted: Some(pin("side")),
            ..LostTrustChanges::default()
        };
        assert_eq!(again, expected);
    }

    /// The bundle's additional entries were removed or retired before the backup.
    #[test]
    fn bundle_before_backup_is_ignored() {
        let backup = then(&["a", "b"], Vec::new());
        let known = bundle(9, &["gone", "a"], vec![revoked("n1", 5)]);
        let text = restore_advice(&backup, AT, Some(&known));
        assert!(text.contains("contains no change"), "{text}");
        assert!(text.contains("later than that bundle"), "{text}");
        let of_same = LostTrustChanges::of(&backup, &bundle(10, &["b", "a"], Vec::new()));
        assert_eq!(of_same, LostTrustChanges::default());
        let text = restore_advice(&backup, AT, None);
        assert!(text.contains("has no trust bundle"), "{text}");
    }
}
