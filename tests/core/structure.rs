//! The shape of the source tree, kept by a test that parses it: which part may use which, where `unsafe` and pyo3 are, how
//! long files and functions are, what operators may not do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Lines of a file, and of a function, above which it should be split by noun.
const LONGEST_FILE: usize = 500;
const LONGEST_FUNCTION: usize = 100;
/// Half of all functions are no longer than this, and nine tenths no longer than that.
const MEDIAN: usize = 9;
const NINETIETH: usize = 30;

/// What everything else stands on.
const CORE: &[&str] = &[
    "dims", "dtype", "device", "scalar", "error", "mode", "source", "storage", "tensor", "plan",
    "parts", "mixed", "captured",
];

/// What a part may use besides the core, itself, and `wiring`, where the parts meet.
const MAY_USE: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("random", &["cpu"]),
    ("cpu", &["random"]),
    ("kernels", &["random", "cpu"]),
    ("cuda", &["random", "cpu", "kernels"]),
    ("ops", &["cpu", "kernels", "random"]),
    ("layers", &["ops", "random"]),
    ("io", &[]),
    ("dist", &[]),
];

struct Source {
    path: PathBuf,
    text: String,
    seen: Seen,
}

/// The files of the crate, read and parsed once for all tests.
static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    walk(&root, &mut paths);
    let source = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut seen = Seen::default();
        seen.visit_file(&syn::parse_file(&text).unwrap());
        let path = path.strip_prefix(&root).unwrap().to_path_buf();
        Source { path, text, seen }
    };
    paths.into_iter().map(source).collect()
});

/// The part of the tree that a path inside the crate leads to.
fn part(module: &str) -> &str {
    if CORE.contains(&module) {
        "core"
    } else {
        module
    }
}

/// The modules of this crate that a file names, in `use` declarations and in paths, and the functions it has.
#[derive(Default)]
struct Seen {
    modules: BTreeSet<String>,
    functions: Vec<(String, usize)>,
}

impl Seen {
    fn note_use(&mut self, tree: &syn::UseTree, in_crate: bool) {
        match tree {
            syn::UseTree::Path(p) if p.ident == "crate" => self.note_use(&p.tree, true),
            syn::UseTree::Path(p) if in_crate => {
                self.modules.insert(p.ident.to_string());
            }
            syn::UseTree::Name(n) if in_crate => {
                self.modules.insert(n.ident.to_string());
            }
            syn::UseTree::Rename(n) if in_crate => {
                self.modules.insert(n.ident.to_string());
            }
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.note_use(t, in_crate)),
            _ => {}
        }
    }

    fn note_function(&mut self, name: &syn::Ident, span: proc_macro2::Span) {
        let lines = span.end().line - span.start().line + 1;
        self.functions.push((name.to_string(), lines));
    }
}

impl<'ast> Visit<'ast> for Seen {
    fn visit_item_use(&mut self, i: &'ast syn::ItemUse) {
        self.note_use(&i.tree, false);
    }

    fn visit_item_mod(&mut self, m: &'ast syn::ItemMod) {
        let test = m.attrs.iter().any(|a| a.path().is_ident("cfg"));
        if !test {
            syn::visit::visit_item_mod(self, m);
        }
    }

    fn visit_path(&mut self, p: &'ast syn::Path) {
        let mut names = p.segments.iter().map(|s| s.ident.to_string());
        if names.next().as_deref() == Some("crate")
            && let Some(module) = names.next()
        {
            self.modules.insert(module);
        }
        syn::visit::visit_path(self, p);
    }

    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        self.note_function(&f.sig.ident, f.block.span());
        syn::visit::visit_item_fn(self, f);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.note_function(&f.sig.ident, f.block.span());
        syn::visit::visit_impl_item_fn(self, f);
    }
}

/// The part that a file belongs to: its folder, or `core`.
fn part_of(path: &Path) -> String {
    let first = path
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_string_lossy();
    part(first.trim_end_matches(".rs")).to_owned()
}

/// Lines of code: neither comments nor blank.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with("//"))
}

