//! Names of array elements in refusals and in the audit: array and index, whichever program requested the change.

use crate::common::{Cluster, dependencies::*, node, preemption::*};
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, VclusterName,
    audit::AuditAction,
    command::{Privilege, RankReport},
    progress::{ArrayElement, MoveReason},
    view::{Answer, Query},
};

/// Cluster with the array, and its element with index 50, which runs on n000.
fn running_element() -> (Cluster, AllocationId, AllocationId) {
    let mut c = cluster();
    let mut spec = of_class(1, 2);
    spec.terms.array = Some("50-51".parse().unwrap());
    let array = c.submit(spec).unwrap();
    let element = AllocationId(array.0 + 1);
    assign(&mut c, element, &[0]).unwrap();
    c.start_all(element);
    assert_eq!(c.state_of(element), AllocationState::Running);
    (c, array, element)
}

#[test]
fn scheduler_refusals_name_the_element() {
    let (mut c, array, element) = running_element();
    let high = c.submit(of_class(1, 6)).unwrap();
    let present = victim(&c, element, false);
    let (_, reason) = fault(preempt(&mut c, high, &[3], vec![present.clone()]));
    assert_eq!(
        reason,
        format!("allocation {array}_50 has none of the nodes")
    );
    let lend = Command::MakeRoom {
        victim: present,
        reason: MoveReason::Reclaimed {
            home: VclusterName::new("other").unwrap(),
        },
    };
    let (_, reason) = fault(c.service(lend));
    assert_eq!(
        reason,
        format!("allocation {array}_50 has no node lent by other")
    );
    let nodes = c.expected(&names(&[0]));
    let (_, reason) = fault(c.admin(Command::Grow { id: element, nodes }));
    assert_eq!(
        reason,
        format!("node n000 has, or had, a rank in this attempt of allocation {array}_50 already")
    );
    let nodes = names(&[4]);
    let (_, reason) = fault(c.admin(Command::Shrink { id: element, nodes }));
    assert_eq!(
        reason,
        format!("node n004 has no rank in allocation {array}_50")
    );
}

/// The audit keeps the place in the array with the number: once the array has ended, no record has it.
#[test]
fn audit_entries_have_the_place_in_the_array() {
    let (mut c, array, element) = running_element();
    let release = Command::ForceRelease {
        node: node("n000"),
        reason: "the rack burnt".to_owned(),
        expected: None,
    };
    c.propose("olga", Privilege::Operator, release).unwrap();
    let place = Some(ArrayElement { array, index: 50 });
    let (after, limit) = (0, 100);
    let Answer::Audit(entries) = c.state.query(&Query::Audit { after, limit }) else {
        panic!("audit")
    };
    let found: Vec<_> = entries
        .into_iter()
        .filter_map(|entry| match entry.action {
            AuditAction::ForceReleased {
                allocation: Some(allocation),
                element,
                ..
            }
            | AuditAction::AllocationActedOn {
                allocation,
                element,
                ..
            } => Some((allocation, element)),
            _ => None,
        })
        .collect();
    assert_eq!(found, [(element, place), (element, place)]);
}

/// An element that was never placed changes only the record of its array; the audit names the element.
#[test]
fn audit_names_an_element_without_an_allocation() {
    let mut c = cluster();
    let mut spec = of_class(1, 2);
    spec.terms.array = Some("50-52".parse().unwrap());
    let array = c.submit(spec).unwrap();
    let number = |index: u64| AllocationId(array.0 + index - 49);
    let cancel = |index| Command::Cancel { id: number(index) };
    c.propose("olga", Privilege::Operator, cancel(50)).unwrap();
    let nodes = c.expected(&names(&[0]));
    let id = number(51);
    let assign = Command::Assign { id, nodes };
    c.propose("olga", Privilege::Operator, assign).unwrap();
    c.propose("olga", Privilege::Operator, cancel(51)).unwrap();
    // The last element: its array ends with it.
    c.propose("olga", Privilege::Operator, cancel(52)).unwrap();
    c.propose("olga", Privilege::Operator, Command::Cancel { id: array })
        .unwrap();
    let (after, limit) = (0, 100);
    let Answer::Audit(entries) = c.state.query(&Query::Audit { after, limit }) else {
        panic!("audit")
    };
    let found: Vec<_> = entries
        .into_iter()
        .filter_map(|entry| match entry.action {
            AuditAction::AllocationActedOn {
                allocation,
                element,
                what,
                ..
            } => Some((what, allocation, element)),
            _ => None,
        })
        .collect();
    let of = |what: &str, index: u64| {
        let element = ArrayElement {
            array,
            index: index as u32,
        };
        (what.to_owned(), number(index), Some(element))
    };
    let expected = [
        of("cancel", 50),
        of("assign", 51),
        of("cancel", 51),
        of("cancel", 52),
    ];
    assert_eq!(found[..4], expected, "{found:?}");
}

#[test]
fn report_refusals_name_the_element() {
    let (mut c, array, element) = running_element();
    let report = RankReport::Started { at: c.now() };
    let (_, reason) = fault(c.report(element, &node("n003"), report));
    assert_eq!(
        reason,
        format!("node n003 has no rank in allocation {array}_50")
    );
    let unknown = Command::NoteUnknownAttempt {
        node: node("n000"),
        allocation: element,
        attempt: 1,
        origin: None,
    };
    let (_, reason) = fault(c.service(unknown));
    assert_eq!(
        reason,
        format!("allocation {array}_50 has a record; report the end of its attempt")
    );
}
