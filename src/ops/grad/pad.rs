//! Backward of padding by mirror images and by edges.

use crate::cpu::pad::{self, Table};
use crate::cpu::room::Room;
use crate::ops::arrange::join::suggested_format;
use crate::ops::arrange::pad::padded;
use crate::ops::core::op::{OpDef, Plan, kernel};
use crate::{MemoryFormat, Result, Tensor, dims, ensure, kernels};
use torchlike_macros::operators;

/// A row for padding of so many dimensions.
macro_rules! pads {
    ($a:ident, $n:literal, $mode:literal) => {
        Pads {
            n: $n,
            mode: $mode,
            x: $a.input,
            grad: $a.grad_output,
            padding: $a.padding,
        }
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_grad.reflection_pad1d_backward",
        "(Tensor grad_output, Tensor self, int[2] padding)",
        0,
        body!(|a| rule(&pads!(a, 1, "reflect")), anywhere: |a, _, outs| run(&pads!(a, 1, "reflect"), outs), scratch: |a, _, outs, room| pads!(a, 1, "reflect").room(outs, room)),
        "The gradient of padding by mirror images.",
    )
    .samples("f32[2, 3, 7], f32[2, 3, 4], [2, 1]; c64[3, 7], c64[3, 4], [1, 2]")
    .grad("grad_output: _pad_mode(grad, padding, 'reflect'); self: zeros_like(grad)"),
    kernel(
        "_grad.reflection_pad2d_backward",
        "(Tensor grad_output, Tensor self, int[4] padding)",
        0,
        body!(|a| rule(&pads!(a, 2, "reflect")), anywhere: |a, _, outs| run(&pads!(a, 2, "reflect"), outs), scratch: |a, _, outs, room| pads!(a, 2, "reflect").room(outs, room)),
        "The gradient of padding by mirror images.",
    )
    .samples("f32[2, 3, 6, 7], f32[2, 3, 4, 4], [2, 1, 1, 1]; f32[1, 2, 5, 4].cl, f32[1, 2, 4, 4].cl, [0, 0, 0, 1]")
    .grad("grad_output: _pad_mode(grad, padding, 'reflect'); self: zeros_like(grad)"),
    kernel(
        "_grad.reflection_pad3d_backward",
        "(Tensor grad_output, Tensor self, int[6] padding)",
        0,
        body!(|a| rule(&pads!(a, 3, "reflect")), anywhere: |a, _, outs| run(&pads!(a, 3, "reflect"), outs), scratch: |a, _, outs, room| pads!(a, 3, "reflect").room(outs, room)),
        "The gradient of padding by mirror images.",
    )
    .samples("f32[2, 3, 4, 4, 4], f32[2, 3, 2, 3, 2], [1, 1, 0, 1, 1, 1]")
    .grad("grad_output: _pad_mode(grad, padding, 'reflect'); self: zeros_like(grad)"),
    kernel(
        "_grad.replication_pad1d_backward",
        "(Tensor grad_output, Tensor self, int[2] padding)",
        0,
        body!(|a| rule(&pads!(a, 1, "replicate")), anywhere: |a, _, outs| run(&pads!(a, 1, "replicate"), outs), scratch: |a, _, outs, room| pads!(a, 1, "replicate").room(outs, room)),
        "The gradient of padding by the edges.",
    )
    .samples("f32[2, 3, 9], f32[2, 3, 4], [4, 1]; c64[3, 7], c64[3, 4], [1, 2]")
    .grad("grad_output: _pad_mode(grad, padding, 'replicate'); self: zeros_like(grad)"),
    kernel(
        "_grad.replication_pad2d_backward",
        "(Tensor grad_output, Tensor self, int[4] padding)",
        0,
        body!(|a| rule(&pads!(a, 2, "replicate")), anywhere: |a, _, outs| run(&pads!(a, 2, "replicate"), outs), scratch: |a, _, outs, room| pads!(a, 2, "replicate").room(outs, room)),
        "The gradient of padding by the edges.",
    )
    .samples("f32[2, 3, 6, 5], f32[2, 3, 4, 4], [2, -1, 1, 1]")
    .grad("grad_output: _pad_mode(grad, padding, 'replicate'); self: zeros_like(grad)"),
    kernel(
        "_grad.replication_pad3d_backward",
        "(Tensor grad_output, Tensor self, int[6] padding)",
        0,
        body!(|a| rule(&pads!(a, 3, "replicate")), anywhere: |a, _, outs| run(&pads!(a, 3, "replicate"), outs), scratch: |a, _, outs, room| pads!(a, 3, "replicate").room(outs, room)),
        "The gradient of padding by the edges.",
    )
    .samples("f32[3, 4, 4, 4], f32[3, 2, 3, 2], [1, 1, 0, 1, 1, 1]")
    .grad("grad_output: _pad_mode(grad, padding, 'replicate'); self: zeros_like(grad)"),
];

