//! `torchlike verify`: are the bytes those that were written?

use super::output::{clean, count, human, print_json};
use super::progress::Bar;
use super::{BAD, Command, Failure, GOOD, Terminal, usage};
use crate::io::{Archive, Data};
use lexopt::{Arg, Parser};
use serde_json::json;
use std::path::PathBuf;

pub const COMMAND: Command = Command {
    name: "verify",
    summary: "compare all bytes of a file with its checksums",
    help: "\
Compare all bytes of files with their checksums, and name the first tensor that is damaged.

Usage: torchlike verify [--json] [--quiet] FILE...

Formats without checksums, such as safetensors, are proved to be whole: every range lies in the file.

Options:
  --quiet   no progress bar
  --json    print one JSON object for each file

Exit codes: 0 all are whole, 1 one is damaged, 2 one cannot be read
",
    run,
};

fn run(parser: &mut Parser, terminal: &mut Terminal<'_>) -> Result<i32, Failure> {
    let (mut paths, mut json, mut quiet) = (Vec::new(), false, false);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Err(Failure::Help),
            Arg::Long("json") => json = true,
            Arg::Short('q') | Arg::Long("quiet") => quiet = true,
            Arg::Value(value) => paths.push(PathBuf::from(value)),
            other => return Err(other.unexpected().into()),
        }
    }
    if paths.is_empty() {
        return Err(usage("verify needs a file"));
    }
    let mut code = GOOD;
    for path in paths {
        let archive = Archive::open(&path)?;
        let with_checksum = archive
            .tree()
            .storages
            .iter()
            .filter(|s| s.crc.is_some() && s.data != Data::Meta);
        let total = with_checksum.fold(0u64, |n, s| n.saturating_add(s.nbytes));
        let verified = {
            let bar = Bar::new(total, "verifying", quiet || json);
            archive.verify_with(&|n| bar.add(n))
        };
        let name = path.display().to_string();
        match verified {
            Ok(v) if json => print_json(
                terminal,
                &json!({"file": name, "ok": true, "checked": v.checked, "bytes": v.bytes, "without_checksum": v.without}),
            )?,
            Ok(v) => {
                let mut text = format!(
                    "{}, {} verified",
                    count(v.checked, "storage"),
                    human(v.bytes)
                );
                if v.without > 0 {
                    text.push_str(&format!(
                        ", {} without a checksum in this format ({})",
                        count(v.without, "storage"),
                        archive.format().name()
                    ));
                }
                writeln!(terminal.out, "{}: ok: {text}", clean(&name))?;
            }
            Err(e) => {
                code = BAD;
                if json {
                    print_json(
                        terminal,
                        &json!({"file": name, "ok": false, "error": e.message()}),
                    )?;
                } else {
                    writeln!(terminal.out, "{}: {}", clean(&name), clean(e.message()))?;
                }
            }
        }
    }
    Ok(code)
}
