//! What operators say about an `out=` of a dtype that they do not take.

use crate::ops::core::args::Args;
use crate::ops::core::op::{Body, X};
use crate::{DType, Error, Result, Tensor, dtype, err};

/// Checks the dtype of the target of a result.
///
/// # Errors
/// PyTorch's text if the row asks for the dtype of the result itself, or if the category would fall.
#[inline]
pub fn of_out(args: &Args, nr: usize, want: DType, out: DType) -> Result<()> {
    if want == out {
        return Ok(());
    }
    // 0 and 1 are drawn in any real type.
    if args.op.path() == "bernoulli" {
        return out.check_kernel(!out.is_complex(), "bernoulli_tensor_cpu_self_");
    }
    // Truth is written as bytes, too.
    let truth = |d| matches!(d, DType::Bool | DType::U8);
    if matches!(args.op.path(), "all" | "any") && truth(want) && truth(out) {
        return Ok(());
    }
    let real = want.is_float() && out.is_complex() && args.op.path().starts_with("fft.");
    if !real && !is_exact(args, want) && dtype::can_cast(want, out) {
        return Ok(());
    }
    Err(misfit(args, nr, want, out))
}

/// Checks the dtype of a tensor that is changed in place.
///
/// # Errors
/// PyTorch's text if the category would fall.
#[inline]
pub fn in_place(args: &Args, want: DType, target: DType) -> Result<()> {
    if dtype::can_cast(want, target) {
        return Ok(());
    }
    Err(promoted(args, want, target)
        .or_else(|| changed(args, want, target))
        .unwrap_or_else(|| uncastable(want, target)))
}

/// The words of rows that say of their own what they change.
#[cold]
fn changed(args: &Args, want: DType, out: DType) -> Option<Error> {
    Some(match args.op.path() {
        "float_power" => err!(
            Runtime,
            "the base given to float_power_ has dtype {} but the operation's result requires dtype {}",
            out.scalar_type(),
            want.scalar_type()
        ),
        "heaviside" => err!(
            Runtime,
            "heaviside is not yet implemented for tensors with different dtypes."
        ),
        "cumsum" | "cumprod" if out == DType::Bool => {
            out.no_kernel(format!("{}_out_cpu", args.op.path()))
        }
        "clamp" | "clamp_min" | "clamp_max" => err!(
            Runtime,
            "result type {} can't be cast to the desired output type {}",
            want.scalar_type(),
            out.cpp_name()
        ),
        _ => return None,
    })
}

/// The words of rows that promote on their own.
#[cold]
fn promoted(args: &Args, want: DType, out: DType) -> Option<Error> {
    let own = args.tensor(0).map_or(out, Tensor::dtype).scalar_type();
    Some(match args.op.path() {
        "ldexp" if !want.is_complex() => err!(
            Runtime,
            "ldexp can't be cast to the desired output type {}",
            out.scalar_type()
        ),
        "mvlgamma" => err!(
            Runtime,
            "mvlgamma: result type {own} can't be cast to the desired output type {}",
            want.scalar_type()
        ),
        _ => return None,
    })
}

/// Real parts of complex elements are converted, whatever the row asks for, and so is what lies between two by a number.
fn is_exact(args: &Args, want: DType) -> bool {
    let from_complex = || args.tensor(0).is_ok_and(|t| t.dtype().is_complex());
    let by_number = || args.op.path() == "lerp" && args.tensor(2).is_err();
    let converted = || is_pointwise(args) && (want.is_float() && from_complex() || by_number());
    args.op.has(X) && !converted()
}

fn is_pointwise(args: &Args) -> bool {
    matches!(&args.op.def.body, Body::Kernel(k) if k.traits.pointwise)
}