/// A padding of the last `n` dimensions.
struct Pads<'a> {
    n: usize,
    mode: &'static str,
    x: &'a Tensor,
    grad: &'a Tensor,
    padding: &'a [i64],
}

fn rule(p: &Pads) -> Result<Plan> {
    let (x, n, d) = (p.x, p.n, p.x.dtype());
    let name = match p.mode {
        "reflect" => "reflection",
        _ => "replication",
    };
    ensure!(
        p.padding.len() == 2 * n,
        Runtime,
        "padding size is expected to be {}",
        2 * n
    );
    ensure!(
        (x.ndim() == n + 1 || x.ndim() == n + 2)
            && x.shape()[x.ndim() - n..].iter().all(|&s| s > 0),
        Runtime,
        "Expected {}D or {}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {}",
        n + 1,
        n + 2,
        x.shape()
    );
    let shape = padded(x.shape(), p.padding)?;
    for (i, what) in ["width", "height", "depth"].iter().enumerate().take(n) {
        let (want, have) = (shape[x.ndim() - 1 - i], p.grad.shape().iter().nth_back(i));
        ensure!(
            have == Some(&want),
            Runtime,
            "gradOutput {what} unexpected. Expected: {want}, Got: {}",
            have.copied().unwrap_or(0)
        );
    }
    ensure!(
        *p.grad.shape() == shape,
        Runtime,
        "expected a gradient of shape {shape}, but got {}",
        p.grad.shape()
    );
    d.check_same(p.grad.dtype())?;
    if p.mode == "reflect" {
        for i in 0..n {
            let size = x.shape()[x.ndim() - 1 - i];
            ensure!(
                p.padding[2 * i].max(p.padding[2 * i + 1]) < size,
                Runtime,
                "Padding size should be less than the corresponding input dimension, but got: padding ({}, {}) at dimension {} of input {}",
                p.padding[2 * i],
                p.padding[2 * i + 1],
                x.ndim() - 1 - i,
                x.shape()
            );
        }
    }
    let computed = (d.is_float() && !d.is_storage_only()) || d.is_complex();
    d.check_kernel(computed, format_args!("{name}_pad{n}d_backward"))?;
    let format = if n > 1 {
        suggested_format(x)
    } else {
        MemoryFormat::Contiguous
    };
    let strides = dims::format_strides(x.shape(), format)?;
    Ok(Plan::one(x.shape().clone(), strides, d))
}

fn run(p: &Pads, outs: &[Tensor]) -> Result<()> {
    kernels::arrange::back_from_tables(&outs[0], p.grad, &p.tables())
}

impl Pads<'_> {
    fn tables(&self) -> Vec<Option<Table>> {
        let table = |d: usize| {
            let pair = self.padding.chunks(2).nth(self.x.ndim() - 1 - d)?;
            let (from, to) = (self.x.shape()[d], self.grad.shape()[d]);
            Some(Table::of(self.mode, [from, to], [pair[0], pair[1]]))
        };
        (0..self.x.ndim()).map(table).collect()
    }

    fn room(&self, outs: &[Tensor], room: &mut Room) -> Result<()> {
        pad::back_room(room, &outs[0], self.grad, &self.tables())
    }
}
