//! Resolution of paths to the modules that define the named items.

use super::{
    paths::{Namespace, Written},
    source::{ModulePath, Modules},
};
use std::collections::BTreeSet;

/// Meaning of a name.
enum Meaning {
    Module(ModulePath),
    /// Item that this module defines.
    Item(ModulePath),
    /// Something of another crate.
    Foreign,
}

/// Finds definitions in one crate.
pub(super) struct Resolver<'a> {
    modules: &'a Modules,
}

/// Names with a look-up under way; imports may lead back to them.
type UnderWay = BTreeSet<(ModulePath, String, Namespace, bool)>;

impl<'a> Resolver<'a> {
    pub(super) fn new(modules: &'a Modules) -> Self {
        Self { modules }
    }

    /// Module that defines what `path` names in `module`; a module defines itself. `None` for another crate's items
    /// and for local variables.
    pub(super) fn definition(
        &self,
        module: &[String],
        path: &Written,
        namespace: Namespace,
    ) -> Option<ModulePath> {
        match self.meaning(module, path, namespace, &mut UnderWay::new())? {
            Meaning::Module(path) | Meaning::Item(path) => Some(path),
            Meaning::Foreign => None,
        }
    }

    fn meaning(
        &self,
        module: &[String],
        path: &[String],
        namespace: Namespace,
        under_way: &mut UnderWay,
    ) -> Option<Meaning> {
        let mut at = module.to_vec();
        let mut names = path;
        let mut is_anchored = false;
        while let [first, rest @ ..] = names {
            match &first[..] {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()?),
                _ => break,
            }
            is_anchored = true;
            names = rest;
        }
        while let [name, rest @ ..] = names {
            let namespace = match rest {
                [] => namespace,
                _ => Namespace::Types,
            };
            match self.name(&at, name, namespace, under_way) {
                Some(Meaning::Module(found)) => at = found,
                Some(found) => return Some(found),
                // A macro defines the name.
                None if is_anchored => return Some(Meaning::Item(at)),
                None => return None,
            }
            is_anchored = true;
            names = rest;
        }
        Some(Meaning::Module(at))
    }

    /// Meaning of a name in the scope of a module. Names that a macro may define come last.
    fn name(
        &self,
        at: &[String],
        name: &str,
        namespace: Namespace,
        under_way: &mut UnderWay,
    ) -> Option<Meaning> {
        let known = self.known(at, name, namespace, false, under_way);
        known.or_else(|| self.known(at, name, namespace, true, under_way))
    }

    fn known(
        &self,
        at: &[String],
        name: &str,
        namespace: Namespace,
        by_macros: bool,
        under_way: &mut UnderWay,
    ) -> Option<Meaning> {
        let entry = (at.to_vec(), name.to_owned(), namespace, by_macros);
        if !under_way.insert(entry.clone()) {
            return None;
        }
        let found = self.look_up(at, name, namespace, by_macros, under_way);
        under_way.remove(&entry);
        found
    }

    fn look_up(
        &self,
        at: &[String],
        name: &str,
        namespace: Namespace,
        by_macros: bool,
        under_way: &mut UnderWay,
    ) -> Option<Meaning> {
        let module = self.modules.get(at)?;
        let child: ModulePath = at
            .iter()
            .map(String::as_str)
            .chain([name])
            .map(str::to_owned)
            .collect();
        let is_child = self.modules.contains_key(&child);
        if is_child && namespace == Namespace::Types {
            return Some(Meaning::Module(child));
        }
        if module.items.contains(name) {
            return Some(Meaning::Item(at.to_vec()));
        }
        if let Some(path) = module.paths.imports.get(name) {
            // A path to a crate has no meaning here.
            let found = self.meaning(at, path, namespace, under_way);
            return Some(found.unwrap_or(Meaning::Foreign));
        }
        if is_child {
            return Some(Meaning::Module(child));
        }
        if by_macros && module.macro_words.contains(name) {
            return Some(Meaning::Item(at.to_vec()));
        }
        module.paths.globs.iter().find_map(|path| {
            let Meaning::Module(source) = self.meaning(at, path, Namespace::Types, under_way)?
            else {
                return None;
            };
            self.known(&source, name, namespace, by_macros, under_way)
        })
    }
}
