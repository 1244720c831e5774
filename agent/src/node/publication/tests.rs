#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_conformance::{Finding, Reading, WrittenSchemas, history::Cause, keys::ROWS, verify};
use lattice_hwprobe::{Host, NvmlSource, probe_all};
use std::path::Path;

fn inventory(root: &Path, command_line: &str) -> Inventory {
    let proc = root.join("proc");
    std::fs::create_dir_all(proc.join("sys/kernel")).unwrap();
    std::fs::write(proc.join("cmdline"), format!("{command_line}\n")).unwrap();
    std::fs::write(proc.join("sys/kernel/osrelease"), "6.1.0\n").unwrap();
    std::fs::write(proc.join("version"), "Linux version 6.1.0\n").unwrap();
    probe_all(&Host::new(root, NvmlSource::Disabled))
}

fn with_kernel(inventory: &Inventory, key: &str, value: Reading<String>) -> Inventory {
    let mut changed = inventory.clone();
    let kernel = changed.records.get_mut(&Class::Kernel).unwrap();
    for required in kernel.required.clone() {
        kernel
            .entries
            .insert(required, Reading::Present("x".into()));
    }
    kernel.require(key, value);
    changed
}

/// Records a periodic read.
fn observe(publication: &mut Publication, inventory: &Inventory) -> Step {
    let seen = ReadContext {
        at: 1,
        boot_id: "boot-1".to_owned(),
        cause: Cause::Periodic,
    };
    let observation = publication.observe(inventory, seen);
    assert!(observation.document.is_none());
    observation.step
}

fn kernel_mark(publication: &Publication) -> Option<ClassMark> {
    publication
        .announcement()
        .marks
        .get(&Class::Kernel)
        .copied()
}

#[test]
fn the_first_read_is_announced_and_a_change_only_when_read_twice() {
    let folder = tempfile::tempdir().unwrap();
    let base = inventory(folder.path(), "quiet");
    let old = with_kernel(
        &base,
        "kernel.cmdline",
        Reading::Present("quiet".to_owned()),
    );
    let new = with_kernel(
        &base,
        "kernel.cmdline",
        Reading::Present("mitigations=off".into()),
    );
    let mut publication = Publication::new("n1".to_owned(), None);
    assert_eq!(observe(&mut publication, &old), Step::Rest);
    let first = kernel_mark(&publication).unwrap();
    assert_eq!(observe(&mut publication, &new), Step::Confirm);
    assert_eq!(kernel_mark(&publication), Some(first));
    assert_eq!(observe(&mut publication, &new), Step::Rest);
    let second = kernel_mark(&publication).unwrap();
    assert_ne!(second, first);
    for mark in [first, second] {
        let digest = mark.digest().unwrap();
        let bytes = publication.content(&digest).unwrap();
        assert_eq!(verify(&digest, &bytes).unwrap().class, Class::Kernel);
    }
}

#[test]
fn what_becomes_unknown_is_not_shown_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let base = inventory(folder.path(), "quiet");
    let known = with_kernel(
        &base,
        "kernel.cmdline",
        Reading::Present("quiet".to_owned()),
    );
    let unknown = with_kernel(
        &base,
        "kernel.cmdline",
        Reading::failed("input/output error"),
    );
    let mut publication = Publication::new("n1".to_owned(), None);
    observe(&mut publication, &known);
    observe(&mut publication, &unknown);
    assert_eq!(kernel_mark(&publication), Some(ClassMark::Incomplete));
    assert!(
        publication
            .announcement()
            .incomplete
            .contains(&Class::Kernel)
    );
}

#[test]
fn the_document_is_served_by_its_address_and_follows_the_facts() {
    let empty = Inventory::default();
    let mut publication = Publication::new("n1".to_owned(), Some("g0".to_owned()));
    observe(&mut publication, &empty);
    let first = publication.announcement().document.unwrap();
    let mut grown = empty.clone();
    grown.resources.cores = Reading::Present(64);
    grown.findings.push(Finding {
        class: Class::Gpu,
        code: "gpu_count_mismatch".to_owned(),
        detail: String::new(),
    });
    observe(&mut publication, &grown);
    let second = publication.announcement().document.unwrap();
    assert_ne!(first, second);
    let bytes = publication.content(&second).unwrap();
    let document = NodeDocument::verify(&second, &bytes).unwrap();
    assert_eq!(document.resources.cores, Reading::Present(64));
    assert_eq!(document.topology_group.as_deref(), Some("g0"));
    assert_eq!(publication.announcement().findings, ["gpu_count_mismatch"]);
    assert!(publication.content(&Digest([0; 32])).is_none());
}

/// A later build: this build with one more kernel key, a newer schema, and digests under the earlier schema.
fn later_build() -> Schemas {
    let rows = ROWS.iter().map(|row| match row.pattern {
        "kernel.osrelease" => row.since_schema(2),
        _ => *row,
    });
    Schemas {
        written: |class| match class {
            Class::Kernel => WrittenSchemas {
                current: 2,
                earlier: Some(1),
                oldest: 1,
            },
            other => other.written_schemas(),
        },
        rows: Box::leak(rows.collect()),
    }
}

fn earlier_build() -> Schemas {
    Schemas {
        written: |class| match class {
            Class::Kernel => WrittenSchemas::only(1),
            other => other.written_schemas(),
        },
        ..later_build()
    }
}

#[test]
fn upgraded_agent_keeps_mark_extension() {
    let folder = tempfile::tempdir().unwrap();
    let base = inventory(folder.path(), "quiet");
    let cmdline =
        |text: &str| with_kernel(&base, "kernel.cmdline", Reading::Present(text.to_owned()));
    let of = |schemas: Schemas| Publication::new("n1".to_owned(), None).with_schemas(schemas);
    let mut before = of(earlier_build());
    observe(&mut before, &cmdline("quiet").written_as(&earlier_build()));
    let said = kernel_mark(&before).unwrap();
    assert!(said.to_string().starts_with("1:"), "{said}");
    assert!(before.announcement().earlier.is_empty());

    let mut after = of(later_build());
    observe(&mut after, &cmdline("quiet"));
    let mark = kernel_mark(&after).unwrap();
    let earlier = after.announcement().earlier[&Class::Kernel];
    assert_eq!(earlier.mark(), said, "the same machine has the same name");
    assert_ne!(mark, said);
    assert_eq!(after.announcement().earlier.len(), 1, "of that class alone");
    for digest in [mark.digest().unwrap(), earlier.digest] {
        let bytes = after.content(&digest).unwrap();
        let record = verify(&digest, &bytes).unwrap();
        let has_release = record.entries.contains_key("kernel.osrelease");
        assert_eq!(has_release, record.schema == 2);
    }
    // The digest under the earlier schema changes with the mark, after the confirming read, and disappears with it.
    observe(&mut after, &cmdline("mitigations=off"));
    assert_eq!(after.announcement().earlier[&Class::Kernel], earlier);
    observe(&mut after, &cmdline("mitigations=off"));
    let changed = after.announcement().earlier[&Class::Kernel];
    assert_ne!(changed, earlier);
    assert!(after.content(&earlier.digest).is_some(), "until lately");
    let unread = with_kernel(
        &base,
        "kernel.cmdline",
        Reading::failed("input/output error"),
    );
    observe(&mut after, &unread);
    assert_eq!(kernel_mark(&after), Some(ClassMark::Incomplete));
    assert!(after.announcement().earlier.is_empty());
}
