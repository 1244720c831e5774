//! Changes and events in a node's history.

use super::fixture::ApiFixture;
use lattice_client::HistoryQuery;
use lattice_conformance::{
    Class, ClassMark, Reading,
    health::{Action, Severity},
    history::{Cause, Entry, Event, EventKind, HistoryRecord, KeyChange},
};
use lattice_engine::history::{Cursor, NodeObservation, TimedObservations};
use lattice_redfish::{BmcEvent, BmcEventKind, BmcEventSeverity, ResourcePath};
use std::collections::BTreeSet;

pub(super) const NODE: &str = "gpu001";
const MINUTE: u64 = 60_000;

fn event(seq: u64, at: u64, count: u32, what: EventKind) -> HistoryRecord {
    HistoryRecord::Event(Event {
        seq,
        at,
        boot_id: "b2".to_owned(),
        count,
        first_at: (count > 1).then_some(at - MINUTE),
        left_out: 0,
        event: what,
    })
}

/// Stores a boot, a firmware change found after it, and an XID an hour later.
pub(super) async fn append_entries(fixture: &ApiFixture) -> u64 {
    let now = fixture.core.now().0;
    let at = now - 120 * MINUTE;
    let text = |value: &str| Reading::Present(value.into());
    let boot = EventKind::Boot {
        before: Some("b1".to_owned()),
        booted_at: None,
    };
    let changed = Entry {
        seq: 2,
        at: at + 3 * MINUTE,
        boot_id: "b2".to_owned(),
        cause: Cause::Boot,
        class: Class::Nic,
        revision: 2,
        from: Some(ClassMark::Incomplete),
        to: ClassMark::Disabled,
        changes: vec![KeyChange {
            key: "nic.5.firmware".to_owned(),
            from: text("28.41.1000"),
            to: text("28.43.2026"),
        }],
        more: 0,
    };
    let xid = EventKind::GpuEvent {
        gpu: "gpu.3".to_owned(),
        address: "0000:41:00.0".to_owned(),
        code: "gpu.xid.79".to_owned(),
        source: "both".to_owned(),
        detail: "GPU has fallen off the bus".to_owned(),
        severity: Severity::Faulty,
        action: Action::Reboot,
    };
    let records = vec![
        event(1, at, 1, boot),
        HistoryRecord::Entry(changed),
        event(3, at + 63 * MINUTE, 3, xid),
    ];
    let cursor = Cursor {
        journal: 1,
        read: 3,
    };
    let append = fixture
        .stores
        .history
        .append(NODE.to_owned(), cursor, records, now);
    append.await.unwrap()
}

fn query(edit: impl FnOnce(&mut HistoryQuery)) -> HistoryQuery {
    let mut query = HistoryQuery::default();
    edit(&mut query);
    query
}

#[tokio::test]
async fn changes_and_events_are_one_list_and_what_surrounds_a_change_is_shown() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    assert_eq!(append_entries(&fixture).await, 3);
    let all = eye.history(NODE, &HistoryQuery::default()).await.unwrap();
    let kinds: Vec<&str> = all.items.iter().map(|item| item.kind.as_str()).collect();
    assert_eq!(kinds, ["xid", "change", "boot"]);
    let words: Vec<&str> = all.items.iter().map(|item| item.what.as_str()).collect();
    assert_eq!(
        words,
        [
            "XID 79 gpu.3 (GPU has fallen off the bus) x3 in 60 s",
            "nic.5.firmware 28.41.1000 -> 28.43.2026 (boot)",
            "boot",
        ]
    );
    let xid = all.items[0].event.as_ref().unwrap();
    assert_eq!((xid.xid, xid.count), (Some(79), Some(3)));
    assert_eq!(xid.severity.as_deref(), Some("faulty"));
    assert_eq!(xid.action.as_deref(), Some("reboot"));
    assert!(all.items[1].event.is_none() && all.items[1].changes.len() == 1);

    let around = |number: u64, within: Option<&str>| {
        query(|q| {
            q.around = Some(number.to_string());
            q.within = within.map(str::to_owned);
        })
    };
    let change = all.items[1].number;
    let near = eye.history(NODE, &around(change, None)).await.unwrap();
    let kinds: Vec<&str> = near.items.iter().map(|item| item.kind.as_str()).collect();
    assert_eq!(kinds, ["change", "boot"], "the XID came an hour later");
    let far = eye
        .history(NODE, &around(change, Some("2h")))
        .await
        .unwrap();
    assert_eq!(far.items.len(), 3);
    let close = eye
        .history(NODE, &around(change, Some("1m")))
        .await
        .unwrap();
    assert_eq!(close.items.len(), 1);
    let moment = query(|q| q.around = Some(all.items[2].at.clone()));
    let near = eye.history(NODE, &moment).await.unwrap();
    assert_eq!(near.items.len(), 2);
}

