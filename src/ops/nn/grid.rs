//! Sampling at the places of a grid, and the grids of affine maps.

use crate::cpu::grid::{Mode, Outside, Sampling};
use crate::ops::core::op::{Batch, Cast, F, OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::{Dims, Result, Tensor, bail, ensure, warning};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "grid_sampler_2d",
        "(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners)",
        F,
        body!(
            |a| rule(a.input, a.grid, 2, a.interpolation_mode, a.padding_mode, a.align_corners),
            |a, found, outs| found.forward(&outs[0], a.input, a.grid),
            scratch: |a, found, outs, room| found.forward_room(room, &outs[0], [a.input, a.grid])
        ),
        "Images at the places of a grid.",
    )
    .samples(
        "f32[2, 3, 4, 5], f32[2, 3, 2, 2], 0, 0, False; \
         f32[2, 3, 4, 5], f32[2, 3, 2, 2], 1, 1, True; \
         f32[2, 3, 4, 5], f32[2, 3, 2, 2], 2, 2, False",
    )
    .grad("input, grid: _grad.grid_sampler_2d_backward(grad, input, grid, interpolation_mode, padding_mode, align_corners, needs)")
    .batch(Batch::Fold(3))
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "grid_sampler_3d",
        "(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners)",
        F,
        body!(
            |a| rule(a.input, a.grid, 3, a.interpolation_mode, a.padding_mode, a.align_corners),
            |a, found, outs| found.forward(&outs[0], a.input, a.grid),
            scratch: |a, found, outs, room| found.forward_room(room, &outs[0], [a.input, a.grid])
        ),
        "Volumes at the places of a grid.",
    )
    .samples("f32[2, 3, 3, 4, 5], f32[2, 2, 1, 2, 3], 0, 2, False")
    .grad("input, grid: _grad.grid_sampler_3d_backward(grad, input, grid, interpolation_mode, padding_mode, align_corners, needs)")
    .batch(Batch::Fold(4))
    .amp(Cast::Single, Cast::Kept),
    compose(
        "grid_sampler",
        "(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners)",
        F,
        |a| {
            let (how, outside, align) = (a.interpolation_mode, a.padding_mode, a.align_corners);
            check(a.input, a.grid)?;
            match a.input.ndim() {
                4 => f::grid_sampler_2d(a.input, a.grid, how, outside, align),
                _ => f::grid_sampler_3d(a.input, a.grid, how, outside, align),
            }
        },
        "Images or volumes at the places of a grid.",
    )
    .samples("f32[2, 3, 4, 5], f32[2, 3, 2, 2], 0, 0, False")
    .amp(Cast::Single, Cast::Widest),
    compose(
        "nn.functional.grid_sample",
        "(Tensor input, Tensor grid, str mode='bilinear', str padding_mode='zeros', bool? align_corners=None)",
        F,
        grid_sample,
        "Images or volumes at the places of a grid.",
    )
    .samples("f32[2, 3, 4, 5], f32[2, 3, 2, 2], align_corners=False; f32[1, 2, 3, 3, 3], f32[1, 2, 2, 2, 3], 'nearest', 'border', True"),
    compose(
        "affine_grid_generator",
        "(Tensor theta, int[] size, bool align_corners)",
        F,
        affine_grid_generator,
        "The grid of an affine map.",
    )
    .samples("f32[2, 2, 3], [2, 3, 4, 5], False; f32[1, 3, 4], [1, 2, 2, 3, 4], True")
    .grad("theta: _grad.affine_grid_generator_backward(grad, size, align_corners)"),
    compose(
        "nn.functional.affine_grid",
        "(Tensor theta, int[] size, bool? align_corners=None)",
        F,
        affine_grid,
        "The grid of an affine map, for `grid_sample`.",
    )
    .samples("f32[2, 2, 3], [2, 3, 4, 5], False"),
];

fn check(x: &Tensor, grid: &Tensor) -> Result<()> {
    let (xs, gs, n) = (x.shape(), grid.shape(), x.ndim());
    ensure!(
        x.device() == grid.device(),
        Devices,
        "grid_sampler(): expected input and grid to be on same device, but input is on {} and grid is on {}",
        x.device(),
        grid.device()
    );
    ensure!(
        xs.first() == gs.first() && n > 0,
        Runtime,
        "grid_sampler(): expected grid and input to have same batch size, but got input with sizes {xs} and grid with sizes {gs}"
    );
    ensure!(
        gs.last() == Some(&(n as i64 - 2)),
        Runtime,
        "grid_sampler(): expected grid to have size {} in last dimension, but got grid with sizes {gs}",
        n as i64 - 2
    );
    for (i, &size) in xs.iter().enumerate().skip(2) {
        ensure!(
            size > 0,
            Runtime,
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {xs} with dimension {i} being empty"
        );
    }
    ensure!(
        (n == 4 || n == 5) && grid.ndim() == n,
        Runtime,
        "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with sizes {xs} and grid with sizes {gs}"
    );
    Ok(())
}

