//! Recurrent networks over whole sequences, packed or padded, made of other operators.

use crate::ops::core::helpers::{is_nowhere, readable};
use crate::ops::core::op::{Cast, F, OpDef, Ret, compose};
use crate::ops::core::typed;
use crate::ops::nn::cell::{Cell, Input, State, Weights, cat, check, step};
use crate::ops::nn::lstm;
use crate::ops::{dispatch, f};
use crate::{DType, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

macro_rules! net {
    ($a:ident, $hx:expr) => {
        Net {
            hx: $hx,
            params: $a.params.refs(),
            biases: $a.has_biases,
            layers: usize::try_from($a.num_layers).unwrap_or(0),
            dropout: $a.dropout,
            train: $a.train,
            directions: 1 + usize::from($a.bidirectional),
        }
    };
}

macro_rules! weights {
    ($a:ident) => {
        Weights {
            ih: $a.w_ih,
            hh: $a.w_hh,
            b_ih: $a.b_ih,
            b_hh: $a.b_hh,
            proj: None,
        }
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "lstm#data",
        "(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor, Tensor)",
        F,
        |a| packed(a.data, a.batch_sizes, &net!(a, a.hx.refs()), Cell::Lstm),
        "A recurrent network over packed sequences.",
    ).samples("f32[4, 3], i64([2, 1, 1]), [f32[1, 2, 2], f32[1, 2, 2]], [f32[8, 3], f32[8, 2], f32[8], f32[8]], True, 1, 0.0, False, False"),
    compose(
        "lstm",
        "(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
        F,
        padded_lstm,
        "A recurrent network over sequences of one length.",
    ).samples(
        "f32[4, 2, 3], [f32[1, 2, 2], f32[1, 2, 2]], [f32[8, 3], f32[8, 2], f32[8], f32[8]], True, 1, 0.0, False, False, False; \
         f32[2, 4, 3], [f32[2, 2, 2], f32[2, 2, 2]], [f32[8, 3], f32[8, 2], f32[8, 3], f32[8, 2]], False, 1, 0.0, False, True, True",
    ),
    compose(
        "_nn.lstm",
        "(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
        0,
        |a| padded(a.input, a.batch_first, &net!(a, a.hx.refs()), Cell::Lstm),
        "A recurrent network over sequences of one length, all in one type.",
    ).samples("f32[4, 2, 3], [f32[1, 2, 2], f32[1, 2, 2]], [f32[8, 3], f32[8, 2], f32[8], f32[8]], True, 1, 0.0, False, False, False")
    .amp(Cast::Low, Cast::Kept),
    compose(
        "gru#data",
        "(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
        F,
        |a| packed(a.data, a.batch_sizes, &net!(a, vec![a.hx]), Cell::Gru),
        "A recurrent network over packed sequences.",
    ).samples("f32[4, 3], i64([2, 1, 1]), f32[1, 2, 2], [f32[6, 3], f32[6, 2], f32[6], f32[6]], True, 1, 0.0, False, False"),
    compose(
        "gru",
        "(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
        F,
        |a| padded(a.input, a.batch_first, &net!(a, vec![a.hx]), Cell::Gru),
        "A recurrent network over sequences of one length.",
    ).samples("f32[4, 2, 3], f32[1, 2, 2], [f32[6, 3], f32[6, 2], f32[6], f32[6]], True, 1, 0.0, False, False, False"),
    compose(
        "rnn_tanh#data",
        "(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
        F,
        |a| packed(a.data, a.batch_sizes, &net!(a, vec![a.hx]), Cell::Tanh),
        "A recurrent network over packed sequences.",
    ).samples("f32[4, 3], i64([2, 1, 1]), f32[1, 2, 2], [f32[2, 3], f32[2, 2]], False, 1, 0.0, False, False"),
    compose(
        "rnn_tanh",
        "(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
        F,
        |a| padded(a.input, a.batch_first, &net!(a, vec![a.hx]), Cell::Tanh),
        "A recurrent network over sequences of one length.",
    ).samples("f32[4, 2, 3], f32[1, 2, 2], [f32[2, 3], f32[2, 2], f32[2], f32[2]], True, 1, 0.0, False, False, False"),
    compose(
        "rnn_relu#data",
        "(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)",
        F,
        |a| packed(a.data, a.batch_sizes, &net!(a, vec![a.hx]), Cell::Relu),
        "A recurrent network over packed sequences.",
    ).samples("f32[4, 3], i64([2, 1, 1]), f32[1, 2, 2], [f32[2, 3], f32[2, 2]], False, 1, 0.0, False, False"),
    compose(
        "rnn_relu",
        "(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
        F,
        |a| padded(a.input, a.batch_first, &net!(a, vec![a.hx]), Cell::Relu),
        "A recurrent network over sequences of one length.",
    ).samples("f32[4, 2, 3], f32[1, 2, 2], [f32[2, 3], f32[2, 2], f32[2], f32[2]], True, 1, 0.0, False, False, False"),
    compose(
        "lstm_cell",
        "(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> (Tensor, Tensor)",
        F,
        |a| lstm_cell(a.input, &a.hx.refs(), &weights!(a)),
        "One step of an LSTM.",
    ).samples("f32[2, 3], [f32[2, 2], f32[2, 2]], f32[8, 3], f32[8, 2], f32[8], f32[8]")
    .amp(Cast::Kept, Cast::Low),
    compose(
        "gru_cell",
        "(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)",
        F,
        |a| one_step(a.input, a.hx, &weights!(a), Cell::Gru),
        "One step of a GRU.",
    ).samples("f32[2, 3], f32[2, 2], f32[6, 3], f32[6, 2], f32[6], f32[6]")
    .amp(Cast::Kept, Cast::Low),
    compose(
        "rnn_tanh_cell",
        "(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)",
        F,
        |a| one_step(a.input, a.hx, &weights!(a), Cell::Tanh),
        "One step of a plain recurrent network with tanh.",
    ).samples("f32[2, 3], f32[2, 2], f32[2, 3], f32[2, 2], f32[2], f32[2]")
    .amp(Cast::Kept, Cast::Low),
    compose(
        "rnn_relu_cell",
        "(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)",
        F,
        |a| one_step(a.input, a.hx, &weights!(a), Cell::Relu),
        "One step of a plain recurrent network with relu.",
    ).samples("f32[2, 3], f32[2, 2], f32[2, 3], f32[2, 2]")
    .amp(Cast::Kept, Cast::Low),
];

/// One layer in one direction over rows of all steps, `sizes[t]` of them at step `t` (never growing), or over steps one behind the
/// other. Its outputs are rows too, or `even` such steps.
fn layer(
    cell: Cell,
    data: &Tensor,
    (sizes, even): (&[i64], bool),
    start: &State,
    w: &Weights,
    reverse: bool,
) -> Result<(Tensor, State)> {
    // One call for all steps, whose gradients come together in one; on meta, steps take their rows, as in PyTorch.
    let ahead = !is_nowhere(data);
    let whole = if ahead { w.gates(data)? } else { data.clone() };
    let input = if whole.ndim() == 3 {
        f::unbind(&whole)?
    } else {
        f::SplitWithSizes::new(&whole, sizes).call()?
    };
    drop(whole);
    let mut outs: Vec<Tensor> = Vec::with_capacity(sizes.len());
    let mut done: Vec<State> = Vec::new();
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    if reverse {
        order.reverse();
    }
    let first = order.first().map_or(0, |&t| sizes[t]);
    let mut state = start.rows(0, first)?;
    let mut live = first;
    for t in order {
        let n = sizes[t];
        if n < live {
            // Shorter sequences are finished; their states wait.
            done.push(state.rows(n, live - n)?);
            state = state.rows(0, n)?;
        } else if n > live {
            state = State::join(&[state, start.rows(live, n - live)?])?;
        }
        live = n;
        let x = if ahead { Input::Gates } else { Input::Rows };
        state = step(cell, x(&input[t]), &state, w)?;
        outs.push(state.h.clone());
    }
    done.push(state);
    done.reverse();
    if reverse {
        outs.reverse();
    }
    let out = if even {
        f::stack(&outs)?
    } else {
        f::Cat::new(&outs).call()?
    };
    Ok((out, State::join(&done)?))
}

/// What a call of a network says besides its data.
pub(super) struct Net<'a> {
    pub(super) hx: Vec<&'a Tensor>,
    pub(super) params: Vec<&'a Tensor>,
    pub(super) biases: bool,
    pub(super) layers: usize,
    pub(super) dropout: f64,
    pub(super) train: bool,
    pub(super) directions: usize,
}

