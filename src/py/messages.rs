//! What a call that fits no overload is told: the signatures as PyTorch spells them, and why each does not fit.

use super::types::type_name;
use crate::ops::Op;
use crate::ops::schema::{Kind, Returns};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// One signature in a message.
pub struct Line {
    /// Type and the rest (name, default) of each argument; the star counts.
    entries: Vec<(String, String)>,
    /// How many arguments may be left out, and how many there are.
    optional: usize,
    count: usize,
    /// The overload it belongs to.
    pub overload: usize,
}

impl Line {
    /// All of it.
    pub fn text(&self) -> String {
        let words: Vec<String> = self
            .entries
            .iter()
            .map(|(t, n)| {
                if n.is_empty() {
                    t.clone()
                } else {
                    format!("{t} {n}")
                }
            })
            .collect();
        words.join(", ")
    }

    /// The tensors that are given by place.
    pub fn tensors(&self) -> Vec<String> {
        let placed = self.entries.iter().take_while(|e| e.0 != "*");
        let tensors = placed.filter(|e| e.0 == "Tensor");
        tensors.map(|(t, n)| format!("{t} {n}")).collect()
    }

    /// Whether a call with `n` arguments could be meant for it.
    pub fn takes(&self, n: usize) -> bool {
        (self.count - self.optional..=self.count).contains(&n)
    }

    /// Whether a call has as many arguments as the signature has entries, which is when their types are compared.
    fn is_as_long(&self, positional: &[Bound<'_, PyAny>], keywords: &[Keyword<'_>]) -> bool {
        positional.len() + keywords.len() == self.entries.len().max(1)
    }

    /// Keywords that no entry has; one with a default is never found, as in PyTorch.
    fn unknown(&self, keywords: &[Keyword<'_>]) -> Vec<String> {
        let known = |k: &Bound<'_, PyAny>| self.entries.iter().any(|e| k.eq(&e.1).unwrap_or(false));
        let unknown = keywords.iter().rev().filter(|(k, _)| !known(k));
        unknown.map(|(k, _)| k.to_string()).collect()
    }

    /// The classes of arguments, with marks around those that are not what the entry says.
    fn marked(&self, positional: &[Bound<'_, PyAny>], keywords: &[Keyword<'_>]) -> String {
        let mark = |name: &str, o: &Bound<'_, PyAny>, entry: Option<&(String, String)>| {
            let found = describe(o);
            if entry.is_some_and(|e| e.0 == found && found != "bool") {
                format!("{name}{found}")
            } else {
                format!("!{name}{found}!")
            }
        };
        let placed = positional.iter().enumerate();
        let mut types: Vec<String> =
            (placed.map(|(i, o)| mark("", o, self.entries.get(i)))).collect();
        for entry in self.entries.iter().skip(positional.len()) {
            let named = keywords
                .iter()
                .find(|(k, _)| k.eq(&entry.1).unwrap_or(false));
            types.extend(named.map(|(k, v)| mark(&format!("{k}="), v, Some(entry))));
        }
        let mut types = types.join(", ");
        if positional.is_empty() && !keywords.is_empty() {
            types.push_str(", ");
        }
        types
    }
}

/// Names with signatures of long ago that are accepted (`old_forms.rs`) and not listed.
const WITH_OLD_FORMS: &[&str] = &[
    "add", "sub", "addcmul", "addcdiv", "addmm", "addmv", "addr", "addbmm", "baddbmm", "add_",
    "sub_", "addcmul_", "addcdiv_", "addmm_", "addmv_", "addr_", "addbmm_", "baddbmm_", "copy_",
];

/// Names whose number-or-tensor arguments are separate signatures; elsewhere a number counts as a tensor.
const SPLIT_NUMBERS: &[&str] = &[
    "fmod",
    "remainder",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "not_equal",
    "pow",
    "float_power",
    "xlogy",
    "copysign",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "fill_",
    "lerp",
    "linspace",
    "logspace",
    "where",
    "clamp_min",
    "clamp_max",
];

/// Whether number-or-tensor arguments of the name are separate signatures.
pub fn splits_numbers(name: &str) -> bool {
    SPLIT_NUMBERS.contains(&name) || SPLIT_NUMBERS.contains(&name.trim_end_matches('_'))
}

/// Whether PyTorch has signatures for the name that are not listed.
pub fn has_old_forms(name: &str) -> bool {
    WITH_OLD_FORMS.contains(&name)
}

/// The signatures of names that have others in PyTorch than the table's rows, or another order: `names`, then a line for each.
const LISTED: &str = include_str!("signatures.txt");

/// The signatures that are listed for a name below `torch`, if any are.
fn listed(path: &str) -> Option<Vec<Line>> {
    let mut rest = LISTED
        .lines()
        .skip_while(|l| l.starts_with(' ') || !l.split(' ').any(|n| n == path));
    rest.next()?;
    let texts: Vec<&str> = rest
        .take_while(|l| l.starts_with(' '))
        .map(|l| l.trim_matches([' ', '|']))
        .collect();
    Some(written(&texts))
}

