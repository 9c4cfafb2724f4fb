//! Figures of the source text: words of the prose, names of types, file cycles, lines by crate.
//!
//! `measure house` prints them and `tests/tidy.rs` bounds them. Everything is computed from the
//! files that git tracks.

mod cycles;
mod lexer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Words that an engineer of the field would not search for, one per line, in the forms that the
/// prose uses.
pub const ODD_WORDS: &str = include_str!("source_metrics/odd_words.txt");

/// The page that names the odd words which the project does not use, so they are not counted in it.
const GLOSSARY: &str = "docs/glossary.md";

/// Names of the field with the arguments of a program; a type with one of these and one of
/// [`ENVIRONMENT_FIELDS`] is a form of a launch.
const COMMAND_FIELDS: [&str; 4] = ["argv", "args", "arguments", "command"];

/// Names of the field with the environment of a program.
const ENVIRONMENT_FIELDS: [&str; 3] = ["env", "environment", "variables"];

/// Source figures of the whole repository.
#[derive(Clone, Debug, Serialize)]
pub struct SourceMetrics {
    /// Words of [`ODD_WORDS`] per 1,000 words of comments, documentation and string literals. The
    /// glossary adds to the words, and not to the odd ones.
    pub odd_words_per_1000: f64,
    /// The word "what" per 1,000 of the same words.
    pub what_per_1000: f64,
    /// Mean length of the names of types in production code, in characters.
    pub mean_type_name: f64,
    /// Share of types in production code whose name another type has too, in percent.
    pub shared_names_percent: f64,
    /// Files that lie on an import cycle inside their crate.
    pub files_in_circles: usize,
    /// Lines with code outside of tests, of crates that are shipped.
    pub production_lines: usize,
    /// Lines with code in tests, benches, the integration crates, and under the feature `testkit`.
    pub test_lines: usize,
    /// Tokens of production code: a count of the same code that does not depend on the width of
    /// lines.
    pub production_tokens: usize,
    /// Items that are `pub` in production code.
    pub public_items: usize,
    /// Types in production code with both the arguments and the environment of a program: forms of
    /// a launch.
    pub launch_forms: Vec<String>,
    /// Lines and cycles of each crate, by folder.
    pub crates: BTreeMap<String, CrateMetrics>,
}

/// Source figures of one crate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CrateMetrics {
    /// As in [`SourceMetrics`].
    pub production_lines: usize,
    /// As in [`SourceMetrics`].
    pub test_lines: usize,
    /// Files of each import cycle, largest cycle first.
    pub cycles: Vec<Vec<String>>,
}

/// One parsed source file.
struct SourceFile {
    /// Path from the root of the repository.
    path: PathBuf,
    text: String,
    syntax: syn::File,
    /// True in `tests/`, `benches/`, the integration crates, and modules under `#[cfg(test)]` or
    /// the feature `testkit`.
    is_test: bool,
}

