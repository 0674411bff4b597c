//! The command line, shared by the `torchlike` program and the wheel's command of that name.

use crate::io::{Archive, Data, NamedTensor, TensorClass};
use crate::{Result, err};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::{Value as Json, json};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

const HELP: &str = "\
torchlike: look into checkpoints without loading them, and without executing anything in them

Usage: torchlike inspect [--json] FILE
       torchlike --help | --version

Commands:
  inspect   list the tensors of a file: names, dtypes, shapes, sizes, ties, totals

Options:
  --json    print one JSON object in place of a table
  -h, --help
  -V, --version

Exit codes: 0 all is well, 1 the file cannot be read, 2 the command is wrong
";

enum Command {
    Help,
    Version,
    Inspect { path: PathBuf, json: bool },
}

/// Runs the command line with these arguments (without the program's name), and gives the exit code:
/// 0 if all is well, 1 for a file that cannot be read, 2 for a wrong command.
pub fn main(
    args: impl IntoIterator<Item = impl Into<OsString>>,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> i32 {
    let command = match parse(args.into_iter().map(Into::into).collect()) {
        Ok(command) => command,
        Err(e) => {
            let _ = writeln!(errors, "torchlike: {e}\nTry 'torchlike --help'.");
            return 2;
        }
    };
    let done = match command {
        Command::Help => out.write_all(HELP.as_bytes()).map_err(Into::into),
        Command::Version => {
            writeln!(out, "torchlike {}", env!("CARGO_PKG_VERSION")).map_err(Into::into)
        }
        Command::Inspect { path, json } => inspect(&path, json, out),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => 0,
        Err(e) => {
            let _ = writeln!(errors, "torchlike: {e}");
            1
        }
    }
}

fn parse(args: Vec<OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = Parser::from_args(args);
    let (mut command, mut path, mut json) = (None, None, false);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            Arg::Short('V') | Arg::Long("version") => return Ok(Command::Version),
            Arg::Long("json") if command.is_some() => json = true,
            Arg::Value(value) if command.is_none() => {
                let name = value.string()?;
                if name != "inspect" {
                    return Err(format!("unknown command '{name}'").into());
                }
                command = Some(name);
            }
            Arg::Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            other => return Err(other.unexpected()),
        }
    }
    match (command, path) {
        (None, _) => Err("no command given".into()),
        (Some(_), None) => Err("inspect needs a file".into()),
        (Some(_), Some(path)) => Ok(Command::Inspect { path, json }),
    }
}

fn inspect(path: &std::path::Path, json: bool, out: &mut impl Write) -> Result<()> {
    let archive = Archive::open(path)?;
    let tensors = archive.tensors();
    if json {
        print_json(&archive, &tensors, out)
    } else {
        print_table(&archive, &tensors, out)
    }
}

/// Control characters in a name must not reach the terminal.
fn clean(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect::<Vec<_>>()
            } else {
                vec![c]
            }
        })
        .collect()
}

fn tensor_bytes(t: &NamedTensor<'_>) -> u64 {
    (t.tensor.numel() as u64).saturating_mul(t.tensor.dtype.size() as u64)
}

/// Bytes for people: `1.50 MiB`.
fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut n, mut unit) = (bytes as f64, 0);
    while n >= 1024.0 && unit + 1 < units.len() {
        n /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{n:.2} {}", units[unit])
    }
}

/// An integer with its digits in groups of three.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|g| std::str::from_utf8(g).ok())
        .collect();
    groups.join(",")
}

fn notes(t: &NamedTensor<'_>) -> String {
    let mut notes = Vec::new();
    if t.tensor.class == TensorClass::Parameter {
        notes.push("parameter");
    }
    if t.storage.data == Data::Meta {
        notes.push("meta");
    } else if t.storage.nbytes != tensor_bytes(t) {
        notes.push("view");
    }
    if &*t.storage.location != "cpu" && t.storage.data != Data::Meta {
        notes.push(&t.storage.location);
    }
    notes.join(", ")
}

