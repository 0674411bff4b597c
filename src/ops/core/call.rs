//! A call: an operator, its arguments, and where the results go.

use crate::ops::core::args::Args;
use crate::{Result, Tensor};

/// One call of an operator.
pub struct Call<'c, 'a> {
    /// The operator and its arguments.
    pub args: &'c Args<'a>,
    /// Where the results go.
    pub form: Form<'c>,
}

/// Where results go.
pub enum Form<'c> {
    /// Into fresh tensors, or views.
    New,
    /// Into this tensor, which is argument 0.
    InPlace(&'c Tensor),
    /// As `InPlace`, by a call that is a part of another one, which checked the target and counts the change.
    Within(&'c Tensor),
    /// Into tensors that the caller gave, which are resized if their shape differs.
    Out(&'c mut [Tensor]),
}

impl<'c> Form<'c> {
    /// The tensor that the call writes, which is argument 0, if it is in place.
    #[must_use]
    pub fn target(&self) -> Option<&'c Tensor> {
        match self {
            Self::InPlace(t) | Self::Within(t) => Some(t),
            Self::New | Self::Out(_) => None,
        }
    }

    /// The same form of a call with other arguments.
    ///
    /// # Errors
    /// If argument 0 is to be written and is no tensor.
    pub fn of(self, args: &'c Args) -> Result<Self> {
        Ok(match self {
            Self::InPlace(_) => Self::InPlace(args.tensor(0)?),
            Self::Within(_) => Self::Within(args.tensor(0)?),
            form => form,
        })
    }

    /// As `of`, for a call that is made while this one stands; `out=` becomes fresh results.
    ///
    /// # Errors
    /// If argument 0 is to be written and is no tensor.
    pub fn again<'d>(&self, args: &'d Args) -> Result<Form<'d>> {
        Ok(match self {
            Self::InPlace(_) => Form::InPlace(args.tensor(0)?),
            Self::Within(_) => Form::Within(args.tensor(0)?),
            Self::New | Self::Out(_) => Form::New,
        })
    }
}

impl<'c, 'a> Call<'c, 'a> {
    /// The functional form.
    #[must_use]
    pub fn new(args: &'c Args<'a>) -> Self {
        Self {
            args,
            form: Form::New,
        }
    }

    /// The in-place form.
    ///
    /// # Errors
    /// If argument 0 is no tensor.
    pub fn in_place(args: &'c Args<'a>) -> Result<Self>
    where
        'a: 'c,
    {
        Ok(Self {
            args,
            form: Form::InPlace(args.tensor(0)?),
        })
    }

    /// The form that writes into `outs`.
    #[must_use]
    pub fn out(args: &'c Args<'a>, outs: &'c mut [Tensor]) -> Self {
        Self {
            args,
            form: Form::Out(outs),
        }
    }
}
