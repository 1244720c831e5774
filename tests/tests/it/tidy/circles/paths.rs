//! Imports and paths in the code of a module.

use super::attributes::{attributes, is_for_tests};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};
use syn::{
    Attribute, Item, Meta, UseTree,
    visit::{self, Visit},
};

/// Namespace in which the last name of a path is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Namespace {
    /// Modules, types and traits; also names of an import, which may have any meaning.
    Types,
    /// Functions, constants and constructors.
    Values,
}

/// Path as written, with `super` and `crate` in it.
pub(super) type Written = Vec<String>;

/// Imports and paths of one module; a visit of an item adds those in it.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Imported names and what they mean.
    pub imports: BTreeMap<String, Written>,
    /// Modules from which everything is imported.
    pub globs: BTreeSet<Written>,
    /// All imports and all paths in code.
    pub all: BTreeSet<(Written, Namespace)>,
}

impl Paths {
    fn import(&mut self, tree: &UseTree, prefix: &mut Written) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(plain(&path.ident));
                self.import(&path.tree, prefix);
                prefix.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix);
                }
            }
            UseTree::Glob(_) => {
                self.globs.insert(prefix.clone());
                self.add(prefix.clone(), Namespace::Types);
            }
            UseTree::Name(name) => self.import_one(&name.ident, &name.ident, prefix),
            UseTree::Rename(name) => self.import_one(&name.ident, &name.rename, prefix),
        }
    }

    /// Records `use prefix::meaning as name`, where `meaning` may be `self`.
    fn import_one(&mut self, meaning: &syn::Ident, name: &syn::Ident, prefix: &[String]) {
        let mut path = prefix.to_vec();
        let mut name = plain(name);
        if meaning != "self" || path.is_empty() {
            path.push(plain(meaning));
        } else if name == "self" {
            name.clone_from(&path[path.len() - 1]);
        }
        // A name imported in a function must not replace one of the module.
        self.imports.entry(name).or_insert_with(|| path.clone());
        self.add(path, Namespace::Types);
    }

    fn add(&mut self, path: Written, namespace: Namespace) {
        if !path.is_empty() && path[0] != "Self" {
            self.all.insert((path, namespace));
        }
    }

    fn add_path(&mut self, path: &syn::Path, namespace: Namespace) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| plain(&segment.ident));
            self.add(names.collect(), namespace);
        }
    }

    /// Adds what looks like a path in the input of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Written = Vec::new();
        // Tokens before a name that decide whether it starts or continues a path.
        let mut before = [' '; 2];
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    let name = plain(&ident);
                    match before {
                        [':', ':'] if !path.is_empty() => path.push(name),
                        // A field, a method, a lifetime, a macro's parameter, or a path that starts with no name.
                        [_, '\''] | [':', ':'] => self.end(&mut path),
                        [first, '.'] if first != '.' => self.end(&mut path),
                        [_, '$'] if name != "crate" => self.end(&mut path),
                        _ => {
                            self.end(&mut path);
                            path.push(name);
                        }
                    }
                    before = [' '; 2];
                }
                TokenTree::Punct(punct) => {
                    before = [before[1], punct.as_char()];
                    if before[1] != ':' {
                        self.end(&mut path);
                    }
                }
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.tokens(group.stream());
                    before = [' '; 2];
                }
                TokenTree::Literal(_) => {
                    self.end(&mut path);
                    before = [' '; 2];
                }
            }
        }
        self.end(&mut path);
    }

    /// Adds the path collected so far. A name alone is added only if it is that of a type or a constant, since it may
    /// be a variable.
    fn end(&mut self, path: &mut Written) {
        let path = mem::take(path);
        if path.len() > 1 || path.iter().any(|name| name.starts_with(char::is_uppercase)) {
            self.add(path, Namespace::Types);
        }
    }

    /// Adds paths in strings of `#[serde(…)]`, such as `with = "super::text"`.
    fn strings(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let path = syn::parse_str::<syn::Path>(text.trim_matches('"'));
                    if let Ok(path) = path
                        && path.segments.len() > 1
                    {
                        self.add_path(&path, Namespace::Types);
                    }
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
                    self.strings(group.stream());
                }
                _ => {}
            }
        }
    }
}

/// Visits a node unless its attributes limit it to tests.
macro_rules! skip_tests {
    ($($method:ident: $node:ty),* $(,)?) => {
        $(fn $method(&mut self, node: &'ast $node) {
            if !is_for_tests(&node.attrs) {
                visit::$method(self, node);
            }
        })*
    };
}

impl<'ast> Visit<'ast> for Paths {
    skip_tests! {
        visit_arm: syn::Arm,
        visit_expr_block: syn::ExprBlock,
        visit_expr_call: syn::ExprCall,
        visit_expr_if: syn::ExprIf,
        visit_expr_macro: syn::ExprMacro,
        visit_expr_method_call: syn::ExprMethodCall,
        visit_field: syn::Field,
        visit_field_value: syn::FieldValue,
        visit_impl_item_const: syn::ImplItemConst,
        visit_impl_item_fn: syn::ImplItemFn,
        visit_impl_item_type: syn::ImplItemType,
        visit_local: syn::Local,
        visit_stmt_macro: syn::StmtMacro,
        visit_trait_item_fn: syn::TraitItemFn,
        visit_variant: syn::Variant,
    }

    fn visit_item(&mut self, item: &'ast Item) {
        // The content of an inline module belongs to that module.
        if !is_for_tests(attributes(item)) && !matches!(item, Item::Mod(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &mut Vec::new());
        }
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta
            && !list.path.is_ident("cfg")
        {
            self.tokens(list.tokens.clone());
            if list.path.is_ident("serde") {
                self.strings(list.tokens.clone());
            }
        }
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        if invocation.path.segments.len() > 1 {
            self.add_path(&invocation.path, Namespace::Types);
        }
        self.tokens(invocation.tokens.clone());
    }

    fn visit_expr_path(&mut self, expression: &'ast syn::ExprPath) {
        self.add_path(&expression.path, Namespace::Values);
        if let Some(qself) = &expression.qself {
            self.visit_qself(qself);
        }
        for segment in &expression.path.segments {
            self.visit_path_arguments(&segment.arguments);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add_path(path, Namespace::Types);
        visit::visit_path(self, path);
    }
}

/// Name without the mark of a raw identifier.
pub(super) fn plain(ident: &syn::Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").map_or(name.clone(), str::to_owned)
}
