//! Modules of a crate as its sources declare them: the names that each defines, its imports, and the paths in its code.
//!
//! Code of tests is left out: items under `#[cfg(test)]`, and modules with a name of [`is_test_name`].

use super::{
    attributes::{attributes, is_for_tests, is_test_name, named_file},
    paths::{Paths, plain},
};
use proc_macro2::{TokenStream, TokenTree};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};
use syn::{Item, visit::Visit as _};

/// Names of the modules from the root of the crate down to one; empty for the root.
pub(super) type ModulePath = Vec<String>;

/// One module of a crate.
#[derive(Debug, Default)]
pub(super) struct Module {
    pub file: PathBuf,
    /// Names of items, apart from modules.
    pub items: BTreeSet<String>,
    /// Words in invocations of macros among the items: names that such a macro may define.
    pub macro_words: BTreeSet<String>,
    pub paths: Paths,
}

/// Modules of one crate by their paths.
pub(super) type Modules = BTreeMap<ModulePath, Module>;

/// Reads all modules that the crate with the root file `root` declares. `text` returns the content of a file that
/// exists.
pub(super) fn read(root: &Path, text: &dyn Fn(&Path) -> Option<String>) -> Modules {
    let mut reader = Reader {
        text,
        modules: Modules::new(),
    };
    let folder = root.parent().unwrap().to_owned();
    reader.file(Vec::new(), root.to_owned(), folder);
    reader.modules
}

struct Reader<'a> {
    text: &'a dyn Fn(&Path) -> Option<String>,
    modules: Modules,
}

impl Reader<'_> {
    /// Adds the module in `file`; its child modules are in `folder`.
    fn file(&mut self, path: ModulePath, file: PathBuf, folder: PathBuf) {
        let source = (self.text)(&file).unwrap_or_else(|| panic!("no file {}", file.display()));
        let parsed =
            syn::parse_file(&source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        if !is_for_tests(&parsed.attrs) {
            self.items(path, &file, &folder, &parsed.items);
        }
    }

    fn items(&mut self, path: ModulePath, file: &Path, folder: &Path, items: &[Item]) {
        let module = self.modules.entry(path.clone()).or_default();
        file.clone_into(&mut module.file);
        for item in items {
            if let Some(name) = name(item) {
                module.items.insert(name);
            }
            if let Item::ForeignMod(block) = item {
                let names = block.items.iter().filter_map(|item| match item {
                    syn::ForeignItem::Fn(function) => Some(function.sig.ident.to_string()),
                    syn::ForeignItem::Static(value) => Some(value.ident.to_string()),
                    _ => None,
                });
                module.items.extend(names);
            }
            if let Item::Macro(invocation) = item
                && invocation.ident.is_none()
            {
                words(invocation.mac.tokens.clone(), &mut module.macro_words);
            }
            module.paths.visit_item(item);
        }
        for item in items {
            let Item::Mod(child) = item else { continue };
            let name = plain(&child.ident);
            if is_for_tests(&child.attrs) || is_test_name(&name) {
                continue;
            }
            let path: ModulePath = path.iter().chain([&name]).cloned().collect();
            let folder = folder.join(&name);
            if let Some((_, items)) = &child.content {
                self.items(path, file, &folder, items);
            } else if let Some(named) = named_file(&child.attrs) {
                let named = file.parent().unwrap().join(named);
                self.file(path, named, folder);
            } else {
                let alone = folder.with_file_name(format!("{name}.rs"));
                let inside = folder.join("mod.rs");
                let is_alone = (self.text)(&alone).is_some();
                self.file(path, if is_alone { alone } else { inside }, folder);
            }
        }
    }
}

/// Name that an item defines in its module; modules are not items here.
fn name(item: &Item) -> Option<String> {
    if is_for_tests(attributes(item)) {
        return None;
    }
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(plain(ident))
}

/// Adds all identifiers of a token stream.
fn words(tokens: TokenStream, into: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                into.insert(plain(&ident));
            }
            TokenTree::Group(group) => words(group.stream(), into),
            _ => {}
        }
    }
}
