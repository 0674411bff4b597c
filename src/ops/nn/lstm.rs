//! Layers of an LSTM that are one operator each, as they are on PyTorch's CPU in single precision.

use super::recurrent::Net;
use crate::cpu::lstm::{self, Layer, Meeting};
use crate::cpu::room::Room;
use crate::ops::core::helpers::for_host;
use crate::ops::core::op::{F, OpDef, Plan, kernel};
use crate::ops::f;
use crate::{DType, Result, Tensor, bail, ensure, err, mode};
use torchlike_macros::operators;

/// PyTorch's number of the kind of network.
pub const LSTM: i64 = 2;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "mkldnn_rnn_layer",
        "(Tensor input, Tensor weight0, Tensor weight1, Tensor weight2, Tensor weight3, Tensor hx_, Tensor cx_, bool reverse, int[] batch_sizes, int mode, int hidden_size, int num_layers, bool has_biases, bool bidirectional, bool batch_first, bool train) -> (Tensor, Tensor, Tensor, Tensor)",
        F,
        body!(rule, |a, (), outs| lstm::forward(outs, &layer(a)), scratch: |a, (), outs, room| scratch(a, outs, room)),
        "All steps of a layer of an LSTM in one direction; its last output and cells, and what its way back needs.",
    )
    .samples(
        "f32[3, 2, 3], f32[8, 3], f32[8, 2], f32[8], f32[8], f32[2, 2], f32[2, 2], False, [], 2, 2, 1, True, False, False, True; \
         f32[3, 2, 3], f32[8, 3], f32[8, 2], f32[8], f32[8], f32[2, 2], f32[2, 2], True, [], 2, 2, 1, True, False, False, True",
    )
    .grad(
        "input, weight0, weight1, weight2, weight3, hx_, cx_: mkldnn_rnn_layer_backward(input, weight0, weight1, weight2, weight3, hx_, cx_, result0, result1, \
         result2, grads[0], grads[1], grads[2], reverse, mode, hidden_size, num_layers, has_biases, train, bidirectional, batch_sizes, batch_first, result3)",
    ),
];

/// Checks a layer's operands; the sizes of its steps, examples and states.
pub(in crate::ops) fn check(l: &Layer, mode: i64, hidden_size: i64) -> Result<[i64; 3]> {
    ensure!(
        mode == LSTM,
        NotImplemented,
        "mkldnn_rnn_layer(): mode {mode} is not that of an LSTM, {LSTM}"
    );
    ensure!(
        matches!(l.input.dtype(), DType::F32 | DType::F64),
        NotImplemented,
        "mkldnn_rnn_layer(): {} is not supported, float and double are",
        l.input.dtype()
    );
    let &[steps, batch, features] = &l.input.shape()[..] else {
        bail!(
            Runtime,
            "mkldnn_rnn_layer(): input must have 3 dimensions, got {}",
            l.input.ndim()
        )
    };
    let gates = hidden_size
        .checked_mul(4)
        .ok_or_else(|| err!(Runtime, "mkldnn_rnn_layer(): hidden_size is too large"))?;
    let (state, bias) = ([batch, hidden_size], [gates]);
    let [b_ih, b_hh] = l.biases;
    let (w_ih, w_hh) = ([gates, features], [gates, hidden_size]);
    let due: [(&str, &Tensor, &[i64]); 6] = [
        ("weight0", l.w_ih, &w_ih),
        ("weight1", l.w_hh, &w_hh),
        ("weight2", b_ih, &bias),
        ("weight3", b_hh, &bias),
        ("hx_", l.h, &state),
        ("cx_", l.c, &state),
    ];
    for (name, t, shape) in due {
        ensure!(
            t.shape()[..] == *shape && t.dtype() == l.input.dtype(),
            Runtime,
            "mkldnn_rnn_layer(): {name} must be of shape {shape:?} and the input's type, got {} of {}",
            t.shape(),
            t.dtype()
        );
    }
    ensure!(
        steps > 0,
        Runtime,
        "Expected sequence length to be larger than 0 in RNN"
    );
    Ok([steps, batch, hidden_size])
}