/// Checks input and grid of `n` spatial dimensions, and the numbers of the modes.
pub(in crate::ops) fn sampling(
    x: &Tensor,
    grid: &Tensor,
    n: usize,
    [how, outside]: [i64; 2],
    align: bool,
) -> Result<Sampling> {
    ensure!(
        x.ndim() == n + 2 && grid.ndim() == n + 2,
        Runtime,
        "grid_sampler(): expected {}D input and grid with same number of dimensions, but got input with sizes {} and grid with sizes {}",
        n + 2,
        x.shape(),
        grid.shape()
    );
    check(x, grid)?;
    let mode = match how {
        0 => Mode::Linear,
        1 => Mode::Nearest,
        2 if n == 2 => Mode::Cubic,
        2 => bail!(
            Runtime,
            "grid_sampler(): bicubic interpolation only supports 4D input"
        ),
        _ => bail!(
            Runtime,
            "grid_sampler(): {how} is no interpolation mode: 0, 1 or 2"
        ),
    };
    let outside = match outside {
        0 => Outside::Zeros,
        1 => Outside::Border,
        2 => Outside::Reflection,
        _ => bail!(
            Runtime,
            "grid_sampler(): {outside} is no padding mode: 0, 1 or 2"
        ),
    };
    x.dtype()
        .check_float_kernel(format_args!("grid_sampler_{n}d_cpu_kernel_impl"))?;
    x.dtype().check_same(grid.dtype())?;
    Ok(Sampling {
        mode,
        outside,
        align,
    })
}

/// The shape of samples of `x` at `grid`.
pub(in crate::ops) fn sampled(x: &Tensor, grid: &Tensor) -> Dims {
    Dims::new(&x.shape()[..2]).concat(&grid.shape()[1..grid.ndim() - 1])
}

fn rule(
    x: &Tensor,
    grid: &Tensor,
    n: usize,
    how: i64,
    outside: i64,
    align: bool,
) -> Result<(Plan, Sampling)> {
    let found = sampling(x, grid, n, [how, outside], align)?;
    Ok((Plan::contiguous(&sampled(x, grid), x.dtype()), found))
}

/// Whether corners are aligned, which was once so where nothing is said.
fn aligned(asked: Option<bool>) -> bool {
    asked.unwrap_or_else(|| {
        warning::say(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify \
             align_corners=True if the old behavior is desired. See the documentation of grid_sample for details.",
        );
        false
    })
}

fn grid_sample(a: &calls::NnFunctionalGridSample) -> Result<Tensor> {
    let number = |names: [&str; 3], name: &str| names.iter().position(|&n| n == name);
    let Some(how) = number(["bilinear", "nearest", "bicubic"], a.mode) else {
        bail!(
            Value,
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{}'",
            a.mode
        );
    };
    let Some(outside) = number(["zeros", "border", "reflection"], a.padding_mode) else {
        bail!(
            Value,
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{}'",
            a.padding_mode
        );
    };
    let align = aligned(a.align_corners);
    f::grid_sampler(a.input, a.grid, how as i64, outside as i64, align)
}

fn affine_grid(a: &calls::NnFunctionalAffineGrid) -> Result<Tensor> {
    let (theta, size) = (a.theta, a.size);
    let align = aligned(a.align_corners);
    let shown = || {
        let list: Vec<String> = size.iter().map(ToString::to_string).collect();
        format!("({})", list.join(", "))
    };
    ensure!(
        theta.dtype().is_float(),
        Value,
        "Expected theta to have floating point type, but got torch.{}",
        theta.dtype()
    );
    let n = size.len().wrapping_sub(2);
    if n != 2 && n != 3 {
        bail!(
            NotImplemented,
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {}.",
            shown()
        );
    }
    let want = [n as i64, n as i64 + 1];
    ensure!(
        theta.ndim() == 3 && theta.shape()[1..] == want,
        Value,
        "Expected a batch of {n}D affine matrices of shape Nx{}x{} for size {}. Got torch.Size({}).",
        want[0],
        want[1],
        shown(),
        theta.shape()
    );
    if align && size[2..].iter().min() == Some(&1) {
        warning::say(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when align_corners=True. This is not an \
             intended use case of affine_grid. See the documentation of affine_grid for details.",
        );
    }
    ensure!(
        size.iter().all(|&s| s > 0),
        Value,
        "Expected non-zero, positive output size. Got {}",
        shown()
    );
    f::affine_grid_generator(theta, size, align)
}

/// `size` numbers from -1 to 1, the middles of the elements or their ends.
fn line(like: &Tensor, size: i64, align: bool) -> Result<Tensor> {
    if size <= 1 {
        return f::new_zeros(like, &[size.max(0)]);
    }
    let line = f::Linspace::new(-1.0, 1.0, size)
        .dtype(like.dtype())
        .device(crate::ops::core::helpers::beside(like))
        .call()?;
    if align {
        return Ok(line);
    }
    f::div(&f::mul(&line, size - 1)?, size)
}

/// The places of a grid before they are mapped, `[batch, places, dimensions + 1]`: width, height, (depth,) 1.
pub(in crate::ops) fn base_grid(like: &Tensor, size: &[i64], align: bool) -> Result<Tensor> {
    ensure!(
        size.len() == 4 || size.len() == 5,
        Runtime,
        "AffineGridGenerator needs 4d (spatial) or 5d (volumetric) inputs."
    );
    let spatial = &size[2..];
    let full = Dims::from([size[0]]).concat(spatial);
    let mut parts = Vec::new();
    for (i, &s) in spatial.iter().enumerate().rev() {
        let mut shape = Dims::filled(full.len(), 1);
        shape[i + 1] = s;
        let line = f::reshape(&line(like, s, align)?, &shape)?;
        parts.push(f::expand(&line, &full)?);
    }
    parts.push(f::new_ones(like, &full)?);
    let grid = f::Stack::new(&parts).dim(-1).call()?;
    f::view(&grid, &[size[0], -1, spatial.len() as i64 + 1])
}

fn affine_grid_generator(a: &calls::AffineGridGenerator) -> Result<Tensor> {
    let base = base_grid(a.theta, a.size, a.align_corners)?;
    let grid = f::bmm(&base, &f::transpose(a.theta, 1, 2)?)?;
    let n = a.size.len() as i64 - 2;
    let shape = Dims::from([a.size[0]]).concat(&a.size[2..]).concat(&[n]);
    f::view(&grid, &shape)
}
