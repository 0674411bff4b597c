//! Typed arguments: what `#[operators]` reads from a call and writes into one.

use crate::ops::core::args::{Arg, Args, Values};
use crate::ops::core::call::Call;
use crate::ops::core::dispatch;
use crate::ops::core::op::{Op, Ret};
use crate::parts::Layout;
use crate::random::SharedGenerator;
use crate::{DType, Device, Dims, MemoryFormat, Result, Scalar, Tensor, bail};

/// A tensor, or a number in its place.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number.
    Scalar(Scalar),
}

impl<'a> Operand<'a> {
    /// The tensor, if it is one.
    #[must_use]
    pub fn tensor(self) -> Option<&'a Tensor> {
        match self {
            Self::Tensor(t) => Some(t),
            Self::Scalar(_) => None,
        }
    }

    /// The number, if it is one.
    #[must_use]
    pub fn scalar(self) -> Option<Scalar> {
        match self {
            Self::Tensor(_) => None,
            Self::Scalar(s) => Some(s),
        }
    }
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(t: &'a Tensor) -> Self {
        Self::Tensor(t)
    }
}

impl<'a> From<Operand<'a>> for crate::cpu::rows::Operand<'a> {
    fn from(o: Operand<'a>) -> Self {
        match o {
            Operand::Tensor(t) => Self::Tensor(t),
            Operand::Scalar(s) => Self::Number(s),
        }
    }
}

impl<T: Into<Scalar>> From<T> for Operand<'_> {
    fn from(s: T) -> Self {
        Self::Scalar(s.into())
    }
}

impl<'a> From<Operand<'a>> for Arg<'a> {
    fn from(o: Operand<'a>) -> Self {
        match o {
            Operand::Tensor(t) => Arg::Tensor(t),
            Operand::Scalar(s) => Arg::Scalar(s),
        }
    }
}

/// A list of tensors, owned by somebody else.
#[derive(Clone, Copy, Debug)]
pub enum Tensors<'a> {
    /// References.
    Refs(&'a [&'a Tensor]),
    /// A slice.
    Slice(&'a [Tensor]),
}

impl<'a> Tensors<'a> {
    /// No tensors.
    pub const EMPTY: Self = Self::Slice(&[]);

    /// How many there are.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Self::Refs(l) => l.len(),
            Self::Slice(l) => l.len(),
        }
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The tensor at `i`.
    #[must_use]
    pub fn get(self, i: usize) -> Option<&'a Tensor> {
        match self {
            Self::Refs(l) => l.get(i).copied(),
            Self::Slice(l) => l.get(i),
        }
    }

    /// The tensors in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = &'a Tensor> + ExactSizeIterator + Clone {
        (0..self.len()).map(move |i| match self {
            Self::Refs(l) => l[i],
            Self::Slice(l) => &l[i],
        })
    }

    /// References to all of them.
    #[must_use]
    pub fn refs(self) -> Vec<&'a Tensor> {
        self.iter().collect()
    }
}

impl<'a> From<&'a [Tensor]> for Tensors<'a> {
    fn from(l: &'a [Tensor]) -> Self {
        Self::Slice(l)
    }
}

impl<'a> From<&'a Vec<Tensor>> for Tensors<'a> {
    fn from(l: &'a Vec<Tensor>) -> Self {
        Self::Slice(l)
    }
}

impl<'a, const N: usize> From<&'a [Tensor; N]> for Tensors<'a> {
    fn from(l: &'a [Tensor; N]) -> Self {
        Self::Slice(l)
    }
}

impl<'a> From<&'a [&'a Tensor]> for Tensors<'a> {
    fn from(l: &'a [&'a Tensor]) -> Self {
        Self::Refs(l)
    }
}

impl<'a, const N: usize> From<&'a [&'a Tensor; N]> for Tensors<'a> {
    fn from(l: &'a [&'a Tensor; N]) -> Self {
        Self::Refs(l)
    }
}

impl<'a> From<&'a Vec<&'a Tensor>> for Tensors<'a> {
    fn from(l: &'a Vec<&'a Tensor>) -> Self {
        Self::Refs(l)
    }
}

/// A list of tensors with gaps.
#[derive(Clone, Debug)]
pub struct OptTensors<'a>(pub Vec<Option<&'a Tensor>>);

