//! What calls give back.

use crate::ops::core::args::{Arg, Args};
use crate::{DType, Result, Tensor};
use smallvec::SmallVec;

/// What a call gives back.
#[derive(Clone, Debug)]
pub enum Ret {
    /// One tensor.
    One(Tensor),
    /// A fixed number of tensors; named in the schema if they have names.
    Tuple(Vec<Tensor>),
    /// A fixed number of tensors, without those that were not asked for: what `(Tensor?, Tensor?)` returns.
    Gaps(Vec<Option<Tensor>>),
    /// Any number of tensors.
    List(Vec<Tensor>),
    /// A value that is no tensor.
    Value(Value),
    /// The argument at this position itself.
    Same(usize),
    /// What argument 0 has to become: the in-place form of a view. In a box, so that all results are as short as a tensor.
    Become(Box<Tensor>),
}

/// Results that are no tensors.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    None,
    /// A number.
    Scalar(crate::Scalar),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A dtype.
    DType(DType),
}

impl Ret {
    /// The single tensor.
    ///
    /// # Errors
    /// If the result is something else.
    pub fn one(self) -> Result<Tensor> {
        match self {
            Self::One(t) => Ok(t),
            Self::Become(t) => Ok(*t),
            other => crate::bail!(Runtime, "expected one tensor, got {other:?}"),
        }
    }

    /// The first tensor alone.
    ///
    /// # Errors
    /// If there is none.
    pub fn first(self) -> Result<Self> {
        match self.tensors().into_iter().next() {
            Some(t) => Ok(Self::One(t)),
            None => crate::bail!(Runtime, "no result"),
        }
    }

    /// With each of its tensors, by position, changed.
    ///
    /// # Errors
    /// The first of `each`.
    pub fn map(self, mut each: impl FnMut(usize, Tensor) -> Result<Tensor>) -> Result<Self> {
        let mut all = |list: Vec<Tensor>| -> Result<Vec<Tensor>> {
            list.into_iter()
                .enumerate()
                .map(|(i, t)| each(i, t))
                .collect()
        };
        Ok(match self {
            Self::One(t) => Self::One(each(0, t)?),
            Self::Become(t) => Self::Become(Box::new(each(0, *t)?)),
            Self::Tuple(list) => Self::Tuple(all(list)?),
            Self::List(list) => Self::List(all(list)?),
            Self::Gaps(list) => {
                let mut i = 0;
                let mut next = |t: Tensor| {
                    i += 1;
                    each(i - 1, t)
                };
                let made = list.into_iter().map(|t| t.map(&mut next).transpose());
                Self::Gaps(made.collect::<Result<_>>()?)
            }
            other => other,
        })
    }

    /// Calls `f` with each of its tensors, to be changed, and its position among those that were asked for.
    #[inline]
    pub fn for_each_mut(&mut self, mut f: impl FnMut(usize, &mut Tensor)) {
        let mut all = |list: &mut dyn Iterator<Item = &mut Tensor>| {
            list.enumerate().for_each(|(i, t)| f(i, t));
        };
        match self {
            Self::One(t) => f(0, t),
            Self::Become(t) => f(0, t),
            Self::Tuple(list) | Self::List(list) => all(&mut list.iter_mut()),
            Self::Gaps(list) => all(&mut list.iter_mut().flatten()),
            Self::Same(_) | Self::Value(_) => {}
        }
    }

    /// All tensors of the result that were asked for, where they are.
    #[inline]
    #[must_use]
    pub fn look(&self) -> SmallVec<[&Tensor; 2]> {
        let mut found = SmallVec::new();
        match self {
            Self::One(t) => found.push(t),
            Self::Become(t) => found.push(&**t),
            Self::Tuple(list) | Self::List(list) => found.extend(list),
            Self::Gaps(list) => found.extend(list.iter().flatten()),
            Self::Same(_) | Self::Value(_) => {}
        }
        found
    }

    /// All tensors of the result that were asked for.
    #[must_use]
    pub fn tensors(self) -> Vec<Tensor> {
        match self {
            Self::One(t) => vec![t],
            Self::Become(t) => vec![*t],
            Self::Tuple(t) | Self::List(t) => t,
            Self::Gaps(t) => t.into_iter().flatten().collect(),
            Self::Value(_) | Self::Same(_) => Vec::new(),
        }
    }
}

impl From<Vec<Tensor>> for Ret {
    fn from(t: Vec<Tensor>) -> Self {
        Self::List(t)
    }
}

impl<const N: usize> From<[Option<Tensor>; N]> for Ret {
    fn from(t: [Option<Tensor>; N]) -> Self {
        Self::Gaps(t.into())
    }
}

impl From<Tensor> for Ret {
    fn from(t: Tensor) -> Self {
        Self::One(t)
    }
}

impl<'a> Args<'a> {
    /// The tensor that a result `Ret::Same(i)` is: the one at `i`, or the only one of a list there.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn same(&self, i: usize) -> Result<&'a Tensor> {
        match self.values[i] {
            Arg::Tensors(ref list) if list.len() == 1 => Ok(list[0]),
            _ => self.tensor(i),
        }
    }
}
