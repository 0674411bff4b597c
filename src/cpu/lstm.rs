//! A layer of an LSTM in one direction: all steps of a sequence, and its way back.
//!
//! Gates lie as PyTorch has them: input, forget, cell, output. The formulas are those of `torch.nn.LSTM`'s documentation.

#![allow(unsafe_code, reason = "products take matrices by pointer")]

use super::gemm::{GemmElement, Mat, MatMut, gemm};
use super::iter::GRAIN;
use super::lanes::Real;
use super::lines::Shared;
use super::simd::simd_fn;
use super::{copy, fill, pool, slice, slice_mut};
use crate::{DType, Device, Error, Result, Scalar, Tensor, err, with_dtype};

/// What a layer is computed from.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    /// `[steps, batch, features]`.
    pub input: &'a Tensor,
    /// `[4 hidden, features]`.
    pub w_ih: &'a Tensor,
    /// `[4 hidden, hidden]`.
    pub w_hh: &'a Tensor,
    /// `[4 hidden]` each, which are added.
    pub biases: [&'a Tensor; 2],
    /// `[batch, hidden]`.
    pub h: &'a Tensor,
    /// `[batch, hidden]`.
    pub c: &'a Tensor,
    /// The last step comes first.
    pub reverse: bool,
}

/// The sizes of a layer.
#[derive(Clone, Copy)]
struct Sizes {
    steps: usize,
    batch: usize,
    features: usize,
    hidden: usize,
}

impl Layer<'_> {
    fn sizes(&self) -> Sizes {
        let size = |d: usize| self.input.shape()[d] as usize;
        Sizes {
            steps: size(0),
            batch: size(1),
            features: size(2),
            hidden: self.w_hh.shape()[1] as usize,
        }
    }

    /// The steps in the order in which they are computed.
    fn order(&self, steps: usize) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let reverse = self.reverse;
        (0..steps).map(move |k| if reverse { steps - 1 - k } else { k })
    }

    /// Input, weights, and first outputs and cells, row-major.
    fn dense(&self, dtype: DType) -> Result<[Tensor; 5]> {
        let mut all = [self.input, self.w_ih, self.w_hh, self.h, self.c].map(Clone::clone);
        for t in &mut all {
            *t = copy::dense(t, dtype)?;
        }
        Ok(all)
    }
}

/// How the outputs before a step meet the weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// As a product makes the best of it: one example, or many.
    Plain,
    /// Sums are made as columns: some examples meet all weights, which are read where they lie.
    Columns,
    /// The weights are turned once for all steps: few examples, and weights that stay in a cache.
    Turned,
}

impl Meeting {
    /// What suits a layer.
    #[must_use]
    pub fn of(steps: usize, batch: usize, hidden: usize) -> Self {
        match batch {
            2..=8 if steps >= 4 && hidden <= 128 => Self::Turned,
            2..=64 => Self::Columns,
            _ => Self::Plain,
        }
    }

    /// Elements that it works in: sums of a step, or weights.
    #[must_use]
    pub fn room(self, batch: usize, hidden: usize) -> usize {
        match self {
            Self::Plain => 0,
            Self::Columns => batch * 4 * hidden,
            Self::Turned => hidden * 4 * hidden,
        }
    }
}

/// How many elements a layer keeps for its way back: its gates and cells of all steps.
#[must_use]
pub fn kept(steps: i64, batch: i64, hidden: i64) -> Option<i64> {
    steps
        .checked_mul(batch)?
        .checked_mul(hidden)?
        .checked_mul(5)
}

fn no_kernel(d: DType) -> Error {
    err!(NotImplemented, "mkldnn_rnn_layer of {d}")
}

/// `C = A B + beta C + bias` of dense matrices that may be read turned: `(elements, turned)`.
fn product<T: Real + GemmElement<Scale = T>>(
    (m, n, k): (usize, usize, usize),
    a: (&[T], bool),
    b: (&[T], bool),
    beta: f64,
    c: &mut [T],
    bias: Option<&[T]>,
) {
    let mat = |(x, turned): (&[T], bool), rows: usize, columns: usize| {
        assert!(x.len() >= rows * columns);
        if turned {
            Mat::new(x.as_ptr(), 1, rows as isize)
        } else {
            Mat::new(x.as_ptr(), columns as isize, 1)
        }
    };
    assert!(c.len() >= m * n && bias.is_none_or(|b| b.len() >= n));
    let (a, b) = (mat(a, m, k), mat(b, k, n));
    let c = MatMut::new(c.as_mut_ptr(), n as isize, 1);
    let (one, beta) = (T::of(1.0), T::of(beta));
    // SAFETY: all elements lie in the slices, as asserted; C is borrowed alone.
    unsafe { gemm(m, n, k, one, a, b, beta, c, bias.map(<[T]>::as_ptr)) }
}

