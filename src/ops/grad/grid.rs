//! Backward of sampling at the places of a grid.

use super::grid_composed;
use crate::cpu::grid::Sampling;
use crate::ops::core::op::{OpDef, OutSpec, Plan, compose, kernel};
use crate::ops::nn::grid::{base_grid, sampled, sampling};
use crate::ops::{f, grad};
use crate::{Dims, Result, Tensor, dims, ensure};
use smallvec::smallvec;
use torchlike_macros::operators;

/// A call of the row that images and volumes share.
macro_rules! sampled {
    ($a:ident, $n:literal) => {{
        let [image, _] = grad::needs($a.output_mask)?;
        let all = f::_grad_grid_sampler(
            $a.grad_output,
            $a.input,
            $a.grid,
            $n,
            &[$a.interpolation_mode, $a.padding_mode],
            $a.align_corners,
            image,
        )?;
        // The gradient of the grid is there in any case, and last.
        let mut all = all.into_iter().rev();
        let grid = all.next();
        Ok([all.next(), grid])
    }};
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.grid_sampler_2d_backward",
        "(Tensor grad_output, Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners, bool[2] output_mask) -> (Tensor?, Tensor?)",
        0,
        |a| -> Result<[Option<Tensor>; 2]> { sampled!(a, 2) },
        "The gradients of images and of the grid that they are sampled at.",
    )
    .samples(
        "f32[2, 3, 3, 2], f32[2, 3, 4, 5], f32[2, 3, 2, 2], 0, 0, False, [True, True]; \
         f32[2, 3, 3, 2], f32[2, 3, 4, 5], f32[2, 3, 2, 2], 2, 2, True, [False, True]",
    ),
    compose(
        "_grad.grid_sampler_3d_backward",
        "(Tensor grad_output, Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners, bool[2] output_mask) -> (Tensor?, Tensor?)",
        0,
        |a| -> Result<[Option<Tensor>; 2]> { sampled!(a, 3) },
        "The gradients of volumes and of the grid that they are sampled at.",
    )
    .samples("f32[2, 3, 1, 2, 2], f32[2, 3, 3, 4, 5], f32[2, 1, 2, 2, 3], 0, 1, False, [True, True]"),
    kernel(
        "_grad.grid_sampler",
        "(Tensor grad_output, Tensor input, Tensor grid, int dims, int[] modes, bool align_corners, bool image) -> Tensor[]",
        0,
        body!(rule, run, scratch: |a, found, outs, room| found.backward_room(room, outs, [a.grad_output, a.input, a.grid])),
        "The gradients of an image (if it is asked for) and of a grid.",
    )
    .samples("f32[2, 3, 3, 2], f32[2, 3, 4, 5], f32[2, 3, 2, 2], 2, [0, 0], False, True")
    .through(typed!(grid_composed::grid_sampler)),
    compose(
        "_grad.affine_grid_generator_backward",
        "(Tensor grad, int[] size, bool align_corners)",
        0,
        affine_grid_generator_backward,
        "The gradient of an affine map, from that of its grid.",
    )
    .samples("f32[2, 4, 5, 2], [2, 3, 4, 5], False; f32[1, 2, 3, 4, 3], [1, 2, 2, 3, 4], True"),
];

fn rule(a: &calls::_GradGridSampler) -> Result<(Plan, Sampling)> {
    let (x, grid) = (a.input, a.grid);
    let modes = match a.modes {
        [how, outside] => [*how, *outside],
        _ => [-1, -1],
    };
    let found = sampling(x, grid, a.dims.clamp(2, 3) as usize, modes, a.align_corners)?;
    let shape = sampled(x, grid);
    ensure!(
        *a.grad_output.shape() == shape && a.grad_output.dtype() == x.dtype(),
        Runtime,
        "expected a gradient of shape {shape} and dtype {}, but got {} and {}",
        x.dtype(),
        a.grad_output.shape(),
        a.grad_output.dtype()
    );
    let like = |t: &Tensor| OutSpec {
        shape: t.shape().clone(),
        strides: dims::contiguous_strides(t.shape()),
        dtype: t.dtype(),
    };
    let outs = if a.image {
        smallvec![like(x), like(grid)]
    } else {
        smallvec![like(grid)]
    };
    Ok((Plan { outs, device: None }, found))
}

fn run(a: &calls::_GradGridSampler, found: &Sampling, outs: &[Tensor]) -> Result<()> {
    let (image, grid) = match outs {
        [image, grid] => (Some(image), grid),
        _ => (None, &outs[0]),
    };
    found.backward(image, grid, a.grad_output, a.input, a.grid)
}

fn affine_grid_generator_backward(a: &calls::_GradAffineGridGeneratorBackward) -> Result<Tensor> {
    let base = base_grid(a.grad, a.size, a.align_corners)?;
    let n = a.size.len() as i64 - 2;
    let shape = Dims::from([a.size[0]]).concat(&a.size[2..]).concat(&[n]);
    ensure!(
        *a.grad.shape() == shape,
        Runtime,
        "expected a gradient of shape {shape}, but got {}",
        a.grad.shape()
    );
    let grad = f::reshape(a.grad, &[a.size[0], -1, n])?;
    f::transpose(&f::bmm(&f::transpose(&base, 1, 2)?, &grad)?, 1, 2)
}
