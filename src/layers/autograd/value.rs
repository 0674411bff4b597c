//! Values while the text of a gradient is computed: where they lie, what is asked of them, and how they fit a parameter.

use super::parse::Binary;
use super::rule::Asked;
use crate::ops::core::schema::{Kind, Param};
use crate::ops::{Arg, OwnedArg, Ret, Value};
use crate::{Dims, Result, Scalar, Tensor, bail, err};

/// A value while a text is computed.
#[derive(Clone, Debug)]
pub enum Val {
    /// Nothing.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// Several tensors, of which some may be nothing.
    Tensors(Vec<Option<Tensor>>),
    /// The gradient of a result, where none arrived.
    Undefined(usize),
    /// A number or truth value.
    Number(Scalar),
    /// Integers.
    Ints(Dims),
    /// Lists of integers: the sizes of several tensors. A row takes them as one list, each after its length.
    Lists(Vec<Dims>),
    /// Truth values.
    Bools(Vec<bool>),
    /// A word.
    Word(String),
    /// Anything else that a row takes.
    Plain(Arg<'static>),
}

/// A value where it lies, or as it was just made.
pub enum Look<'s> {
    /// A tensor that somebody keeps.
    Tensor(&'s Tensor),
    /// A value that somebody keeps.
    Val(&'s Val),
    /// A new value.
    Made(Val),
}

impl Val {
    /// Of an argument.
    #[must_use]
    pub fn of(arg: &Arg<'_>) -> Self {
        match arg {
            Arg::None => Self::None,
            Arg::Tensor(t) => Self::Tensor((*t).clone()),
            Arg::Tensors(list) => Self::Tensors(list.iter().map(|t| Some((*t).clone())).collect()),
            Arg::OptTensors(list) => Self::Tensors(list.iter().map(|t| t.cloned()).collect()),
            Arg::Scalar(s) => Self::Number(*s),
            Arg::Int(i) => Self::Number(Scalar::Int(*i)),
            Arg::Float(f) => Self::Number(Scalar::Float(*f)),
            Arg::Bool(b) => Self::Number(Scalar::Bool(*b)),
            Arg::Ints(d) => Self::Ints(d.clone()),
            Arg::Bools(b) => Self::Bools(b.clone()),
            Arg::Str(s) => Self::Word((*s).to_owned()),
            other => match other.to_owned() {
                OwnedArg::Plain(p) => Self::Plain(p),
                _ => Self::None,
            },
        }
    }

    /// Something of a value.
    ///
    /// # Errors
    /// If it has no such thing.
    pub fn ask(&self, asked: Asked) -> Result<Self> {
        let int = |n: usize| Ok(Self::Number(Scalar::Int(n as i64)));
        match (self, asked) {
            (_, Asked::Given) => {
                let given = !matches!(self, Self::None | Self::Undefined(_));
                Ok(Self::Number(Scalar::Bool(given)))
            }
            (Self::Tensors(list), Asked::Count) => int(list.len()),
            (Self::Ints(list), Asked::Count) => int(list.len()),
            (Self::Tensor(t), _) => Self::of_tensor(t, asked),
            (Self::Tensors(list), Asked::Sizes) => Ok(Self::Lists(
                list.iter().flatten().map(|t| t.shape().clone()).collect(),
            )),
            (Self::Ints(list), Asked::Ndim) => int(list.len()),
            (Self::Ints(list), Asked::Numel) => {
                Ok(Self::Number(Scalar::Int(list.iter().product())))
            }
            (Self::None, _) => Ok(Self::None),
            // A number in place of a tensor has no dimensions.
            (Self::Number(s), _) => Ok(match asked {
                Asked::Sizes | Asked::Strides => Self::Ints(Dims::default()),
                Asked::Ndim => Self::Number(Scalar::Int(0)),
                Asked::Complex => Self::Number(Scalar::Bool(matches!(s, Scalar::Complex(_)))),
                _ => Self::None,
            }),
            _ => bail!(
                Runtime,
                "internal error in torchlike: {asked:?} of {self:?}"
            ),
        }
    }

    /// Something of a tensor.
    ///
    /// # Errors
    /// If it has no such thing.
    pub fn of_tensor(t: &Tensor, asked: Asked) -> Result<Self> {
        let int = |n: i64| Self::Number(Scalar::Int(n));
        Ok(match asked {
            Asked::Sizes => Self::Ints(t.shape().clone()),
            Asked::Strides => Self::Ints(t.strides().clone()),
            Asked::DType => Self::Plain(Arg::DType(t.dtype())),
            Asked::Device => Self::Plain(Arg::Device(crate::parts::located(t))),
            Asked::Ndim => int(t.ndim() as i64),
            Asked::Numel => int(t.numel()),
            Asked::Rows => int(t.size(-2)?),
            Asked::Columns => int(t.size(-1)?),
            Asked::Offset => int(t.offset()),
            Asked::Complex => Self::Number(Scalar::Bool(t.dtype().is_complex())),
            Asked::Given => Self::Number(Scalar::Bool(true)),
            Asked::Count => bail!(Runtime, "a tensor is no list"),
        })
    }

    pub(super) fn truth(&self) -> bool {
        match self {
            Self::None | Self::Undefined(_) => false,
            Self::Number(s) => s.to_bool(),
            Self::Ints(d) => !d.is_empty(),
            Self::Word(w) => !w.is_empty(),
            _ => true,
        }
    }

    /// As an argument for a parameter; nothing if it does not fit.
    pub(super) fn fit(&self, p: &Param) -> Option<Arg<'_>> {
        match (self, p.kind) {
            (Self::Tensor(t), kind) => tensor_fits(kind).then_some(Arg::Tensor(t)),
            (Self::None | Self::Undefined(_), _) if p.optional => Some(Arg::None),
            (Self::None, Kind::VarInts) => Some(Arg::Ints(Dims::default())),
            (Self::Number(s), Kind::Operand | Kind::Scalar) => Some(Arg::Scalar(*s)),
            (Self::Number(s), Kind::Int) if !s.is_floating() => Some(Arg::Int(s.to_i64())),
            (Self::Number(s), Kind::Float) => Some(Arg::Float(s.to_f64())),
            (Self::Number(Scalar::Bool(b)), Kind::Bool) => Some(Arg::Bool(*b)),
            (Self::Number(Scalar::Int(i)), Kind::Ints | Kind::VarInts) => {
                Some(Arg::Ints(Dims::from([*i])))
            }
            (Self::Number(Scalar::Int(i)), Kind::IntsOf(n)) => {
                Some(Arg::Ints(Dims::filled(n.into(), *i)))
            }
            (Self::Ints(d), Kind::Ints | Kind::IntsOf(_) | Kind::VarInts | Kind::OptInts) => {
                Some(Arg::Ints(d.clone()))
            }
            (Self::Lists(lists), Kind::Ints) => {
                let with_count = |d: &Dims| Dims::from([d.len() as i64]).concat(d);
                let all = lists.iter().map(with_count);
                Some(Arg::Ints(all.fold(Dims::default(), |l, d| l.concat(&d))))
            }
            (Self::Bools(b), Kind::Bools) => Some(Arg::Bools(b.clone())),
            (Self::Word(w), Kind::Str) => Some(Arg::Str(w)),
            (Self::Tensors(list), Kind::OptTensors) => {
                Some(Arg::OptTensors(list.iter().map(Option::as_ref).collect()))
            }
            (Self::Tensors(list), Kind::Tensors | Kind::VarTensors) => {
                let list: Option<Vec<_>> = list.iter().map(Option::as_ref).collect();
                list.map(Arg::Tensors)
            }
            (Self::Plain(a), kind) => plain_fits(a, kind).then(|| a.clone()),
            _ => None,
        }
    }
}

impl Look<'_> {
    /// The same value, for as long as this look.
    pub(super) fn lend(&self) -> Look<'_> {
        match self {
            Self::Tensor(t) => Look::Tensor(t),
            Self::Val(v) => Look::Val(v),
            Self::Made(v) => Look::Val(v),
        }
    }

    /// The tensor, if it is one.
    pub(super) fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(t) => Some(t),
            Self::Val(Val::Tensor(t)) | Self::Made(Val::Tensor(t)) => Some(t),
            _ => None,
        }
    }

    /// The value, if it is no tensor that lies alone.
    pub(super) fn val(&self) -> Option<&Val> {
        match self {
            Self::Tensor(_) => None,
            Self::Val(v) => Some(v),
            Self::Made(v) => Some(v),
        }
    }

    pub(super) fn number(&self) -> Option<Scalar> {
        match self.val() {
            Some(Val::Number(n)) => Some(*n),
            _ => None,
        }
    }

    pub(super) fn truth(&self) -> bool {
        self.val().is_none_or(Val::truth)
    }

    pub(super) fn is_undefined(&self) -> Option<usize> {
        match self.val() {
            Some(Val::Undefined(k)) => Some(*k),
            _ => None,
        }
    }

    /// The value itself.
    pub fn own(self) -> Val {
        match self {
            Self::Tensor(t) => Val::Tensor(t.clone()),
            Self::Val(v) => v.clone(),
            Self::Made(v) => v,
        }
    }

    pub(super) fn ask(&self, asked: Asked) -> Result<Val> {
        match self {
            Self::Tensor(t) => Val::of_tensor(t, asked),
            Self::Val(v) => v.ask(asked),
            Self::Made(v) => v.ask(asked),
        }
    }

    #[inline]
    pub(super) fn fit(&self, p: &Param) -> Option<Arg<'_>> {
        match self {
            Self::Tensor(t) => tensor_fits(p.kind).then_some(Arg::Tensor(t)),
            Self::Val(v) => v.fit(p),
            Self::Made(v) => v.fit(p),
        }
    }
}

