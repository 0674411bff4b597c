//! What follows from the text of a gradient: which inputs have one, what has to be saved, how the node is called.

use super::names::{all_of, camel, family_name, filled};
use super::parse::{Expr, Parser, grads};
use crate::ops::op::Grad;
use crate::ops::schema::{Kind, Returns, Schema};
use crate::ops::table;
use crate::ops::{Arg, Args, Op};
use std::borrow::Cow;
use std::sync::OnceLock;

/// A parameter that may not want a gradient.
#[derive(Debug)]
pub struct Fixed {
    /// Which it is.
    pub input: usize,
    /// What the function is called that says so.
    pub who: Option<String>,
    /// Its tangent does not matter; that of another one is refused, too.
    pub constant: bool,
}

/// The gradient of a row.
#[derive(Debug)]
pub struct Rule {
    /// The names of its nodes: `MulBackward0`; others for calls whose last, or first, operand is a number.
    names: Vec<Named>,
    /// The names of nodes of calls in place, where they are others.
    in_place: Vec<Named>,
    /// The parameters that may not want a gradient.
    pub fixed: Vec<Fixed>,
    /// Complex results have none; and what the function is called that says so.
    pub real: Option<Option<String>>,
    /// The parameters that have a gradient, in the order of the schema.
    pub inputs: Vec<usize>,
    /// What computes the gradients.
    pub clauses: Vec<Clause>,
    /// The clauses in the order in which they are computed: by name.
    pub sequence: Vec<usize>,
    /// What is saved.
    pub slots: Vec<Slot>,
    /// The slots in the order in which they are saved: by name.
    pub order: Vec<usize>,
    /// The results that have a gradient; none named: all that are floating.
    pub results: Vec<usize>,
    /// Forward mode.
    pub tangent: Tangent,
    /// The gradient of calls in place, where it is by what they wrote and not by what was there.
    written: Option<Box<Self>>,
}

/// The name of a node.
#[derive(Debug)]
struct Named {
    text: String,
    /// It depends on the arguments of the call.
    filled: bool,
}

impl Named {
    fn all(names: Vec<String>) -> Vec<Self> {
        let one = |text: String| Self {
            filled: text.contains('{'),
            text,
        };
        names.into_iter().map(one).collect()
    }
}

/// An expression for the gradients of one or more inputs.
#[derive(Debug)]
pub struct Clause {
    /// Positions in [`Rule::inputs`].
    pub inputs: Vec<usize>,
    /// Their gradient; several: a list of them.
    pub expr: Expr,
}

/// Something that a node saves.
#[derive(Debug)]
pub struct Slot {
    /// Of what.
    pub of: Of,
    /// What of it, if not itself.
    pub asked: Option<Asked>,
    /// The position in [`Rule::inputs`] of the parameter that it is.
    pub input: Option<usize>,
    /// The inputs whose gradients need it, as [`Rule::inputs`] has them, by bit: if one wants a gradient it is saved.
    pub needed_by: u64,
    /// How often each clause names it.
    uses: Vec<u8>,
}

/// What a slot is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A parameter.
    Input(usize),
    /// A result.
    Result(usize),
}

/// What can be asked of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `.sizes`
    Sizes,
    /// `.strides`
    Strides,
    /// `.dtype`
    DType,
    /// `.device`
    Device,
    /// `.ndim`
    Ndim,
    /// `.numel`
    Numel,
    /// `.offset`
    Offset,
    /// `.rows`: of a matrix
    Rows,
    /// `.columns`: of a matrix
    Columns,
    /// `.count`: how many values a list has
    Count,
    /// `.given`: whether it is there
    Given,
    /// `.complex`: whether its numbers are
    Complex,
}

/// How a tangent is made.
#[derive(Debug)]
pub enum Tangent {
    /// As the row is: views are linear, pointwise rows of real numbers pointwise; else by the gradient of the gradient.
    Derived,
    /// By the gradient of the gradient.
    Twice,
    /// The row itself, of the tangents.
    Linear,
    /// The clauses, conjugated on both sides.
    Pointwise,
    /// An expression, and what it reads.
    Text(Expr, Vec<Slot>),
}

impl Asked {
    /// By its name in a text.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sizes" => Self::Sizes,
            "strides" => Self::Strides,
            "dtype" => Self::DType,
            "device" => Self::Device,
            "ndim" => Self::Ndim,
            "numel" => Self::Numel,
            "offset" => Self::Offset,
            "rows" => Self::Rows,
            "columns" => Self::Columns,
            "count" => Self::Count,
            "given" => Self::Given,
            "complex" => Self::Complex,
            _ => return None,
        })
    }

    /// Its name in the names of what was saved.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Sizes => "sym_sizes",
            Self::Strides => "sym_strides",
            Self::DType => "scalar_type",
            Self::Device => "device",
            Self::Ndim => "dim",
            Self::Numel => "sym_numel",
            Self::Rows => "sym_argsize_minus_2",
            Self::Columns => "sym_argsize_minus_1",
            Self::Offset => "storage_offset",
            Self::Count => "size",
            Self::Given => "defined",
            Self::Complex => "is_complex",
        }
    }
}

