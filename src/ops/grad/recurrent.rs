//! Gradients of recurrent layers.

use crate::cpu::lstm::{self, Layer, Made};
use crate::cpu::room::Room;
use crate::ops::core::op::{OpDef, Plan, Ret, kernel};
use crate::ops::f;
use crate::ops::nn::lstm::{check, kept};
use crate::{Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_grad.mkldnn_rnn_layer_backward",
        "(Tensor input, Tensor weight1, Tensor weight2, Tensor weight3, Tensor weight4, Tensor hx_, Tensor cx_tmp, Tensor output, Tensor hy_, Tensor cy_, Tensor? grad_output, Tensor? grad_hy, Tensor? grad_cy, bool reverse, int mode, int hidden_size, int num_layers, bool has_biases, bool train, bool bidirectional, int[] batch_sizes, bool batch_first, Tensor workspace) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
        0,
        body!(rule, |a, (), outs| lstm::backward(outs, &layer(a), &made(a)), scratch: |a, (), _, room| scratch(a, room)),
        "The gradients of a layer of an LSTM by its input, weights, biases and first states.",
    )
    .samples(
        "f32[3, 2, 3], f32[8, 3], f32[8, 2], f32[8], f32[8], f32[2, 2], f32[2, 2], f32[3, 2, 2], f32[2, 2], f32[2, 2], f32[3, 2, 2], f32[2, 2], f32[2, 2], False, 2, 2, 1, True, True, False, [], False, f32[60]; \
         f32[3, 2, 3], f32[8, 3], f32[8, 2], f32[8], f32[8], f32[2, 2], f32[2, 2], f32[3, 2, 2], f32[2, 2], f32[2, 2], None, f32[2, 2], None, True, 2, 2, 1, True, True, False, [], False, f32[60]",
    )
    .through(typed!(composed)),
];

fn layer<'a>(a: &calls::_GradMkldnnRnnLayerBackward<'a>) -> Layer<'a> {
    Layer {
        input: a.input,
        w_ih: a.weight1,
        w_hh: a.weight2,
        biases: [a.weight3, a.weight4],
        h: a.hx_,
        c: a.cx_tmp,
        reverse: a.reverse,
    }
}

fn made<'a>(a: &calls::_GradMkldnnRnnLayerBackward<'a>) -> Made<'a> {
    Made {
        out: a.output,
        kept: a.workspace,
        grads: [a.grad_output, a.grad_hy, a.grad_cy],
    }
}

fn rule(a: &calls::_GradMkldnnRnnLayerBackward) -> Result<Plan> {
    let sizes @ [steps, batch, hidden] = check(&layer(a), a.mode, a.hidden_size)?;
    let (whole, state, due) = ([steps, batch, hidden], [batch, hidden], [kept(sizes)?]);
    ensure!(
        a.workspace.shape()[..] == due && a.output.shape()[..] == whole,
        Runtime,
        "mkldnn_rnn_layer_backward(): the layer kept nothing for its way back, or that of another: it has to run with train=True"
    );
    for (name, g, shape) in [
        ("grad_output", a.grad_output, &whole[..]),
        ("grad_hy", a.grad_hy, &state[..]),
        ("grad_cy", a.grad_cy, &state[..]),
    ] {
        ensure!(
            g.is_none_or(|g| g.shape()[..] == *shape),
            Runtime,
            "mkldnn_rnn_layer_backward(): {name} must be of shape {shape:?}"
        );
    }
    let inputs = [
        a.input, a.weight1, a.weight2, a.weight3, a.weight4, a.hx_, a.cx_tmp,
    ];
    let specs = inputs.map(|t| (&t.shape()[..], t.dtype()));
    Ok(Plan::many(&specs))
}

fn scratch(a: &calls::_GradMkldnnRnnLayerBackward, room: &mut Room) -> Result<()> {
    let d = a.input.dtype();
    let all = [a.input, a.weight1, a.weight2, a.hx_, a.cx_tmp, a.workspace];
    room.all_dense(
        all.into_iter()
            .map(Some)
            .chain([a.grad_output, Some(a.output)]),
        d,
    )?;
    let gates = a.input.shape()[0] * a.input.shape()[1] * 4 * a.hidden_size;
    room.elements(gates as usize, d)
}

/// A step as it was computed.
struct Step {
    /// Input, forget, cell and output gate.
    gates: [Tensor; 4],
    /// The hyperbolic tangent of the cells after it.
    tanh: Tensor,
    /// Outputs and cells before it.
    before: (Tensor, Tensor),
}