#[tokio::test]
async fn kinds_and_classes_are_chosen_pages_go_on_and_nonsense_is_refused() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    append_entries(&fixture).await;
    let list = async |edit: &dyn Fn(&mut HistoryQuery)| {
        let page = eye.history(NODE, &query(edit)).await.unwrap();
        page.items
            .into_iter()
            .map(|item| item.kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        list(&|q| q.kind = Some("xid,boot".to_owned())).await,
        ["xid", "boot"]
    );
    assert_eq!(
        list(&|q| q.class = Some("nic".to_owned())).await,
        ["change"]
    );
    assert_eq!(list(&|q| q.since = Some("90m".to_owned())).await, ["xid"]);
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let one = query(|q| {
            q.limit = Some(1);
            q.cursor = cursor.take();
        });
        let page = eye.history(NODE, &one).await.unwrap();
        seen.extend(page.items.into_iter().map(|item| item.kind));
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, ["xid", "change", "boot"]);
    type Edit = fn(&mut HistoryQuery);
    let wrong: [(&str, Edit); 11] = [
        ("kind", |q| q.kind = Some("xids".to_owned())),
        ("cursor", |q| q.cursor = Some("17".to_owned())),
        ("around", |q| q.around = Some("9999".to_owned())),
        ("around", |q| q.around = Some("noon".to_owned())),
        ("around", |q| q.around = Some("2999-01-01".to_owned())),
        ("since", |q| q.since = Some("2999-01-01".to_owned())),
        ("since", |q| q.since = Some("5".to_owned())),
        ("since", |q| q.since = Some("1:2:3".to_owned())),
        ("within", |q| q.within = Some("10m".to_owned())),
        ("within", |q| {
            q.around = Some("2m".to_owned());
            q.within = Some("5".to_owned());
        }),
        ("class", |q| q.class = Some("toaster".to_owned())),
    ];
    for (field, edit) in wrong {
        let error = eye.history(NODE, &query(edit)).await.unwrap_err();
        assert_eq!(
            error.problem().unwrap().field.as_deref(),
            Some(field),
            "{error}"
        );
    }
    for ahead in [
        eye.changes(Some("2999-01-01")).await.unwrap_err(),
        eye.diff_since(NODE, "2999-01-01").await.unwrap_err(),
    ] {
        let problem = ahead.problem().unwrap();
        assert_eq!(
            (problem.status, problem.field.as_deref()),
            (400, Some("since"))
        );
        assert!(problem.detail.contains("in the future"), "{problem:?}");
    }
    let changes = eye.changes(Some("1d")).await.unwrap();
    assert_eq!(changes.changes.len(), 1, "what else happened is no change");
    assert_eq!(changes.changes[0].nodes, NODE);
    assert_eq!(changes.changes[0].verdict, "differs");
    let ghost = eye.history("gpu999", &HistoryQuery::default()).await;
    assert_eq!(ghost.unwrap_err().exit_code(), 4);
}

