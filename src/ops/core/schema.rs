//! Signatures as text: `(Tensor self, int[2] kernel_size, *, float eps=1e-5, Tensor? out=None) -> Tensor`.
//!
//! | kind | accepts |
//! |---|---|
//! | `Tensor`, `Tensor?`, `Tensor[]`, `Tensor?[]` | tensors |
//! | `Operand` | a tensor or a number |
//! | `int`, `float`, `bool`, `str`, `Scalar` and these with `?` | Python values |
//! | `int[]`, `int[]?`, `int[2]`, `float[]`, `bool[]`, `Scalar[]` | lists; `int[2]` also takes one integer for all; `bool[3]` says how many are meant |
//! | `int[*]`, `Tensor[*]` | a list, or the items as separate arguments (`view(2, 3)`) |
//! | `int?[]` | a list of integers and `None`s, or one integer or `None`; [`NONE`] stands for `None` |
//! | `dtype`, `device`, `layout`, `format`, `Generator` | the classes of those names |
//! | `index` | what stands in square brackets |

use crate::ops::core::args::{Arg, Values};
use crate::{Dims, MemoryFormat, Scalar};

/// What stands for `None` in a list of kind `int?[]`.
pub const NONE: i64 = i64::MIN;

/// The kind of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tensor.
    Tensor,
    /// A tensor or a number.
    Operand,
    /// A list of tensors.
    Tensors,
    /// A list of tensors, or several arguments.
    VarTensors,
    /// A list of tensors or `None`s.
    OptTensors,
    /// An integer.
    Int,
    /// A list of integers.
    Ints,
    /// A list of this many integers, or one integer.
    IntsOf(u8),
    /// A list of integers, or several arguments.
    VarInts,
    /// A list of integers or `None`s, or one of them.
    OptInts,
    /// A double.
    Float,
    /// A list of doubles.
    Floats,
    /// A truth value.
    Bool,
    /// A list of truth values.
    Bools,
    /// Any number.
    Scalar,
    /// A list of numbers.
    Scalars,
    /// A string.
    Str,
    /// An element type.
    DType,
    /// A device.
    Device,
    /// A layout.
    Layout,
    /// A memory format.
    Format,
    /// A random generator.
    Generator,
}

/// How schemas spell the reduction of losses to their mean.
pub const MEAN: &str = "Mean";

/// One argument.
#[derive(Debug)]
pub struct Param {
    /// Its keyword.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Whether `None` is allowed.
    pub optional: bool,
    /// The default, if the argument may be left out.
    pub default: Option<Arg<'static>>,
    /// The default as the schema spells it.
    pub default_text: &'static str,
    /// Only by keyword.
    pub kwonly: bool,
}

