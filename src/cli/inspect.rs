//! `torchlike inspect`: the tensors of a file.

use super::output::{Table, clean, count, grouped, human, print_json, shown, tensor_bytes};
use super::{Command, Failure, GOOD, Terminal, usage};
use crate::io::convert::matches;
use crate::io::{Archive, Data, NamedTensor, TensorClass};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

pub const COMMAND: Command = Command {
    name: "inspect",
    summary: "list the tensors of a file: names, dtypes, shapes, sizes, ties, totals",
    help: "\
List the tensors of a file: names, dtypes, shapes, sizes, ties, totals. Only headers are read.

Usage: torchlike inspect [--json] FILE [PATTERN...]

With patterns, only tensors whose name is of one of them; * stands for any characters, ? for one.

Options:
  --json    print one JSON object in place of a table
",
    run,
};

fn run(parser: &mut Parser, terminal: &mut Terminal<'_>) -> Result<i32, Failure> {
    let (mut path, mut json, mut patterns) = (None, false, Vec::new());
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Err(Failure::Help),
            Arg::Long("json") => json = true,
            Arg::Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            Arg::Value(value) => patterns.push(value.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let path = path.ok_or_else(|| usage("inspect needs a file"))?;
    let archive = Archive::open(path)?;
    let mut tensors = archive.tensors();
    tensors.retain(|t| patterns.is_empty() || patterns.iter().any(|p| matches(p, &t.name)));
    if json {
        print_json(terminal, &as_json(&archive, &tensors))?;
    } else {
        print_table(&archive, &tensors, terminal)?;
    }
    Ok(GOOD)
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

fn print_table(
    archive: &Archive,
    tensors: &[NamedTensor<'_>],
    terminal: &mut Terminal<'_>,
) -> Result<(), Failure> {
    let out = &mut *terminal.out;
    let mut table = Table::new(["name", "dtype", "shape", ">size", "notes"]);
    for t in tensors {
        table.row([
            shown(&t.name),
            t.tensor.dtype.to_string(),
            format!("{:?}", t.tensor.shape()),
            human(tensor_bytes(t)),
            clean(&notes(t)),
        ]);
    }
    table.print(out)?;
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
        "\n{}, {} elements, {} in {}; {} file of {}",
        count(totals.tensors, "tensor"),
        grouped(totals.elements),
        human(totals.bytes),
        count(totals.storages, "storage"),
        archive.format().name(),
        human(archive.file_size())
    )?;
    Ok(())
}

fn as_json(archive: &Archive, tensors: &[NamedTensor<'_>]) -> Json {
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
    json!({
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
    })
}
