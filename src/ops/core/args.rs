//! The arguments of one call, in schema order, without Python.

use crate::ops::core::op::Op;
use crate::parts::Layout;
use crate::random::SharedGenerator;
use crate::{DType, Device, Dims, MemoryFormat, Result, Scalar, Tensor, bail};
use smallvec::SmallVec;

/// One argument. Tensors are borrowed from the caller; [`OwnedArg`] is the form that outlives the call.
#[derive(Clone, Debug, Default)]
pub enum Arg<'a> {
    /// Absent, or Python's `None`.
    #[default]
    None,
    /// A tensor.
    Tensor(&'a Tensor),
    /// A list of tensors.
    Tensors(Vec<&'a Tensor>),
    /// A list with gaps.
    OptTensors(Vec<Option<&'a Tensor>>),
    /// A number given where a tensor could stand, or as a number.
    Scalar(Scalar),
    /// An integer.
    Int(i64),
    /// A double.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Integers.
    Ints(Dims),
    /// Doubles.
    Floats(Vec<f64>),
    /// Numbers.
    Scalars(Vec<Scalar>),
    /// Truth values.
    Bools(Vec<bool>),
    /// A string.
    Str(&'a str),
    /// An element type.
    DType(DType),
    /// A device.
    Device(Device),
    /// A layout.
    Layout(Layout),
    /// A memory format.
    Format(MemoryFormat),
    /// A generator.
    Generator(SharedGenerator),
}

macro_rules! from_arg {
    ($($t:ty => |$v:ident| $e:expr;)+) => {
        $(impl<'a> From<$t> for Arg<'a> {
            #[inline]
            fn from($v: $t) -> Self { $e }
        })+
    };
}
from_arg! {
    &'a Tensor => |v| Arg::Tensor(v);
    Scalar => |v| Arg::Scalar(v);
    i64 => |v| Arg::Int(v);
    f64 => |v| Arg::Float(v);
    bool => |v| Arg::Bool(v);
    Dims => |v| Arg::Ints(v);
    &[i64] => |v| Arg::Ints(Dims::new(v));
    &'a str => |v| Arg::Str(v);
    DType => |v| Arg::DType(v);
    Device => |v| Arg::Device(v);
    MemoryFormat => |v| Arg::Format(v);
    SharedGenerator => |v| Arg::Generator(v);
    &'a [Tensor] => |v| Arg::Tensors(v.iter().collect());
    &'a Vec<Tensor> => |v| Arg::Tensors(v.iter().collect());
}

impl<'a, T: Into<Arg<'a>>> From<Option<T>> for Arg<'a> {
    fn from(v: Option<T>) -> Self {
        v.map_or(Arg::None, Into::into)
    }
}

/// Arguments in schema order.
pub type Values<'a> = SmallVec<[Arg<'a>; 8]>;

/// The arguments of a call to `op`, one a parameter.
pub struct Args<'a> {
    /// The operator.
    pub op: &'static Op,
    /// The values, in schema order.
    pub values: Values<'a>,
}

impl<'a> Args<'a> {
    /// No values yet.
    #[inline]
    #[must_use]
    pub fn empty(op: &'static Op) -> Self {
        let values = SmallVec::new();
        Self { op, values }
    }

    /// Arguments in schema order; those left out at the end take their defaults.
    ///
    /// # Errors
    /// If there are too many, or one without a default is missing.
    pub fn new(op: &'static Op, values: impl IntoIterator<Item = Arg<'a>>) -> Result<Self> {
        let mut args = Self {
            op,
            values: values.into_iter().collect(),
        };
        args.fill()?;
        Ok(args)
    }

    /// Two operands; the rest is still to be [filled](Self::fill). Built in place, as this is the hottest way in.
    #[inline]
    #[must_use]
    pub fn of_two(op: &'static Op, a: Arg<'a>, b: Arg<'a>) -> Self {
        let mut values = SmallVec::new();
        values.push(a);
        values.push(b);
        Self { op, values }
    }