/// One item of a list of equal ones to write, and another to read.
fn apart<T>(all: &mut [T], size: usize, write: usize, read: usize) -> (&mut [T], &[T]) {
    let (first, second) = all.split_at_mut(write.max(read) * size);
    if write < read {
        (&mut first[write * size..][..size], &second[..size])
    } else {
        (&mut second[..size], &first[read * size..][..size])
    }
}

simd_fn! { wide
    /// The gates of an example from their sums, in place, its cells and its outputs.
    fn ahead<T: Real>(gates: &mut [T], before: &[T], cells: &mut [T], out: &mut [T]) {
        let n = out.len();
        let (sigmoids, rest) = gates.split_at_mut(2 * n);
        let (cell, output) = rest.split_at_mut(n);
        // A loop each: chained they are not made of vectors.
        for v in sigmoids.iter_mut() {
            *v = v.sigmoid_();
        }
        for v in output.iter_mut() {
            *v = v.sigmoid_();
        }
        for v in cell.iter_mut() {
            *v = v.tanh_();
        }
        let (input, forget) = sigmoids.split_at(n);
        let (input, forget, cell, output) = (&input[..n], &forget[..n], &cell[..n], &output[..n]);
        let (before, cells) = (&before[..n], &mut cells[..n]);
        for i in 0..n {
            cells[i] = forget[i] * before[i] + input[i] * cell[i];
            out[i] = output[i] * cells[i].tanh_();
        }
    }
}

simd_fn! { wide
    /// The gradients of the sums behind an example's gates, and by its cells before, in place of that by its cells; `by_out` is the
    /// gradient of its outputs.
    fn back<T: Real>(gates: &[T], before: &[T], cells: &[T], by_out: &[T], by_cells: &mut [T], to: &mut [T]) {
        let (one, n) = (T::of(1.0), cells.len());
        let (input, rest) = gates.split_at(n);
        let (forget, rest) = rest.split_at(n);
        let (cell, output) = rest.split_at(n);
        let (to_input, rest) = to.split_at_mut(n);
        let (to_forget, rest) = rest.split_at_mut(n);
        let (to_cell, to_output) = rest.split_at_mut(n);
        let (input, forget, cell, output) = (&input[..n], &forget[..n], &cell[..n], &output[..n]);
        let (to_input, to_forget) = (&mut to_input[..n], &mut to_forget[..n]);
        let (to_cell, to_output) = (&mut to_cell[..n], &mut to_output[..n]);
        let (before, by_out, by_cells) = (&before[..n], &by_out[..n], &mut by_cells[..n]);
        for i in 0..n {
            let tanh = cells[i].tanh_();
            let by_cell = by_cells[i] + by_out[i] * output[i] * (one - tanh * tanh);
            to_output[i] = by_out[i] * tanh * output[i] * (one - output[i]);
            to_input[i] = by_cell * cell[i] * input[i] * (one - input[i]);
            to_forget[i] = by_cell * before[i] * forget[i] * (one - forget[i]);
            to_cell[i] = by_cell * input[i] * (one - cell[i] * cell[i]);
            by_cells[i] = by_cell * forget[i];
        }
    }
}

simd_fn! { stream
    /// Adds a row.
    fn add<T: Real>(to: &mut [T], row: &[T]) {
        for (to, &v) in to.iter_mut().zip(row) {
            *to += v;
        }
    }
}

/// Examples that a task takes at least.
fn grain(hidden: usize) -> usize {
    (GRAIN / (8 * hidden).max(1)).max(1)
}

/// The outputs of all steps, the last of them, the last cells, and what the way back needs, unless that has no elements.
///
/// # Errors
/// For other types than `float` and `double`, or if memory cannot be had.
pub fn forward(outs: &[Tensor], l: &Layer) -> Result<()> {
    with_dtype!(l.input.dtype(), [float] => T, { forward_in::<T>(outs, l) }, else { Err(no_kernel(l.input.dtype())) })
}

