//! Recurrent networks over whole sequences, packed or padded, made of other operators.

use crate::ops::core::args::Args;
use crate::ops::core::op::{F, OpDef, Ret, old_compose};
use crate::{DType, Dims, Result, Tensor, cpu, ensure, run1};

/// The rows of one kind of network: padded sequences, then packed ones.
macro_rules! network {
    ($name:literal, $packed:literal, $cell:expr, $hx:literal, $returns:literal) => {
        [
            old_compose(
                $packed,
                concat!("(Tensor data, Tensor batch_sizes, ", $hx, " hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> ", $returns),
                F,
                |a| packed(a, $cell),
                "A recurrent network over packed sequences.",
            ),
            old_compose(
                $name,
                concat!("(Tensor input, ", $hx, " hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> ", $returns),
                F,
                |a| padded(a, $cell),
                "A recurrent network over sequences of one length.",
            ),
        ]
    };
}

const LSTM: [OpDef; 2] = network!(
    "lstm",
    "lstm#data",
    Cell::Lstm,
    "Tensor[]",
    "(Tensor, Tensor, Tensor)"
);
const GRU: [OpDef; 2] = network!("gru", "gru#data", Cell::Gru, "Tensor", "(Tensor, Tensor)");
const TANH: [OpDef; 2] = network!(
    "rnn_tanh",
    "rnn_tanh#data",
    Cell::Tanh,
    "Tensor",
    "(Tensor, Tensor)"
);
const RELU: [OpDef; 2] = network!(
    "rnn_relu",
    "rnn_relu#data",
    Cell::Relu,
    "Tensor",
    "(Tensor, Tensor)"
);

const CELL: &str =
    "(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)";

/// The family's rows.
pub static OPS: &[OpDef] = &{
    let [l1, l2] = LSTM;
    let [g1, g2] = GRU;
    let [t1, t2] = TANH;
    let [r1, r2] = RELU;
    [
        l1,
        l2,
        g1,
        g2,
        t1,
        t2,
        r1,
        r2,
        old_compose(
            "lstm_cell",
            "(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> (Tensor, Tensor)",
            F,
            lstm_cell,
            "One step of an LSTM.",
        ),
        old_compose(
            "gru_cell",
            CELL,
            F,
            |a| one_step(a, Cell::Gru),
            "One step of a GRU.",
        ),
        old_compose(
            "rnn_tanh_cell",
            CELL,
            F,
            |a| one_step(a, Cell::Tanh),
            "One step of a plain recurrent network with tanh.",
        ),
        old_compose(
            "rnn_relu_cell",
            CELL,
            F,
            |a| one_step(a, Cell::Relu),
            "One step of a plain recurrent network with relu.",
        ),
    ]
};

/// The kind of step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// The state between steps; the second part only in an LSTM.
#[derive(Clone)]
struct State {
    h: Tensor,
    c: Option<Tensor>,
}

impl State {
    fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        Ok(Self {
            h: f(&self.h)?,
            c: self.c.as_ref().map(&f).transpose()?,
        })
    }

    fn rows(&self, start: i64, n: i64) -> Result<Self> {
        self.map(|t| Ok(t.narrowed(0, start, n)))
    }

    fn join(parts: &[Self]) -> Result<Self> {
        let all = |pick: &dyn Fn(&Self) -> Option<Tensor>| -> Result<Option<Tensor>> {
            let list: Option<Vec<Tensor>> = parts.iter().map(pick).collect();
            list.map(|l| cat(&l, 0)).transpose()
        };
        let h = all(&|s| Some(s.h.clone()))?
            .ok_or_else(|| crate::err!(Runtime, "a recurrent network has no state"))?;
        Ok(Self {
            h,
            c: all(&|s| s.c.clone())?,
        })
    }
}

fn cat(list: &[Tensor], dim: i64) -> Result<Tensor> {
    if let [one] = list {
        return Ok(one.clone());
    }
    run1!("cat", list, dim)
}

fn linear(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    run1!("nn.functional.linear", x, w, b)
}

