//! `torchlike diff`: what differs between two files.

use super::output::{Table, clean, count, print_json, shown, tensor_bytes};
use super::progress::Bar;
use super::{BAD, Command, Failure, GOOD, Terminal, usage};
use crate::Result as CoreResult;
use crate::io::compare::{Difference, compare};
use crate::io::{Archive, Data, NamedTensor, describe};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::{Value as Json, json};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

pub const COMMAND: Command = Command {
    name: "diff",
    summary: "compare two files: names, dtypes, shapes, and on request values",
    help: "\
Compare two checkpoints of any formats by name: tensors that only one has, other dtypes or shapes, other plain values, and
with --values other elements.

Usage: torchlike diff [--values] [--tolerance X] [--json] [--quiet] A B

Options:
  --values         compare the elements of tensors too
  --tolerance X    elements that differ by at most X are the same (implies --values)
  --tensors-only   do not compare values that are no tensors
  --quiet          no progress bar
  --json           print one JSON object

Exit codes: 0 the same, 1 different, 2 a file cannot be read
",
    run,
};

fn run(parser: &mut Parser, terminal: &mut Terminal<'_>) -> Result<i32, Failure> {
    let (mut paths, mut json, mut quiet) = (Vec::new(), false, false);
    let (mut values, mut tolerance, mut tensors_only) = (false, 0.0, false);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Err(Failure::Help),
            Arg::Long("json") => json = true,
            Arg::Short('q') | Arg::Long("quiet") => quiet = true,
            Arg::Long("values") => values = true,
            Arg::Long("tensors-only") => tensors_only = true,
            Arg::Long("tolerance") => {
                tolerance = parser.value()?.parse::<f64>()?;
                values = true;
                if tolerance.is_nan() || tolerance < 0.0 {
                    return Err(usage("a tolerance is a number from 0 on"));
                }
            }
            Arg::Value(value) if paths.len() < 2 => paths.push(PathBuf::from(value)),
            other => return Err(other.unexpected().into()),
        }
    }
    let [a, b] = &paths[..] else {
        return Err(usage("diff needs two files"));
    };
    let (a, b) = (Archive::open(a)?, Archive::open(b)?);
    let mut changes = structure(&a, &b);
    if !tensors_only {
        plain_values(&a, &b, &mut changes);
    }
    let mut compared = None;
    if values {
        compared = Some(elements(&a, &b, tolerance, quiet || json, &mut changes)?);
    }
    let same = changes.is_empty();
    if json {
        let list: Vec<Json> = changes.iter().map(Change::json).collect();
        let report = json!({"same": same, "values_compared": compared, "changes": list});
        print_json(terminal, &report)?;
    } else {
        print(terminal, &changes, a.tensors().len() as u64, compared)?;
    }
    Ok(if same { GOOD } else { BAD })
}

/// One thing that differs.
struct Change {
    name: String,
    what: &'static str,
    left: String,
    right: String,
    values: Option<Difference>,
}

impl Change {
    fn json(&self) -> Json {
        let mut json =
            json!({"name": self.name, "change": self.what, "a": self.left, "b": self.right});
        if let Some(d) = self.values {
            json["different"] = d.different.into();
            json["elements"] = d.elements.into();
            // JSON has no NaN or infinity.
            json["largest"] = json!(d.largest.filter(|x| x.is_finite()));
        }
        json
    }
}

fn signature(t: &NamedTensor<'_>) -> String {
    let meta = if t.storage.data == Data::Meta {
        " meta"
    } else {
        ""
    };
    format!("{} {:?}{meta}", t.tensor.dtype.name(), t.tensor.shape())
}

fn structure(a: &Archive, b: &Archive) -> Vec<Change> {
    let (left, right) = (a.tensors(), b.tensors());
    let theirs: HashMap<&str, &NamedTensor<'_>> =
        right.iter().map(|t| (t.name.as_str(), t)).collect();
    let ours: HashSet<&str> = left.iter().map(|t| t.name.as_str()).collect();
    let mut changes = Vec::new();
    let mut change = |name: &str, what, left: String, right: String| {
        changes.push(Change {
            name: name.to_owned(),
            what,
            left,
            right,
            values: None,
        });
    };
    for t in &left {
        let Some(u) = theirs.get(t.name.as_str()) else {
            change(&t.name, "only in a", signature(t), String::new());
            continue;
        };
        let what = if t.tensor.dtype != u.tensor.dtype {
            "dtype"
        } else if t.tensor.shape() != u.tensor.shape() {
            "shape"
        } else if (t.storage.data == Data::Meta) != (u.storage.data == Data::Meta) {
            "data"
        } else {
            continue;
        };
        change(&t.name, what, signature(t), signature(u));
    }
    for u in right.iter().filter(|u| !ours.contains(u.name.as_str())) {
        change(&u.name, "only in b", String::new(), signature(u));
    }
    changes
}

