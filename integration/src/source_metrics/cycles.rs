//! Import cycles between the files of one crate.
//!
//! A file depends on another if its production code names an item of it by a path. The declaration
//! of a module and a re-export are no dependency: a path that leads through a re-export depends on
//! the file that defines the item. A path may begin with `crate`, `self`, `super`, a child module
//! or an imported name. Paths in the tokens of macros and attributes count like all others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

use super::SourceFile;

/// A module by its path from the root of the crate; empty for the root.
type ModulePath = Vec<String>;

/// Files of each cycle of a crate, the largest cycle first.
pub(super) fn of_crate(folder: &Path, files: &[SourceFile]) -> Vec<Vec<String>> {
    let source = folder.join("src");
    let production = || {
        files
            .iter()
            .filter(|file| !file.is_test && file.path.starts_with(&source))
    };
    let modules: BTreeMap<ModulePath, &SourceFile> = production()
        .filter_map(|file| Some((module_path(&source, &file.path)?, file)))
        .collect();
    let imports: BTreeMap<&ModulePath, BTreeMap<String, ModulePath>> = modules
        .iter()
        .map(|(module, file)| (module, imports_of(module, &file.syntax)))
        .collect();
    let resolver = Resolver {
        modules: &modules,
        imports: &imports,
    };
    let edges: BTreeMap<&ModulePath, BTreeSet<ModulePath>> = modules
        .iter()
        .map(|(module, file)| (module, resolver.dependencies(module, &file.syntax)))
        .collect();
    let mut cycles: Vec<Vec<String>> = strongly_connected(&edges)
        .into_iter()
        .filter(|members| members.len() > 1)
        .map(|members| {
            let mut files: Vec<String> = members
                .iter()
                .map(|m| modules[m].path.display().to_string())
                .collect();
            files.sort();
            files
        })
        .collect();
    cycles.sort_by_key(|files| std::cmp::Reverse(files.len()));
    cycles
}

/// The folder in which the child modules of a file are.
pub(super) fn folder_of_children(path: &Path) -> PathBuf {
    let owns_its_folder = ["lib.rs", "main.rs", "mod.rs"]
        .iter()
        .any(|name| path.ends_with(name));
    if owns_its_folder {
        path.parent().unwrap_or(Path::new("")).to_owned()
    } else {
        path.with_extension("")
    }
}

/// `None` for programs in `src/bin`, which are crates of their own.
fn module_path(source: &Path, path: &Path) -> Option<ModulePath> {
    let inside = folder_of_children(path)
        .strip_prefix(source)
        .ok()?
        .to_owned();
    let names: ModulePath = inside
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    (names.first().is_none_or(|name| name != "bin")).then_some(names)
}

/// The modules that a file declares and that are files of their own.
fn children_of(file: &syn::File) -> BTreeSet<String> {
    let declared = file.items.iter().filter_map(|item| {
        let syn::Item::Mod(child) = item else {
            return None;
        };
        child.content.is_none().then(|| child.ident.to_string())
    });
    declared.collect()
}

