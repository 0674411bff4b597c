//! Opens every file below the given folders and says what came of it: one line each, and the counts.
//!
//! `cargo run --example ckpt_survey -- FOLDER...`, each file within this process, so a panic, a hang or growth of
//! memory is this program's own.

use std::path::{Path, PathBuf};
use std::time::Instant;
use torchlike::io::Archive;

fn walk(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, out)
        } else {
            out.push(path)
        }
    }
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

fn survey(path: &Path) -> Result<String, torchlike::Error> {
    let archive = Archive::open(path)?;
    for storage in &archive.tree().storages {
        if storage.data != torchlike::io::Data::Meta {
            archive.read_storage(storage)?;
        }
    }
    archive.verify()?;
    let refused: Vec<String> = archive
        .tree()
        .disallowed(&|_| false)
        .map(ToString::to_string)
        .collect();
    let unresolved: Vec<String> = archive
        .tree()
        .unresolved()
        .iter()
        .map(ToString::to_string)
        .collect();
    Ok(format!(
        "{} tensors, not weights-only {refused:?}, unresolved {unresolved:?}",
        archive.tensors().len()
    ))
}

fn main() {
    let mut paths = Vec::new();
    for folder in std::env::args().skip(1) {
        let path = PathBuf::from(folder);
        if path.is_dir() {
            walk(&path, &mut paths)
        } else {
            paths.push(path)
        }
    }
    paths.sort();
    let (mut opened, mut refused, mut slowest, mut peak) =
        (0, 0, (0.0, PathBuf::new()), peak_kib());
    for path in &paths {
        let start = Instant::now();
        match survey(path) {
            Ok(text) => {
                opened += 1;
                println!("ok    {} {text}", path.display());
            }
            Err(e) => {
                refused += 1;
                println!("error {} {e:?}", path.display());
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        if seconds > slowest.0 {
            slowest = (seconds, path.clone());
        }
        let now = peak_kib();
        if now > peak + 20 * 1024 {
            println!("      peak memory grew by {} MiB", (now - peak) / 1024);
        }
        peak = now;
    }
    println!(
        "opened {opened}, refused {refused}, slowest {:.3} s ({}), peak {} MiB",
        slowest.0,
        slowest.1.display(),
        peak / 1024
    );
}