#[cold]
fn misfit(args: &Args, nr: usize, want: DType, out: DType) -> Error {
    let (w, o) = (want.scalar_type(), out.scalar_type());
    let (cw, co) = (want.cpp_name(), out.cpp_name());
    if let Some(text) = selecting(args, nr, want, out)
        .or_else(|| summing(args, nr, want, out))
        .or_else(|| multiplying(args, want, out))
        .or_else(|| decomposing(args, nr, want, out))
    {
        return err!(Runtime, "{text}");
    }
    if let Some(e) = promoted(args, want, out) {
        return e;
    }
    match args.op.path() {
        "cat" | "stack" | "hstack" | "vstack" | "dstack" | "column_stack" | "_chunk_cat" => err!(
            Type,
            "torch.cat(): input types can't be cast to the desired output type {o}"
        ),
        name if !args.op.has(X) => match name.strip_prefix("fft.") {
            Some(name) if want.is_complex() => {
                let name = several(name);
                err!(
                    Runtime,
                    "{name} expects a complex output tensor, but got {o}"
                )
            }
            Some(name) => {
                let name = several(name);
                err!(
                    Runtime,
                    "{name} expects a floating point output tensor, but got {o}"
                )
            }
            None => uncastable(want, out),
        },
        name @ ("isposinf" | "isneginf" | "signbit") => {
            err!(Runtime, "{name} does not support non-boolean outputs.")
        }
        "nan_to_num" => err!(
            Runtime,
            "nan_to_num: dtype of out: {o} should be same as input: {w}"
        ),
        "heaviside" => err!(
            Runtime,
            "heaviside is not yet implemented for {}.",
            match out.is_complex() {
                true => "complex tensors",
                false => "tensors with different dtypes",
            }
        ),
        "float_power" => err!(
            Runtime,
            "the output given to float_power has dtype {o} but the operation's result requires dtype {w}"
        ),
        "where" => err!(Runtime, "Expected out type to be {w} but got {o}"),
        "complex" | "polar" => err!(
            Runtime,
            "Expected object of scalar type {w} but got scalar type {o} for argument 'out'"
        ),
        "frexp" => err!(
            Runtime,
            "torch.frexp() expects {} but got {co}",
            if nr == 0 {
                format!("mantissa to have dtype {cw}")
            } else {
                "exponent to have int dtype".to_owned()
            }
        ),
        "nn.functional.gelu"
        | "nn.functional.softplus"
        | "nn.functional.softshrink"
        | "nn.functional.hardshrink"
        | "conj_physical"
        | "round" => err!(Runtime, "Found dtype {o} but expected {w}"),
        _ if is_pointwise(args) && is_exact(args, want) => {
            err!(Runtime, "Found dtype {o} but expected {w}")
        }
        _ if is_pointwise(args) => uncastable(want, out),
        _ => err!(
            Runtime,
            "Expected out tensor to have dtype {cw}, but got {co} instead"
        ),
    }
}

/// That results of one dtype cannot be written as another.
#[cold]
pub fn uncastable(want: DType, out: DType) -> Error {
    err!(
        Runtime,
        "result type {} can't be cast to the desired output type {}",
        want.scalar_type(),
        out.scalar_type()
    )
}

/// Transforms along two dimensions are those along several; so is the inverse of the plain one.
fn several(name: &str) -> String {
    match name.strip_suffix(['2', 'n']) {
        Some("fft" | "ifft") => "fftn".to_owned(),
        Some(name) => format!("{name}n"),
        None => name.to_owned(),
    }
}

/// The words of rows that choose elements.
fn selecting(args: &Args, nr: usize, want: DType, out: DType) -> Option<String> {
    let (w, o) = (want.scalar_type(), out.scalar_type());
    let result = if nr == 0 { "values" } else { "indices" };
    Some(match args.op.path() {
        name @ ("masked_select" | "index_select") => {
            format!("{name}(): self and result must have the same scalar type")
        }
        "take" => format!(
            "take(): self and out expected to have the same dtype, but got self.dtype = {w} and out.dtype = {o}"
        ),
        "nonzero" => {
            format!("nonzero: Expected out tensor to have scalar type {w} but got scalar type{o}")
        }
        "narrow_copy" => {
            "Expected self.dtype() == output.dtype() to be true, but got false.  \
             (Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"
                .to_owned()
        }
        "cummax" | "cummin" | "logcumsumexp" => {
            format!("expected scalar_type {w} but found {o}")
        }
        "mode" => format!("expected scalar type '{w}' but got '{o}' for {result} output"),
        "kthvalue" if nr == 0 => "output values must be of same type as input".to_owned(),
        "kthvalue" => format!("output indices must be of scalar type {w}"),
        "median" | "nanmedian" if nr == 0 => format!(
            "Expected tensor for 'values' to have the same type as tensor for argument #2 'self'; but type torch.{o}Tensor does \
             not equal torch.{w}Tensor (while checking arguments for median)"
        ),
        "median" | "nanmedian" => format!(
            "Expected tensor for argument #1 'indices' to have scalar type {w}; but got torch.{o}Tensor instead (while checking \
             arguments for median)"
        ),
        "searchsorted" | "bucketize" => format!(
            "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) depending on whether \
             out_int32 flag is True, but we got output tensor's dtype {o} and out_int32 flag is {}",
            if want == DType::I32 { "True" } else { "False" }
        ),
        "multinomial" => format!("multinomial expects {w} tensor out, got: {o}"),
        _ => return None,
    })
}

