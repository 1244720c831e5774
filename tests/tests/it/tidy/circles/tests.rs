//! Unit tests of the search for circles, on small trees of sources.

use super::{
    describe,
    graph::{self, Circle},
    source,
};
use std::{collections::BTreeMap, path::Path};

const ROOT: &str = "src/lib.rs";

fn modules(files: &[(&str, &str)]) -> source::Modules {
    let files: BTreeMap<&Path, &str> = files
        .iter()
        .map(|(file, text)| (Path::new(*file), *text))
        .collect();
    source::read(Path::new(ROOT), &|file| {
        files.get(file).map(|text| (*text).to_owned())
    })
}

fn circles(files: &[(&str, &str)]) -> Vec<Circle> {
    graph::circles(&modules(files))
}

/// Arrows as `folder: from -> to`, in order.
fn arrows(files: &[(&str, &str)]) -> Vec<String> {
    let folders = graph::arrows(&modules(files)).into_iter();
    let arrows = folders.flat_map(|(folder, arrows)| {
        let folder = folder.join("::");
        let arrow = move |(from, to)| format!("{folder}: {from} -> {to}");
        arrows.into_keys().map(arrow)
    });
    arrows.collect()
}

#[test]
fn planted_circle_is_found() {
    let found = circles(&[
        (
            ROOT,
            "mod launch; mod report; mod end; mod retry; mod host;",
        ),
        ("src/launch/mod.rs", "mod env; use crate::host::Host;"),
        (
            "src/launch/env.rs",
            "use crate::{host::Host, report::{self, state::{Running as Started}}};",
        ),
        (
            "src/report.rs",
            "pub mod state; fn last() -> super::end::End { todo() }",
        ),
        ("src/report/state.rs", "pub struct Running;"),
        (
            "src/end.rs",
            "pub struct End; fn next() { let all = Vec::<crate::retry::Retry>::new(); }",
        ),
        (
            "src/retry.rs",
            "pub struct Retry; use super::launch; fn go() { launch::go(); }",
        ),
        ("src/host.rs", "pub struct Host;"),
    ]);
    let [circle] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(circle.folder.is_empty());
    let expected = "\
src/lib.rs, the root: a circle of 4 modules: end launch report retry
  end -> retry: src/end.rs uses crate::retry::Retry
  launch -> report: src/launch/env.rs uses crate::report, and 1 more
  report -> end: src/report.rs uses super::end::End
  retry -> launch: src/retry.rs uses super::launch
";
    assert_eq!(describe(Path::new(ROOT), circle), expected);
}

#[test]
fn circle_is_reported_in_its_own_folder() {
    let found = circles(&[
        (ROOT, "mod launch; mod end;"),
        ("src/launch.rs", "mod env; mod limits; use crate::end::End;"),
        (
            "src/launch/env.rs",
            "use super::limits::Limits; pub struct Env;",
        ),
        (
            "src/launch/limits.rs",
            "use crate::launch::env::Env; pub struct Limits;",
        ),
        ("src/end.rs", "pub struct End;"),
    ]);
    let [circle] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(circle.folder, ["launch"]);
    assert_eq!(circle.arrows.len(), 2);
}

#[test]
fn tree_without_circle_passes() {
    let files = [
        (
            ROOT,
            "mod launch; mod report; mod host; pub use launch::start;",
        ),
        // A module and its parts use each other, which is no circle.
        (
            "src/launch.rs",
            "mod env; use env::Env; use crate::report::Report; pub struct Job;",
        ),
        (
            "src/launch/env.rs",
            "use super::Job; use crate::host::Host; pub struct Env;",
        ),
        (
            "src/report.rs",
            "use crate::host::Host; use std::fs; pub struct Report;",
        ),
        (
            "src/host.rs",
            "use lattice_config::report; pub struct Host;",
        ),
    ];
    assert!(circles(&files).is_empty());
    let expected = [": launch -> host", ": launch -> report", ": report -> host"];
    assert_eq!(arrows(&files), expected);
}

