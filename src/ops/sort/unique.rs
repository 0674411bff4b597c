//! Distinct elements; how many there are depends on values.

use crate::cpu::distinct::Distinct;
use crate::cpu::groups::Besides;
use crate::dims::wrap_dim;
use crate::ops::core::dispatch::unknown_shape;
use crate::ops::core::helpers;
use crate::ops::core::op::{FM, OpDef, OutSpec, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::{DType, Device, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "unique",
        "(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None)",
        FM,
        |a| {
            let host = checked(a.input, a.dim, "unique")?;
            let made = match a.dim {
                None => f::_Unique2::new(&host)
                    .sorted(a.sorted)
                    .return_inverse(a.return_inverse)
                    .return_counts(a.return_counts)
                    .call()?,
                Some(dim) => f::UniqueDim::new(&host, dim)
                    .sorted(a.sorted)
                    .return_inverse(a.return_inverse)
                    .return_counts(a.return_counts)
                    .call()?,
            };
            wanted(made, a.input.device(), a.return_inverse, a.return_counts)
        },
        "The distinct elements, in order.",
    ).samples(
        "f32[3, 4], dim=-2; \
         b8[3, 4], sorted=False, return_inverse=True, dim=1; \
         f32[2, 3, 4], return_counts=True, dim=2",
    ),
    compose(
        "unique_consecutive",
        "(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None)",
        FM,
        |a| {
            let host = checked(a.input, a.dim, "unique_consecutive")?;
            let made = match a.dim {
                None => f::_UniqueConsecutive::new(&host)
                    .return_inverse(a.return_inverse)
                    .return_counts(a.return_counts)
                    .call()?,
                Some(dim) => f::UniqueDimConsecutive::new(&host, dim)
                    .return_inverse(a.return_inverse)
                    .return_counts(a.return_counts)
                    .call()?,
            };
            wanted(made, a.input.device(), a.return_inverse, a.return_counts)
        },
        "The elements without repetitions of their neighbours.",
    ).samples(
        "f32[3, 4]; \
         b8[3, 4], return_inverse=True, return_counts=True, dim=1; \
         f32[3, 4], return_inverse=True, return_counts=True, dim=0",
    ),
    kernel(
        "_unique2",
        "(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
        0,
        body!(
            |a| Ask {
                input: a.input,
                dim: None,
                consecutive: false,
                inverse: a.return_inverse,
                counts: a.return_counts
            }
            .plan(),
            write
        )
        .data_dependent(),
        "The distinct elements, where each element is among them, and how often it occurs.",
    ).samples("f32([3, 1, 3, 2]), True, True, True; i64([2, 2, 1])")
    .grad("Unique2Backward0 | self: refused('_unique2')"),
    kernel(
        "unique_dim",
        "(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
        0,
        body!(
            |a| Ask {
                input: a.input,
                dim: Some(a.dim),
                consecutive: false,
                inverse: a.return_inverse,
                counts: a.return_counts
            }
            .plan(),
            write
        )
        .data_dependent(),
        "The distinct slices, where each slice is among them, and how often it occurs.",
    ).samples("f32([[1, 2], [1, 2], [0, 3]]), 0, True, True, True")
    .grad("self: refused"),
    kernel(
        "_unique_consecutive",
        "(Tensor self, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
        0,
        body!(
            |a| Ask {
                input: a.input,
                dim: None,
                consecutive: true,
                inverse: a.return_inverse,
                counts: a.return_counts
            }
            .plan(),
            write
        )
        .data_dependent(),
        "The elements that differ from the one before, which each element belongs to, and how many do.",
    ).samples("i64([1, 1, 2, 2, 1]), True, True; f32([1, 1, 3])")
    .grad("UniqueConsecutiveBackward0 | self: refused('unique_consecutive')"),
    kernel(
        "unique_dim_consecutive",
        "(Tensor self, int dim, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
        0,
        body!(
            |a| Ask {
                input: a.input,
                dim: Some(a.dim),
                consecutive: true,
                inverse: a.return_inverse,
                counts: a.return_counts
            }
            .plan(),
            write
        )
        .data_dependent(),
        "The slices that differ from the one before, which each slice belongs to, and how many do.",
    ).samples("f32([[1, 2], [1, 2], [0, 3]]), 0, True, True")
    .grad("UniqueConsecutiveBackward0 | self: refused('unique_consecutive')"),
];