/// Computes the figures of the repository at `root`.
///
/// # Errors
/// If git cannot list the files, or one of them cannot be read or parsed.
pub fn of_repository(root: &Path) -> Result<SourceMetrics> {
    let tracked = tracked_files(root)?;
    let mut words = Words::default();
    for path in tracked
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
    {
        let prose = prose_of_markdown(&read(root, path)?);
        let odd_words = if path == Path::new(GLOSSARY) {
            OddWords::Ignored
        } else {
            OddWords::Counted
        };
        words.count(&prose, odd_words);
    }
    let mut crates = BTreeMap::new();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut launch_forms = BTreeSet::new();
    let (mut public_items, mut production_tokens) = (0, 0);
    for folder in crate_folders(&tracked) {
        let files = parse_crate(root, &folder, &tracked)?;
        let mut metrics = CrateMetrics {
            cycles: cycles::of_crate(&folder, &files),
            ..CrateMetrics::default()
        };
        for file in &files {
            let lexed = lexer::lex(&file.text);
            words.count(&lexed.prose, OddWords::Counted);
            let test_lines = if file.is_test {
                (0..lexed.tokens.len()).collect()
            } else {
                cfg_test_lines(&file.syntax)
            };
            for (line, tokens) in lexed
                .tokens
                .iter()
                .enumerate()
                .filter(|(_, tokens)| **tokens > 0)
            {
                if test_lines.contains(&line) {
                    metrics.test_lines += 1;
                } else {
                    metrics.production_lines += 1;
                    production_tokens += tokens;
                }
            }
            if !file.is_test {
                let mut items = Items::default();
                items.visit_file(&file.syntax);
                public_items += items.public;
                launch_forms.extend(
                    items
                        .launch_forms
                        .iter()
                        .map(|name| format!("{}: {name}", file.path.display())),
                );
                for name in items.types {
                    *names.entry(name).or_default() += 1;
                }
            }
        }
        crates.insert(folder.display().to_string(), metrics);
    }
    let types: usize = names.values().sum();
    let letters: usize = names.iter().map(|(name, times)| name.len() * times).sum();
    let shared: usize = names.values().filter(|times| **times > 1).sum();
    Ok(SourceMetrics {
        odd_words_per_1000: words.per_1000(words.odd),
        what_per_1000: words.per_1000(words.what),
        mean_type_name: ratio(letters, types),
        shared_names_percent: ratio(100 * shared, types),
        files_in_circles: crates.values().flat_map(|c| &c.cycles).map(Vec::len).sum(),
        production_lines: crates.values().map(|c| c.production_lines).sum(),
        test_lines: crates.values().map(|c| c.test_lines).sum(),
        production_tokens,
        public_items,
        launch_forms: launch_forms.into_iter().collect(),
        crates,
    })
}

/// Two decimals are enough to compare.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of words and names are far below 2^52"
)]
fn ratio(part: usize, whole: usize) -> f64 {
    (part as f64 / whole.max(1) as f64 * 100.0).round() / 100.0
}

fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .context("git cannot be started")?;
    ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let list = String::from_utf8(output.stdout)?;
    Ok(list
        .lines()
        .map(PathBuf::from)
        .filter(|path| root.join(path).is_file())
        .collect())
}

fn read(root: &Path, path: &Path) -> Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| path.display().to_string())
}

/// Folders with a `Cargo.toml` and sources, from the root of the repository.
fn crate_folders(tracked: &[PathBuf]) -> Vec<PathBuf> {
    let manifests = tracked.iter().filter(|path| path.ends_with("Cargo.toml"));
    let folders = manifests
        .filter_map(|path| path.parent())
        .map(Path::to_owned);
    folders
        .filter(|folder| {
            tracked
                .iter()
                .any(|path| path.starts_with(folder.join("src")))
        })
        .collect()
}

/// The Rust files of one crate, without those of crates in folders below it.
fn parse_crate(root: &Path, folder: &Path, tracked: &[PathBuf]) -> Result<Vec<SourceFile>> {
    let inner: Vec<PathBuf> = crate_folders(tracked)
        .into_iter()
        .filter(|f| f != folder && f.starts_with(folder))
        .collect();
    let is_own =
        |path: &&PathBuf| path.starts_with(folder) && !inner.iter().any(|f| path.starts_with(f));
    let rust = tracked
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .filter(is_own);
    let mut files = Vec::new();
    for path in rust {
        let text = read(root, path)?;
        let syntax = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let is_test = folder.starts_with("integration") || !path.starts_with(folder.join("src"));
        files.push(SourceFile {
            path: path.clone(),
            text,
            syntax,
            is_test,
        });
    }
    let in_test_modules: Vec<PathBuf> = files.iter().flat_map(test_modules).collect();
    for file in &mut files {
        let stem = file.path.with_extension("");
        file.is_test |= in_test_modules
            .iter()
            .any(|module| stem.starts_with(module));
    }
    Ok(files)
}

/// Paths, without `.rs`, of the modules that a file declares for tests only.
fn test_modules(file: &SourceFile) -> Vec<PathBuf> {
    let base = cycles::folder_of_children(&file.path);
    let modules = file.syntax.items.iter().filter_map(|item| {
        if let syn::Item::Mod(module) = item {
            Some(module)
        } else {
            None
        }
    });
    modules
        .filter(|m| m.content.is_none() && is_cfg_test(&m.attrs))
        .map(|m| base.join(m.ident.to_string()))
        .collect()
}

