//! `torchlike fingerprint`: do two files hold the same tensors, whatever their formats?

use super::output::{clean, print_json, shown, tensor_bytes};
use super::progress::Bar;
use super::{Command, Failure, GOOD, Terminal, usage};
use crate::io::Archive;
use crate::io::fingerprint::hex;
use lexopt::{Arg, Parser};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

pub const COMMAND: Command = Command {
    name: "fingerprint",
    summary: "print a digest of names, dtypes, shapes and elements that no change of format changes",
    help: "\
Print a digest of names, dtypes, shapes and elements of all tensors, one line for each file. Two files have one fingerprint
if they hold the same tensors, whatever their formats, strides, ties and order.

Usage: torchlike fingerprint [--tensors] [--json] [--quiet] FILE...

Options:
  --tensors  print the SHA-256 of the elements of each tensor too
  --quiet    no progress bar
  --json     print one JSON object for each file
",
    run,
};

fn run(parser: &mut Parser, terminal: &mut Terminal<'_>) -> Result<i32, Failure> {
    let (mut paths, mut json, mut quiet, mut each) = (Vec::new(), false, false, false);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Err(Failure::Help),
            Arg::Long("json") => json = true,
            Arg::Long("tensors") => each = true,
            Arg::Short('q') | Arg::Long("quiet") => quiet = true,
            Arg::Value(value) => paths.push(PathBuf::from(value)),
            other => return Err(other.unexpected().into()),
        }
    }
    if paths.is_empty() {
        return Err(usage("fingerprint needs a file"));
    }
    for path in paths {
        let archive = Archive::open(&path)?;
        let tensors = archive.tensors();
        let total = tensors.iter().map(tensor_bytes);
        let total = total.fold(0, u64::saturating_add);
        let print = {
            let bar = Bar::new(total, "reading", quiet || json);
            archive.fingerprint(&|n| bar.add(n))?
        };
        let text = |digest: &Option<[u8; 32]>| digest.as_ref().map(hex);
        let name = path.display().to_string();
        if json {
            let mut all = json!({"file": name, "fingerprint": hex(&print.whole)});
            if each {
                let tensors = print.tensors.iter();
                all["tensors"] = tensors
                    .map(|(name, digest)| json!({"name": name, "sha256": text(digest)}))
                    .collect::<Vec<Json>>()
                    .into();
            }
            print_json(terminal, &all)?;
        } else {
            writeln!(terminal.out, "{}  {}", hex(&print.whole), clean(&name))?;
            for (name, digest) in print.tensors.iter().filter(|_| each) {
                let digest = text(digest).unwrap_or_else(|| "(no data)".into());
                writeln!(terminal.out, "  {digest:<64}  {}", shown(name))?;
            }
        }
    }
    Ok(GOOD)
}