/// An absolute path inside the crate, if `path` begins with `crate`, `self`, `super` or a child.
fn absolute(
    module: &ModulePath,
    children: &BTreeSet<String>,
    path: &[String],
) -> Option<ModulePath> {
    let mut base = match path.first()?.as_str() {
        "crate" => ModulePath::new(),
        "self" | "super" => module.clone(),
        child if path.len() > 1 && children.contains(child) => module.clone(),
        _ => return None,
    };
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        match first.as_str() {
            "crate" | "self" => {}
            "super" => {
                base.pop();
            }
            _ => break,
        }
        rest = tail;
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// Names that a module imports, with the absolute paths that they stand for.
fn imports_of(module: &ModulePath, file: &syn::File) -> BTreeMap<String, ModulePath> {
    let mut imports = BTreeMap::new();
    let children = children_of(file);
    for item in &file.items {
        if let syn::Item::Use(item) = item {
            for (path, name) in leaves(&item.tree) {
                if let Some(target) = absolute(module, &children, &path) {
                    imports.insert(name, target);
                }
            }
        }
    }
    imports
}

/// Each path of a `use` with the name under which it is imported; empty for `self`, which is
/// imported under the name before it.
fn leaves(tree: &syn::UseTree) -> Vec<(Vec<String>, String)> {
    let below = |name: String, inner: Vec<(Vec<String>, String)>| {
        inner
            .into_iter()
            .map(move |(path, leaf)| {
                let leaf = if leaf.is_empty() { &name } else { &leaf };
                ([vec![name.clone()], path].concat(), leaf.clone())
            })
            .collect()
    };
    match tree {
        syn::UseTree::Path(path) => below(path.ident.to_string(), leaves(&path.tree)),
        syn::UseTree::Name(name) if name.ident == "self" => vec![(Vec::new(), String::new())],
        syn::UseTree::Name(name) => vec![(vec![name.ident.to_string()], name.ident.to_string())],
        syn::UseTree::Rename(rename) => {
            vec![(vec![rename.ident.to_string()], rename.rename.to_string())]
        }
        syn::UseTree::Glob(_) => vec![(Vec::new(), "*".to_owned())],
        syn::UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

struct Resolver<'a> {
    modules: &'a BTreeMap<ModulePath, &'a SourceFile>,
    imports: &'a BTreeMap<&'a ModulePath, BTreeMap<String, ModulePath>>,
}

impl Resolver<'_> {
    fn dependencies(&self, module: &ModulePath, file: &syn::File) -> BTreeSet<ModulePath> {
        let mut paths = Paths {
            module,
            children: children_of(file),
            imports: &self.imports[module],
            found: BTreeSet::new(),
        };
        paths.visit_file(file);
        let targets = paths.found.iter().filter_map(|path| self.file_of(path, 0));
        targets.filter(|target| target != module).collect()
    }

    /// The module whose file defines the item at an absolute path.
    fn file_of(&self, path: &[String], depth: usize) -> Option<ModulePath> {
        let length = (0..=path.len())
            .rev()
            .find(|length| self.modules.contains_key(&path[..*length]))?;
        let (module, rest) = path.split_at(length);
        let reexport = rest
            .first()
            .and_then(|name| self.imports.get(&module.to_vec())?.get(name));
        match reexport {
            Some(target) if depth < 8 => {
                self.file_of(&[target.as_slice(), &rest[1..]].concat(), depth + 1)
            }
            _ => Some(module.to_vec()),
        }
    }
}

/// Collects absolute paths from the production code of one module.
struct Paths<'a> {
    module: &'a ModulePath,
    children: BTreeSet<String>,
    imports: &'a BTreeMap<String, ModulePath>,
    found: BTreeSet<ModulePath>,
}

