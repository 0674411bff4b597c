//! What a meta storage would become real from, for people: the calls of its recipe and the bytes they read.

use super::{Entry, Written, entry_of};
use crate::Result;
use crate::ops::args::{Arg, OwnedArg};
use crate::source::{Provider, Source};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Where a storage's values come from.
#[derive(Default)]
pub struct History {
    /// The files that are read, each once.
    pub files: Vec<String>,
    /// The calls that are replayed, oldest first.
    pub calls: Vec<String>,
    /// The bytes that the calls make, and those of the files that they read: what is alive of them at once is no more.
    pub made: u64,
}

/// The history that becoming real replays; nothing is read or computed.
///
/// # Errors
/// If a recipe was not recorded here.
pub fn explain(source: &Source) -> Result<History> {
    let mut found = Search::default();
    let mut stack = vec![source.clone()];
    while let Some(source) = stack.pop() {
        match source {
            Source::File(p) => found.file(&p),
            Source::Recipe(recipe) => found.entry(&entry_of(recipe)?, &mut stack),
        }
    }
    Ok(found.finish())
}

#[derive(Default)]
struct Search {
    /// Bytes of files that are read as what calls are given, and not into the storage that they write.
    read: HashMap<usize, u64>,
    files: Vec<(usize, String)>,
    calls: HashMap<u64, Arc<Written>>,
    seen: HashSet<(u64, u64)>,
    sizes: HashMap<u64, usize>,
}

fn address(p: &Arc<dyn Provider>) -> usize {
    Arc::as_ptr(p).cast::<()>() as usize
}

impl Search {
    fn file(&mut self, p: &Arc<dyn Provider>) {
        if self.files.iter().all(|(known, _)| *known != address(p)) {
            self.files.push((address(p), p.describe()));
        }
    }

    fn entry(&mut self, e: &Arc<Entry>, stack: &mut Vec<Source>) {
        if !self.seen.insert((e.key, e.call.seq)) {
            return;
        }
        let size = self.sizes.entry(e.key).or_default();
        *size = (*size).max(e.nbytes);
        stack.extend(e.prev.clone());
        if self.calls.insert(e.call.seq, e.call.clone()).is_none() {
            let own = match &e.prev {
                Some(Source::File(p)) => Some(address(p)),
                _ => None,
            };
            for input in &e.call.inputs {
                if let Source::File(p) = input
                    && own != Some(address(p))
                {
                    self.read.insert(address(p), p.nbytes());
                }
                stack.push(input.clone());
            }
        }
    }

    fn finish(self) -> History {
        let mut calls: Vec<_> = self.calls.into_values().collect();
        calls.sort_by_key(|c| c.seq);
        let mut names = Names::default();
        History {
            calls: calls.iter().map(|c| names.line(c)).collect(),
            files: self.files.into_iter().map(|(_, text)| text).collect(),
            made: self.read.values().sum::<u64>()
                + self.sizes.values().map(|n| *n as u64).sum::<u64>(),
        }
    }
}

/// Short names of storages, in the order in which they are met.
#[derive(Default)]
struct Names {
    numbers: HashMap<u64, usize>,
    files: HashMap<usize, usize>,
}

impl Names {
    fn of(&mut self, key: u64) -> String {
        let next = self.numbers.len();
        format!("%{}", self.numbers.entry(key).or_insert(next))
    }

    fn source(&mut self, source: &Source) -> String {
        match source {
            Source::Recipe(r) => self.of(r.key()),
            Source::File(p) => {
                let next = self.files.len();
                format!("file{}", self.files.entry(address(p)).or_insert(next))
            }
        }
    }

    fn line(&mut self, call: &Written) -> String {
        let mut inputs = call.inputs.iter();
        let mut parts = Vec::new();
        for (param, value) in call.args.op.schema.params.iter().zip(&call.args.values) {
            let text = self.value(value, &mut inputs);
            if let Some(text) = text {
                parts.push(format!("{}={text}", param.name));
            }
        }
        let mark = if call.in_place { "_" } else { "" };
        let outs: Vec<_> = call
            .outs
            .iter()
            .map(|(key, t)| format!("{}: {}{}", self.of(*key), t.dtype(), t.shape()))
            .collect();
        let name = call.args.op.public_name();
        format!("{} = {name}{mark}({})", outs.join(", "), parts.join(", "))
    }

    fn value<'a>(
        &mut self,
        value: &OwnedArg,
        inputs: &mut impl Iterator<Item = &'a Source>,
    ) -> Option<String> {
        let mut tensor = |t: &crate::Tensor| {
            if t.is_meta() && t.storage().nbytes() == 0 {
                inputs
                    .next()
                    .map_or_else(|| "?".to_owned(), |s| self.source(s))
            } else {
                format!("real {}{}", t.dtype(), t.shape())
            }
        };
        Some(match value {
            OwnedArg::Tensor(t) => tensor(t),
            OwnedArg::Tensors(list) => {
                let all: Vec<_> = list.iter().map(tensor).collect();
                format!("[{}]", all.join(", "))
            }
            OwnedArg::OptTensors(list) => {
                let all: Vec<_> = list
                    .iter()
                    .map(|t| t.as_ref().map_or_else(|| "None".to_owned(), &mut tensor))
                    .collect();
                format!("[{}]", all.join(", "))
            }
            OwnedArg::Str(s) => format!("{s:?}"),
            OwnedArg::Plain(p) => return plain(p),
        })
    }
}

/// A plain argument; none if it is absent.
fn plain(value: &Arg<'_>) -> Option<String> {
    Some(match value {
        Arg::None => return None,
        Arg::Int(i) => i.to_string(),
        Arg::Float(x) => format!("{x:?}"),
        Arg::Bool(b) => b.to_string(),
        Arg::Scalar(s) => format!("{s:?}"),
        Arg::Ints(d) => d.to_string(),
        Arg::Floats(x) => format!("{x:?}"),
        Arg::Scalars(x) => format!("{x:?}"),
        Arg::Bools(x) => format!("{x:?}"),
        Arg::DType(d) => d.to_string(),
        Arg::Device(d) => d.to_string(),
        Arg::Layout(l) => l.name().to_owned(),
        Arg::Format(f) => format!("{f:?}"),
        Arg::Generator(_) => "generator".to_owned(),
        _ => return None,
    })
}