    /// Adds the defaults of the parameters that have no value yet.
    ///
    /// # Errors
    /// If there are too many values, or one without a default is missing.
    #[inline(always)]
    pub fn fill(&mut self) -> Result<()> {
        let (given, params) = (self.values.len(), &self.op.schema.params);
        if given > params.len() {
            bail!(
                Type,
                "{}() takes {} arguments, got {given}",
                self.op.public_name(),
                params.len()
            );
        }
        match self.op.schema.fill(&mut self.values) {
            Ok(()) => Ok(()),
            Err(p) => bail!(
                Type,
                "{}() missing argument '{}'",
                self.op.public_name(),
                p.name
            ),
        }
    }

    /// The op's name, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.op.public_name()
    }

    #[cold]
    pub(crate) fn wrong(&self, i: usize, what: &str) -> crate::Error {
        let p = self.op.schema.params.get(i).map_or("?", |p| p.name);
        crate::err!(
            Type,
            "{}(): argument '{p}' must be {what}, not {:?}",
            self.name(),
            self.values.get(i)
        )
    }

    /// The tensor at `i`.
    ///
    /// # Errors
    /// If it is none.
    #[inline]
    pub fn tensor(&self, i: usize) -> Result<&'a Tensor> {
        match self.values[i] {
            Arg::Tensor(t) => Ok(t),
            _ => Err(self.wrong(i, "Tensor")),
        }
    }

    /// The tensor at `i`, if given.
    #[must_use]
    #[inline]
    pub fn opt_tensor(&self, i: usize) -> Option<&'a Tensor> {
        match self.values[i] {
            Arg::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The list of tensors at `i`.
    ///
    /// # Errors
    /// If it is none.
    pub fn tensors(&self, i: usize) -> Result<&[&'a Tensor]> {
        match &self.values[i] {
            Arg::Tensors(t) => Ok(t),
            _ => Err(self.wrong(i, "tuple of Tensors")),
        }
    }

    /// The list with gaps at `i`.
    ///
    /// # Errors
    /// If it is none.
    pub fn opt_tensors(&self, i: usize) -> Result<Vec<Option<&'a Tensor>>> {
        match &self.values[i] {
            Arg::OptTensors(t) => Ok(t.clone()),
            Arg::Tensors(t) => Ok(t.iter().map(|t| Some(*t)).collect()),
            _ => Err(self.wrong(i, "tuple of Tensors")),
        }
    }

    /// The integer at `i`.
    ///
    /// # Errors
    /// If it is none.
    #[inline]
    pub fn int(&self, i: usize) -> Result<i64> {
        match self.values[i] {
            Arg::Int(v) => Ok(v),
            Arg::Scalar(s) if !s.is_floating() => Ok(s.to_i64()),
            _ => Err(self.wrong(i, "int")),
        }
    }

    /// The integer at `i`, if given.
    #[must_use]
    pub fn opt_int(&self, i: usize) -> Option<i64> {
        self.int(i).ok()
    }

    /// The double at `i`.
    ///
    /// # Errors
    /// If it is no number.
    #[inline]
    pub fn float(&self, i: usize) -> Result<f64> {
        match self.values[i] {
            Arg::Float(v) => Ok(v),
            Arg::Int(v) => Ok(v as f64),
            Arg::Scalar(s) => Ok(s.to_f64()),
            _ => Err(self.wrong(i, "float")),
        }
    }

    /// The double at `i`, if given.
    #[must_use]
    pub fn opt_float(&self, i: usize) -> Option<f64> {
        self.float(i).ok()
    }

    /// The truth value at `i` (absent: false).
    #[must_use]
    #[inline]
    pub fn bool(&self, i: usize) -> bool {
        matches!(self.values[i], Arg::Bool(true))
    }

    /// The truth value at `i`, if given.
    #[must_use]
    pub fn opt_bool(&self, i: usize) -> Option<bool> {
        match self.values[i] {
            Arg::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// The number at `i`.
    ///
    /// # Errors
    /// If it is none.
    #[inline]
    pub fn scalar(&self, i: usize) -> Result<Scalar> {
        self.opt_scalar(i).ok_or_else(|| self.wrong(i, "Number"))
    }

    /// The number at `i`, if given.
    #[must_use]
    #[inline]
    pub fn opt_scalar(&self, i: usize) -> Option<Scalar> {
        match self.values[i] {
            Arg::Scalar(s) => Some(s),
            Arg::Int(v) => Some(Scalar::Int(v)),
            Arg::Float(v) => Some(Scalar::Float(v)),
            Arg::Bool(v) => Some(Scalar::Bool(v)),
            _ => None,
        }
    }

    /// The integers at `i`.
    ///
    /// # Errors
    /// If it is no list.
    #[inline]
    pub fn ints(&self, i: usize) -> Result<&Dims> {
        match &self.values[i] {
            Arg::Ints(d) => Ok(d),
            _ => Err(self.wrong(i, "tuple of ints")),
        }
    }

    /// The integers at `i`, if given.
    #[must_use]
    pub fn opt_ints(&self, i: usize) -> Option<&Dims> {
        match &self.values[i] {
            Arg::Ints(d) => Some(d),
            _ => None,
        }
    }

    /// The doubles at `i`, if given.
    #[must_use]
    pub fn opt_floats(&self, i: usize) -> Option<&[f64]> {
        match &self.values[i] {
            Arg::Floats(d) => Some(d),
            _ => None,
        }
    }

    /// The string at `i`, if given.
    #[must_use]
    pub fn str(&self, i: usize) -> Option<&'a str> {
        match self.values[i] {
            Arg::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The dtype at `i`, if given.
    #[must_use]
    #[inline]
    pub fn dtype(&self, i: usize) -> Option<DType> {
        match self.values[i] {
            Arg::DType(d) => Some(d),
            _ => None,
        }
    }

    /// The device at `i`, if given.
    #[must_use]
    pub fn device(&self, i: usize) -> Option<Device> {
        match self.values[i] {
            Arg::Device(d) => Some(d),
            _ => None,
        }
    }

    /// The memory format at `i`, if given.
    #[must_use]
    pub fn format(&self, i: usize) -> Option<MemoryFormat> {
        match self.values[i] {
            Arg::Format(f) => Some(f),
            _ => None,
        }
    }

    /// The generator at `i`, or the default one.
    #[must_use]
    pub fn generator(&self, i: usize) -> SharedGenerator {
        match &self.values[i] {
            Arg::Generator(g) => g.clone(),
            _ => crate::random::default_generator(),
        }
    }

    /// Calls `f` with the position of every tensor argument, lists included.
    #[inline]
    pub fn for_each_tensor(&self, mut f: impl FnMut(usize, &'a Tensor)) {
        for (i, v) in self.values.iter().enumerate() {
            match v {
                Arg::Tensor(t) => f(i, t),
                Arg::Tensors(list) => list.iter().for_each(|t| f(i, t)),
                Arg::OptTensors(list) => list.iter().flatten().for_each(|t| f(i, t)),
                _ => {}
            }
        }
    }

    /// A copy that owns its tensors.
    #[must_use]
    pub fn to_owned(&self) -> OwnedArgs {
        OwnedArgs {
            op: self.op,
            values: self.values.iter().map(Arg::to_owned).collect(),
        }
    }
}

impl Arg<'_> {
    /// A copy that owns its tensors and strings.
    #[must_use]
    pub fn to_owned(&self) -> OwnedArg {
        match self {
            Arg::Tensor(t) => OwnedArg::Tensor((*t).clone()),
            Arg::Tensors(list) => OwnedArg::Tensors(list.iter().map(|t| (*t).clone()).collect()),
            Arg::OptTensors(list) => {
                OwnedArg::OptTensors(list.iter().map(|t| t.cloned()).collect())
            }
            Arg::Str(s) => OwnedArg::Str((*s).to_owned()),
            Arg::None => OwnedArg::Plain(Arg::None),
            Arg::Scalar(s) => OwnedArg::Plain(Arg::Scalar(*s)),
            Arg::Int(s) => OwnedArg::Plain(Arg::Int(*s)),
            Arg::Float(s) => OwnedArg::Plain(Arg::Float(*s)),
            Arg::Bool(s) => OwnedArg::Plain(Arg::Bool(*s)),
            Arg::Ints(s) => OwnedArg::Plain(Arg::Ints(s.clone())),
            Arg::Floats(s) => OwnedArg::Plain(Arg::Floats(s.clone())),
            Arg::Scalars(s) => OwnedArg::Plain(Arg::Scalars(s.clone())),
            Arg::Bools(s) => OwnedArg::Plain(Arg::Bools(s.clone())),
            Arg::DType(s) => OwnedArg::Plain(Arg::DType(*s)),
            Arg::Device(s) => OwnedArg::Plain(Arg::Device(*s)),
            Arg::Layout(l) => OwnedArg::Plain(Arg::Layout(*l)),
            Arg::Format(s) => OwnedArg::Plain(Arg::Format(*s)),
            Arg::Generator(s) => OwnedArg::Plain(Arg::Generator(s.clone())),
        }
    }
}

/// An argument that owns its tensors and strings.
#[derive(Clone, Debug)]
pub enum OwnedArg {
    /// A tensor.
    Tensor(Tensor),
    /// A list of tensors.
    Tensors(Vec<Tensor>),
    /// A list with gaps.
    OptTensors(Vec<Option<Tensor>>),
    /// A string.
    Str(String),
    /// Anything without borrowed parts.
    Plain(Arg<'static>),
}

/// The arguments of a call, owned: what a recording or another thread keeps.
#[derive(Clone)]
pub struct OwnedArgs {
    /// The operator.
    pub op: &'static Op,
    /// The values, in schema order.
    pub values: Vec<OwnedArg>,
}

impl OwnedArgs {
    /// The borrowed form.
    #[must_use]
    pub fn borrow(&self) -> Args<'_> {
        Args {
            op: self.op,
            values: self
                .values
                .iter()
                .map(|v| match v {
                    OwnedArg::Tensor(t) => Arg::Tensor(t),
                    OwnedArg::Tensors(list) => Arg::Tensors(list.iter().collect()),
                    OwnedArg::OptTensors(list) => {
                        Arg::OptTensors(list.iter().map(Option::as_ref).collect())
                    }
                    OwnedArg::Str(s) => Arg::Str(s),
                    OwnedArg::Plain(p) => p.clone(),
                })
                .collect(),
        }
    }

    /// Calls `f` with every tensor, to be changed.
    pub fn for_each_tensor_mut(&mut self, mut f: impl FnMut(&mut Tensor)) {
        for v in &mut self.values {
            match v {
                OwnedArg::Tensor(t) => f(t),
                OwnedArg::Tensors(list) => list.iter_mut().for_each(&mut f),
                OwnedArg::OptTensors(list) => list.iter_mut().flatten().for_each(&mut f),
                _ => {}
            }
        }
    }

    /// Puts what `f` makes in the place of every tensor, given the position of its argument; nothing leaves it as it is.
    ///
    /// # Errors
    /// The first of `f`, which is not called again then.
    pub fn replace_tensors(
        &mut self,
        mut f: impl FnMut(usize, &Tensor) -> Result<Option<Tensor>>,
    ) -> Result<()> {
        for (i, v) in self.values.iter_mut().enumerate() {
            let all: SmallVec<[&mut Tensor; 2]> = match v {
                OwnedArg::Tensor(t) => std::iter::once(t).collect(),
                OwnedArg::Tensors(list) => list.iter_mut().collect(),
                OwnedArg::OptTensors(list) => list.iter_mut().flatten().collect(),
                _ => continue,
            };
            for t in all {
                if let Some(made) = f(i, t)? {
                    *t = made;
                }
            }
        }
        Ok(())
    }
}
