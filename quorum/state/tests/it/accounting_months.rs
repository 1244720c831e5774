//! Ended months of accounting: open ones, and those of which an administrator has accepted the differences.

use crate::common::{Cluster, dependencies::fault, envelope, principal};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Applied, Command, Envelope, Refusal,
    accounting_month::{AccountingMonth, MAX_MONTHS, MonthDifferences},
    audit::{AuditAction, AuditEntry},
    command::{Fence, Privilege},
    event::EventKind,
    id::LeaseName,
    view::{Answer, Query},
};
use std::collections::BTreeMap;

fn month(text: &str) -> AccountingMonth {
    text.parse().unwrap()
}

fn accept(text: &str, differences: u32) -> Command {
    Command::AcceptMonth {
        month: month(text),
        differences,
    }
}

fn note(c: &mut Cluster, text: &str, is_open: bool) -> Applied {
    let month = month(text);
    let command = Command::NoteOpenMonth { month, is_open };
    c.under("accounting", command).unwrap()
}

fn months(state: &State) -> BTreeMap<AccountingMonth, MonthDifferences> {
    match state.query(&Query::AccountingMonths) {
        Answer::AccountingMonths(months) => months,
        other => panic!("{other:?}"),
    }
}

fn audited(applied: Applied) -> Vec<AuditEntry> {
    let kinds = applied.events.into_iter().map(|event| event.kind);
    let entries = kinds.filter_map(|kind| match kind {
        EventKind::Audit { entry } => Some(entry),
        _ => None,
    });
    entries.collect()
}

/// An accepted month keeps the principal, the time and the number of differences, in a snapshot and a restored cluster
/// too. Each acceptance is audited.
#[test]
fn accepted_months_are_kept_and_audited() {
    let mut c = Cluster::default();
    let entries = audited(c.admin(accept("2026-11", 2)).unwrap());
    let action = AuditAction::MonthAccepted {
        month: month("2026-11"),
        differences: 2,
    };
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].by, principal("root", Privilege::Admin));
    assert_eq!(entries[0].action, action);
    let first = c.state.now();
    c.clock += 1_000;
    c.admin(accept("2026-09", 1)).unwrap();
    let accepted = |by: &str, at, differences| MonthDifferences::Accepted {
        by: by.to_owned(),
        at,
        differences,
    };
    let september = accepted("root", first.after(1_000), 1);
    let kept = [
        (month("2026-09"), september.clone()),
        (month("2026-11"), accepted("root", first, 2)),
    ];
    assert_eq!(months(&c.state), kept.into());

    c.clock += 1_000;
    let again = c.admin(accept("2026-11", 2)).unwrap();
    assert!(again.events.is_empty(), "nothing changed");
    let entries = audited(
        c.propose("ann", Privilege::Admin, accept("2026-11", 3))
            .unwrap(),
    );
    assert_eq!(entries[0].by.name, "ann");
    let kept = BTreeMap::from([
        (month("2026-09"), september),
        (month("2026-11"), accepted("ann", first.after(2_000), 3)),
    ]);
    assert_eq!(months(&c.state), kept);

    let mut restored = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(restored.digest(), c.state.digest());
    let action = Box::new(AuditAction::SteppedDown {
        member: 1,
        to: None,
    });
    let by = principal("restore", Privilege::Admin);
    let note = envelope(c.now(), by, Command::NoteQuorum { action });
    restored.begin_restored(&note).unwrap();
    assert_eq!(months(&restored), kept);
}

/// The service of accounting notes which months differ, without an audit entry and without a revision.
#[test]
fn open_month_lasts_until_settled_or_accepted() {
    let mut c = Cluster::default();
    let noted = note(&mut c, "2026-10", true);
    assert!(noted.events.is_empty());
    assert_eq!(noted.revision, c.state.revision());
    let since = c.state.now();
    let open = BTreeMap::from([(month("2026-10"), MonthDifferences::Open { since })]);
    assert_eq!(months(&c.state), open);
    c.clock += 1_000;
    note(&mut c, "2026-10", true);
    assert_eq!(months(&c.state), open, "the first time counts");
    let restored = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(months(&restored), open);
    note(&mut c, "2026-10", false);
    assert_eq!(months(&c.state), BTreeMap::new());

    note(&mut c, "2026-10", true);
    c.admin(accept("2026-10", 1)).unwrap();
    let accepted = months(&c.state);
    assert!(matches!(
        accepted[&month("2026-10")],
        MonthDifferences::Accepted { .. }
    ));
    for is_open in [true, false] {
        note(&mut c, "2026-10", is_open);
        assert_eq!(months(&c.state), accepted);
    }
}

fn code(refused: Result<Applied, Refusal>) -> &'static str {
    refused.unwrap_err().code()
}

#[test]
fn months_have_their_principals() {
    let mut c = Cluster::default();
    for power in [
        Privilege::User,
        Privilege::Operator,
        Privilege::Service,
        Privilege::Accounting,
    ] {
        let refused = c.propose("eve", power, accept("2026-11", 1));
        assert_eq!(code(refused), "forbidden", "{power:?}");
    }
    // The control that passes on the request has lost its lease.
    let lease = LeaseName::new("accounting").unwrap();
    let by = principal("root", Privilege::Admin);
    let stale = Envelope {
        fence: Some(Fence { lease, epoch: 7 }),
        ..envelope(c.now(), by, accept("2026-11", 1))
    };
    assert_eq!(code(c.apply(stale)), "stale_epoch");
    assert_eq!(fault(c.admin(accept("2026-11", 0))).0, "differences");
    let open = Command::NoteOpenMonth {
        month: month("2026-11"),
        is_open: true,
    };
    for power in [Privilege::Admin, Privilege::Service] {
        let unfenced = c.propose("eve", power, open.clone());
        assert_eq!(code(unfenced), "forbidden", "{power:?}");
    }
    assert_eq!(months(&c.state), BTreeMap::new());
}

/// The number of months is bounded: the earliest falls off, and one before it is not kept.
#[test]
fn number_of_months_is_bounded() {
    let mut c = Cluster::default();
    let named = |number: usize| format!("{}-{:02}", 2020 + number / 12, number % 12 + 1);
    for number in 1..=MAX_MONTHS {
        c.admin(accept(&named(number), 1)).unwrap();
    }
    let (field, reason) = fault(c.admin(accept(&named(0), 1)));
    assert_eq!(field, "month");
    assert!(reason.starts_with("2020-01 is before 2020-02"), "{reason}");
    note(&mut c, &named(0), true);
    c.admin(accept(&named(1), 9)).unwrap();
    c.admin(accept(&named(MAX_MONTHS + 1), 1)).unwrap();
    let kept: Vec<_> = months(&c.state).into_keys().collect();
    assert_eq!(kept.len(), MAX_MONTHS);
    assert_eq!(kept[0], month(&named(2)));
    assert_eq!(kept[MAX_MONTHS - 1], month(&named(MAX_MONTHS + 1)));
}
