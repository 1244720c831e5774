//! Imports between the modules of one folder, and the circles among them.
//!
//! A folder here is a module with child modules. All below a child counts as that child. An import of `crate::a::b` in
//! `crate::a::c::d` is an arrow from `c` to `b` in the folder `crate::a`, and in no other. Imports between a module and
//! one of its descendants are not arrows: a module and its parts belong together.

use super::{
    components,
    resolve::Resolver,
    source::{ModulePath, Modules},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// Import that makes an arrow.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Import {
    pub file: PathBuf,
    /// Path as written in the file.
    pub path: String,
}

impl Import {
    /// Checks whether the path starts in the crate, as in an import. Otherwise it starts with an imported name.
    pub(super) fn is_anchored(&self) -> bool {
        ["crate::", "super::", "self::"]
            .iter()
            .any(|start| self.path.starts_with(start))
    }
}

/// Imports from one child of a folder, the first, to another.
pub(super) type Arrows = BTreeMap<(String, String), BTreeSet<Import>>;

/// Modules of one folder that import each other.
#[derive(Debug)]
pub(super) struct Circle {
    pub folder: ModulePath,
    pub modules: BTreeSet<String>,
    /// Arrows between the modules of the circle.
    pub arrows: Arrows,
}

/// Arrows of each folder of a crate, by the path of the folder.
pub(super) fn arrows(modules: &Modules) -> BTreeMap<ModulePath, Arrows> {
    let resolver = Resolver::new(modules);
    let mut folders: BTreeMap<ModulePath, Arrows> = BTreeMap::new();
    for (from, module) in modules {
        for (path, namespace) in &module.paths.all {
            // Otherwise the name is defined here, or its import is an arrow already.
            if path.len() == 1 && module.paths.globs.is_empty() {
                continue;
            }
            let Some(to) = resolver.definition(from, path, *namespace) else {
                continue;
            };
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            let (Some(source), Some(target)) = (from.get(common), to.get(common)) else {
                continue;
            };
            let arrows = folders.entry(from[..common].to_vec()).or_default();
            let imports = arrows.entry((source.clone(), target.clone())).or_default();
            imports.insert(Import {
                file: module.file.clone(),
                path: path.join("::"),
            });
        }
    }
    folders
}

/// Circles of all folders of a crate.
pub(super) fn circles(modules: &Modules) -> Vec<Circle> {
    let mut circles = Vec::new();
    for (folder, arrows) in arrows(modules) {
        let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in arrows.keys() {
            graph.entry(from).or_default().insert(to);
        }
        let found: Vec<BTreeSet<String>> = components::circles(&graph)
            .into_iter()
            .map(|circle| circle.into_iter().map(str::to_owned).collect())
            .collect();
        let mut arrows = arrows;
        for modules in found {
            let is_inside =
                |(from, to): &(String, String)| modules.contains(from) && modules.contains(to);
            let inside = arrows.extract_if(.., |arrow, _| is_inside(arrow)).collect();
            circles.push(Circle {
                folder: folder.clone(),
                modules,
                arrows: inside,
            });
        }
    }
    circles
}