impl Slot {
    /// True if a clause names it.
    #[must_use]
    pub fn used(&self) -> bool {
        self.uses.iter().any(|n| *n > 0)
    }

    /// Notes what follows from all clauses, once they are read.
    fn settle(&mut self, inputs: &[usize], clauses: &[Clause]) {
        let users = self.uses.iter().zip(clauses).filter(|(n, _)| **n > 0);
        let needing = users.flat_map(|(_, c)| &c.inputs);
        self.needed_by = needing.fold(0, |bits, i| bits | 1 << i);
        self.input = match self.of {
            Of::Input(p) => inputs.iter().position(|i| *i == p),
            Of::Result(_) => None,
        };
    }
}

/// What the texts of a row name, while they are read.
pub struct Slots {
    schema: &'static Schema,
    list: Vec<Slot>,
    clause: usize,
}

impl Slots {
    fn new(schema: &'static Schema) -> Self {
        Self {
            schema,
            list: Vec::new(),
            clause: 0,
        }
    }

    /// The position of a parameter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<usize> {
        self.schema.position(name)
    }

    /// The number of what is saved under a name.
    pub fn named(&mut self, name: &str) -> Option<usize> {
        let of = match self.schema.position(name) {
            Some(i) => Of::Input(i),
            None => Of::Result(self.result(name)?),
        };
        Some(self.slot(of, None))
    }

    /// The position of a result: `result`, `result1`, or its name.
    fn result(&self, name: &str) -> Option<usize> {
        if let Returns::Tuple(names) = &self.schema.returns
            && let Some(i) = names.iter().position(|n| *n == name)
        {
            return Some(i);
        }
        match name.strip_prefix("result")? {
            "" => Some(0),
            i => i.parse().ok(),
        }
    }

    fn slot(&mut self, of: Of, asked: Option<Asked>) -> usize {
        let at = self
            .list
            .iter()
            .position(|s| s.of == of && s.asked == asked);
        let at = at.unwrap_or_else(|| {
            self.list.push(Slot {
                of,
                asked,
                input: None,
                needed_by: 0,
                uses: Vec::new(),
            });
            self.list.len() - 1
        });
        let uses = &mut self.list[at].uses;
        if uses.len() <= self.clause {
            uses.resize(self.clause + 1, 0);
        }
        uses[self.clause] += 1;
        at
    }

    /// In place of a slot, only something of it.
    pub fn asking(&mut self, slot: usize, asked: Asked) -> usize {
        self.list[slot].uses[self.clause] -= 1;
        self.slot(self.list[slot].of, Some(asked))
    }
}