/// Whole values as text, which is exact up to a length beyond that of any real one.
fn texts(archive: &Archive) -> Vec<(String, String)> {
    let values = archive.values().into_iter();
    values
        .map(|(name, v)| (name, describe::render(archive.tree(), v, 10_000)))
        .collect()
}

fn plain_values(a: &Archive, b: &Archive, changes: &mut Vec<Change>) {
    let (left, right) = (texts(a), texts(b));
    let theirs: HashMap<&str, &str> = right.iter().map(|(n, t)| (&**n, &**t)).collect();
    let ours: HashSet<&str> = left.iter().map(|(n, _)| &**n).collect();
    let short = |text: &str| text.chars().take(60).collect::<String>();
    let mut change = |name: &str, what, left: &str, right: &str| {
        changes.push(Change {
            name: name.to_owned(),
            what,
            left: short(left),
            right: short(right),
            values: None,
        });
    };
    for (name, text) in &left {
        match theirs.get(name.as_str()) {
            None => change(name, "only in a", text, ""),
            Some(other) if *other != text.as_str() => change(name, "value", text, other),
            Some(_) => {}
        }
    }
    for (name, text) in right.iter().filter(|(n, _)| !ours.contains(n.as_str())) {
        change(name, "only in b", "", text);
    }
}

/// Compares the elements of tensors that both have alike; gives how many tensors.
fn elements(
    a: &Archive,
    b: &Archive,
    tolerance: f64,
    quiet: bool,
    changes: &mut Vec<Change>,
) -> CoreResult<u64> {
    let (left, right) = (a.tensors(), b.tensors());
    let theirs: HashMap<&str, &NamedTensor<'_>> =
        right.iter().map(|t| (t.name.as_str(), t)).collect();
    let pairs: Vec<(&NamedTensor<'_>, &NamedTensor<'_>)> = left
        .iter()
        .filter_map(|t| Some((t, *theirs.get(t.name.as_str())?)))
        .filter(|(t, u)| comparable(t, u))
        .collect();
    let total = pairs.iter().map(|(t, _)| tensor_bytes(t));
    let bar = Bar::new(total.fold(0, u64::saturating_add), "comparing", quiet);
    for (t, u) in &pairs {
        let found = compare(a, t, b, u, tolerance)?;
        bar.add(tensor_bytes(t));
        if found.different > 0 {
            changes.push(Change {
                name: t.name.clone(),
                what: "values",
                left: signature(t),
                right: signature(u),
                values: Some(found),
            });
        }
    }
    Ok(pairs.len() as u64)
}

fn print(
    terminal: &mut Terminal<'_>,
    changes: &[Change],
    tensors: u64,
    compared: Option<u64>,
) -> Result<(), Failure> {
    let mut table = Table::new(["name", "change", "a", "b"]);
    for c in changes {
        let (left, right) = match c.values {
            Some(d) => {
                let n = format!("{} of {} differ", d.different, d.elements);
                let largest = d.largest.map(|x| format!("by at most {x:.3e}"));
                (n, largest.unwrap_or_default())
            }
            None => (clean(&c.left), clean(&c.right)),
        };
        table.row([shown(&c.name), c.what.into(), left, right]);
    }
    table.print(terminal.out)?;
    let scope = match compared {
        Some(n) => format!("values of {} compared", count(n, "tensor")),
        None => "values not compared".to_owned(),
    };
    let verdict = if changes.is_empty() {
        format!("the same: {},", count(tensors, "tensor"))
    } else {
        format!("\n{};", count(changes.len() as u64, "difference"))
    };
    writeln!(terminal.out, "{verdict} {scope}")?;
    Ok(())
}

/// Tensors of one type and shape, with values.
fn comparable(t: &NamedTensor<'_>, u: &NamedTensor<'_>) -> bool {
    t.tensor.dtype == u.tensor.dtype
        && t.tensor.shape() == u.tensor.shape()
        && t.storage.data != Data::Meta
        && u.storage.data != Data::Meta
}
