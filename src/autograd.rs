//! Gradients for programs in Rust: leaves, the walk back, and forward mode.
//! `examples/train.rs` shows them.

use crate::layers::autograd::engine::{self, Options};
use crate::layers::autograd::{forward, gather, views};
use crate::ops::core::typed::Operand;
use crate::ops::{Arg, Op, f};
use crate::tensor::Edge;
use crate::{Result, Tensor, bail, mode, op};

/// Runs `f` without recording calls for gradients.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    mode::with_grad(false, f)
}

/// The gradients of one number by some tensors, in their shapes; nothing for those it does not depend on. With `create_graph`
/// they can be differentiated again.
///
/// # Errors
/// If the output is not one number, or wants no gradient, or an input wants none.
pub fn grad(
    output: &Tensor,
    inputs: &[&Tensor],
    create_graph: bool,
) -> Result<Vec<Option<Tensor>>> {
    let options = Options {
        keep_graph: create_graph,
        create_graph,
        inputs: inputs.iter().map(|t| edge(t)).collect::<Result<_>>()?,
        gather: false,
    };
    engine::run(vec![root(output)?], &options)
}

/// The value of a function of a tensor, and its derivative along `tangent`, which has the tensor's shape; both in the result's.
///
/// # Errors
/// If the shapes differ, an operator has no derivative, or what the function reports.
pub fn jvp(
    function: impl FnOnce(&Tensor) -> Result<Tensor>,
    x: &Tensor,
    tangent: &Tensor,
) -> Result<(Tensor, Tensor)> {
    if x.shape() != tangent.shape() {
        bail!(
            Runtime,
            "jvp(): the tensor is of size {}, but its tangent of size {}",
            x.shape(),
            tangent.shape()
        );
    }
    struct Level(u32);
    impl Drop for Level {
        fn drop(&mut self) {
            forward::exit(self.0);
        }
    }
    let level = Level(forward::enter());
    let y = function(&x.clone().with_tangent(level.0, tangent.clone()))?;
    let y = forward::current(&y).into_owned();
    let along = match y.tangent(level.0) {
        Some(t) => t.clone(),
        None => f::zeros_like(&y)?,
    };
    Ok((y.below(level.0), along))
}

fn edge(t: &Tensor) -> Result<Edge> {
    match views::current(t)?.edge() {
        Some(edge) => Ok(edge),
        None => bail!(
            Runtime,
            "One of the differentiated Tensors does not require grad"
        ),
    }
}

/// Where a walk begins, with a gradient of one.
fn root(output: &Tensor) -> Result<(Edge, Tensor)> {
    if output.numel() != 1 {
        bail!(
            Runtime,
            "grad can be implicitly created only for scalar outputs"
        );
    }
    match views::current(output)?.edge() {
        Some(edge) => Ok((edge, f::ones_like(&output.bare())?)),
        None => bail!(
            Runtime,
            "element 0 of tensors does not require grad and does not have a grad_fn"
        ),
    }
}

impl Tensor {
    /// Adds the gradients of this number to the leaves that it was made of.
    ///
    /// # Errors
    /// If it is not one number, or wants no gradient, or the graph is gone.
    pub fn backward(&self) -> Result<()> {
        engine::run(vec![root(self)?], &Options::default()).map(|_| ())
    }

    /// Forgets the gradient that was gathered.
    pub fn clear_grad(&self) {
        let _ = self.clone().with_grad(None);
    }

    /// Adds a tensor that broadcasts, or a number, in place; gives the tensor with its history.
    ///
    /// # Errors
    /// If the tensor may not be written, or the operands do not fit.
    pub fn add_<'a>(&'a self, other: impl Into<Operand<'a>>) -> Result<Self> {
        in_place(op!("add")?, self, other.into())
    }

    /// Subtracts in place; as [`Self::add_`].
    ///
    /// # Errors
    /// As [`Self::add_`].
    pub fn sub_<'a>(&'a self, other: impl Into<Operand<'a>>) -> Result<Self> {
        in_place(op!("sub")?, self, other.into())
    }

    /// Multiplies in place; as [`Self::add_`].
    ///
    /// # Errors
    /// As [`Self::add_`].
    pub fn mul_<'a>(&'a self, other: impl Into<Operand<'a>>) -> Result<Self> {
        in_place(op!("mul")?, self, other.into())
    }

    /// Takes the values of a tensor that broadcasts; as [`Self::add_`].
    ///
    /// # Errors
    /// As [`Self::add_`].
    pub fn copy_(&self, from: &Self) -> Result<Self> {
        gather::written(self, from)
    }
}

fn in_place(op: &'static Op, target: &Tensor, other: Operand) -> Result<Tensor> {
    let other = match other {
        Operand::Tensor(t) => Arg::Tensor(t),
        Operand::Scalar(s) => Arg::Scalar(s),
    };
    gather::in_place(op, target, other)
}