#[test]
fn re_export_leads_to_the_definition() {
    let files = [
        (
            ROOT,
            "mod facade; mod plain; mod renamed; mod all; mod outside; mod user; pub use plain::Plain; pub use all::*;",
        ),
        (
            "src/facade.rs",
            "pub use super::renamed::Renamed as Other; pub use lattice_config::Load;",
        ),
        ("src/plain.rs", "pub struct Plain;"),
        ("src/renamed.rs", "pub struct Renamed;"),
        ("src/all.rs", "pub struct All; ids!(JobId);"),
        ("src/outside.rs", "use crate::facade::Load;"),
        (
            "src/user.rs",
            "use crate::{All, JobId, Plain, facade::Other};",
        ),
    ];
    let expected = [
        ": facade -> renamed",
        ": user -> all",
        ": user -> plain",
        ": user -> renamed",
    ];
    assert_eq!(arrows(&files), expected);
}

#[test]
fn names_of_a_glob_import_lead_to_the_definition() {
    let files = [
        (
            ROOT,
            "mod host; mod user; mod local; use host::{Host, count};",
        ),
        ("src/host.rs", "pub struct Host; pub fn count() {}"),
        (
            "src/user.rs",
            "use super::*; fn all() -> Vec<Host> { Vec::new() }",
        ),
        (
            "src/local.rs",
            "use super::*; struct Host; fn own(host: Host) {}",
        ),
    ];
    assert_eq!(arrows(&files), [": user -> host"]);
}

#[test]
fn code_of_tests_is_ignored() {
    let files = [
        (ROOT, "mod end; mod host; mod testing; #[cfg(test)] mod planted;"),
        (
            "src/end.rs",
            "#[cfg(test)] use crate::host::Host;
            #[cfg(all(test, unix))] fn all() { crate::host::count(); }
            struct End { #[cfg(test)] host: crate::host::Host }
            impl End { #[cfg(test)] fn host(&self) -> crate::host::Host { self.host } }
            fn done() { #[cfg(test)] crate::host::count(); #[cfg(test)] let host = crate::host::count(); }
            #[cfg(test)] mod tests { use crate::host::Host; }
            mod end_tests { use crate::host::Host; }",
        ),
        ("src/host.rs", "pub struct Host; pub fn count() {}"),
        ("src/testing.rs", "use crate::host::Host;"),
    ];
    assert!(arrows(&files).is_empty());
    let product = [
        (ROOT, "mod end; mod host;"),
        (
            "src/end.rs",
            "#[cfg(not(test))] use crate::host::Host; #[cfg(any(test, unix))] fn end() {}",
        ),
        ("src/host.rs", "pub struct Host;"),
    ];
    assert_eq!(arrows(&product), [": end -> host"]);
}

#[test]
fn paths_in_macros_and_attributes_count() {
    let files = [
        (ROOT, "mod host; mod macros; mod serde; mod text;"),
        (
            "src/host.rs",
            "pub struct Host; pub mod parts { pub struct Part; }",
        ),
        (
            "src/macros.rs",
            "macro_rules! host { ($part:ident) => { $crate::host::Host::$part } }
            use crate::text; fn all() { vec![0..text::WIDTH, self.host::<u8>()]; }",
        ),
        (
            "src/serde.rs",
            "struct S { #[serde(with = \"super::text\", default)] part: u8 }",
        ),
        ("src/text.rs", "pub const WIDTH: u8 = 1;"),
    ];
    let expected = [": macros -> host", ": macros -> text", ": serde -> text"];
    assert_eq!(arrows(&files), expected);
}

#[test]
fn function_is_not_the_module_of_the_same_name() {
    let files = [
        (ROOT, "mod jobs;"),
        ("src/jobs/mod.rs", "mod start; mod end; fn start() {}"),
        ("src/jobs/start.rs", "pub struct Start;"),
        ("src/jobs/end.rs", "fn again() { super::start(); }"),
    ];
    assert!(arrows(&files).is_empty());
}

#[test]
fn inline_modules_and_named_files_are_modules() {
    let files = [
        (
            ROOT,
            "mod jobs { mod start; pub mod end { use super::super::host::Host; } } #[path = \"machine.rs\"] mod host;",
        ),
        (
            "src/jobs/start.rs",
            "use super::end; use self::end as _; fn f() { end::last(); }",
        ),
        ("src/machine.rs", "pub struct Host;"),
    ];
    assert_eq!(arrows(&files), [": jobs -> host", "jobs: start -> end"]);
}