impl<'a> From<&'a [Option<Tensor>]> for OptTensors<'a> {
    fn from(l: &'a [Option<Tensor>]) -> Self {
        Self(l.iter().map(Option::as_ref).collect())
    }
}

impl<'a> From<Vec<Option<&'a Tensor>>> for OptTensors<'a> {
    fn from(l: Vec<Option<&'a Tensor>>) -> Self {
        Self(l)
    }
}

/// A kind of argument, read from a call.
pub trait Read<'a>: Sized {
    /// The argument at position `i`.
    ///
    /// # Errors
    /// If it is of another kind.
    fn read(args: &'a Args<'_>, i: usize) -> Result<Self>;
}

/// A kind of argument, written into a call.
pub trait Write {
    /// The dynamic form.
    fn arg(&self) -> Arg<'_>;
}

impl<'a, T: Read<'a>> Read<'a> for Option<T> {
    #[inline]
    fn read(args: &'a Args<'_>, i: usize) -> Result<Self> {
        match args.values[i] {
            Arg::None => Ok(None),
            _ => T::read(args, i).map(Some),
        }
    }
}

impl<T: Write> Write for Option<T> {
    fn arg(&self) -> Arg<'_> {
        self.as_ref().map_or(Arg::None, Write::arg)
    }
}

macro_rules! kinds {
    ($($t:ty, $what:literal, { $($pattern:pat $(if $guard:expr)? => $value:expr),+ $(,)? }, |$w:ident| $arg:expr;)+) => {$(
        impl<'a> Read<'a> for $t {
            #[inline]
            fn read(args: &'a Args<'_>, i: usize) -> Result<Self> {
                Ok(match &args.values[i] {
                    $($pattern $(if $guard)? => $value,)+
                    _ => return Err(args.wrong(i, $what)),
                })
            }
        }
        impl<'a> Write for $t {
            #[inline]
            fn arg(&self) -> Arg<'_> {
                let $w = self;
                $arg
            }
        }
    )+};
}

kinds! {
    &'a Tensor, "Tensor", { Arg::Tensor(t) => *t }, |w| Arg::Tensor(w);
    Operand<'a>, "Tensor", {
        Arg::Tensor(t) => Operand::Tensor(t),
        Arg::Scalar(s) => Operand::Scalar(*s),
        Arg::Int(i) => Operand::Scalar(Scalar::Int(*i)),
        Arg::Float(f) => Operand::Scalar(Scalar::Float(*f)),
        Arg::Bool(b) => Operand::Scalar(Scalar::Bool(*b)),
    }, |w| (*w).into();
    Tensors<'a>, "tuple of Tensors", { Arg::Tensors(l) => Tensors::Refs(l) }, |w| Arg::Tensors(w.refs());
    OptTensors<'a>, "tuple of Tensors", {
        Arg::OptTensors(l) => OptTensors(l.clone()),
        Arg::Tensors(l) => OptTensors(l.iter().map(|t| Some(*t)).collect()),
    }, |w| Arg::OptTensors(w.0.clone());
    i64, "int", {
        Arg::Int(i) => *i,
        Arg::Scalar(s) if !s.is_floating() => s.to_i64(),
    }, |w| Arg::Int(*w);
    f64, "float", {
        Arg::Float(f) => *f,
        Arg::Int(i) => *i as f64,
        Arg::Scalar(s) => s.to_f64(),
    }, |w| Arg::Float(*w);
    bool, "bool", { Arg::Bool(b) => *b, Arg::None => false }, |w| Arg::Bool(*w);
    Scalar, "Number", {
        Arg::Scalar(s) => *s,
        Arg::Int(i) => Scalar::Int(*i),
        Arg::Float(f) => Scalar::Float(*f),
        Arg::Bool(b) => Scalar::Bool(*b),
    }, |w| Arg::Scalar(*w);
    &'a [i64], "tuple of ints", { Arg::Ints(d) => d }, |w| Arg::Ints(Dims::new(w));
    &'a [f64], "tuple of floats", { Arg::Floats(d) => d }, |w| Arg::Floats(w.to_vec());
    &'a [bool], "tuple of bools", { Arg::Bools(d) => d }, |w| Arg::Bools(w.to_vec());
    &'a [Scalar], "tuple of Scalars", { Arg::Scalars(d) => d }, |w| Arg::Scalars(w.to_vec());
    &'a str, "str", { Arg::Str(s) => *s }, |w| Arg::Str(w);
    DType, "torch.dtype", { Arg::DType(d) => *d }, |w| Arg::DType(*w);
    Device, "torch.device", { Arg::Device(d) => *d }, |w| Arg::Device(*w);
    Layout, "torch.layout", { Arg::Layout(l) => *l }, |w| Arg::Layout(*w);
    MemoryFormat, "torch.memory_format", { Arg::Format(f) => *f }, |w| Arg::Format(*w);
    &'a SharedGenerator, "torch.Generator", { Arg::Generator(g) => g }, |w| Arg::Generator((*w).clone());
}