/// The steps again, with their histories, in the order in which they are computed.
fn steps(l: &Layer) -> Result<Vec<Step>> {
    let linear =
        |x: &Tensor, w: &Tensor, b: &Tensor| f::NnFunctionalLinear::new(x, w).bias(b).call();
    let mut rows = f::unbind(&linear(l.input, l.w_ih, l.biases[0])?)?;
    if l.reverse {
        rows.reverse();
    }
    let (mut h, mut c) = (l.h.clone(), l.c.clone());
    let mut made = Vec::with_capacity(rows.len());
    for row in rows {
        let sums = f::add(&row, &linear(&h, l.w_hh, l.biases[1])?)?;
        let parts = f::Chunk::new(&sums, 4).dim(1).call()?;
        let gates = [
            f::sigmoid(&parts[0])?,
            f::sigmoid(&parts[1])?,
            f::tanh(&parts[2])?,
            f::sigmoid(&parts[3])?,
        ];
        let cells = f::add(&f::mul(&gates[1], &c)?, &f::mul(&gates[0], &gates[2])?)?;
        let tanh = f::tanh(&cells)?;
        let out = f::mul(&gates[3], &tanh)?;
        let before = (
            std::mem::replace(&mut h, out),
            std::mem::replace(&mut c, cells),
        );
        made.push(Step {
            gates,
            tanh,
            before,
        });
    }
    Ok(made)
}

/// `g (1 - y) y`, and `g (1 - y y)`.
fn through(g: &Tensor, y: &Tensor, tanh: bool) -> Result<Tensor> {
    let slope = f::sub(
        &if tanh { f::ones_like(y)? } else { y.clone() },
        &f::mul(y, y)?,
    )?;
    f::mul(g, &slope)
}

fn sum(a: Option<Tensor>, b: Option<Tensor>) -> Result<Option<Tensor>> {
    match (a, b) {
        (Some(a), Some(b)) => f::add(&a, &b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}

/// The same of operators that have gradients themselves.
fn composed(a: &calls::_GradMkldnnRnnLayerBackward) -> Result<Ret> {
    let l = layer(a);
    let steps = steps(&l)?;
    let mut by_out = match a.grad_output {
        Some(g) => f::unbind(g)?.into_iter().map(Some).collect(),
        None => vec![None; steps.len()],
    };
    if l.reverse {
        by_out.reverse();
    }
    let zeros = |t: &Tensor| f::zeros_like(t);
    let mut by_h = a.grad_hy.cloned();
    let mut by_c = a.grad_cy.map_or_else(|| zeros(l.c), |t| Ok(t.clone()))?;
    let (mut by_sums, mut by_w): (Vec<Tensor>, Option<Tensor>) = (Vec::new(), None);
    for (step, by_out) in steps.iter().zip(by_out).rev() {
        let [input, forget, cell, output] = &step.gates;
        let by = match sum(by_h.take(), by_out)? {
            Some(by) => by,
            None => zeros(l.h)?,
        };
        let by_cell = f::add(&by_c, &through(&f::mul(&by, output)?, &step.tanh, true)?)?;
        let (h, c) = &step.before;
        let sums = [
            through(&f::mul(&by_cell, cell)?, input, false)?,
            through(&f::mul(&by_cell, c)?, forget, false)?,
            through(&f::mul(&by_cell, input)?, cell, true)?,
            through(&f::mul(&by, &step.tanh)?, output, false)?,
        ];
        let sums = f::Cat::new(&sums).dim(1).call()?;
        by_c = f::mul(&by_cell, forget)?;
        by_h = Some(f::matmul(&sums, l.w_hh)?);
        by_w = sum(by_w, Some(f::matmul(&f::t(&sums)?, h)?))?;
        by_sums.push(sums);
    }
    if !l.reverse {
        by_sums.reverse();
    }
    let all = f::cat(&by_sums)?;
    let x = f::reshape(l.input, &[-1, l.input.size(2)?])?;
    let bias = f::SumDim::new(&all, &[0i64][..]).call()?;
    let by_x = f::reshape(&f::matmul(&all, l.w_ih)?, l.input.shape())?;
    let made = [
        Some(by_x),
        Some(f::matmul(&f::t(&all)?, &x)?),
        by_w,
        Some(bias.clone()),
        Some(bias),
        by_h,
        Some(by_c),
    ];
    Ok(Ret::Tuple(made.into_iter().flatten().collect()))
}