/// The words of reductions.
fn summing(args: &Args, nr: usize, want: DType, out: DType) -> Option<String> {
    let (w, o) = (want.scalar_type(), out.scalar_type());
    let (cw, co) = (want.cpp_name(), out.cpp_name());
    Some(match args.op.path() {
        name @ ("all" | "any") => {
            format!("{name} only supports bool tensor for result, got: {o}")
        }
        "amax" | "amin" => format!(
            "Expected the dtype for input and out to match, but got {w} for input's dtype and {o} for out's dtype."
        ),
        "quantile" | "nanquantile" => {
            "quantile() out tensor must be same dtype as the input tensor".to_owned()
        }
        "logsumexp" => {
            format!("logsumexp(): Expected floating point type for result tensor, but got: {o}")
        }
        "histc" | "histogram" if nr == 0 => format!(
            "torch.histogram: input tensor and hist tensor should have the same dtype, but got input {cw} and hist {co}"
        ),
        "histogram" => format!(
            "torch.histogram: input tensor and bin_edges tensor should have the same dtype, but got input {cw} and bin_edges \
             {co} for dimension 0"
        ),
        "linalg.vecdot" => format!("linalg.vecdot: Expected out of dtype{w} but found {o}"),
        _ => return None,
    })
}

/// The words of products.
fn multiplying(args: &Args, want: DType, out: DType) -> Option<String> {
    let (w, o) = (want.scalar_type(), out.scalar_type());
    let vector = |i: usize| args.tensor(i).is_ok_and(|t| t.ndim() == 1);
    let of_vectors = || format!("result dtype {o} does not match input dtype {w}");
    let by_vector =
        || format!("addmv input tensors must have the same dtype, but got {o}, {w}, and {w}");
    Some(match args.op.path() {
        "dot" | "vdot" => of_vectors(),
        "mv" => by_vector(),
        "matmul" | "linalg.matmul" if vector(1) && vector(0) => of_vectors(),
        "matmul" | "linalg.matmul" if vector(1) => by_vector(),
        "addbmm" => format!("self and mat2 must have the same dtype, but got {o} and {w}"),
        "inner" | "tensordot" => format!(
            "tensordot: Expected the output tensor to have dtype {w}, but got an output tensor with dtype {o}"
        ),
        "linalg.multi_dot" | "chain_matmul" => format!(
            "multi_dot(): expected out tensor to have dtype {} but got {}",
            want.cpp_name(),
            out.cpp_name()
        ),
        "diag" if vector(0) && !dtype::can_cast(want, out) => {
            format!("diag: result type {w} can't be cast to the desired out= type {o}")
        }
        _ => return None,
    })
}

/// The words of linear algebra.
fn decomposing(args: &Args, nr: usize, want: DType, out: DType) -> Option<String> {
    let (w, o) = (want.scalar_type(), out.scalar_type());
    let safely = |name: &str, result: &str| {
        format!(
            "{name}: Expected {result} to be safely castable from {w} dtype, but got {result} with dtype {o}"
        )
    };
    Some(match args.op.path() {
        name @ ("cholesky" | "cholesky_inverse" | "cholesky_solve" | "linalg.pinv"
        | "linalg.cond") => safely(name, "result"),
        "linalg.matrix_rank" if !dtype::can_cast(want, out) => {
            safely("torch.linalg.matrix_rank", "result")
        }
        "linalg.tensorinv" if !dtype::can_cast(want, out) => safely("tensorinv", "result"),
        "linalg.matrix_power" | "matrix_power" if !dtype::can_cast(want, out) => {
            safely("matrix_power", "result")
        }
        "linalg.householder_product" | "orgqr" => {
            safely("torch.linalg.householder_product", "result")
        }
        "linalg.eig" if nr == 1 => safely("torch.linalg.eig", "eigenvectors"),
        "linalg.eig" => safely("torch.linalg.eig", "eigenvalues"),
        "linalg.eigvals" => safely("torch.linalg.eigvals", "eigenvalues"),
        "geqrf" => safely("torch.geqrf", if nr == 0 { "a" } else { "tau" }),
        "linalg.lstsq" => {
            // What is told of the residuals is PyTorch's word for the solution.
            let results = ["solution", "solution", "rank", "singular_values"];
            safely("torch.linalg.lstsq", results[nr.min(3)])
        }
        "ormqr" => format!(
            "torch.ormqr: Expected input and result to have the same dtype, but input has dtype{w} and result has dtype {o}"
        ),
        name @ ("linalg.norm" | "linalg.matrix_norm") => {
            format!("{name} expected out tensor dtype {w} but got: {o}")
        }
        "linalg.solve_triangular" => format!("expected scalar type {w} but found {o}"),
        _ => return None,
    })
}