impl Paths<'_> {
    fn add(&mut self, path: &[String]) {
        let imported = match path {
            [name, rest @ ..] if !rest.is_empty() => self
                .imports
                .get(name)
                .map(|target| [target.as_slice(), rest].concat()),
            _ => None,
        };
        let path = imported.or_else(|| absolute(self.module, &self.children, path));
        self.found.extend(path);
    }

    /// Adds each path of at least two names in the tokens of a macro or an attribute. The paths
    /// continue `prefix`, which precedes the tokens if they are a group of a `use`.
    fn add_tokens(&mut self, prefix: &[String], tokens: TokenStream) {
        let mut path = prefix.to_vec();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.end_of_path(prefix, &mut path);
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    let before = if colons == 2 { path.as_slice() } else { &[] };
                    self.add_tokens(before, group.stream());
                    if colons == 2 {
                        path.clear();
                    }
                    self.end_of_path(prefix, &mut path);
                    colons = 0;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.end_of_path(prefix, &mut path);
                    colons = 0;
                }
            }
        }
        self.end_of_path(prefix, &mut path);
    }

    fn end_of_path(&mut self, prefix: &[String], path: &mut Vec<String>) {
        if path.len() > prefix.len().max(1) {
            self.add(path);
        }
        *path = prefix.to_vec();
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !super::is_cfg_test(super::attributes_of(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if matches!(item.vis, syn::Visibility::Inherited) {
            for (path, _) in leaves(&item.tree) {
                self.add(&path);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        self.add(&names);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        self.add_tokens(&[], invocation.tokens.clone());
        syn::visit::visit_macro(self, invocation);
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.add_tokens(&[], list.tokens.clone());
        syn::visit::visit_meta_list(self, list);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(crate)` and `pub(super)` are paths too, and no dependency.
    }
}

/// Strongly connected components.
fn strongly_connected(edges: &BTreeMap<&ModulePath, BTreeSet<ModulePath>>) -> Vec<Vec<ModulePath>> {
    let mut graph: DiGraphMap<&ModulePath, ()> = DiGraphMap::new();
    for (from, targets) in edges {
        for to in targets {
            graph.add_edge(*from, to, ());
        }
    }
    tarjan_scc(&graph)
        .into_iter()
        .map(|members| members.into_iter().cloned().collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.into(),
            text: text.to_owned(),
            syntax: syn::parse_file(text).expect("Rust"),
            is_test: false,
        }
    }

    fn cycles(files: &[SourceFile]) -> Vec<Vec<String>> {
        of_crate(Path::new("c"), files)
    }

    #[test]
    fn two_files_that_import_each_other_are_a_cycle() {
        let lib = file("c/src/lib.rs", "mod a; mod b; pub use a::A; pub use b::B;");
        let a = file("c/src/a.rs", "use crate::B; pub struct A(B);");
        let b = file(
            "c/src/b.rs",
            "pub struct B; impl B { fn f(_: &super::a::A) {} }",
        );
        assert_eq!(cycles(&[lib, a, b]), [["c/src/a.rs", "c/src/b.rs"]]);
    }

    #[test]
    fn a_parent_that_declares_and_exports_its_child_is_no_cycle() {
        let lib = file("c/src/lib.rs", "pub mod a;\npub(crate) mod b;");
        let a = file(
            "c/src/a.rs",
            "mod inner; pub use inner::Inner; pub struct A;",
        );
        let inner = file("c/src/a/inner.rs", "pub struct Inner(super::A);");
        let b = file(
            "c/src/b.rs",
            "use crate::a::{A, Inner}; #[cfg(test)] mod tests { use crate::a::A; }",
        );
        assert!(cycles(&[lib, a, inner, b]).is_empty());
    }

    #[test]
    fn a_path_through_a_child_module_is_a_dependency() {
        let lib = file("c/src/lib.rs", "mod a;");
        let a = file(
            "c/src/a.rs",
            "mod inner; pub struct A; fn f() { inner::g(); }",
        );
        let inner = file("c/src/a/inner.rs", "pub fn g(_: super::A) {}");
        assert_eq!(
            cycles(&[lib, a, inner]),
            [["c/src/a.rs", "c/src/a/inner.rs"]]
        );
    }

    #[test]
    fn a_parent_and_a_child_that_use_each_other_are_a_cycle() {
        let lib = file("c/src/lib.rs", "mod a;");
        let a = file(
            "c/src/a.rs",
            "mod inner; use self::inner::Inner; pub struct A(Inner);",
        );
        let inner = file(
            "c/src/a/inner.rs",
            "use super::A; pub struct Inner(Box<A>);",
        );
        assert_eq!(
            cycles(&[lib, a, inner]),
            [["c/src/a.rs", "c/src/a/inner.rs"]]
        );
    }

    /// The cycles of two files: `a` with these texts in a macro, and `b`, which imports `a`.
    fn cycles_with(import: &str, tokens: &str) -> Vec<Vec<String>> {
        let lib = file("c/src/lib.rs", "mod a; mod b; mod c;");
        let a = format!("{import} pub struct A; fn f() {{ list!({tokens}); }}");
        let b = file("c/src/b.rs", "use crate::a::A; pub struct B(A);");
        let c = file("c/src/c.rs", "pub use crate::b::B;");
        cycles(&[lib, file("c/src/a.rs", &a), b, c])
    }

    #[test]
    fn a_path_in_the_tokens_of_a_macro_is_a_dependency() {
        let both = [["c/src/a.rs", "c/src/b.rs"]];
        for tokens in [
            "crate::b::B",
            "x, y => { super::b::B::new(1) }",
            "Vec<super::c::B>",
            "use crate::{c::C, b::{B, D}}; f()",
        ] {
            assert_eq!(cycles_with("", tokens), both, "{tokens}");
        }
        assert_eq!(cycles_with("use crate::c;", "c::B"), both);
        assert_eq!(cycles_with("use super::c::{self};", "c::B, 1"), both);
    }

    #[test]
    fn other_tokens_of_a_macro_are_no_dependency() {
        for tokens in [
            "b::B",
            "pub(crate) b: B",
            "self.b, super",
            "\"crate::b::B\"",
            "crate::c::D",
            "x::crate_b::B",
        ] {
            assert!(cycles_with("", tokens).is_empty(), "{tokens}");
        }
    }

    #[test]
    fn a_path_in_an_attribute_is_a_dependency() {
        let lib = file("c/src/lib.rs", "mod a; mod b;");
        let a = file("c/src/a.rs", "#[route(body = super::b::B)] pub fn f() {}");
        let b = file("c/src/b.rs", "pub struct B; use crate::a::f;");
        assert_eq!(cycles(&[lib, a, b]), [["c/src/a.rs", "c/src/b.rs"]]);
    }
}