fn forward_in<T: Real + GemmElement<Scale = T>>(outs: &[Tensor], l: &Layer) -> Result<()> {
    let [x, w_ih, w_hh, h, c] = l.dense(T::DTYPE)?;
    let [b_ih, b_hh] = l.biases.map(|b| copy::dense(b, T::DTYPE));
    let (b_ih, b_hh) = (b_ih?, b_hh?);
    let Sizes {
        steps,
        batch,
        features,
        hidden,
    } = l.sizes();
    let (each, wide) = (batch * hidden, batch * 4 * hidden);
    let room = match outs[3].numel() {
        0 => Tensor::empty(&[(steps * 5 * each) as i64], T::DTYPE, Device::CPU)?,
        _ => outs[3].clone(),
    };
    let (gates, cells) = slice_mut::<T>(&room).split_at_mut(steps * wide);
    let (out, h, c) = (slice_mut::<T>(&outs[0]), slice::<T>(&h), slice::<T>(&c));
    let (w_ih, weights) = (slice::<T>(&w_ih), w_hh);
    let w_hh = slice::<T>(&weights);
    let mut bias = slice::<T>(&b_ih).to_vec();
    add(&mut bias, slice::<T>(&b_hh));
    let sizes = (steps * batch, 4 * hidden, features);
    product(
        sizes,
        (slice(&x), false),
        (w_ih, true),
        0.0,
        gates,
        Some(&bias),
    );
    let meeting = Meeting::of(steps, batch, hidden);
    let extra = match meeting.room(batch, hidden) {
        0 => None,
        n => Some(Tensor::empty(&[n as i64], T::DTYPE, Device::CPU)?),
    };
    if let (Meeting::Turned, Some(to)) = (meeting, &extra) {
        let shape = [hidden as i64, 4 * hidden as i64];
        let to = to.view_with(shape.into(), [shape[1], 1].into(), 0);
        copy::copy(&to, &weights.permuted(&[1, 0]))?;
    }
    let mut last = None;
    for t in l.order(steps) {
        let (out, before) = match last {
            Some(last) => apart(out, each, t, last),
            None => (&mut out[t * each..][..each], h),
        };
        let gates = &mut gates[t * wide..][..wide];
        let sizes = (batch, 4 * hidden, hidden);
        let mut sums: &[T] = &[];
        match (meeting, &extra) {
            (Meeting::Columns, Some(to)) => {
                let (to, sizes) = (slice_mut::<T>(to), (4 * hidden, batch, hidden));
                product(sizes, (w_hh, false), (before, true), 0.0, to, None);
                sums = to;
            }
            (Meeting::Turned, Some(w_hh)) => {
                let w_hh = (slice(w_hh), false);
                product(sizes, (before, false), w_hh, 1.0, gates, None);
            }
            _ => product(sizes, (before, false), (w_hh, true), 1.0, gates, None),
        }
        let (cells, before) = match last {
            Some(last) => apart(cells, each, t, last),
            None => (&mut cells[t * each..][..each], c),
        };
        let (gates, cells, out) = (Shared::new(gates), Shared::new(cells), Shared::new(out));
        pool::parallel_for(batch, grain(hidden), |range| {
            for i in range {
                let at = i * hidden;
                // SAFETY: every example has its own places.
                unsafe {
                    let (cells, out) = (cells.part(at, hidden), out.part(at, hidden));
                    let gates = gates.part(4 * at, 4 * hidden);
                    for (gate, sums) in gates.iter_mut().zip(sums.chunks_exact(batch)) {
                        *gate += sums[i];
                    }
                    ahead(gates, &before[at..][..hidden], cells, out);
                }
            }
        });
        last = Some(t);
    }
    let last = last.unwrap_or(0) * each;
    slice_mut::<T>(&outs[1]).copy_from_slice(&out[last..][..each]);
    slice_mut::<T>(&outs[2]).copy_from_slice(&cells[last..][..each]);
    Ok(())
}

/// What a layer made, and the gradients of that.
#[derive(Clone, Copy)]
pub struct Made<'a> {
    /// The outputs of all steps.
    pub out: &'a Tensor,
    /// What was kept for the way back.
    pub kept: &'a Tensor,
    /// The gradients of the outputs, of the last ones, and of the last cells.
    pub grads: [Option<&'a Tensor>; 3],
}

/// The gradients by the input, the weights, the biases, and the first outputs and cells.
///
/// # Errors
/// As [`forward`].
pub fn backward(outs: &[Tensor], l: &Layer, made: &Made) -> Result<()> {
    with_dtype!(l.input.dtype(), [float] => T, { backward_in::<T>(outs, l, made) }, else { Err(no_kernel(l.input.dtype())) })
}