impl std::fmt::Debug for Look<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tensor(t) => t.fmt(f),
            Self::Val(v) => v.fmt(f),
            Self::Made(v) => v.fmt(f),
        }
    }
}

fn tensor_fits(kind: Kind) -> bool {
    matches!(kind, Kind::Tensor | Kind::Operand)
}

fn plain_fits(a: &Arg<'_>, kind: Kind) -> bool {
    matches!(
        (a, kind),
        (Arg::DType(_), Kind::DType)
            | (Arg::Device(_), Kind::Device)
            | (Arg::Layout(_), Kind::Layout)
            | (Arg::Format(_), Kind::Format)
            | (Arg::Generator(_), Kind::Generator)
            | (Arg::Floats(_), Kind::Floats)
            | (Arg::Scalars(_), Kind::Scalars)
    )
}

/// What a call gave.
pub(super) fn of_ret(ret: Ret) -> Val {
    match ret {
        Ret::One(t) => Val::Tensor(t),
        Ret::Become(t) => Val::Tensor(*t),
        Ret::Tuple(list) | Ret::List(list) => Val::Tensors(list.into_iter().map(Some).collect()),
        Ret::Gaps(list) => Val::Tensors(list),
        Ret::Value(Value::Scalar(s)) => Val::Number(s),
        Ret::Value(Value::Ints(list)) => Val::Ints(Dims::new(&list)),
        Ret::Value(Value::DType(d)) => Val::Plain(Arg::DType(d)),
        Ret::Value(Value::None) | Ret::Same(_) => Val::None,
    }
}