/// The arguments of one operator. What takes any of them is compiled for those that are called, not for every row.
pub trait Typed {
    /// The row.
    ///
    /// # Errors
    /// If the operator is not in the table.
    fn row() -> Result<&'static Op>;
    /// Writes the arguments in schema order, where they are used: they are large enough that moving them would take a call.
    fn write<'b>(&'b self, values: &mut Values<'b>);
}

/// The arguments of a call, in schema order.
///
/// # Errors
/// If the operator is not in the table.
pub fn args<C: Typed>(call: &C) -> Result<Args<'_>> {
    let mut args = Args::empty(C::row()?);
    call.write(&mut args.values);
    Ok(args)
}

/// What a function of the arguments makes of a call.
///
/// # Errors
/// What the function reports.
pub fn made<C: Typed, R>(call: &C, f: impl FnOnce(&Args) -> Result<R>) -> Result<R> {
    let mut args = Args::empty(C::row()?);
    call.write(&mut args.values);
    f(&args)
}

/// Any result of a call.
///
/// # Errors
/// What the call reports.
pub fn any(args: &Args) -> Result<Ret> {
    dispatch::call(Call::new(args))
}

/// The tensor a result is, which may be an argument.
///
/// # Errors
/// If it is something else.
pub fn tensor_of(ret: Ret, args: &Args) -> Result<Tensor> {
    match ret {
        Ret::Same(i) => args.same(i).cloned(),
        other => other.one(),
    }
}

/// The one tensor that a call gives.
///
/// # Errors
/// What the call reports.
pub fn one(args: &Args) -> Result<Tensor> {
    tensor_of(any(args)?, args)
}

/// The tensors that a call gives.
///
/// # Errors
/// What the call reports.
pub fn list(args: &Args) -> Result<Vec<Tensor>> {
    Ok(match any(args)? {
        Ret::Same(i) => vec![args.same(i)?.clone()],
        other => other.tensors(),
    })
}

/// A fixed number of tensors.
///
/// # Errors
/// What the call reports.
pub fn several<const N: usize>(args: &Args) -> Result<[Tensor; N]> {
    match list(args)?.try_into() {
        Ok(tensors) => Ok(tensors),
        Err(list) => bail!(Runtime, "expected {N} results, got {}", list.len()),
    }
}

/// A fixed number of tensors, without those that were not asked for.
///
/// # Errors
/// What the call reports.
pub fn asked<const N: usize>(args: &Args) -> Result<[Option<Tensor>; N]> {
    let list = match any(args)? {
        Ret::Gaps(list) => list,
        other => other.tensors().into_iter().map(Some).collect(),
    };
    match list.try_into() {
        Ok(tensors) => Ok(tensors),
        Err(list) => bail!(Runtime, "expected {N} results, got {}", list.len()),
    }
}

/// Calls in place.
///
/// # Errors
/// What the call reports.
pub fn in_place(args: &Args) -> Result<()> {
    dispatch::call(Call::in_place(args)?).map(drop)
}

/// Calls in place; gives what its target has become, which for a view is another look at it.
///
/// # Errors
/// What the call reports.
pub fn changed(args: &Args) -> Result<Tensor> {
    tensor_of(dispatch::call(Call::in_place(args)?)?, args)
}

/// Calls with `out=`.
///
/// # Errors
/// What the call reports.
pub fn into(args: &Args, outs: &mut [Tensor]) -> Result<()> {
    dispatch::call(Call::out(args, outs)).map(drop)
}
