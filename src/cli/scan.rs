//! `torchlike scan`: what an ordinary unpickler would import and call.

use super::output::{clean, count, print_json};
use super::{BAD, Command, Failure, GOOD, Terminal, usage};
use crate::io::names::allowed_by_default;
use crate::io::tree::{Global, Object, Tree};
use crate::io::{Archive, Id, Value, describe, pickle};
use lexopt::{Arg, Parser};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

pub const COMMAND: Command = Command {
    name: "scan",
    summary: "list what a pickle would have imported or called; nothing is executed",
    help: "\
List the classes and functions that the pickle in a file names, and how they would be called by an ordinary unpickler.
Nothing is imported or executed. Bare pickles are read too.

Usage: torchlike scan [--json] [--all] FILE...

Options:
  --all     list also what torch.load accepts with weights_only=True
  --json    print one JSON object for each file

Exit codes: 0 nothing but what weights_only=True accepts, 1 something else, 2 a file cannot be read
",
    run,
};

/// Calls of one name that are spelled out.
const MAX_CALLS: usize = 20;
/// Characters of one call.
const MAX_TEXT: usize = 300;

fn run(parser: &mut Parser, terminal: &mut Terminal<'_>) -> Result<i32, Failure> {
    let (mut paths, mut json, mut all) = (Vec::new(), false, false);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Err(Failure::Help),
            Arg::Long("json") => json = true,
            Arg::Long("all") => all = true,
            Arg::Value(value) => paths.push(PathBuf::from(value)),
            other => return Err(other.unexpected().into()),
        }
    }
    if paths.is_empty() {
        return Err(usage("scan needs a file"));
    }
    let mut code = GOOD;
    for path in paths {
        let (format, names) = scan(&path)?;
        let safe = names.iter().all(|n| n.allowed);
        if !safe {
            code = BAD;
        }
        let file = path.display().to_string();
        if json {
            let names: Vec<Json> = names
                .iter()
                .filter(|n| all || !n.allowed)
                .map(|n| json!({"name": n.name, "allowed": n.allowed, "called": n.called, "calls": n.calls}))
                .collect();
            let report =
                json!({"file": file, "format": format, "weights_only": safe, "names": names});
            print_json(terminal, &report)?;
        } else {
            print(terminal, &file, format, &names, all)?;
        }
    }
    Ok(code)
}

/// A class or function that a pickle names.
struct Name {
    name: String,
    /// Whether `weights_only=True` accepts it.
    allowed: bool,
    called: u64,
    /// The first calls, as text.
    calls: Vec<String>,
}

fn scan(path: &Path) -> Result<(&'static str, Vec<Name>), Failure> {
    let refused = match Archive::open(path) {
        Ok(archive) => return Ok((archive.format().name(), names(archive.tree()))),
        Err(e) => e,
    };
    // A pickle that is no checkpoint can be looked at all the same.
    let bytes = crate::io::Bytes::map(path);
    match bytes.as_ref().map(|b| b.first()) {
        Ok(Some(0x80)) => match pickle::read(&bytes?) {
            Ok((tree, _)) => Ok(("pickle", names(&tree))),
            Err(_) => Err(refused.into()),
        },
        _ => Err(refused.into()),
    }
}

impl Name {
    fn new(g: &Global) -> Self {
        Self {
            name: g.to_string(),
            allowed: allowed_by_default(g),
            called: 0,
            calls: Vec::new(),
        }
    }
}

fn names(tree: &Tree) -> Vec<Name> {
    let mut names: Vec<Name> = tree.globals.iter().map(Name::new).collect();
    let number = |value: Value| match tree.object(value) {
        Some(Object::Global(g)) => Some(*g as usize),
        _ => None,
    };
    for call in &tree.calls {
        if let Some(name) = number(call.func).and_then(|g| names.get_mut(g)) {
            name.called += 1;
        }
    }
    // Calls with a meaning are objects by now; what is left over is what matters.
    for (i, object) in tree.objects.iter().enumerate() {
        if let Object::Call(_) = object
            && let value = Value::Object(Id(i as u32))
            && let Some(call) = tree.call(value)
            && let Some(name) = number(call.func).and_then(|g| names.get_mut(g))
            && name.calls.len() < MAX_CALLS
        {
            name.calls.push(describe::render(tree, value, MAX_TEXT));
        }
    }
    names
}

fn print(
    terminal: &mut Terminal<'_>,
    file: &str,
    format: &str,
    names: &[Name],
    all: bool,
) -> Result<(), Failure> {
    let outside = names.iter().filter(|n| !n.allowed).count() as u64;
    let verdict = if outside == 0 {
        "nothing but what torch.load accepts with weights_only=True".to_owned()
    } else {
        format!(
            "{} that torch.load refuses with weights_only=True",
            count(outside, "name")
        )
    };
    writeln!(terminal.out, "{} ({format}): {verdict}", clean(file))?;
    for n in names.iter().filter(|n| all || !n.allowed) {
        let how = match n.called {
            0 => "imported".to_owned(),
            n => format!("imported, called {}", count(n, "time")),
        };
        let mark = if n.allowed { "" } else { "! " };
        writeln!(terminal.out, "  {mark}{}: {how}", clean(&n.name))?;
        for call in &n.calls {
            writeln!(terminal.out, "      {}", clean(call))?;
        }
    }
    Ok(())
}