impl Net<'_> {
    /// Data, states and weights have to be on one device.
    fn check_devices(&self, data: &Tensor) -> Result<()> {
        let states = self.hx.iter().map(|t| ("hidden", t));
        for (name, t) in states.chain(self.params.iter().map(|t| ("parameter", t))) {
            ensure!(
                t.device() == data.device(),
                Runtime,
                "Input and {name} tensors are not at the same device, found input tensor at {} and {name} tensor at {}",
                data.device(),
                t.device()
            );
        }
        Ok(())
    }

    fn cells(&self) -> usize {
        self.layers.saturating_mul(self.directions)
    }

    /// Checks the numbers of weights and states; how many weights a cell has.
    fn check_numbers(&self, cell: Cell) -> Result<usize> {
        let cells = self.cells();
        ensure!(
            cells > 0 && self.params.len() % cells == 0,
            Runtime,
            "a recurrent network of {cells} cells cannot have {} parameters",
            self.params.len()
        );
        let (each, plain) = (self.params.len() / cells, self.plain());
        ensure!(
            each == plain || (each == plain + 1 && cell == Cell::Lstm),
            Runtime,
            "a recurrent cell cannot have {each} parameters"
        );
        let wanted = 1 + usize::from(cell == Cell::Lstm);
        ensure!(
            self.hx.len() == wanted,
            Runtime,
            "{} expects two hidden states",
            if wanted == 2 { "lstm" } else { "rnn" }
        );
        ensure!(
            self.hx
                .iter()
                .all(|h| h.ndim() == 3 && h.shape()[0] == cells as i64),
            Runtime,
            "hx must have {cells} layers of states"
        );
        Ok(each)
    }

    /// Weights of a cell without projection.
    pub(super) fn plain(&self) -> usize {
        if self.biases { 4 } else { 2 }
    }

    /// The weights of cell `k`, of which each has `each`.
    pub(super) fn weights(&self, k: usize, each: usize) -> Weights<'_> {
        let p = &self.params[k * each..(k + 1) * each];
        Weights {
            ih: p[0],
            hh: p[1],
            b_ih: self.biases.then(|| p[2]),
            b_hh: self.biases.then(|| p[3]),
            proj: (each > self.plain()).then(|| p[each - 1]),
        }
    }

    /// Outputs (0) or cells (1) before the first step of cell `k`.
    pub(super) fn state(&self, which: usize, k: usize) -> Result<Tensor> {
        f::select(self.hx[which], 0, k as i64)
    }

    fn start(&self, k: usize) -> Result<State> {
        Ok(State {
            h: self.state(0, k)?,
            c: (self.hx.len() > 1).then(|| self.state(1, k)).transpose()?,
        })
    }

    fn run(
        &self,
        cell: Cell,
        data: &Tensor,
        (sizes, even): (&[i64], bool),
    ) -> Result<(Tensor, State)> {
        self.check_devices(data)?;
        let each = self.check_numbers(cell)?;
        let mut x = data.clone();
        let mut finals: Vec<State> = Vec::new();
        for l in 0..self.layers {
            let mut outs = Vec::new();
            let rows = if even && !is_nowhere(&x) {
                f::reshape(&x, &[sizes.iter().sum(), x.size(-1)?])?
            } else {
                x.clone()
            };
            for d in 0..self.directions {
                let k = l * self.directions + d;
                let (start, w) = (self.start(k)?, self.weights(k, each));
                let (out, state) = layer(cell, &rows, (sizes, even), &start, &w, d == 1)?;
                outs.push(out);
                finals.push(state);
            }
            let outs: Vec<&Tensor> = outs.iter().collect();
            x = cat(&outs, -1)?;
            if self.train && self.dropout > 0.0 && l + 1 < self.layers {
                x = f::dropout(&x, self.dropout, true)?;
            }
        }
        Ok((x, State::stack(&finals)?))
    }
}

