//! One step of a recurrent network.

use crate::ops::f;
use crate::{Result, Tensor, bail, ensure, mode};

/// The kind of step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// The weights of one layer in one direction.
pub(super) struct Weights<'a> {
    pub(super) ih: &'a Tensor,
    pub(super) hh: &'a Tensor,
    pub(super) b_ih: Option<&'a Tensor>,
    pub(super) b_hh: Option<&'a Tensor>,
    pub(super) proj: Option<&'a Tensor>,
}

/// What a step gets of the input.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    /// Its rows.
    Rows(&'a Tensor),
    /// Its part of the gates, which one call made for all steps.
    Gates(&'a Tensor),
}

impl Input<'_> {
    /// Its part of the gates.
    fn gates(self, w: &Weights) -> Result<Tensor> {
        match self {
            Self::Rows(x) => w.gates(x),
            Self::Gates(t) => Ok(t.clone()),
        }
    }
}

impl Weights<'_> {
    /// The input's part of the gates.
    pub(super) fn gates(&self, x: &Tensor) -> Result<Tensor> {
        linear(x, self.ih, self.b_ih)
    }
}

/// The state between steps; the second part only in an LSTM.
#[derive(Clone)]
pub(super) struct State {
    pub(super) h: Tensor,
    pub(super) c: Option<Tensor>,
}

impl State {
    pub(super) fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        Ok(Self {
            h: f(&self.h)?,
            c: self.c.as_ref().map(&f).transpose()?,
        })
    }

    pub(super) fn rows(&self, start: i64, n: i64) -> Result<Self> {
        self.map(|t| f::narrow(t, 0, start, n))
    }

    pub(super) fn join(parts: &[Self]) -> Result<Self> {
        let h: Vec<&Tensor> = parts.iter().map(|s| &s.h).collect();
        let c: Option<Vec<&Tensor>> = parts.iter().map(|s| s.c.as_ref()).collect();
        ensure!(!h.is_empty(), Runtime, "a recurrent network has no state");
        Ok(Self {
            h: cat(&h, 0)?,
            c: c.map(|c| cat(&c, 0)).transpose()?,
        })
    }

    /// The states of several layers, one behind the other.
    pub(super) fn stack(layers: &[Self]) -> Result<Self> {
        let h: Vec<&Tensor> = layers.iter().map(|s| &s.h).collect();
        let c: Option<Vec<&Tensor>> = layers.iter().map(|s| s.c.as_ref()).collect();
        Ok(Self {
            h: f::stack(&h)?,
            c: c.map(|c| f::stack(&c)).transpose()?,
        })
    }
}

/// Tensors after each other along a dimension; one alone as it is.
pub(super) fn cat(list: &[&Tensor], dim: i64) -> Result<Tensor> {
    match list {
        [one] => Ok((*one).clone()),
        _ => f::Cat::new(list).dim(dim).call(),
    }
}

fn linear(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    f::NnFunctionalLinear::new(x, w).bias(b).call()
}

/// One step.
pub(super) fn step(cell: Cell, x: Input, s: &State, w: &Weights) -> Result<State> {
    let hidden = linear(&s.h, w.hh, w.b_hh)?;
    let gates = x.gates(w)?;
    let plain = |h: Tensor| State { h, c: None };
    match cell {
        Cell::Tanh => f::tanh(&added(hidden, &gates)?).map(plain),
        Cell::Relu => f::relu(&added(hidden, &gates)?).map(plain),
        Cell::Gru => gru(&gates, &hidden, &s.h).map(plain),
        Cell::Lstm => lstm(&added(hidden, &gates)?, s, w.proj),
    }
}

/// A pointwise operator whose result takes the place of its first operand, as what a step makes is needed once. Under
/// `vmap` that operand may be the same for all examples, and cannot take theirs.
macro_rules! over {
    ($made:expr, $op:ident $(, $more:expr)*) => {{
        let made: Tensor = $made;
        let call = f::$op::new(&made $(, $more)*);
        if mode::layers() & mode::BATCHED != 0 {
            call.call()
        } else {
            call.call_().map(|()| made)
        }
    }};
}

fn added(a: Tensor, b: &Tensor) -> Result<Tensor> {
    over!(a, Add, b)
}

/// The gates, each as wide as the others.
fn parts<const N: usize>(gates: &Tensor) -> Result<[Tensor; N]> {
    let last = gates.ndim() as i64 - 1;
    let all = f::UnsafeChunk::new(gates, N as i64).dim(last).call()?;
    match <[Tensor; N]>::try_from(all) {
        Ok(parts) => Ok(parts),
        Err(all) => bail!(Runtime, "a cell has {N} gates, not {}", all.len()),
    }
}

fn gru(gates: &Tensor, hidden: &Tensor, h: &Tensor) -> Result<Tensor> {
    let ([r, z, n], [hr, hz, hn]) = (parts::<3>(gates)?, parts::<3>(hidden)?);
    let reset = over!(added(hr, &r)?, Sigmoid)?;
    let update = over!(added(hz, &z)?, Sigmoid)?;
    let fresh = over!(f::add(&n, &over!(hn, Mul, &reset)?)?, Tanh)?;
    let kept = f::sub(h, &fresh)?;
    added(over!(kept, Mul, &update)?, &fresh)
}

fn lstm(gates: &Tensor, s: &State, proj: Option<&Tensor>) -> Result<State> {
    let ([input, forget, cell, output], Some(c)) = (parts::<4>(gates)?, &s.c) else {
        bail!(Runtime, "an LSTM has two states")
    };
    let (input, forget) = (over!(input, Sigmoid)?, over!(forget, Sigmoid)?);
    let (cell, output) = (over!(cell, Tanh)?, over!(output, Sigmoid)?);
    let c = added(f::mul(&forget, c)?, &f::mul(&input, &cell)?)?;
    let mut h = f::mul(&output, &f::tanh(&c)?)?;
    if let Some(w) = proj {
        h = linear(&h, w, None)?;
    }
    Ok(State { h, c: Some(c) })
}

/// Checks the shapes of a cell's input and states against its weights.
pub(super) fn check(x: &Tensor, states: &[&Tensor], w: &Weights) -> Result<()> {
    let (width, due) = (x.size(1)?, w.ih.size(1)?);
    ensure!(
        width == due,
        Runtime,
        "input has inconsistent input_size: got {width} expected {due}"
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
        let (width, due) = (h.size(1)?, w.hh.size(1)?);
        ensure!(
            width == due,
            Runtime,
            "hidden{i} has inconsistent hidden_size: got {width}, expected {due}"
        );
    }
    Ok(())
}
