//! What convolutions take besides their results: the allocations of this folder's functions, in their order.

use super::backward::Cut;
use super::blocks::Work;
use super::direct::spread;
use super::pieces::tile;
use super::pixels::Pixels;
use super::windows::suits;
use super::winograd::Plan;
use super::winograd_backward::Backward;
use super::{Geometry, Phase, in_single, pairs, pairs_backward};
use crate::cpu::room::Room;
use crate::{DType, Result, Tensor};

/// As [`super::backward::innermost`], or dense, by the geometry.
fn laid(room: &mut Room, t: &Tensor, dtype: DType, last: bool) -> Result<Tensor> {
    if !last {
        return room.dense(t, dtype);
    }
    let order: Vec<usize> = std::iter::once(0).chain(2..t.ndim()).chain([1]).collect();
    room.dense(&t.permuted(&order), dtype)
}

/// As [`super::convolve`].
///
/// # Errors
/// If a size overflows.
pub fn convolve(
    room: &mut Room,
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let x = laid(room, x, x.dtype(), g.channels_last)?;
    if g.channels_last && g.groups == g.inputs && g.inputs > 1 && out.dtype().is_float() {
        if !g.transposed && g.outputs == g.inputs {
            return channels(room, out, &x, w, bias);
        }
        if !g.transposed {
            let times = (g.outputs / g.inputs) as i64;
            let x = room.empty(&x.shape().concat(&[times]), x.dtype())?;
            return channels(room, out, &x, w, bias);
        }
        if g.outputs == g.inputs
            && let Some(size) = spread(&x, g)
        {
            let taps = g.window.iter().product::<usize>();
            let back = [g.outputs as i64, taps as i64];
            return room.within(|room| {
                let turned = room.keep(|room| {
                    room.dense(w, w.dtype())?;
                    let back = room.empty(&back, w.dtype())?;
                    if g.stride == [1; 3] {
                        return Ok(back);
                    }
                    // The weight is let go, what was made of it is held on to.
                    let n = x.shape()[0] * size.iter().product::<i64>() * g.inputs as i64;
                    room.empty(&[n], x.dtype())
                })?;
                if g.stride == [1; 3] {
                    return channels(room, out, &x, &turned, bias);
                }
                let back = room.empty(&back, w.dtype())?;
                channels(room, out, &turned, &back, bias)
            });
        }
    }
    let phases = g.phases();
    if in_single(&phases, out.dtype(), g) {
        return wider(room, out, &x, w, bias, |room, out, x, w, bias| {
            by_phases(room, out, x, w, bias, g, &phases)
        });
    }
    by_phases(room, out, &x, w, bias, g, &phases)
}

/// As [`super::wider`].
fn wider(
    room: &mut Room,
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    f: impl Fn(&mut Room, &Tensor, &Tensor, &Tensor, Option<&Tensor>) -> Result<()>,
) -> Result<()> {
    let sum = room.empty(out.shape(), DType::F32)?;
    let bias = bias.map(|b| room.converted(b, DType::F32)).transpose()?;
    let (x, w) = (
        room.converted(x, DType::F32)?,
        room.converted(w, DType::F32)?,
    );
    f(room, &sum, &x, &w, bias.as_ref())
}

/// As [`super::channels`], with [`super::direct::direct`].
fn channels(
    room: &mut Room,
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
) -> Result<()> {
    let plain =
        |room: &mut Room, w: &Tensor, b: Option<&Tensor>| room.all_dense([Some(w), b], w.dtype());
    if matches!(out.dtype(), DType::F32 | DType::F64) {
        return plain(room, w, bias);
    }
    wider(room, out, x, w, bias, |room, _, _, w, bias| {
        plain(room, w, bias)
    })
}

/// As [`super::convolve_phases`].
fn by_phases(
    room: &mut Room,
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
    phases: &[Phase],
) -> Result<()> {
    room.all_dense([bias], out.dtype())?;
    for phase in phases {
        room.within(|room| {
            if let Some(plan) = Plan::of(g, phase, out.dtype(), room.threads()) {
                weights(room, w, g, phase, false)?;
                let [packed, tasks, each] = plan.rooms(g);
                room.elements(packed, w.dtype())?;
                (0..tasks.min(room.threads())).try_for_each(|_| room.elements(each, DType::F32))
            } else if pairs::suits(g, phase, out.dtype()) {
                weights(room, w, g, phase, false)?;
                room.elements(pairs::packed(g, phase), w.dtype())
            } else if suits(g, phase, out.dtype()) {
                let w = weights(room, w, g, phase, false)?;
                let packed = if g.outputs == g.groups { 0 } else { w.numel() };
                room.elements(packed as usize, w.dtype())
            } else {
                blocks(room, out, x, w, g, phase)
            }
        })?;
    }
    Ok(())
}

/// As [`super::gather::weights`].
fn weights(room: &mut Room, w: &Tensor, g: &Geometry, phase: &Phase, last: bool) -> Result<Tensor> {
    let (og, cg) = ((g.outputs / g.groups) as i64, (g.inputs / g.groups) as i64);
    let (groups, taps) = (g.groups as i64, g.window.iter().product::<usize>() as i64);
    let all = phase.taps.len() as i64 == taps;
    room.keep(|room| {
        let w = room.dense(w, w.dtype())?;
        if all && g.transposed && !last {
            return room.empty(&[groups, og, cg, taps], w.dtype());
        }
        let strides = if g.transposed {
            [cg * og * taps, taps, og * taps, 1]
        } else {
            [og * cg * taps, cg * taps, taps, 1]
        };
        let view = w.view_with([groups, og, cg, taps].into(), strides.into(), w.offset());
        let view = if all {
            view
        } else {
            room.empty(&[groups, og, cg, phase.taps.len() as i64], w.dtype())?
        };
        let view = if last {
            view.permuted(&[0, 3, 2, 1])
        } else {
            view
        };
        room.dense(&view, w.dtype())
    })
}