/// How much a layer keeps for its way back.
pub(in crate::ops) fn kept([steps, batch, hidden]: [i64; 3]) -> Result<i64> {
    lstm::kept(steps, batch, hidden)
        .ok_or_else(|| err!(Runtime, "mkldnn_rnn_layer(): the sizes overflow"))
}

fn layer<'a>(a: &calls::MkldnnRnnLayer<'a>) -> Layer<'a> {
    Layer {
        input: a.input,
        w_ih: a.weight0,
        w_hh: a.weight1,
        biases: [a.weight2, a.weight3],
        h: a.hx_,
        c: a.cx_,
        reverse: a.reverse,
    }
}

fn rule(a: &calls::MkldnnRnnLayer) -> Result<Plan> {
    ensure!(
        a.num_layers == 1 && !a.bidirectional && !a.batch_first,
        NotImplemented,
        "mkldnn_rnn_layer(): one layer in one direction is supported, steps first"
    );
    let sizes @ [steps, batch, hidden] = check(&layer(a), a.mode, a.hidden_size)?;
    let (d, state) = (a.input.dtype(), [batch, hidden]);
    let room = if a.train { kept(sizes)? } else { 0 };
    Ok(Plan::many(&[
        (&[steps, batch, hidden], d),
        (&state, d),
        (&state, d),
        (&[room], d),
    ]))
}

fn scratch(a: &calls::MkldnnRnnLayer, outs: &[Tensor], room: &mut Room) -> Result<()> {
    let (d, all) = (
        a.input.dtype(),
        [
            a.input, a.weight0, a.weight1, a.weight2, a.weight3, a.hx_, a.cx_,
        ],
    );
    room.all_dense(all.map(Some), d)?;
    if outs[3].numel() == 0 {
        let sizes = [a.input.shape()[0], a.input.shape()[1], a.hidden_size];
        room.elements(kept(sizes)? as usize, d)?;
    }
    let size = |d: usize| a.input.shape()[d] as usize;
    let (steps, batch, hidden) = (size(0), size(1), a.hidden_size as usize);
    match Meeting::of(steps, batch, hidden).room(batch, hidden) {
        0 => Ok(()),
        extra => room.elements(extra, d),
    }
}

/// Whether a network of LSTMs without projections is made of such layers: on the host in single precision, as in PyTorch.
pub(super) fn are_whole(x: &Tensor, net: &Net) -> bool {
    let single = |t: &Tensor| t.dtype() == DType::F32;
    let all = || net.hx.iter().chain(&net.params);
    single(x) && all().all(|t| single(t)) && for_host(x) && mode::layers() & mode::BATCHED == 0
}

/// A network of whole layers over sequences of one length, steps first.
pub(super) fn run(x: &Tensor, net: &Net) -> Result<(Tensor, Tensor, Tensor)> {
    let train = mode::grad_enabled();
    let (mut x, mut hs, mut cs) = (f::contiguous(x)?, Vec::new(), Vec::new());
    for l in 0..net.layers {
        let mut outs = Vec::new();
        for d in 0..net.directions {
            let k = l * net.directions + d;
            let (h, c, w) = (
                net.state(0, k)?,
                net.state(1, k)?,
                net.weights(k, net.plain()),
            );
            let (b_ih, b_hh) = match (w.b_ih, w.b_hh) {
                (Some(b_ih), Some(b_hh)) => (b_ih.clone(), b_hh.clone()),
                _ => {
                    let zeros = f::NewZeros::new(w.ih, &[w.ih.size(0)?]).call()?;
                    (zeros.clone(), zeros)
                }
            };
            let hidden = w.hh.size(1)?;
            let [out, h, c, _] = f::mkldnn_rnn_layer(
                &x,
                w.ih,
                w.hh,
                &b_ih,
                &b_hh,
                &h,
                &c,
                d == 1,
                &[],
                LSTM,
                hidden,
                1,
                net.biases,
                false,
                false,
                train,
            )?;
            outs.push(out);
            hs.push(h);
            cs.push(c);
        }
        x = match outs.as_slice() {
            [one] => one.clone(),
            both => f::Cat::new(both).dim(2).call()?,
        };
        if net.train && net.dropout > 0.0 && l + 1 < net.layers {
            x = f::dropout(&x, net.dropout, true)?;
        }
    }
    Ok((x, f::stack(&hs)?, f::stack(&cs)?))
}