/// Of operands that are no tensors.
pub(super) fn of_plain(op: Binary, a: &Val, b: &Val) -> Result<Option<Val>> {
    if let (Val::Number(x), Val::Number(y)) = (a, b) {
        return arithmetic(op, *x, *y).map(|n| Some(Val::Number(n)));
    }
    let equal = match (a, b) {
        (Val::Word(x), Val::Word(y)) => x == y,
        (Val::Ints(x), Val::Ints(y)) => x == y,
        (Val::Plain(Arg::DType(x)), Val::Plain(Arg::DType(y))) => x == y,
        _ => return Ok(None),
    };
    Ok(match op {
        Binary::Eq => Some(Val::Number(Scalar::Bool(equal))),
        Binary::Ne => Some(Val::Number(Scalar::Bool(!equal))),
        _ => None,
    })
}

/// One of several values.
///
/// # Errors
/// If there are not so many.
pub(super) fn item(v: Val, i: usize) -> Result<Val> {
    let missing = || err!(Runtime, "internal error in torchlike: no item {i}");
    match v {
        Val::Tensors(mut list) if i < list.len() => {
            Ok(list.swap_remove(i).map_or(Val::None, Val::Tensor))
        }
        Val::Ints(d) => d
            .get(i)
            .map(|n| Val::Number(Scalar::Int(*n)))
            .ok_or_else(missing),
        _ => Err(missing()),
    }
}