/// Entries of classes with keys that were unreadable before, or are unreadable since.
#[tokio::test]
async fn what_could_not_be_read_is_not_known_to_have_changed() {
    let fixture = ApiFixture::furnished().await;
    let now = fixture.core.now().0;
    let failed = || Reading::failed("no answer");
    let text = |value: &str| Reading::Present(value.into());
    let entry = |seq, from, to| {
        HistoryRecord::Entry(Entry {
            seq,
            at: now - 10 * MINUTE + seq,
            boot_id: "b2".to_owned(),
            cause: Cause::Periodic,
            class: Class::Nic,
            revision: seq,
            from: Some(ClassMark::Incomplete),
            to: ClassMark::Incomplete,
            changes: vec![KeyChange {
                key: "nic.0.firmware".to_owned(),
                from,
                to,
            }],
            more: 0,
        })
    };
    for node in ["gpu001", "gpu002", "gpu003"] {
        let mut records = vec![
            entry(1, text("28.41"), failed()),
            entry(2, failed(), text("28.43")),
        ];
        if node == "gpu003" {
            records.push(entry(3, text("28.43"), text("28.45")));
        }
        let cursor = Cursor {
            journal: 1,
            read: 3,
        };
        let history = &fixture.stores.history;
        let append = history.append(node.to_owned(), cursor, records, now);
        append.await.unwrap();
    }
    let found = fixture.client("eye").changes(Some("1h")).await.unwrap();
    let changed_nodes: Vec<_> = found
        .changes
        .iter()
        .map(|c| (c.verdict.as_str(), c.count, c.change.to.as_str()))
        .collect();
    assert_eq!(
        changed_nodes,
        [
            ("differs", 1, "28.45"),
            ("unknown", 3, "<failed: no answer>"),
            ("unknown", 3, "28.43"),
        ]
    );
}

#[tokio::test]
async fn a_node_is_not_compared_with_a_time_of_which_nothing_is_kept() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let refused = async |since: &str| {
        let error = eye.diff_since(NODE, since).await.unwrap_err();
        let problem = error.problem().unwrap().clone();
        assert_eq!(
            (problem.status, problem.field.as_deref()),
            (400, Some("since"))
        );
        problem.detail
    };
    let none = refused("2020-01-01").await;
    assert!(
        none.contains("no history of gpu001 is stored yet"),
        "{none}"
    );
    append_entries(&fixture).await;
    let change = query(|q| q.kind = Some("change".to_owned()));
    let begins = eye.history(NODE, &change).await.unwrap().items[0]
        .at
        .clone();
    let early = refused("2020-01-01").await;
    assert!(
        early.ends_with(&format!("it begins at {begins}")),
        "{early}"
    );
    let diff = eye.diff_since(NODE, "90m").await.unwrap();
    let unknown = diff.differences.iter().find(|d| d.class == "gpu").unwrap();
    assert_eq!(
        (unknown.verdict.as_str(), unknown.left.as_str()),
        (
            "unknown",
            "<failed: the stored history of the class does not reach back to that time>"
        )
    );
    // The present value is shown, rather than that the class is unsupported.
    assert_ne!(unknown.right, "<unsupported>");
}

#[tokio::test]
async fn copied_audit_entries_require_audit_right() {
    const SECRET: &str = "the tenant did not pay";
    let fixture = ApiFixture::furnished().await;
    append_entries(&fixture).await;
    let now = fixture.core.now().0;
    let audited = |number: u64| {
        let noted = NodeObservation::Audit {
            number,
            action: "force_released".to_owned(),
            by: "root".to_owned(),
            summary: SECRET.to_owned(),
        };
        // Between the agent's entries, and last.
        (now - number * 30 * MINUTE, noted)
    };
    let note = TimedObservations {
        node: NODE.to_owned(),
        happened: (0..4).map(audited).collect(),
        comparison_state: None,
    };
    fixture.stores.history.note(vec![note], None).await.unwrap();

    let paged = async |caller: &str| {
        let client = fixture.client(caller);
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let one = query(|q| {
                q.limit = Some(2);
                q.cursor = cursor.take();
            });
            let page = client.history(NODE, &one).await.unwrap();
            assert!(page.items.len() == 2 || page.next_cursor.is_none());
            seen.extend(page.items);
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => break seen,
            }
        }
    };
    let kind = query(|q| q.kind = Some("change,audit".to_owned()));
    for caller in ["op", "root"] {
        let seen = paged(caller).await;
        let audits: Vec<_> = seen.iter().filter(|item| item.kind == "audit").collect();
        assert_eq!((seen.len(), audits.len()), (7, 4), "{caller}");
        assert!(format!("{audits:?}").contains(SECRET));
        let chosen = fixture.client(caller).history(NODE, &kind).await.unwrap();
        assert_eq!(chosen.items.len(), 5);
    }
    let number = paged("op").await[0].number;
    let about = query(|q| q.around = Some(number.to_string()));
    // A viewer, a user, and callers with power over one tenant only.
    for caller in ["eye", "alice", "diver", "warden"] {
        let seen = paged(caller).await;
        let kinds: Vec<&str> = seen.iter().map(|item| item.kind.as_str()).collect();
        assert_eq!(kinds, ["xid", "change", "boot"], "{caller}");
        let refused = fixture
            .client(caller)
            .history(NODE, &kind)
            .await
            .unwrap_err();
        let refused = refused.problem().unwrap().status;
        assert_eq!(refused, 403, "{caller}");
        let hidden = fixture
            .client(caller)
            .history(NODE, &about)
            .await
            .unwrap_err();
        let field = hidden.problem().unwrap().field.clone();
        assert_eq!(field.as_deref(), Some("around"), "{caller}");
    }
}

