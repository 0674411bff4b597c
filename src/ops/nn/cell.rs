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

/// The gates, each as wide as the others.
fn parts(gates: &Tensor, n: i64) -> Result<Vec<Tensor>> {
    let last = gates.ndim() as i64 - 1;
    f::UnsafeChunk::new(gates, n).dim(last).call()
}

fn gru(gates: &Tensor, hidden: &Tensor, h: &Tensor) -> Result<Tensor> {
    let (from, kept) = (parts(gates, 3)?, parts(hidden, 3)?);
    let ([r, z, n], [hr, hz, hn]) = (&from[..], &kept[..]) else {
        bail!(Runtime, "a GRU has three gates")
    };
    let gate = |a: &Tensor, b: &Tensor| f::sigmoid(&f::add(a, b)?);
    let (reset, update) = (gate(r, hr)?, gate(z, hz)?);
    let fresh = f::tanh(&f::add(n, &f::mul(&reset, hn)?)?)?;
    let kept = f::mul(&f::sub(h, &fresh)?, &update)?;
    f::add(&kept, &fresh)
}

fn lstm(gates: &Tensor, s: &State, proj: Option<&Tensor>) -> Result<State> {
    let all = parts(gates, 4)?;
    let ([input, forget, cell, output], Some(c)) = (&all[..], &s.c) else {
        bail!(Runtime, "an LSTM has four gates and two states")
    };
    let fresh = f::mul(&f::sigmoid(input)?, &f::tanh(cell)?)?;
    let c = f::add(&f::mul(&f::sigmoid(forget)?, c)?, &fresh)?;
    let mut h = f::mul(&f::sigmoid(output)?, &f::tanh(&c)?)?;
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