fn print_table(archive: &Archive, tensors: &[NamedTensor<'_>], out: &mut impl Write) -> Result<()> {
    let rows: Vec<[String; 5]> = tensors
        .iter()
        .map(|t| {
            let name = if t.name.is_empty() {
                "(the file is one tensor)".into()
            } else {
                clean(&t.name)
            };
            [
                name,
                t.tensor.dtype.to_string(),
                format!("{:?}", t.tensor.shape()),
                human(tensor_bytes(t)),
                clean(&notes(t)),
            ]
        })
        .collect();
    let heads = ["name", "dtype", "shape", "size", "notes"];
    let mut widths = heads.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut line = |cells: [&str; 5]| {
        let [name, dtype, shape, size, notes] = widths;
        let text = format!(
            "{:<name$}  {:<dtype$}  {:<shape$}  {:>size$}  {:<notes$}",
            cells[0], cells[1], cells[2], cells[3], cells[4]
        );
        writeln!(out, "{}", text.trim_end())
    };
    if !rows.is_empty() {
        line(heads)?;
    }
    for row in &rows {
        line([&row[0], &row[1], &row[2], &row[3], &row[4]])?;
    }
    let ties = archive.ties();
    if !ties.is_empty() {
        writeln!(out, "\nnames that share a storage:")?;
        for group in &ties {
            writeln!(out, "  {}", clean(&group.join(" = ")))?;
        }
    }
    let metadata = archive.metadata();
    if !metadata.is_empty() {
        writeln!(out, "\nmetadata:")?;
        for (key, value) in metadata {
            writeln!(out, "  {}: {}", clean(key), clean(value))?;
        }
    }
    let refused: Vec<String> = archive
        .tree()
        .disallowed(&|_| false)
        .map(|g| clean(&g.to_string()))
        .collect();
    if !refused.is_empty() {
        writeln!(
            out,
            "\nnames that torch.load refuses with weights_only=True (not executed here):"
        )?;
        for name in refused {
            writeln!(out, "  {name}")?;
        }
    }
    let totals = archive.totals();
    writeln!(
        out,
        "\n{} tensors, {} elements, {} in {} storages; {} file of {}",
        grouped(totals.tensors),
        grouped(totals.elements),
        human(totals.bytes),
        grouped(totals.storages),
        archive.format().name(),
        human(archive.file_size())
    )?;
    Ok(())
}

fn print_json(archive: &Archive, tensors: &[NamedTensor<'_>], out: &mut impl Write) -> Result<()> {
    let list: Vec<Json> = tensors
        .iter()
        .map(|t| {
            let (offset, compressed) = match t.storage.data {
                Data::Stored { offset } => (Some(offset), None),
                Data::Deflated { offset, compressed } => (Some(offset), Some(compressed)),
                _ => (None, None),
            };
            json!({
                "name": t.name,
                "dtype": t.tensor.dtype.name(),
                "shape": t.tensor.shape(),
                "stride": t.tensor.stride(),
                "storage_offset": t.tensor.offset,
                "requires_grad": t.tensor.requires_grad,
                "parameter": t.tensor.class == TensorClass::Parameter,
                "meta": t.storage.data == Data::Meta,
                "location": &*t.storage.location,
                "storage": t.tensor.storage,
                "storage_bytes": t.storage.nbytes,
                "file_offset": offset,
                "compressed_bytes": compressed,
                "crc32": t.storage.crc,
            })
        })
        .collect();
    let totals = archive.totals();
    let refused: Vec<String> = archive
        .tree()
        .disallowed(&|_| false)
        .map(ToString::to_string)
        .collect();
    let metadata: serde_json::Map<String, Json> = archive
        .metadata()
        .iter()
        .map(|(k, v)| (k.clone(), v.clone().into()))
        .collect();
    let all = json!({
        "format": archive.format().name(),
        "file_bytes": archive.file_size(),
        "big_endian": archive.is_big_endian(),
        "tensors": list,
        "ties": archive.ties(),
        "metadata": metadata,
        "not_weights_only": refused,
        "totals": {
            "names": totals.names,
            "tensors": totals.tensors,
            "elements": totals.elements,
            "storages": totals.storages,
            "bytes": totals.bytes,
        },
    });
    serde_json::to_writer_pretty(&mut *out, &all).map_err(|e| err!(Io, "{e}"))?;
    writeln!(out)?;
    Ok(())
}
