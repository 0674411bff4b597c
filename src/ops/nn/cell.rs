//! One step of a recurrent network.

use crate::ops::f;
use crate::{Result, Tensor, bail, ensure};

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

impl Weights<'_> {
    /// The input's part of the gates, for all steps.
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

/// One step, from the input's part of the gates.
pub(super) fn step(cell: Cell, gates: &Tensor, s: &State, w: &Weights) -> Result<State> {
    let hidden = linear(&s.h, w.hh, w.b_hh)?;
    let plain = |h: Tensor| State { h, c: None };
    match cell {
        Cell::Tanh => f::tanh(&f::add(gates, &hidden)?).map(plain),
        Cell::Relu => f::relu(&f::add(gates, &hidden)?).map(plain),
        Cell::Gru => gru(gates, &hidden, &s.h).map(plain),
        Cell::Lstm => lstm(&f::add(gates, &hidden)?, s, w.proj),
    }
}

/// Gate `k` of `of`.
fn part(gates: &Tensor, k: i64, of: i64) -> Result<Tensor> {
    let last = gates.ndim() - 1;
    let n = gates.shape()[last] / of;
    f::narrow(gates, last as i64, k * n, n)
}

fn gru(gates: &Tensor, hidden: &Tensor, h: &Tensor) -> Result<Tensor> {
    let gate = |k: i64| f::sigmoid(&f::add(&part(gates, k, 3)?, &part(hidden, k, 3)?)?);
    let (reset, update) = (gate(0)?, gate(1)?);
    let remembered = f::mul(&reset, &part(hidden, 2, 3)?)?;
    let fresh = f::tanh(&f::add(&part(gates, 2, 3)?, &remembered)?)?;
    let kept = f::mul(&f::sub(h, &fresh)?, &update)?;
    f::add(&kept, &fresh)
}

fn lstm(gates: &Tensor, s: &State, proj: Option<&Tensor>) -> Result<State> {
    let sigmoid = |k: i64| f::sigmoid(&part(gates, k, 4)?);
    let fresh = f::mul(&sigmoid(0)?, &f::tanh(&part(gates, 2, 4)?)?)?;
    let Some(c) = &s.c else {
        bail!(Runtime, "an LSTM needs two states")
    };
    let c = f::add(&f::mul(&sigmoid(1)?, c)?, &fresh)?;
    let mut h = f::mul(&sigmoid(3)?, &f::tanh(&c)?)?;
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