/// An update and an entry that names a person and an address, as a BMC reports them.
pub(super) async fn bmc_did(fixture: &ApiFixture) {
    let list = |name: &str| ResourcePath::parse(&format!("/redfish/v1/{name}")).unwrap();
    let now = fixture.core.now().0;
    let update = BmcEvent {
        identity: 1,
        list: list("Tasks"),
        of: BmcEventKind::Task {
            name: "Firmware Update: BIOS".to_owned(),
            state: "completed".to_owned(),
            started_at: Some(now - 9 * MINUTE),
        },
        systems: vec!["1".to_owned()],
        at: Some(now - 2 * MINUTE),
        severity: BmcEventSeverity::Ok,
        code: Some("IDRAC.2.8.PR19".to_owned()),
        message: "Job completed successfully.".to_owned(),
    };
    let entry = BmcEvent {
        identity: 2,
        list: list("IML"),
        of: BmcEventKind::Log {
            log: "IML".to_owned(),
        },
        at: Some(192_000),
        severity: BmcEventSeverity::Critical,
        code: None,
        message: "Configuration changed by ada from 10.254.1.12".to_owned(),
        ..update.clone()
    };
    let lists = [list("Tasks"), list("IML")].into();
    let read = |deeds| (BTreeSet::clone(&lists), deeds);
    let history = &fixture.stores.history;
    history
        .append_bmc_events(NODE.to_owned(), read(Vec::new()), now)
        .await
        .unwrap();
    let appended = history.append_bmc_events(NODE.to_owned(), read(vec![update, entry]), now);
    assert_eq!(appended.await.unwrap(), 2);
}

#[tokio::test]
async fn bmc_actions_require_audit_right() {
    let fixture = ApiFixture::furnished().await;
    append_entries(&fixture).await;
    bmc_did(&fixture).await;
    let kind = query(|q| q.kind = Some("bmc".to_owned()));
    let page = fixture.client("op").history(NODE, &kind).await.unwrap();
    let words: Vec<_> = page.items.iter().map(|item| item.what.as_str()).collect();
    assert_eq!(
        words,
        [
            "IML, critical: Configuration changed by ada from 10.254.1.12 (by the BMC's clock \
             1970-01-01T00:03:12Z)",
            "Firmware Update: BIOS: completed in 7 min: Job completed successfully.",
        ]
    );
    let parts = page.items[1].event.clone().unwrap();
    assert_eq!(parts.state.as_deref(), Some("completed"));
    assert_eq!(parts.bmc_time.as_deref(), Some(page.items[1].at.as_str()));
    assert_eq!(parts.read_at.as_deref(), Some(page.items[0].at.as_str()));
    assert!(parts.first_at < parts.bmc_time);
    let clock = page.items[0].event.clone().unwrap();
    assert_eq!(clock.bmc_time.as_deref(), Some("1970-01-01T00:03:12.000Z"));

    for caller in ["eye", "alice", "diver", "warden"] {
        let client = fixture.client(caller);
        let all = client.history(NODE, &HistoryQuery::default()).await;
        let kinds = all.unwrap().items.into_iter().map(|item| item.kind);
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            ["xid", "change", "boot"],
            "{caller}"
        );
        let refused = fixture
            .client(caller)
            .history(NODE, &kind)
            .await
            .unwrap_err();
        assert_eq!(refused.problem().unwrap().status, 403, "{caller}");
        let number = page.items[1].number;
        let about = query(|q| q.around = Some(number.to_string()));
        let hidden = fixture
            .client(caller)
            .history(NODE, &about)
            .await
            .unwrap_err();
        let field = hidden.problem().unwrap().field.clone();
        assert_eq!(field.as_deref(), Some("around"), "{caller}");
    }
}