fn result(out: Tensor, s: State) -> Ret {
    match s.c {
        Some(c) => Ret::Tuple(vec![out, s.h, c]),
        None => Ret::Tuple(vec![out, s.h]),
    }
}

/// Steps of one sequence: a tensor without elements may claim any number, and each takes time and memory.
const MAX_STEPS: i64 = 1 << 22;

fn padded(x: &Tensor, batch_first: bool, net: &Net, cell: Cell) -> Result<Ret> {
    ensure!(
        x.ndim() == 3,
        Runtime,
        "input must have 3 dimensions, got {}",
        x.ndim()
    );
    let swapped = |t: Tensor| {
        if batch_first {
            f::transpose(&t, 0, 1)
        } else {
            Ok(t)
        }
    };
    let x = swapped(x.clone())?;
    let (steps, batch) = (x.shape()[0], x.shape()[1]);
    ensure!(
        steps > 0,
        Runtime,
        "Expected sequence length to be larger than 0 in RNN"
    );
    ensure!(
        steps <= MAX_STEPS,
        Runtime,
        "a sequence of {steps} steps, more than {MAX_STEPS}"
    );
    if cell == Cell::Lstm
        && net.params.len() == net.cells() * net.plain()
        && lstm::are_whole(&x, net)
    {
        net.check_devices(&x)?;
        net.check_numbers(cell)?;
        let (out, h, c) = lstm::run(&x, net)?;
        return Ok(Ret::Tuple(vec![swapped(out)?, h, c]));
    }
    let (out, state) = net.run(cell, &x, (&vec![batch; steps as usize], true))?;
    let out = if batch_first && cell != Cell::Lstm {
        typed::changed(&f::Transpose::new(&out, 0, 1).args()?)?
    } else {
        swapped(out)?
    };
    Ok(result(out, state))
}

