//! What may be written into, whatever the operator.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::call::{Call, Form};
use crate::ops::core::misfit;
use crate::ops::core::op::{D, E, KernelBody, Row, Shared, Traits};
use crate::ops::pointwise::rule::result_type;
use crate::tensor::Overlap;
use crate::{DType, Dims, Error, ErrorKind, Result, Tensor, bail, dims, ensure, mode};

/// Checks the targets of a kernel call.
///
/// # Errors
/// As [`check_target`].
#[inline(always)]
pub fn check(c: &Call, traits: &Traits) -> Result<()> {
    if traits.mutates != 0 {
        return check_written(c.args, traits);
    }
    match &c.form {
        Form::New | Form::Within(_) => Ok(()),
        Form::InPlace(target) if traits.overlaps != Shared::Refused => {
            if let Shared::Still(example) = traits.overlaps
                && target.has_internal_overlap()
            {
                warn_of_sharing(c.args.name(), example);
            }
            check_leaf(target)
        }
        Form::InPlace(target) => check_target(target),
        Form::Out(outs) => outs.iter().try_for_each(check_target),
    }
}

#[cold]
fn warn_of_sharing(name: &str, example: &str) {
    crate::warning::say(&format!(
        "Use of {name}_ on expanded tensors is deprecated. Please clone() the tensor before performing this operation. This also \
         applies to advanced indexing e.g. {example}"
    ));
}

/// Calls `f` with every tensor among the arguments that a row writes.
pub fn for_each_written<'a>(args: &Args<'a>, traits: &Traits, mut f: impl FnMut(&'a Tensor)) {
    if traits.mutates != 0 {
        args.for_each_tensor(|i, t| {
            if traits.mutates >> i.min(15) & 1 != 0 {
                f(t);
            }
        });
    }
}

/// Checks the tensors among the arguments that a row writes.
#[cold]
fn check_written(args: &Args, traits: &Traits) -> Result<()> {
    let mut found = Ok(());
    for_each_written(args, traits, |t| {
        if found.is_ok() {
            found = check_argument(args, t);
        }
    });
    found
}

fn check_argument(args: &Args, t: &Tensor) -> Result<()> {
    check_target(t)?;
    if mode::grad_enabled() && t.requires_grad() {
        bail!(
            NotImplemented,
            "the derivative for '{}' is not implemented.",
            args.name()
        );
    }
    if t.is_lazy() {
        bail!(
            NotImplemented,
            "{}() does not write into conjugated or negated views; call resolve_conj() or resolve_neg() first",
            args.name()
        );
    }
    Ok(())
}

/// Refuses writes into leaves that require gradients, views of such, and expanded tensors.
///
/// # Errors
/// PyTorch's texts.
pub fn check_target(target: &Tensor) -> Result<()> {
    check_leaf(target)?;
    if target.has_internal_overlap() {
        bail!(
            Runtime,
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. \
             Please clone() the tensor before performing the operation."
        );
    }
    Ok(())
}

/// Refuses targets that share memory with operands where the row says so.
///
/// # Errors
/// PyTorch's text.
#[cold]
pub fn check_overlap(args: &Args, pointwise: bool, target: &Tensor) -> Result<()> {
    let (apart, alike) = (args.op.def.apart, args.op.def.alike);
    let mut clash = false;
    args.for_each_tensor(|i, t| {
        let bit = 1u16 << i.min(15);
        clash |= match target.overlap(t) {
            Overlap::None => false,
            Overlap::Whole => apart & bit != 0,
            Overlap::Part => pointwise || (apart | alike) & bit != 0,
        };
    });
    ensure!(
        !clash,
        Runtime,
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. \
         Please clone() the tensor before performing the operation."
    );
    Ok(())
}

/// Refuses to change a leaf that requires gradients, or through a view of one.
///
/// # Errors
/// PyTorch's texts.
pub fn check_leaf(target: &Tensor) -> Result<()> {
    if target.is_inference() && !mode::inference() {
        bail!(
            Runtime,
            "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a normal \
             tensor before doing inplace update.See https://github.com/pytorch/rfcs/pull/17 for more details."
        );
    }
    if !mode::records() {
        return Ok(());
    }
    if target.is_view_of_leaf() {
        return Err(view_of_leaf());
    }
    if target.requires_grad() && target.is_leaf() {
        if target.is_view() {
            return Err(view_of_leaf());
        }
        bail!(
            Runtime,
            "a leaf Variable that requires grad is being used in an in-place operation."
        );
    }
    Ok(())
}

