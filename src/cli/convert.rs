//! `torchlike convert` and `torchlike extract`: to another file, format or part.

use super::output::{clean, count, human, print_json};
use super::progress::Bar;
use super::{Command, Failure, GOOD, Terminal, usage};
use crate::io::Archive;
use crate::io::convert::{self, Converted, Options, Target, parse_size};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::json;
use std::path::{Path, PathBuf};

pub const CONVERT: Command = Command {
    name: "convert",
    summary: "write a file in another format, tensor by tensor",
    help: "\
Write a checkpoint in another format, tensor by tensor: no more is in memory than the largest of them. The new file appears
whole or not at all.

Usage: torchlike convert [OPTIONS] FROM TO

The format is that of TO's ending: .pt .pth .bin .ckpt (PyTorch zip), .safetensors, .npz, .npy.

Options:
  --to FORMAT             the format, whatever the ending: pt, safetensors, npz, npy
  --max-shard-size SIZE   several files of at most this much (5GB, 500MiB) with an index, where one does not do
  --duplicate             write tensors that share memory once for each name
  --include PATTERN       only tensors of these names; may be repeated
  --exclude PATTERN       no tensors of these names; may be repeated
  --prefix PREFIX         only names that begin so, without that beginning
  --quiet                 no progress bar
  --json                  print one JSON object
",
    run: |parser, terminal| run(parser, terminal, false),
};

pub const EXTRACT: Command = Command {
    name: "extract",
    summary: "write some tensors of a file to another",
    help: "\
Write some tensors of a checkpoint to another file. Only their bytes are read.

Usage: torchlike extract [OPTIONS] FROM PATTERN... --output TO

In patterns * stands for any characters and ? for one. A .npy file holds one tensor.

Options:
  -o, --output TO         the file to write; its ending tells the format
  --to FORMAT             the format, whatever the ending: pt, safetensors, npz, npy
  --exclude PATTERN       no tensors of these names; may be repeated
  --prefix PREFIX         only names that begin so, without that beginning
  --duplicate             write tensors that share memory once for each name
  --max-shard-size SIZE   several files of at most this much (5GB, 500MiB) with an index, where one does not do
  --quiet                 no progress bar
  --json                  print one JSON object
",
    run: |parser, terminal| run(parser, terminal, true),
};

fn run(parser: &mut Parser, terminal: &mut Terminal<'_>, extract: bool) -> Result<i32, Failure> {
    let mut options = Options::default();
    let (mut from, mut to, mut json, mut quiet) = (None, None, false, false);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Err(Failure::Help),
            Arg::Long("json") => json = true,
            Arg::Short('q') | Arg::Long("quiet") => quiet = true,
            Arg::Long("to") => {
                let name = parser.value()?.string()?;
                let target = Target::from_name(&name);
                options.target =
                    Some(target.ok_or_else(|| usage(format!("unknown format '{name}'")))?);
            }
            Arg::Long("max-shard-size") => {
                let size = parse_size(&parser.value()?.string()?);
                options.max_shard_bytes = Some(size.map_err(|e| usage(e.message()))?);
            }
            Arg::Long("duplicate") => options.duplicate = true,
            Arg::Long("include") if !extract => options.include.push(parser.value()?.string()?),
            Arg::Long("exclude") => options.exclude.push(parser.value()?.string()?),
            Arg::Long("prefix") => options.prefix = parser.value()?.string()?,
            Arg::Short('o') | Arg::Long("output") if extract => {
                to = Some(PathBuf::from(parser.value()?));
            }
            Arg::Value(value) if from.is_none() => from = Some(PathBuf::from(value)),
            Arg::Value(value) if extract => options.include.push(value.string()?),
            Arg::Value(value) if to.is_none() => to = Some(PathBuf::from(value)),
            other => return Err(other.unexpected().into()),
        }
    }
    let from = from.ok_or_else(|| usage("needs a file to read"))?;
    let to = to.ok_or_else(|| usage("needs a file to write"))?;
    if extract && options.include.is_empty() && options.prefix.is_empty() {
        return Err(usage("needs the names of tensors"));
    }
    if options.target.is_none() && Target::from_path(&to).is_none() {
        return Err(usage(format!(
            "'{}' does not end in .pt, .safetensors, .npz or .npy: add --to FORMAT",
            to.display()
        )));
    }
    let archive = Archive::open(&from)?;
    let done = {
        let total = convert::total_bytes(&archive, &options);
        let bar = Bar::new(total, "writing", quiet || json);
        convert::convert(&archive, &to, &options, &|n| bar.add(n))?
    };
    report(terminal, &done, json)?;
    Ok(GOOD)
}

fn report(terminal: &mut Terminal<'_>, done: &Converted, json: bool) -> Result<(), Failure> {
    let text = |path: &Path| path.display().to_string();
    if json {
        let files: Vec<String> = done.files.iter().map(|p| text(p)).collect();
        let report = json!({"files": files, "tensors": done.tensors, "bytes": done.bytes, "left_out": done.left_out});
        return print_json(terminal, &report);
    }
    let to = match &done.files[..] {
        [one] => clean(&text(one)),
        many => format!(
            "{} and {}",
            count(many.len() as u64 - 1, "file"),
            many.last().map(|p| clean(&text(p))).unwrap_or_default()
        ),
    };
    writeln!(
        terminal.out,
        "{}, {} written to {to}",
        count(done.tensors, "tensor"),
        human(done.bytes)
    )?;
    if !done.left_out.is_empty() {
        let some: Vec<String> = done.left_out.iter().take(8).map(|n| clean(n)).collect();
        let more = done.left_out.len() - some.len();
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        writeln!(
            terminal.errors,
            "left out, for this format holds tensors only: {}{more}",
            some.join(", ")
        )?;
    }
    Ok(())
}