/// What a call returns.
#[derive(Debug, PartialEq, Eq)]
pub enum Returns {
    /// One tensor.
    One,
    /// A tuple with these names (empty names: a plain tuple).
    Tuple(Vec<&'static str>),
    /// A tuple of any length.
    List,
    /// Something else: the text names it.
    Value(&'static str),
}

/// A parsed signature.
#[derive(Debug)]
pub struct Schema {
    /// The arguments in order.
    pub params: Vec<Param>,
    /// How many may be given by position.
    pub positional: usize,
    /// The result.
    pub returns: Returns,
}

impl Schema {
    /// Reads a signature. Signatures are part of the program: a malformed one is a bug that the table test
    /// reports, so this panics with the text.
    #[must_use]
    pub fn parse(text: &'static str) -> Self {
        let (args, returns) = text
            .split_once(") -> ")
            .unwrap_or((text.trim_end_matches(')'), "Tensor"));
        let args = args
            .strip_prefix('(')
            .unwrap_or_else(|| panic!("schema without parenthesis: {text}"));
        let mut params = Vec::new();
        let mut kwonly = false;
        for part in split_commas(args) {
            if part == "*" {
                kwonly = true;
            } else if !part.is_empty() {
                params.push(
                    parse_param(part, kwonly)
                        .unwrap_or_else(|| panic!("bad argument '{part}' in {text}")),
                );
            }
        }
        let positional = params.iter().filter(|p| !p.kwonly).count();
        Self {
            params,
            positional,
            returns: parse_returns(returns),
        }
    }

    /// Adds the defaults of the parameters that have no value yet.
    ///
    /// # Errors
    /// The first one without a default.
    #[inline]
    pub fn fill(&self, values: &mut Values<'_>) -> Result<(), &Param> {
        match self.fill_gaps(values) {
            0 => Ok(()),
            gaps => Err(&self.params[gaps.trailing_zeros() as usize]),
        }
    }

    /// The same, with nothing for those without a default: bits of their places.
    #[inline]
    pub fn fill_gaps(&self, values: &mut Values<'_>) -> u64 {
        let mut gaps = 0;
        for (at, p) in self.params.iter().enumerate().skip(values.len()) {
            values.push(match &p.default {
                // Most are nothing or a number: copying those needs no look at the other kinds.
                Some(Arg::None) => Arg::None,
                Some(Arg::Scalar(s)) => Arg::Scalar(*s),
                Some(other) => other.clone(),
                None => {
                    gaps |= 1 << at;
                    Arg::None
                }
            });
        }
        gaps
    }

    /// The position of an argument by name.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|p| p.name == name)
    }
}

fn split_commas(text: &'static str) -> Vec<&'static str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

fn parse_returns(text: &'static str) -> Returns {
    match text {
        "Tensor" => Returns::One,
        "Tensor[]" => Returns::List,
        t if t.starts_with('(') => Returns::Tuple(
            t.trim_matches(['(', ')'])
                .split(',')
                .map(|f| {
                    f.trim()
                        .trim_start_matches("Tensor")
                        .trim_start_matches('?')
                        .trim()
                })
                .collect(),
        ),
        other => Returns::Value(other),
    }
}

fn parse_param(text: &'static str, kwonly: bool) -> Option<Param> {
    let (kind_text, rest) = text.split_once(' ')?;
    let (name, default_text) = rest.split_once('=').unwrap_or((rest, ""));
    let optional = kind_text.ends_with('?');
    let kind = match kind_text.trim_end_matches('?') {
        "Tensor" => Kind::Tensor,
        "Operand" => Kind::Operand,
        "Tensor[]" => Kind::Tensors,
        "Tensor[*]" => Kind::VarTensors,
        "Tensor?[]" => Kind::OptTensors,
        "int" => Kind::Int,
        "int[]" => Kind::Ints,
        "int[*]" => Kind::VarInts,
        "int?[]" => Kind::OptInts,
        "float" => Kind::Float,
        "float[]" => Kind::Floats,
        "bool" => Kind::Bool,
        "bool[]" | "bool[2]" | "bool[3]" => Kind::Bools,
        "Scalar" => Kind::Scalar,
        "Scalar[]" => Kind::Scalars,
        "str" => Kind::Str,
        "dtype" => Kind::DType,
        "device" => Kind::Device,
        "layout" => Kind::Layout,
        "format" => Kind::Format,
        "Generator" => Kind::Generator,
        other => Kind::IntsOf(
            other
                .strip_prefix("int[")?
                .strip_suffix(']')?
                .parse()
                .ok()?,
        ),
    };
    let default = match (kind, default_text) {
        // Given one by one, there can be none of them.
        (Kind::VarTensors, "") => Some(Arg::Tensors(Vec::new())),
        (_, "") => None,
        (kind, text) => Some(parse_default(kind, text)?),
    };
    Some(Param {
        name,
        kind,
        optional,
        default,
        default_text,
        kwonly,
    })
}

fn parse_default(kind: Kind, text: &'static str) -> Option<Arg<'static>> {
    if text == "None" {
        return Some(Arg::None);
    }
    Some(match kind {
        Kind::Int if text == MEAN => Arg::Int(1),
        Kind::Int => Arg::Int(text.parse().ok()?),
        Kind::Float => Arg::Float(parse_float(text)?),
        Kind::Bool => Arg::Bool(text == "True"),
        Kind::Scalar | Kind::Operand => Arg::Scalar(match text {
            "True" | "False" => Scalar::Bool(text == "True"),
            t => t
                .parse()
                .map(Scalar::Int)
                .ok()
                .or_else(|| parse_float(t).map(Scalar::Float))?,
        }),
        Kind::Str => Arg::Str(text.trim_matches(['\'', '"'])),
        Kind::VarTensors => Arg::Tensors(Vec::new()),
        Kind::Ints | Kind::VarInts | Kind::IntsOf(_) => {
            let inner = text.trim_matches(['[', ']', '(', ')']);
            if let Kind::IntsOf(n) = kind
                && !text.starts_with(['[', '('])
            {
                return Some(Arg::Ints(Dims::filled(n as usize, text.parse().ok()?)));
            }
            let list: Option<Vec<i64>> = inner
                .split(',')
                .map(str::trim)
                .filter(|t| !t.is_empty())
                .map(|t| t.parse().ok())
                .collect();
            Arg::Ints(Dims::new(&list?))
        }
        Kind::Format => Arg::Format(match text {
            "contiguous_format" => MemoryFormat::Contiguous,
            "preserve_format" => MemoryFormat::Preserve,
            _ => return None,
        }),
        _ => return None,
    })
}

fn parse_float(text: &str) -> Option<f64> {
    match text {
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        "nan" => Some(f64::NAN),
        t => t.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_all_parts() {
        let s = Schema::parse(
            "(Tensor self, int[2] stride=1, *, Scalar alpha=1, dtype? dtype=None) -> (Tensor values, Tensor indices)",
        );
        assert_eq!(s.positional, 2);
        assert_eq!(s.params[1].kind, Kind::IntsOf(2));
        assert!(s.params[3].optional && s.params[3].kwonly);
        assert_eq!(s.returns, Returns::Tuple(vec!["values", "indices"]));
    }
}