/// The tensor on the host, where its elements can be compared; a recorded one is replayed by the kernel's call.
fn checked(t: &Tensor, dim: Option<i64>, name: &str) -> Result<Tensor> {
    let kernel = if dim.is_some() {
        "unique_dim"
    } else {
        "unique"
    };
    let compared = !t.dtype().is_complex() && !t.dtype().is_storage_only();
    t.dtype().check_kernel(compared, kernel)?;
    if let Some(dim) = dim {
        selected(t, dim)?;
    }
    if helpers::has_no_values(t) {
        return Err(unknown_shape(name));
    }
    helpers::on_host(t)
}

/// The dimension whose slices are compared.
fn selected(t: &Tensor, dim: i64) -> Result<usize> {
    let size = t.size(dim)?;
    let d = wrap_dim(dim, t.ndim())?;
    let empty = t.shape().iter().enumerate().any(|(i, &n)| n == 0 && i != d);
    ensure!(
        !empty || size != 0,
        Runtime,
        "Number of zero sized dimensions is more than one, so unique cannot be applied "
    );
    ensure!(
        !empty,
        Runtime,
        "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
    );
    Ok(d)
}

/// The results that were asked for, on the device of the input.
fn wanted(made: [Tensor; 3], device: Device, inverse: bool, counts: bool) -> Result<Ret> {
    let mut outs = Vec::new();
    for (t, wanted) in made.into_iter().zip([true, inverse, counts]) {
        if wanted {
            outs.push(helpers::back_to(t, device)?);
        }
    }
    Ok(match outs.len() {
        1 => Ret::One(outs.remove(0)),
        _ => Ret::Tuple(outs),
    })
}

/// What a search for distinct elements is asked for.
struct Ask<'a> {
    input: &'a Tensor,
    dim: Option<i64>,
    consecutive: bool,
    inverse: bool,
    counts: bool,
}

/// What it found, which is nothing where there are no values, and what of it is written.
struct Found {
    distinct: Option<Distinct>,
    inverse: bool,
    counts: bool,
}

impl Ask<'_> {
    fn plan(self) -> Result<(Plan, Found)> {
        let t = self.input;
        let dim = self.dim.map(|d| selected(t, d)).transpose()?;
        let besides = Besides {
            inverse: self.inverse,
            counts: self.counts,
        };
        // The shape itself needs the values.
        let distinct = if helpers::at_hand(t) {
            Some(Distinct::new(t, dim, self.consecutive, besides)?)
        } else {
            None
        };
        let (shape, strides) = distinct.as_ref().map(Distinct::layout).unwrap_or_default();
        let mut plan = Plan::one(shape, strides, t.dtype());
        let count = |n: usize| OutSpec::contiguous(&[n as i64], DType::I64);
        plan.outs.push(match &distinct {
            Some(_) if self.inverse && dim.is_none() => OutSpec::contiguous(t.shape(), DType::I64),
            Some(d) if self.inverse => count(d.len()),
            _ => count(0),
        });
        plan.outs.push(match &distinct {
            Some(d) if self.counts => count(d.count()),
            _ => count(0),
        });
        let (inverse, counts) = (self.inverse, self.counts);
        let found = Found {
            distinct,
            inverse,
            counts,
        };
        Ok((plan, found))
    }
}

fn write<A>(_: &A, found: &Found, outs: &[Tensor]) -> Result<()> {
    let Some(distinct) = &found.distinct else {
        return Ok(());
    };
    distinct.write(&outs[0])?;
    if found.inverse {
        distinct.write_inverse(&outs[1])?;
    }
    if found.counts {
        distinct.write_counts(&outs[2])?;
    }
    Ok(())
}
