//! `torchlike tree`: the names of a file as a tree, with the size of each branch.

use super::output::{clean, count, human, print_json, tensor_bytes};
use super::{Command, Failure, GOOD, Terminal, usage};
use crate::io::{Archive, describe};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::path::PathBuf;

pub const COMMAND: Command = Command {
    name: "tree",
    summary: "show what is in a file as a tree, with the size of each branch",
    help: "\
Show what is in a file as a tree, with the size of each branch. Names are split at their dots. Only headers are read.

Usage: torchlike tree [--json] [--depth N] FILE

Options:
  --depth N  show N levels
  --json     print one JSON object in place of a tree
",
    run,
};

/// Levels beyond which branches are not split, so that no name makes a tree too deep to print.
const MAX_LEVELS: usize = 200;

fn run(parser: &mut Parser, terminal: &mut Terminal<'_>) -> Result<i32, Failure> {
    let (mut path, mut json, mut depth) = (None, false, MAX_LEVELS);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Err(Failure::Help),
            Arg::Long("json") => json = true,
            Arg::Long("depth") => depth = parser.value()?.parse::<usize>()?.min(MAX_LEVELS),
            Arg::Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            other => return Err(other.unexpected().into()),
        }
    }
    let path = path.ok_or_else(|| usage("tree needs a file"))?;
    let archive = Archive::open(&path)?;
    let tree = Branches::of(&archive);
    if json {
        let mut root = tree.json(0, depth);
        root["format"] = archive.format().name().into();
        print_json(terminal, &root)?;
    } else {
        writeln!(
            terminal.out,
            "{} ({}): {}",
            clean(&path.display().to_string()),
            archive.format().name(),
            tree.summary(0)
        )?;
        tree.print(terminal, 0, "", depth)?;
    }
    Ok(GOOD)
}

/// What hangs at a branch.
enum Leaf {
    None,
    Tensor { dtype: &'static str, shape: String },
    Value(String),
}

struct Branch {
    name: String,
    leaf: Leaf,
    tensors: u64,
    bytes: u64,
    children: Vec<usize>,
}

/// All branches; the root is the first.
struct Branches {
    nodes: Vec<Branch>,
    places: HashMap<(usize, String), usize>,
}

impl Branches {
    fn of(archive: &Archive) -> Self {
        let root = Branch {
            name: String::new(),
            leaf: Leaf::None,
            tensors: 0,
            bytes: 0,
            children: Vec::new(),
        };
        let mut tree = Self {
            nodes: vec![root],
            places: HashMap::new(),
        };
        for t in archive.tensors() {
            let leaf = Leaf::Tensor {
                dtype: t.tensor.dtype.name(),
                shape: format!("{:?}", t.tensor.shape()),
            };
            tree.add(&t.name, leaf, Some(tensor_bytes(&t)));
        }
        for (name, value) in archive.values() {
            let text = describe::render(archive.tree(), value, 100);
            tree.add(&name, Leaf::Value(text), None);
        }
        tree
    }

    fn add(&mut self, name: &str, leaf: Leaf, bytes: Option<u64>) {
        let mut at = 0;
        self.count(at, bytes);
        if !name.is_empty() {
            for part in name.splitn(MAX_LEVELS, '.') {
                at = match self.places.get(&(at, part.to_owned())) {
                    Some(&child) => child,
                    None => self.grow(at, part),
                };
                self.count(at, bytes);
            }
        }
        self.nodes[at].leaf = leaf;
    }

    fn count(&mut self, at: usize, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            self.nodes[at].tensors += 1;
            self.nodes[at].bytes = self.nodes[at].bytes.saturating_add(bytes);
        }
    }

    fn grow(&mut self, parent: usize, name: &str) -> usize {
        let child = self.nodes.len();
        self.nodes.push(Branch {
            name: name.to_owned(),
            leaf: Leaf::None,
            tensors: 0,
            bytes: 0,
            children: Vec::new(),
        });
        self.nodes[parent].children.push(child);
        self.places.insert((parent, name.to_owned()), child);
        child
    }

    fn summary(&self, at: usize) -> String {
        let node = &self.nodes[at];
        match &node.leaf {
            Leaf::Tensor { dtype, shape } if node.children.is_empty() => {
                format!("{dtype} {shape}, {}", human(node.bytes))
            }
            Leaf::Value(text) if node.children.is_empty() => clean(text),
            _ => format!("{}, {}", count(node.tensors, "tensor"), human(node.bytes)),
        }
    }

    fn print(
        &self,
        terminal: &mut Terminal<'_>,
        at: usize,
        indent: &str,
        depth: usize,
    ) -> Result<(), Failure> {
        if depth == 0 {
            return Ok(());
        }
        let children = &self.nodes[at].children;
        for (i, &child) in children.iter().enumerate() {
            // A branch with one child and nothing of its own shares that child's line.
            let (mut name, mut child) = (clean(&self.nodes[child].name), child);
            while let ([only], Leaf::None) =
                (&self.nodes[child].children[..], &self.nodes[child].leaf)
            {
                child = *only;
                name = format!("{name}.{}", clean(&self.nodes[child].name));
            }
            let last = i + 1 == children.len();
            let (elbow, below) = if last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            writeln!(
                terminal.out,
                "{indent}{elbow}{name}: {}",
                self.summary(child)
            )?;
            self.print(terminal, child, &format!("{indent}{below}"), depth - 1)?;
        }
        Ok(())
    }

    fn json(&self, at: usize, depth: usize) -> Json {
        let node = &self.nodes[at];
        let mut json = json!({"name": node.name, "tensors": node.tensors, "bytes": node.bytes});
        match &node.leaf {
            Leaf::None => {}
            Leaf::Tensor { dtype, shape } => {
                json["dtype"] = (*dtype).into();
                json["shape"] = serde_json::from_str(shape).unwrap_or_default();
            }
            Leaf::Value(text) => json["value"] = text.clone().into(),
        }
        if depth > 0 && !node.children.is_empty() {
            let children = node.children.iter().map(|&c| self.json(c, depth - 1));
            json["children"] = children.collect();
        }
        json
    }
}