/// As [`super::blocks`].
fn blocks(
    room: &mut Room,
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    g: &Geometry,
    phase: &Phase,
) -> Result<()> {
    let split = !g.channels_last && phase.advance[2] > 1;
    let x = if split {
        room.empty(x.shape(), x.dtype())?
    } else {
        x.clone()
    };
    let w = weights(room, w, g, phase, g.channels_last)?;
    let work = Work {
        out,
        x,
        w,
        bias: None,
        g,
        phase,
    };
    let total = phase.count.iter().product::<usize>();
    let cuts = work.cuts(total);
    let (tasks, images, width) = (cuts.tasks(g), cuts.images(), cuts.room());
    let plain = phase.is_plain(g) && images == 1;
    let threads = if tasks < room.threads() {
        1
    } else {
        room.threads()
    };
    for _ in 0..threads {
        if !plain {
            room.elements(work.depth() * width, out.dtype())?;
        }
        if phase.step != [1; 3] || images > 1 {
            room.elements(g.outputs / g.groups * width, out.dtype())?;
        }
    }
    Ok(())
}

/// As [`super::weight_gradient`].
///
/// # Errors
/// If a size overflows.
pub fn weight_gradient(
    room: &mut Room,
    out: &Tensor,
    grad: &Tensor,
    x: &Tensor,
    g: &Geometry,
) -> Result<()> {
    let wide = if out.dtype().is_reduced_float() {
        DType::F32
    } else {
        out.dtype()
    };
    let phases = g.phases();
    let Some(phase) = phases.first().filter(|_| grad.numel() > 0) else {
        return Ok(());
    };
    if let Some(plan) = pairs_backward::Plan::of(g, phase, grad.dtype()) {
        for t in [grad, x] {
            laid(room, t, t.dtype(), g.channels_last)?;
        }
        let [made, sums, others @ ..] = plan.rooms();
        room.elements(made, wide)?;
        room.elements(sums, wide)?;
        return others
            .into_iter()
            .try_for_each(|n| room.elements(n, grad.dtype()));
    }
    match wide {
        DType::F32 => summed::<f32>(room, grad, x, g, phase, wide),
        DType::F64 => summed::<f64>(room, grad, x, g, phase, wide),
        _ => products(room, grad, x, g, phase, wide),
    }
}

/// As [`super::backward::summed`].
fn summed<T: crate::cpu::gemm::WindowElement + crate::Element>(
    room: &mut Room,
    grad: &Tensor,
    x: &Tensor,
    g: &Geometry,
    phase: &Phase,
    wide: DType,
) -> Result<()> {
    let depthwise = g.groups == g.inputs && g.inputs > 1;
    let taps = phase.taps.len();
    if depthwise && g.channels_last && g.outputs == g.inputs {
        laid(room, grad, wide, true)?;
        laid(room, x, wide, true)?;
        let tile = tile(g, phase) as i64;
        let sums = room.empty(&[taps as i64, tile], wide)?;
        let sums = sums.narrowed(1, 0, g.inputs as i64);
        return room.dense(&sums.swapped(0, 1), wide).map(drop);
    }
    if depthwise && suits(g, phase, wide) {
        room.all_dense([Some(grad), Some(x)], wide)?;
        return room.elements(g.outputs * taps, wide);
    }
    let grad = laid(room, grad, wide, g.channels_last)?;
    let x = laid(room, x, wide, g.channels_last)?;
    if let Some(plan) = Backward::of(g, phase, wide) {
        let [sums, coefficients, copy, tasks] = plan.rooms();
        for n in [g.outputs * (g.inputs / g.groups) * 9, sums, coefficients] {
            room.elements(n, wide)?;
        }
        return (0..tasks.min(room.threads())).try_for_each(|_| room.elements(copy, wide));
    }
    match Pixels::<T>::sizes(g, phase) {
        Some(parts) => {
            room.elements(parts, wide)?;
            room.elements(g.outputs * (g.inputs / g.groups) * taps, wide)
        }
        None => products(room, &grad, &x, g, phase, wide),
    }
}

/// As [`super::backward::Products`].
fn products(
    room: &mut Room,
    grad: &Tensor,
    x: &Tensor,
    g: &Geometry,
    phase: &Phase,
    wide: DType,
) -> Result<()> {
    let s = Cut::new(g, phase, wide);
    laid(room, grad, wide, s.pixels)?;
    room.keep(|room| {
        let x = laid(room, x, wide, s.pixels)?;
        let split = !s.pixels && phase.advance[2] > 1;
        if split {
            room.empty(x.shape(), wide)
        } else {
            Ok(x)
        }
    })?;
    let (og, cg, taps) = (g.outputs / g.groups, g.inputs / g.groups, phase.taps.len());
    let tasks = g.groups * cg.div_ceil(s.channels);
    let shares = s.shares(tasks);
    let count = g.outputs * cg * taps;
    room.elements(shares * count, wide)?;
    room.within(|room| {
        let depth = s.channels * taps;
        for _ in 0..room.threads().min(shares * tasks) {
            room.elements(og * depth, wide)?;
            if !phase.is_plain(g) {
                room.elements(depth * s.len, wide)?;
            }
        }
        Ok(())
    })?;
    if shares == 1 {
        return Ok(());
    }
    room.elements(shares, wide)?;
    room.elements(count, wide)
}