/// The row that a listed signature belongs to: the one that has most of its names.
fn row_of(line: &Line, overloads: &[(&Op, bool)]) -> usize {
    let has = |op: &Op| {
        let names = line
            .entries
            .iter()
            .map(|e| e.1.split(' ').next().unwrap_or_default());
        let known = |n: &str| {
            op.schema
                .position(if n == "input" { "self" } else { n })
                .is_some()
        };
        names.filter(|n| known(n)).count()
    };
    let score = |op: &Op| (has(op), usize::MAX - op.schema.params.len());
    let best = (0..overloads.len())
        .rev()
        .max_by_key(|&i| score(overloads[i].0));
    best.unwrap_or_default()
}

/// All signatures of a group; each overload comes with whether it takes `out=`.
pub fn lines<'a>(
    path: &str,
    method: bool,
    overloads: impl Iterator<Item = (&'a Op, bool)>,
) -> Vec<Line> {
    let overloads: Vec<(&Op, bool)> = overloads.collect();
    let path = path.strip_prefix("torchlike.").unwrap_or(path);
    if let Some(mut found) = listed(path) {
        for line in &mut found {
            line.overload = row_of(line, &overloads);
        }
        return found;
    }
    let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
    let mut found = Vec::new();
    let base = name.trim_end_matches('_');
    let split = splits_numbers(name);
    for (overload, (op, out)) in overloads.into_iter().enumerate() {
        let operands: Vec<usize> = if split {
            op.schema
                .params
                .iter()
                .enumerate()
                .filter(|(i, p)| p.kind == Kind::Operand && !(method && *i == 0))
                .map(|(i, _)| i)
                .collect()
        } else {
            Vec::new()
        };
        let all_numbers = (1u32 << operands.len()) - 1;
        for mask in 0..=all_numbers {
            if mask == all_numbers && operands.len() == 2 && base == "pow" {
                continue;
            }
            let number = |i: usize| {
                operands
                    .iter()
                    .position(|o| *o == i)
                    .is_some_and(|bit| mask & (1 << bit) != 0)
            };
            if base == "arange" && op.schema.position("step").is_some() {
                found.push(line(op, method, false, overload, &number, &["step"]));
            }
            let factory_draws =
                op.schema.position("layout").is_some() && op.schema.position("generator").is_some();
            found.push(line(op, method, out, overload, &number, &[]));
            if factory_draws {
                found.push(line(op, method, out, overload, &number, &["generator"]));
            }
        }
    }
    if matches!(base, "to" | "view") && found.len() > 1 {
        found.swap(0, 1);
    }
    // Where signatures differ in one type alone, tensors come before numbers.
    let names = |l: &Line| l.entries.iter().map(|e| e.1.clone()).collect::<Vec<_>>();
    for i in 1..found.len() {
        if found[i]
            .entries
            .iter()
            .any(|e| e.0 == "Tensor" && e.1 == "value")
            && found[i - 1]
                .entries
                .iter()
                .any(|e| e.0 == "Number" && e.1 == "value")
            && names(&found[i]) == names(&found[i - 1])
        {
            found.swap(i - 1, i);
        }
    }
    found
}

fn line(
    op: &Op,
    method: bool,
    out: bool,
    overload: usize,
    number: &dyn Fn(usize) -> bool,
    without: &[&str],
) -> Line {
    let mut entries = Vec::new();
    let (mut star, mut optional, mut count, mut out_left) = (false, 0, 0, out);
    let factory = op.schema.position("layout").is_some();
    for (i, p) in op.schema.params.iter().enumerate() {
        if (i == 0 && method) || without.contains(&p.name) {
            continue;
        }
        if p.kwonly && !star {
            star = true;
            entries.push(("*".to_owned(), String::new()));
        }
        if factory && p.name == "dtype" && out_left {
            out_left = false;
            entries.push(("Tensor".to_owned(), "out = None".to_owned()));
        }
        count += 1;
        let name = if p.name == "self" && !number(i) {
            "input"
        } else {
            p.name
        };
        let kind = if number(i) {
            "Number".to_owned()
        } else {
            kind_name(p.kind)
        };
        let hidden = p.default_text.is_empty() || factory && p.kind == Kind::Generator;
        optional += usize::from(!hidden);
        let default = if hidden {
            String::new()
        } else {
            format!(" = {}", p.default_text.replace('\'', "\""))
        };
        entries.push((kind, format!("{name}{default}")));
    }
    if out_left {
        if !star {
            entries.push(("*".to_owned(), String::new()));
        }
        let kind = match op.schema.returns {
            Returns::Tuple(_) => "tuple of Tensors",
            _ => "Tensor",
        };
        entries.push((kind.to_owned(), "out = None".to_owned()));
    }
    let at = |name: &str| entries.iter().position(|e| e.1.starts_with(name));
    if let (true, Some(format), Some(dtype)) = (factory, at("memory_format"), at("dtype"))
        && dtype < format
    {
        entries[dtype..=format].rotate_right(1);
    }
    Line {
        entries,
        optional: optional + usize::from(out),
        count: count + usize::from(out),
        overload,
    }
}