/// That a view of a leaf is written.
#[must_use]
pub fn view_of_leaf() -> crate::Error {
    crate::err!(
        Runtime,
        "a view of a leaf Variable that requires grad is being used in an in-place operation."
    )
}

/// Checks that a result fits the tensor it is written into.
///
/// # Errors
/// If the shape differs or the dtype cannot be cast.
pub fn check_result(args: &Args, target: &Tensor, shape: &Dims, result: DType) -> Result<()> {
    if target.shape() != shape {
        return Err(misplaced(target, shape));
    }
    if args.op.has(D) {
        check_asked(args, target)?;
    }
    misfit::in_place(args, result, target.dtype())
}

/// Refuses a dtype that is asked for and is not the target's.
#[cold]
fn check_asked(args: &Args, target: &Tensor) -> Result<()> {
    let asked = args.op.schema.position("dtype").and_then(|i| args.dtype(i));
    let own = target.dtype();
    ensure!(
        asked.is_none_or(|d| d == own),
        Runtime,
        "Bad in-place call: input tensor dtype {} and output tensor dtype {} should match",
        own.cpp_name(),
        asked.unwrap_or(own).cpp_name()
    );
    Ok(())
}

/// What is said of a pointwise call in place for which there is no kernel: shapes and types are compared before one is looked for.
#[cold]
pub fn without_kernel(args: &Args, k: &KernelBody, form: Option<&Form>, e: Error) -> Error {
    let (Some(Form::InPlace(target) | Form::Within(target)), Row::Map(row)) = (form, &k.row) else {
        return e;
    };
    if e.kind() != ErrorKind::NotImplemented {
        return e;
    }
    let mut shape = target.shape().clone();
    for operand in &args.values[..row.arity] {
        if let Arg::Tensor(t) = operand {
            match dims::broadcast(&shape, t.shape()) {
                Ok(wider) => shape = wider,
                Err(_) => return e,
            }
        }
    }
    if shape != *target.shape() {
        return misplaced(target, &shape);
    }
    let common = result_type(&args.values[..row.arity]);
    let result = common.map_or(target.dtype(), |d| (row.types)(d).1);
    misfit::in_place(args, result, target.dtype()).map_or_else(|other| other, |()| e)
}

/// Refuses to give what is also an operand the shape of a wider result.
///
/// # Errors
/// PyTorch's text.
#[cold]
pub fn check_operand(args: &Args, out: &Tensor, shape: &Dims) -> Result<()> {
    let mut is_operand = false;
    args.for_each_tensor(|_, t| is_operand |= t.lies_as(out));
    if is_operand {
        return Err(misplaced(out, shape));
    }
    Ok(())
}

fn misplaced(target: &Tensor, shape: &Dims) -> Error {
    crate::err!(
        Runtime,
        "output with shape {} doesn't match the broadcast shape {shape}",
        target.shape()
    )
}

/// Checks that what a kernel makes of tensors as wholes, not of their elements, has the tensor's shape.
///
/// # Errors
/// PyTorch's text if it differs.
pub fn check_whole(target: &Tensor, shape: &Dims) -> Result<()> {
    ensure!(
        target.shape() == shape,
        Runtime,
        "Bad in-place call: input tensor size {} and output tensor size {shape} should match",
        target.shape()
    );
    Ok(())
}

/// Checks that an in-place result has the tensor's own dtype, where the operator asks for that.
///
/// # Errors
/// If it does and the dtypes differ.
pub fn check_exact(args: &Args, target: &Tensor, result: DType) -> Result<()> {
    if args.op.has(E) && target.dtype() != result {
        if result == target.dtype().to_real() {
            bail!(
                Runtime,
                "In-place {} is not supported for complex tensors.",
                args.name()
            );
        }
        bail!(
            Runtime,
            "the base given to {}_ has dtype {} but the operation's result requires dtype {}",
            args.name(),
            target.dtype().scalar_type(),
            result.scalar_type()
        );
    }
    Ok(())
}