/// One step, from the input's part of the gates.
fn step(
    cell: Cell,
    gates: &Tensor,
    s: &State,
    w_hh: &Tensor,
    b_hh: Option<&Tensor>,
    proj: Option<&Tensor>,
) -> Result<State> {
    let hidden = linear(&s.h, w_hh, b_hh)?;
    let last = gates.ndim() - 1;
    let part = |t: &Tensor, k: i64, of: i64| {
        let n = t.shape()[last] / of;
        t.narrowed(last, k * n, n)
    };
    match cell {
        Cell::Tanh => Ok(State {
            h: run1!("tanh", &run1!("add", gates, &hidden)?)?,
            c: None,
        }),
        Cell::Relu => Ok(State {
            h: run1!("relu", &run1!("add", gates, &hidden)?)?,
            c: None,
        }),
        Cell::Gru => {
            let reset = run1!(
                "sigmoid",
                &run1!("add", &part(gates, 0, 3), &part(&hidden, 0, 3))?
            )?;
            let update = run1!(
                "sigmoid",
                &run1!("add", &part(gates, 1, 3), &part(&hidden, 1, 3))?
            )?;
            let fresh = run1!(
                "tanh",
                &run1!(
                    "add",
                    &part(gates, 2, 3),
                    &run1!("mul", &reset, &part(&hidden, 2, 3))?
                )?
            )?;
            let kept = run1!("mul", &run1!("sub", &s.h, &fresh)?, &update)?;
            Ok(State {
                h: run1!("add", &kept, &fresh)?,
                c: None,
            })
        }
        Cell::Lstm => {
            let all = run1!("add", gates, &hidden)?;
            let sigmoid = |k: i64| run1!("sigmoid", &part(&all, k, 4));
            let fresh = run1!("mul", &sigmoid(0)?, &run1!("tanh", &part(&all, 2, 4))?)?;
            let Some(c) = &s.c else {
                crate::bail!(Runtime, "an LSTM needs two states")
            };
            let c = run1!("add", &run1!("mul", &sigmoid(1)?, c)?, &fresh)?;
            let mut h = run1!("mul", &sigmoid(3)?, &run1!("tanh", &c)?)?;
            if let Some(w) = proj {
                h = linear(&h, w, None)?;
            }
            Ok(State { h, c: Some(c) })
        }
    }
}

/// The weights of one layer in one direction.
struct Weights<'a> {
    ih: &'a Tensor,
    hh: &'a Tensor,
    b_ih: Option<&'a Tensor>,
    b_hh: Option<&'a Tensor>,
    proj: Option<&'a Tensor>,
}

/// One layer in one direction over rows of all steps, `sizes[t]` of them at step `t` (never growing).
fn layer(
    cell: Cell,
    data: &Tensor,
    sizes: &[i64],
    start: &State,
    w: &Weights,
    reverse: bool,
) -> Result<(Tensor, State)> {
    let gates = linear(data, w.ih, w.b_ih)?;
    let starts: Vec<i64> = sizes
        .iter()
        .scan(0, |at, n| Some(std::mem::replace(at, *at + n)))
        .collect();
    let mut outs: Vec<Tensor> = Vec::with_capacity(sizes.len());
    let mut done: Vec<State> = Vec::new();
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    let first = if reverse { sizes.last() } else { sizes.first() }
        .copied()
        .unwrap_or(0);
    let mut state = start.rows(0, first)?;
    let mut live = first;
    if reverse {
        order.reverse();
    }
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
        state = step(
            cell,
            &gates.narrowed(0, starts[t], n),
            &state,
            w.hh,
            w.b_hh,
            w.proj,
        )?;
        outs.push(state.h.clone());
    }
    done.push(state);
    done.reverse();
    if reverse {
        outs.reverse();
    }
    Ok((cat(&outs, 0)?, State::join(&done)?))
}

/// What a call of a network says besides its data.
struct Net<'a> {
    hx: Vec<&'a Tensor>,
    params: Vec<&'a Tensor>,
    biases: bool,
    layers: usize,
    dropout: f64,
    train: bool,
    directions: usize,
}

impl<'a> Net<'a> {
    /// Reads the arguments from position `first` (`hx`) on.
    fn of(a: &Args<'a>, first: usize) -> Result<Self> {
        let hx = match a.opt_tensor(first) {
            Some(t) => vec![t],
            None => a.tensors(first)?.to_vec(),
        };
        Ok(Self {
            hx,
            params: a.tensors(first + 1)?.to_vec(),
            biases: a.bool(first + 2),
            layers: usize::try_from(a.int(first + 3)?).unwrap_or(0),
            dropout: a.float(first + 4)?,
            train: a.bool(first + 5),
            directions: 1 + usize::from(a.bool(first + 6)),
        })
    }

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

    fn run(&self, cell: Cell, data: &Tensor, sizes: &[i64]) -> Result<(Tensor, State)> {
        self.check_devices(data)?;
        let cells = self.layers * self.directions;
        ensure!(
            cells > 0 && self.params.len() % cells == 0,
            Runtime,
            "a recurrent network of {cells} cells cannot have {} parameters",
            self.params.len()
        );
        let each = self.params.len() / cells;
        let plain = if self.biases { 4 } else { 2 };
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
        let mut x = data.clone();
        let mut finals: Vec<State> = Vec::new();
        for l in 0..self.layers {
            let mut outs = Vec::new();
            for d in 0..self.directions {
                let k = l * self.directions + d;
                let p = &self.params[k * each..(k + 1) * each];
                let w = Weights {
                    ih: p[0],
                    hh: p[1],
                    b_ih: self.biases.then(|| p[2]),
                    b_hh: self.biases.then(|| p[3]),
                    proj: (each > plain).then(|| p[each - 1]),
                };
                let start = State {
                    h: self.hx[0].selected(0, k as i64),
                    c: self.hx.get(1).map(|c| c.selected(0, k as i64)),
                };
                let (out, state) = layer(cell, &x, sizes, &start, &w, d == 1)?;
                outs.push(out);
                finals.push(state.map(|t| run1!("unsqueeze", t, 0i64))?);
            }
            x = cat(&outs, 1)?;
            if self.train && self.dropout > 0.0 && l + 1 < self.layers {
                x = run1!("dropout", &x, self.dropout, true)?;
            }
        }
        Ok((x, State::join(&finals)?))
    }
}