fn backward_in<T: Real + GemmElement<Scale = T>>(
    outs: &[Tensor],
    l: &Layer,
    made: &Made,
) -> Result<()> {
    let [x, w_ih, w_hh, h, c] = l.dense(T::DTYPE)?;
    let s = l.sizes();
    let kept = copy::dense(made.kept, T::DTYPE)?;
    let all = (s.steps * s.batch * 4 * s.hidden) as i64;
    let room = Tensor::empty(&[all], T::DTYPE, Device::CPU)?;
    let by_gates = slice_mut::<T>(&room);
    let [by_out, by_h, by_c] = made.grads;
    let by_out = by_out.map(|t| copy::dense(t, T::DTYPE)).transpose()?;
    for (out, by) in [(&outs[5], by_h), (&outs[6], by_c)] {
        match by {
            Some(by) => copy::copy(out, by)?,
            None => fill(out, Scalar::Int(0))?,
        }
    }
    let way = Way {
        order: l.order(s.steps).collect(),
        kept: slice::<T>(&kept),
        w_hh: slice::<T>(&w_hh),
        c: slice::<T>(&c),
        by_out: by_out.as_ref().map(slice::<T>),
    };
    way.back(&s, slice_mut(&outs[5]), slice_mut(&outs[6]), by_gates);
    let (by_gates, gates, rows) = (&by_gates[..], 4 * s.hidden, s.steps * s.batch);
    let sizes = (rows, s.features, gates);
    let w_ih = (slice::<T>(&w_ih), false);
    product(
        sizes,
        (by_gates, false),
        w_ih,
        0.0,
        slice_mut(&outs[0]),
        None,
    );
    let sizes = (gates, s.features, rows);
    let x = (slice::<T>(&x), false);
    product(sizes, (by_gates, true), x, 0.0, slice_mut(&outs[1]), None);
    let out = copy::dense(made.out, T::DTYPE)?;
    let by_w = slice_mut::<T>(&outs[2]);
    by_hidden_weights(l, &s, by_gates, slice(&h), slice(&out), by_w);
    let bias = slice_mut::<T>(&outs[3]);
    bias.fill(T::of(0.0));
    by_gates
        .chunks_exact(gates.max(1))
        .for_each(|row| add(bias, row));
    slice_mut::<T>(&outs[4]).copy_from_slice(bias);
    Ok(())
}

/// What the way back through the steps reads.
struct Way<'a, T> {
    order: Vec<usize>,
    kept: &'a [T],
    w_hh: &'a [T],
    c: &'a [T],
    by_out: Option<&'a [T]>,
}

impl<T: Real + GemmElement<Scale = T>> Way<'_, T> {
    /// Goes back through the steps: fills the gradients by the sums behind the gates, and makes those by the last outputs and
    /// cells those by the first.
    fn back(&self, s: &Sizes, by_h: &mut [T], by_c: &mut [T], by_gates: &mut [T]) {
        let (each, wide) = (s.batch * s.hidden, s.batch * 4 * s.hidden);
        let (gates, cells) = self.kept.split_at(s.steps * wide);
        for (k, &t) in self.order.iter().enumerate().rev() {
            if let Some(by_out) = self.by_out {
                add(by_h, &by_out[t * each..][..each]);
            }
            let before = match k {
                0 => self.c,
                _ => &cells[self.order[k - 1] * each..][..each],
            };
            let (gates, cells) = (&gates[t * wide..][..wide], &cells[t * each..][..each]);
            let to = &mut by_gates[t * wide..][..wide];
            let (shared, by_cells) = (Shared::new(to), Shared::new(by_c));
            let n = s.hidden;
            pool::parallel_for(s.batch, grain(n), |range| {
                for i in range {
                    // SAFETY: every example has its own places.
                    let (by, to) =
                        unsafe { (by_cells.part(i * n, n), shared.part(4 * i * n, 4 * n)) };
                    let one = i * n..(i + 1) * n;
                    back(
                        &gates[4 * i * n..4 * (i + 1) * n],
                        &before[one.clone()],
                        &cells[one.clone()],
                        &by_h[one],
                        by,
                        to,
                    );
                }
            });
            let sizes = (s.batch, n, 4 * n);
            product(sizes, (to, false), (self.w_hh, false), 0.0, by_h, None);
        }
    }
}

/// The gradient by the weights of the outputs before, which each step but the first took from another.
fn by_hidden_weights<T: Real + GemmElement<Scale = T>>(
    l: &Layer,
    s: &Sizes,
    by_gates: &[T],
    h: &[T],
    out: &[T],
    by_w: &mut [T],
) {
    let (each, wide) = (s.batch * s.hidden, s.batch * 4 * s.hidden);
    let first = l.order(s.steps).next().unwrap_or(0);
    let by_first = (&by_gates[first * wide..], true);
    let sizes = (4 * s.hidden, s.hidden, s.batch);
    product(sizes, by_first, (h, false), 0.0, by_w, None);
    if s.steps > 1 {
        let (later, before) = if l.reverse { (0, each) } else { (wide, 0) };
        let later = &by_gates[later..][..(s.steps - 1) * wide];
        let sizes = (4 * s.hidden, s.hidden, (s.steps - 1) * s.batch);
        product(
            sizes,
            (later, true),
            (&out[before..], false),
            1.0,
            by_w,
            None,
        );
    }
}