impl Rule {
    /// Reads the text of a row.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(op: &'static Op, text: &'static str) -> Result<Self, String> {
        let (text, written) = match text.split_once("||") {
            Some((text, written)) => (text, Some(written)),
            None => (text, None),
        };
        let (named_so, text) = text.split_once('|').unwrap_or(("", text));
        let written = written.map(|text| Self::parts(op, named_so, text));
        Ok(Self {
            written: written.transpose()?.map(Box::new),
            ..Self::parts(op, named_so, text)?
        })
    }

    /// The gradient of calls in place, or of others.
    #[inline]
    #[must_use]
    pub fn of_form(&self, in_place: bool) -> &Self {
        match &self.written {
            Some(written) if in_place => written,
            _ => self,
        }
    }

    /// Reads the names of nodes, and what computes the gradients.
    fn parts(op: &'static Op, named_so: &str, text: &'static str) -> Result<Self, String> {
        let (names, in_place) = named_so.split_once("in place").unwrap_or((named_so, ""));
        let (mut names, in_place) = (all_of(names), all_of(in_place));
        if names.is_empty() {
            names.push(format!("{}Backward0", camel(family_name(op))));
        }
        let mut slots = Slots::new(&op.schema);
        let (mut clauses, mut heads) = (Vec::new(), Vec::new());
        let (mut named, mut fixed) = (Vec::new(), Vec::new());
        let (mut real, mut tangent) = (None, Tangent::Derived);
        for part in text.split(';').map(str::trim).filter(|p| !p.is_empty()) {
            let (names, expr) = part
                .split_once(':')
                .ok_or_else(|| format!("no ':' in '{part}'"))?;
            if names.trim() == "jvp" {
                tangent = match expr.trim() {
                    "linear" => Tangent::Linear,
                    "pointwise" => Tangent::Pointwise,
                    "twice" => Tangent::Twice,
                    _ => {
                        let mut slots = Slots::new(&op.schema);
                        let expr = Parser::expression(expr, &mut slots, rows)?;
                        slots.list.iter_mut().for_each(|s| s.settle(&[], &[]));
                        Tangent::Text(expr, slots.list)
                    }
                };
                continue;
            }
            if let ("complex", Some((who, false))) = (names.trim(), fixed_by(expr.trim())) {
                real = Some(who);
                continue;
            }
            let mut inputs = Vec::new();
            for name in names.split(',').map(str::trim) {
                let i = op.schema.position(name);
                inputs.push(i.ok_or_else(|| format!("'{name}' is no parameter"))?);
            }
            if let Some((who, constant)) = fixed_by(expr.trim()) {
                fixed.extend(inputs.into_iter().map(|input| Fixed {
                    input,
                    who: who.clone(),
                    constant,
                }));
                continue;
            }
            slots.clause = clauses.len();
            let expr = Parser::expression(expr, &mut slots, rows)?;
            named.extend(inputs.iter().copied());
            clauses.push(Clause { inputs, expr });
            heads.push(names.trim());
        }
        named.sort_unstable();
        if named.len() > u64::BITS as usize {
            return Err("more inputs than bits".to_owned());
        }
        for input in clauses.iter_mut().flat_map(|c| &mut c.inputs) {
            *input = named.iter().position(|n| n == input).unwrap_or_default();
        }
        let list = slots.list.iter_mut();
        list.for_each(|s| s.settle(&named, &clauses));
        let mut results = Vec::new();
        clauses.iter().for_each(|c| grads(&c.expr, &mut results));
        results.sort_unstable();
        results.dedup();
        let mut sequence: Vec<usize> = (0..clauses.len()).collect();
        sequence.sort_by_key(|i| heads[*i]);
        let mut order: Vec<usize> = (0..slots.list.len()).collect();
        crate::dims::settle(&mut order, |i| match slots.list[*i].of {
            Of::Input(p) => (false, op.schema.params[p].name.to_owned()),
            Of::Result(k) => (true, format!("{k}")),
        });
        Ok(Self {
            names: Named::all(names),
            in_place: Named::all(in_place),
            order,
            fixed,
            real,
            inputs: named,
            clauses,
            sequence,
            slots: slots.list,
            results,
            tangent,
            written: None,
        })
    }

    /// Which of the names a call has: 0, or that of an overload that takes a number.
    #[inline]
    #[must_use]
    pub fn overload(&self, args: &Args<'_>) -> usize {
        if self.names.len() == 1 {
            return 0;
        }
        let number = |i: &usize| !matches!(args.values[*i], Arg::Tensor(_));
        let kinds = args.op.schema.params.iter();
        let mut operands = kinds
            .enumerate()
            .filter(|(_, p)| p.kind == Kind::Operand)
            .map(|(i, _)| i);
        let which = match (operands.next(), operands.next_back()) {
            (Some(_), Some(last)) if number(&last) => 1,
            (Some(first), Some(_)) if number(&first) => 2,
            (Some(only), None) if number(&only) => 1,
            _ => 0,
        };
        if which < self.names.len() { which } else { 0 }
    }

    /// The name of the node of a call of an [overload](Self::overload), which may be one in place.
    #[inline]
    #[must_use]
    pub fn name(
        &'static self,
        args: &Args<'_>,
        overload: usize,
        in_place: bool,
    ) -> Cow<'static, str> {
        let name = match self.in_place.as_slice() {
            own if in_place && !own.is_empty() => &own[overload.min(own.len() - 1)],
            _ => &self.names[overload],
        };
        if name.filled {
            return Cow::Owned(filled(&name.text, args));
        }
        Cow::Borrowed(&name.text)
    }

    /// What a function is called that refuses an input which wants a gradient.
    #[must_use]
    pub fn refusal(who: Option<&str>, args: &Args<'_>) -> String {
        match who {
            Some(name) => filled(name, args),
            None => args.op.public_name().to_owned(),
        }
    }
}

/// `never` or `constant`, alone or with a name, `never('name')`: the name, and whether it was `constant`.
fn fixed_by(expr: &str) -> Option<(Option<String>, bool)> {
    let (word, name) = expr.split_once("('").unwrap_or((expr, ""));
    let constant = match word {
        "never" => false,
        "constant" => true,
        _ => return None,
    };
    Some((name.strip_suffix("')").map(str::to_owned), constant))
}

/// The rows that a text means by a name: those of that path, or private ones.
pub fn rows(name: &str) -> Vec<&'static Op> {
    let with = |prefix: &str| -> Vec<&'static Op> {
        let rows = table().iter();
        rows.filter(|op| op.path().strip_prefix(prefix) == Some(name))
            .collect()
    };
    ["", "_grad.", "_nn."]
        .into_iter()
        .map(with)
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

/// The rule of a row that has a text. Texts are part of the program: the table test reads all of them, and a malformed one
/// is an error of whoever calls the row.
///
/// # Errors
/// What is wrong with the text.
pub fn of(op: &'static Op) -> Result<Option<&'static Rule>, String> {
    static RULES: OnceLock<Vec<OnceLock<Rule>>> = OnceLock::new();
    let Grad::Rule(text) = op.def.grad else {
        return Ok(None);
    };
    let rules = RULES.get_or_init(|| table().iter().map(|_| OnceLock::new()).collect());
    if let Some(rule) = rules[op.id].get() {
        return Ok(Some(rule));
    }
    let rule = Rule::read(op, text).map_err(|e| format!("gradient of {}: {e}", op.def.name))?;
    Ok(Some(rules[op.id].get_or_init(|| rule)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_texts_are_read() {
        let wrong: Vec<String> = table().iter().filter_map(|op| of(op).err()).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