fn is_cfg_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Meta>()
                .is_ok_and(|condition| is_test_only(&condition))
    })
}

/// True for `test`, for `feature = "testkit"`, and for `any` of these two.
fn is_test_only(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::NameValue(pair) => {
            pair.path.is_ident("feature") && is_text(&pair.value, "testkit")
        }
        syn::Meta::List(list) => {
            let parser = Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
            list.path.is_ident("any")
                && list
                    .parse_args_with(parser)
                    .is_ok_and(|all| all.iter().all(is_test_only))
        }
    }
}

fn is_text(value: &syn::Expr, text: &str) -> bool {
    matches!(
        value,
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(literal), .. }) if literal.value() == text
    )
}

/// Lines, from 0, of items for tests only.
fn cfg_test_lines(file: &syn::File) -> BTreeSet<usize> {
    let tests = file
        .items
        .iter()
        .filter(|item| is_cfg_test(attributes_of(item)));
    tests
        .flat_map(|item| item.span().start().line - 1..item.span().end().line)
        .collect()
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "syn adds kinds of items, and most have no figure here"
)]
fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The text of a page without its blocks of code.
fn prose_of_markdown(page: &str) -> String {
    let mut in_block = false;
    let mut prose = String::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

/// Whether a text counts for the odd words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OddWords {
    Counted,
    Ignored,
}

/// Counts of words.
#[derive(Default)]
struct Words {
    all: usize,
    odd: usize,
    what: usize,
}

impl Words {
    fn count(&mut self, prose: &str, odd_words: OddWords) {
        let odd: BTreeSet<&str> = match odd_words {
            OddWords::Counted => ODD_WORDS.lines().collect(),
            OddWords::Ignored => BTreeSet::new(),
        };
        let is_part = |c: char| c.is_alphabetic() || c == '\'';
        for word in prose.split(|c| !is_part(c)).filter(|word| !word.is_empty()) {
            let word = word.to_lowercase();
            self.all += 1;
            self.odd += usize::from(odd.contains(word.as_str()));
            self.what += usize::from(word == "what");
        }
    }

    fn per_1000(&self, count: usize) -> f64 {
        ratio(1000 * count, self.all)
    }
}

/// Items that one file of production code defines.
#[derive(Default)]
struct Items {
    types: Vec<String>,
    public: usize,
    launch_forms: Vec<String>,
}

impl Items {
    fn add(&mut self, visibility: &syn::Visibility) {
        self.public += usize::from(matches!(visibility, syn::Visibility::Public(_)));
    }
}

impl<'ast> Visit<'ast> for Items {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "syn adds kinds of items, and most have no figure here"
    )]
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_cfg_test(attributes_of(item)) {
            return;
        }
        match item {
            syn::Item::Struct(item) => {
                self.types.push(item.ident.to_string());
                self.add(&item.vis);
                let has = |names: &[&str]| {
                    item.fields
                        .iter()
                        .filter_map(|f| f.ident.as_ref())
                        .any(|field| names.iter().any(|name| field == name))
                };
                if has(&COMMAND_FIELDS) && has(&ENVIRONMENT_FIELDS) {
                    self.launch_forms.push(item.ident.to_string());
                }
            }
            syn::Item::Enum(item) => {
                self.types.push(item.ident.to_string());
                self.add(&item.vis);
            }
            syn::Item::Trait(item) => {
                self.types.push(item.ident.to_string());
                self.add(&item.vis);
            }
            syn::Item::Type(item) => {
                self.types.push(item.ident.to_string());
                self.add(&item.vis);
            }
            syn::Item::Fn(item) => self.add(&item.vis),
            syn::Item::Const(item) => self.add(&item.vis),
            syn::Item::Static(item) => self.add(&item.vis),
            syn::Item::Mod(item) => self.add(&item.vis),
            _ => {}
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.vis);
        syn::visit::visit_impl_item_fn(self, function);
    }
}