#[test]
fn parts_use_only_what_they_may() {
    let modules: BTreeSet<&str> = MAY_USE.iter().map(|m| m.0).chain(["py", "cli"]).collect();
    let mut wrong = Vec::new();
    for source in SOURCES.iter() {
        let part_here = part_of(&source.path);
        let Some((_, may)) = MAY_USE.iter().find(|m| m.0 == part_here) else {
            continue;
        };
        for module in &source.seen.modules {
            let other = part(module);
            if modules.contains(other)
                && other != "core"
                && other != part_here
                && !may.contains(&other)
            {
                wrong.push(format!("{} uses {module}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn parts_have_no_circles() {
    let uses: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    for start in uses.keys() {
        let (mut next, mut reached) = (uses[start].to_vec(), BTreeSet::new());
        while let Some(part) = next.pop() {
            if reached.insert(part) {
                next.extend(uses.get(part).copied().unwrap_or(&[]));
            }
        }
        // Random streams and host kernels are one layer: distributions fill memory, and kernels draw.
        let pair = ["cpu", "random"].contains(start);
        assert!(pair || !reached.contains(start), "{start} uses itself");
    }
}

#[test]
fn only_the_binding_knows_python() {
    for source in SOURCES.iter() {
        let home = source.path.starts_with("py") || source.path == Path::new("lib.rs");
        assert!(
            home || !code(&source.text).any(|l| l.contains("pyo3")),
            "{}: pyo3 outside py/",
            source.path.display()
        );
    }
}

#[test]
fn unsafe_files_say_why() {
    for Source { path, text, .. } in SOURCES.iter() {
        let says_why =
            text.contains("allow(unsafe_code") || text.contains("allow(\n    unsafe_code");
        let uses = code(text).any(|l| {
            l.contains("unsafe {") || l.contains("unsafe fn") || l.contains("unsafe impl")
        });
        assert_eq!(
            uses,
            says_why,
            "{}: unsafe and its reason go together",
            path.display()
        );
    }
}

#[test]
fn files_and_functions_are_short_enough_to_read() {
    let (mut wrong, mut lengths) = (Vec::new(), Vec::new());
    for source in SOURCES.iter() {
        let lines = source.text.lines().count();
        if lines > LONGEST_FILE {
            wrong.push(format!("{}: {lines} lines", source.path.display()));
        }
        if source.path.ends_with("tests.rs") {
            continue;
        }
        for &(ref name, lines) in &source.seen.functions {
            if lines > LONGEST_FUNCTION {
                wrong.push(format!(
                    "{}: fn {name}: {lines} lines",
                    source.path.display()
                ));
            }
            lengths.push(lines);
        }
    }
    lengths.sort_unstable();
    let (median, ninetieth) = (lengths[lengths.len() / 2], lengths[lengths.len() * 9 / 10]);
    assert!(wrong.is_empty(), "split by noun:\n{}", wrong.join("\n"));
    assert!(
        median <= MEDIAN,
        "half of the functions are longer than {median} lines"
    );
    assert!(
        ninetieth <= NINETIETH,
        "a tenth of the functions are longer than {ninetieth} lines"
    );
}

/// What an operator may not do: read arguments by position, make views by hand, ask for its own name or for a device, or
/// find operators by their names at run time.
#[test]
fn operators_keep_to_the_door() {
    let forbidden = [
        ".tensor(0)",
        ".opt_tensor(",
        ".look(",
        ".view_with(",
        ".from_parts(",
        "op!(",
        "run!(",
        "run1!(",
        "a.name()",
        "args.name()",
    ];
    // Only copies go between devices; all others ask whether values are at hand.
    let devices = [".is_cpu()", ".is_meta()", ".is_cuda()", ".is_accelerator()"];
    let mut wrong = Vec::new();
    for source in SOURCES.iter() {
        // The core is the door itself.
        let core = source.path.starts_with("ops/core");
        if !source.path.starts_with("ops") || core {
            continue;
        }
        for line in code(&source.text) {
            let line = line.replace("map_op!(", "");
            let copies = source.path.ends_with("copy.rs");
            let devices = devices.iter().filter(|_| !copies);
            if let Some(what) = forbidden.iter().chain(devices).find(|f| line.contains(**f)) {
                wrong.push(format!("{}: {what}: {line}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
