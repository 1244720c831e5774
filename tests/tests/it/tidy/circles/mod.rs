//! Import circles between the modules of a crate: at most [`LARGEST_CIRCLE`] modules of a folder may import each other.
//!
//! The modules of a circle can only be understood together. A larger circle is broken by moving a type, a constant or a
//! function to the module of its subject, or by passing a value in.
//!
//! `cargo test -p lattice-tests --test it circles:: -- --nocapture` prints all circles, also those that are permitted.

mod attributes;
mod components;
mod graph;
mod paths;
mod resolve;
mod source;
mod tests;

use super::workspace::{packages, root};
use graph::Circle;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    thread,
};

/// Most modules of one folder that may import each other.
const LARGEST_CIRCLE: usize = 3;

/// Root files of the crates of all packages: libraries and programs.
fn crates() -> Vec<PathBuf> {
    let mut crates = Vec::new();
    for package in packages() {
        let source = root().join(&package.folder).join("src");
        let roots = ["lib.rs", "main.rs"].map(|file| source.join(file));
        let before = crates.len();
        crates.extend(roots.into_iter().filter(|file| file.is_file()));
        assert!(crates.len() > before, "{} has no crate", package.name);
    }
    crates
}

/// Modules of the crate with this root file, and its circles.
fn circles_of(root: &Path) -> (usize, Vec<Circle>) {
    let modules = source::read(root, &|file| fs::read_to_string(file).ok());
    (modules.len(), graph::circles(&modules))
}

/// Describes a circle: the folder, its modules, and an import for each arrow.
fn describe(crate_root: &Path, circle: &Circle) -> String {
    let relative = |file: &Path| {
        file.strip_prefix(root())
            .unwrap_or(file)
            .display()
            .to_string()
    };
    let names: Vec<&str> = circle.modules.iter().map(|name| &name[..]).collect();
    let folder = match circle.folder.is_empty() {
        true => "the root".to_owned(),
        false => circle.folder.join("::"),
    };
    let mut text = format!(
        "{}, {folder}: a circle of {} modules: {}\n",
        relative(crate_root),
        names.len(),
        names.join(" ")
    );
    for ((from, to), imports) in &circle.arrows {
        let (anchored, others): (Vec<_>, Vec<_>) =
            imports.iter().partition(|import| import.is_anchored());
        let shown = match anchored.is_empty() {
            true => others,
            false => anchored,
        };
        let [first, others @ ..] = &shown[..] else {
            continue;
        };
        let others = match others.len() {
            0 => String::new(),
            others => format!(", and {others} more"),
        };
        let file = relative(&first.file);
        writeln!(text, "  {from} -> {to}: {file} uses {}{others}", first.path).unwrap();
    }
    text
}

#[test]
fn no_import_circle_is_larger_than_permitted() {
    let crates = crates();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<(&PathBuf, usize, Vec<Circle>)> = thread::scope(|scope| {
        let crates = &crates;
        let read = |first: usize| {
            let roots = crates.iter().skip(first).step_by(threads);
            let results = roots.map(|root| {
                let (modules, circles) = circles_of(root);
                (root, modules, circles)
            });
            results.collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || read(first)))
            .collect();
        let results = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap());
        results.collect()
    });
    let modules: usize = found.iter().map(|(_, modules, _)| modules).sum();
    assert!(modules > 500, "only {modules} modules were found");
    let mut too_large = String::new();
    for (root, _, circles) in &found {
        for circle in circles {
            let text = describe(root, circle);
            println!("{text}");
            if circle.modules.len() > LARGEST_CIRCLE {
                too_large += &text;
            }
        }
    }
    assert!(
        too_large.is_empty(),
        "circles of more than {LARGEST_CIRCLE} modules:\n{too_large}"
    );
}