fn result(out: Tensor, s: State) -> Ret {
    match s.c {
        Some(c) => Ret::Tuple(vec![out, s.h, c]),
        None => Ret::Tuple(vec![out, s.h]),
    }
}

fn padded(a: &Args, cell: Cell) -> Result<Ret> {
    let net = Net::of(a, 1)?;
    let x = a.tensor(0)?;
    ensure!(
        x.ndim() == 3,
        Runtime,
        "input must have 3 dimensions, got {}",
        x.ndim()
    );
    let batch_first = a.bool(8);
    let x = if batch_first {
        x.swapped(0, 1)
    } else {
        x.clone()
    };
    let (steps, batch) = (x.shape()[0], x.shape()[1]);
    ensure!(
        steps > 0,
        Runtime,
        "Expected sequence length to be larger than 0 in RNN"
    );
    let rows = run1!("reshape", &x, Dims::from([steps * batch, x.shape()[2]]))?;
    let (out, state) = net.run(cell, &rows, &vec![batch; steps as usize])?;
    let width = out.shape()[1];
    let mut out = run1!("reshape", &out, Dims::from([steps, batch, width]))?;
    if batch_first {
        out = run1!("transpose", &out, 0i64, 1i64)?;
    }
    Ok(result(out, state))
}

fn packed(a: &Args, cell: Cell) -> Result<Ret> {
    let net = Net::of(a, 2)?;
    let sizes = crate::ops::core::helpers::readable(
        a.tensor(1)?,
        "the batch sizes of packed sequences must be real",
    )?;
    let sizes = cpu::copy::dense(&sizes, DType::I64)?;
    let (out, state) = net.run(cell, a.tensor(0)?, cpu::slice::<i64>(&sizes))?;
    Ok(result(out, state))
}

/// Checks the shapes of a cell's input and states against its weights.
fn check_cell(x: &Tensor, states: &[&Tensor], w_ih: &Tensor, w_hh: &Tensor) -> Result<()> {
    let width = |t: &Tensor| t.shape().get(1).copied().unwrap_or(0);
    ensure!(
        width(x) == width(w_ih),
        Runtime,
        "input has inconsistent input_size: got {} expected {}",
        width(x),
        width(w_ih)
    );
    let batch = |t: &Tensor| t.shape().first().copied().unwrap_or(1);
    for (i, h) in states.iter().enumerate() {
        ensure!(
            batch(x) == batch(h),
            Runtime,
            "Input batch size {} doesn't match hidden{i} batch size {}",
            batch(x),
            batch(h)
        );
        ensure!(
            width(h) == width(w_hh),
            Runtime,
            "hidden{i} has inconsistent hidden_size: got {}, expected {}",
            width(h),
            width(w_hh)
        );
    }
    Ok(())
}

fn one_step(a: &Args, cell: Cell) -> Result<Ret> {
    check_cell(a.tensor(0)?, &[a.tensor(1)?], a.tensor(2)?, a.tensor(3)?)?;
    let gates = linear(a.tensor(0)?, a.tensor(2)?, a.opt_tensor(4))?;
    let start = State {
        h: a.tensor(1)?.clone(),
        c: None,
    };
    Ok(
        step(cell, &gates, &start, a.tensor(3)?, a.opt_tensor(5), None)?
            .h
            .into(),
    )
}

fn lstm_cell(a: &Args) -> Result<Ret> {
    let hx = a.tensors(1)?;
    ensure!(
        hx.len() == 2,
        Runtime,
        "lstm_cell expects two hidden states"
    );
    check_cell(a.tensor(0)?, hx, a.tensor(2)?, a.tensor(3)?)?;
    let gates = linear(a.tensor(0)?, a.tensor(2)?, a.opt_tensor(4))?;
    let start = State {
        h: hx[0].clone(),
        c: Some(hx[1].clone()),
    };
    let s = step(
        Cell::Lstm,
        &gates,
        &start,
        a.tensor(3)?,
        a.opt_tensor(5),
        None,
    )?;
    let Some(c) = s.c else {
        crate::bail!(Runtime, "an LSTM has two states")
    };
    Ok(Ret::Tuple(vec![s.h, c]))
}