/// Functions of formulas that numbers have too.
pub(super) fn of_numbers(name: &str, numbers: &[Scalar]) -> Option<Scalar> {
    match (name, numbers) {
        ("conj", [Scalar::Complex(c)]) => Some(Scalar::Complex(c.conj())),
        ("conj", [n]) => Some(*n),
        ("neg", [Scalar::Int(i)]) => Some(Scalar::Int(i.wrapping_neg())),
        ("neg", [Scalar::Float(f)]) => Some(Scalar::Float(-f)),
        ("neg", [Scalar::Complex(c)]) => Some(Scalar::Complex(-c)),
        ("log", [Scalar::Complex(c)]) => Some(Scalar::Complex(c.ln())),
        ("log", [n]) => Some(Scalar::Float(n.to_f64().ln())),
        ("le", [a, b]) => Some(Scalar::Bool(a.to_f64() <= b.to_f64())),
        _ => None,
    }
}

fn arithmetic(op: Binary, x: Scalar, y: Scalar) -> Result<Scalar> {
    if let (Scalar::Complex(_), _) | (_, Scalar::Complex(_)) = (x, y) {
        let (a, b) = (x.to_c64(), y.to_c64());
        return Ok(match op {
            Binary::Add => Scalar::Complex(a + b),
            Binary::Sub => Scalar::Complex(a - b),
            Binary::Mul => Scalar::Complex(a * b),
            Binary::Div => Scalar::Complex(a / b),
            Binary::Eq => Scalar::Bool(a == b),
            Binary::Ne => Scalar::Bool(a != b),
            _ => bail!(
                Runtime,
                "internal error in torchlike: {op:?} of complex numbers"
            ),
        });
    }
    let (a, b) = (x.to_f64(), y.to_f64());
    let whole = !x.is_floating() && !y.is_floating();
    let (i, j) = (x.to_i64(), y.to_i64());
    Ok(match op {
        Binary::Add if whole => Scalar::Int(i.wrapping_add(j)),
        Binary::Sub if whole => Scalar::Int(i.wrapping_sub(j)),
        Binary::Mul if whole => Scalar::Int(i.wrapping_mul(j)),
        Binary::Add => Scalar::Float(a + b),
        Binary::Sub => Scalar::Float(a - b),
        Binary::Mul => Scalar::Float(a * b),
        Binary::Div => Scalar::Float(a / b),
        Binary::Pow => Scalar::Float(a.powf(b)),
        Binary::Eq => Scalar::Bool(a == b),
        Binary::Ne => Scalar::Bool(a != b),
        Binary::Lt => Scalar::Bool(a < b),
        Binary::Gt => Scalar::Bool(a > b),
        Binary::And | Binary::Or => Scalar::Bool(false),
    })
}