/// Signatures of a hand-written function, from their text.
pub fn written(texts: &[&str]) -> Vec<Line> {
    let entry = |e: &str| match e.split_once(' ') {
        Some((t, n)) => (t.to_owned(), n.to_owned()),
        None => (e.to_owned(), String::new()),
    };
    texts
        .iter()
        .enumerate()
        .map(|(overload, text)| {
            let entries: Vec<_> = text
                .split(", ")
                .filter(|e| !e.is_empty())
                .map(entry)
                .collect();
            let count = entries.iter().filter(|e| e.0 != "*").count();
            let optional = entries.iter().filter(|e| e.1.contains('=')).count();
            Line {
                entries,
                optional,
                count,
                overload,
            }
        })
        .collect()
}

type Keyword<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// `f() received an invalid combination of arguments`, with the signatures there are.
pub fn invalid_combination(
    name: &str,
    lines: &[Line],
    positional: &[Bound<'_, PyAny>],
    keywords: &[Keyword<'_>],
) -> String {
    let head = format!("{name}() received an invalid combination of arguments - got ");
    if let [only] = lines {
        let unknown = only.unknown(keywords);
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            return format!("{head}unrecognized keyword arguments: {unknown}");
        }
        let got = match only.is_as_long(positional, keywords) {
            true => only.marked(positional, keywords),
            false => classes(positional, keywords),
        };
        return format!("{head}({got}), but expected ({})", only.text());
    }
    let got = classes(positional, keywords);
    let mut text = format!("{head}({got}), but expected one of:\n");
    for l in lines {
        text.push_str(&format!(" * ({})\n", l.text()));
        if !l.is_as_long(positional, keywords) {
            continue;
        }
        let unknown = l.unknown(keywords);
        let why = if unknown.is_empty() {
            format!(
                "arguments have invalid types: ({})",
                l.marked(positional, keywords)
            )
        } else {
            format!("keywords were incorrect: {}", unknown.join(", "))
        };
        text.push_str(&format!("      didn't match because some of the {why}\n"));
    }
    text
}

/// The classes of arguments, as messages list them.
pub(super) fn classes(positional: &[Bound<'_, PyAny>], keywords: &[Keyword<'_>]) -> String {
    let mut got: Vec<String> = positional.iter().map(type_name).collect();
    // PyTorch keeps keywords in a table that gives the newest first.
    let newest = keywords.iter().rev();
    got.extend(newest.map(|(k, v)| format!("{k}={}", type_name(v))));
    let mut got = got.join(", ");
    if positional.is_empty() && !keywords.is_empty() {
        got.push_str(", ");
    }
    got
}

/// The class, and those of the items of a list.
fn describe(o: &Bound<'_, PyAny>) -> String {
    if let Ok(t) = o.cast_exact::<PyTuple>() {
        let items: Vec<String> = t.iter().map(|i| describe(&i)).collect();
        return if items.is_empty() {
            "tuple of ()".into()
        } else {
            format!(
                "tuple of ({}{})",
                items.join(", "),
                if items.len() == 1 { "," } else { "" }
            )
        };
    }
    if let Ok(t) = o.cast_exact::<PyList>() {
        let items: Vec<String> = t.iter().map(|i| describe(&i)).collect();
        return if items.is_empty() {
            "list of []".into()
        } else {
            format!("list of [{}]", items.join(", "))
        };
    }
    type_name(o)
}

/// How messages call a kind.
pub fn kind_name(kind: Kind) -> String {
    match kind {
        Kind::Tensor | Kind::Operand => "Tensor".into(),
        Kind::Tensors | Kind::VarTensors | Kind::OptTensors => "tuple of Tensors".into(),
        Kind::Int => "int".into(),
        Kind::Ints | Kind::VarInts | Kind::OptInts | Kind::IntsOf(_) => "tuple of ints".into(),
        Kind::Float => "float".into(),
        Kind::Floats => "tuple of floats".into(),
        Kind::Bool => "bool".into(),
        Kind::Bools => "tuple of bools".into(),
        Kind::Scalar => "Number".into(),
        Kind::Scalars => "tuple of Scalars".into(),
        Kind::Str => "str".into(),
        Kind::DType => "torch.dtype".into(),
        Kind::Device => "torch.device".into(),
        Kind::Layout => "torch.layout".into(),
        Kind::Format => "torch.memory_format".into(),
        Kind::Generator => "torch.Generator".into(),
    }
}