/// Networks without projections are one operator to PyTorch on the CPU, and are cast as one.
fn padded_lstm(a: &calls::Lstm) -> Result<Ret> {
    let widths: Vec<_> = a.hx.iter().map(|h| h.shape().last().copied()).collect();
    if matches!(widths[..], [h, c] if h != c) {
        let net = net!(a, a.hx.refs());
        if lstm::are_whole(a.input, &net) {
            crate::warn_once!(
                "LSTM with projections is not supported with oneDNN. Using default implementation."
            );
        }
        return padded(a.input, a.batch_first, &net, Cell::Lstm);
    }
    let whole = f::_NnLstm::new(
        a.input,
        a.hx,
        a.params,
        a.has_biases,
        a.num_layers,
        a.dropout,
        a.train,
        a.bidirectional,
        a.batch_first,
    );
    dispatch::fresh(&whole.args()?)
}

fn packed(data: &Tensor, sizes: &Tensor, net: &Net, cell: Cell) -> Result<Ret> {
    let sizes = readable(sizes, "the batch sizes of packed sequences must be real")?;
    let sizes = sizes.to_dtype(DType::I64)?.to_vec::<i64>()?;
    let (out, state) = net.run(cell, data, (&sizes, false))?;
    Ok(result(out, state))
}

fn one_step(x: &Tensor, h: &Tensor, w: &Weights, cell: Cell) -> Result<Tensor> {
    check(x, &[h], w)?;
    let start = State {
        h: h.clone(),
        c: None,
    };
    Ok(step(cell, Input::Rows(x), &start, w)?.h)
}

fn lstm_cell(x: &Tensor, hx: &[&Tensor], w: &Weights) -> Result<Ret> {
    let [h, c] = hx else {
        bail!(Runtime, "lstm_cell expects two hidden states")
    };
    check(x, hx, w)?;
    let start = State {
        h: (*h).clone(),
        c: Some((*c).clone()),
    };
    let s = step(Cell::Lstm, Input::Rows(x), &start, w)?;
    Ok(Ret::Tuple(std::iter::once(s.h).chain(s.c).collect()))
}
