//! The shape of the source tree, kept by a test: which folder may use which, where `unsafe` is, how long files are.

use std::path::{Path, PathBuf};

/// Lines a source file may have before it should be split by noun.
const LONGEST: usize = 700;

fn sources() -> Vec<(PathBuf, String)> {
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
    paths
        .into_iter()
        .map(|p| {
            let text = std::fs::read_to_string(&p).unwrap();
            (p.strip_prefix(&root).unwrap().to_path_buf(), text)
        })
        .collect()
}

/// Lines of code: neither comments nor blank.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with("//"))
}

#[test]
fn folders_use_only_what_they_may() {
    let forbidden = [
        (
            "cpu",
            &["crate::ops", "crate::io", "crate::py", "crate::layers"][..],
        ),
        ("cuda", &["crate::io", "crate::py", "crate::layers"][..]),
        (
            "io",
            &[
                "crate::ops",
                "crate::cpu",
                "crate::cuda",
                "crate::py",
                "crate::layers",
            ][..],
        ),
        ("ops", &["crate::io", "crate::py"][..]),
        (
            "random",
            &["crate::ops", "crate::io", "crate::py", "crate::layers"][..],
        ),
    ];
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let folder = path.components().next().unwrap().as_os_str();
        for (name, names) in forbidden {
            if folder != name {
                continue;
            }
            for (line, found) in code(&text).flat_map(|l| names.iter().map(move |n| (l, n))) {
                if line.contains(found) {
                    wrong.push(format!("{}: {line}", path.display()));
                }
            }
        }
        if folder != "py" && code(&text).any(|l| l.contains("pyo3")) && path != Path::new("lib.rs")
        {
            wrong.push(format!("{}: pyo3 outside py/", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_files_say_why() {
    for (path, text) in sources() {
        let says_why =
            text.contains("allow(unsafe_code") || text.contains("allow(\n    unsafe_code");
        let uses = code(&text).any(|l| {
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
fn files_are_short_enough_to_read() {
    let long: Vec<String> = sources()
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "split by noun:\n{}", long.join("\n"));
}
