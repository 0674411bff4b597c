//! The few calls that sparse and nested tensors answer by their parts; all others refuse them by name.

use super::args::Args;
use super::op::Ret;
use crate::parts::Parts;
use crate::{Result, Tensor, err};

/// Runs a call among whose arguments is a sparse or nested tensor.
///
/// # Errors
/// That the op is not for such tensors, and what to do.
#[cold]
pub fn run(args: &Args) -> Result<Ret> {
    let first = args.tensor(0).ok();
    let parts = first.and_then(|t| t.storage().parts());
    if let (Some(t), Some(parts)) = (first, parts) {
        match (args.name(), &*parts) {
            ("unbind", Parts::Nested { .. }) if args.int(1).unwrap_or(0) == 0 => {
                return components(&parts).map(Ret::Tuple);
            }
            ("detach" | "alias", _) => return Ok(Ret::One(t.detach())),
            ("clone", _) => {
                let copy = |t: &Tensor| super::call::clone(t, crate::MemoryFormat::Preserve);
                return rebuilt(t, &parts, copy).map(Ret::One);
            }
            _ => {}
        }
    }
    let mut what = "sparse";
    args.for_each_tensor(|_, t| {
        if t.storage().is_opaque()
            && let Some(parts) = t.storage().parts()
        {
            what = parts.describe();
        }
    });
    let name = args.name();
    Err(err!(
        NotImplemented,
        "{name}(): {what} tensors are loaded, saved and taken apart, and not computed with; call to_dense() (or unbind()) first"
    ))
}

/// The tensors of a nested tensor, as views of its buffer.
fn components(parts: &Parts) -> Result<Vec<Tensor>> {
    let Parts::Nested {
        buffer,
        sizes,
        strides,
        offsets,
    } = parts
    else {
        return Err(err!(Runtime, "expected a nested tensor"));
    };
    Ok((0..offsets.len())
        .map(|i| {
            let at = buffer.offset() + offsets[i];
            buffer.view_with(sizes[i][..].into(), strides[i][..].into(), at)
        })
        .collect())
}

/// The same tensor with other parts.
///
/// # Errors
/// What the function reports.
pub fn rebuilt(
    t: &Tensor,
    parts: &Parts,
    mut f: impl FnMut(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let parts = match parts {
        Parts::Coo {
            indices,
            values,
            coalesced,
        } => Parts::Coo {
            indices: f(indices)?,
            values: f(values)?,
            coalesced: *coalesced,
        },
        Parts::Compressed {
            kind,
            compressed,
            plain,
            values,
        } => Parts::Compressed {
            kind: *kind,
            compressed: f(compressed)?,
            plain: f(plain)?,
            values: f(values)?,
        },
        Parts::Nested {
            buffer,
            sizes,
            strides,
            offsets,
        } => Parts::Nested {
            buffer: f(buffer)?,
            sizes: sizes.clone(),
            strides: strides.clone(),
            offsets: offsets.clone(),
        },
        other => other.clone(),
    };
    Ok(parts
        .into_tensor(t.shape(), t.dtype())?
        .with_requires_grad(t.requires_grad()))
}
