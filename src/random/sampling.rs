//! Draws that read other values: probabilities, weights, rates, permutations.

use super::generator::Generator;
use super::kernels::RandomElement;
use crate::{DType, Result, bail, ensure};
use num_traits::Float;

/// `bernoulli` with a double probability for each element; two words each.
///
/// # Errors
/// Where a probability lies outside [0, 1] or the lengths differ.
pub fn bernoulli_probs_f64<T: RandomElement>(
    g: &mut Generator,
    out: &mut [T],
    p: &[f64],
) -> Result<()> {
    bernoulli(out, p, f64::from, |p| g.d53() < p)
}

/// `bernoulli` with a single (or converted 16-bit) probability for each element; one word each.
///
/// # Errors
/// Where a probability lies outside [0, 1] or the lengths differ.
pub fn bernoulli_probs_f32<T: RandomElement>(
    g: &mut Generator,
    out: &mut [T],
    p: &[f32],
) -> Result<()> {
    bernoulli(out, p, f64::from, |p| g.f24() < p)
}

/// Fills with what `draw` says of each probability, after its value is checked: a wrong one draws nothing.
fn bernoulli<T: RandomElement, P: Copy>(
    out: &mut [T],
    p: &[P],
    value: impl Fn(P) -> f64,
    mut draw: impl FnMut(P) -> bool,
) -> Result<()> {
    ensure!(
        out.len() == p.len(),
        Runtime,
        "bernoulli: {} elements but {} probabilities",
        out.len(),
        p.len()
    );
    for (o, &p) in out.iter_mut().zip(p) {
        check_p((0.0..=1.0).contains(&value(p)))?;
        *o = T::from_i64(i64::from(draw(p)));
    }
    Ok(())
}

fn check_p(inside: bool) -> Result<()> {
    ensure!(
        inside,
        Runtime,
        "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be improved?  If so, please \
         report an enhancement request to PyTorch.)"
    );
    Ok(())
}

/// Moves the generator as `n` draws with tensor probabilities would.
pub fn advance_bernoulli_probs(g: &mut Generator, n: usize, double: bool) {
    g.skip(n as u64 * if double { 2 } else { 1 });
}

/// Moves the generator as the `n` exponentials behind a `multinomial` of `n` weights without replacement would.
pub fn advance_exponential_weights(g: &mut Generator, n: usize) {
    g.skip(2 * n as u64);
}

/// A random permutation of `0..out.len()`.
pub fn randperm<T: RandomElement>(g: &mut Generator, out: &mut [T]) {
    for (i, o) in out.iter_mut().enumerate() {
        *o = T::from_i64(i as i64);
    }
    let n = out.len();
    for i in 0..n.saturating_sub(1) {
        let z = (u64::from(g.u32()) % (n - i) as u64) as usize;
        out.swap(i, i + z);
    }
}

/// Moves the generator as a permutation of `n` would.
pub fn advance_randperm(g: &mut Generator, n: usize) {
    g.skip(n.saturating_sub(1) as u64);
}

/// One sample from each row, or several different ones, of `weights` (`rows` by `cols`, row-major) into `out`
/// (`rows` by `samples`): the indices of the largest `w / q`, `q` exponential, in descending order.
///
/// # Errors
/// Where a weight is negative or not finite, a row's sum is not positive, or `samples > cols`.
pub fn multinomial_without_replacement<T: RandomElement + PartialOrd + Into<f64>>(
    g: &mut Generator,
    out: &mut [i64],
    weights: &[T],
    rows: usize,
    cols: usize,
    samples: usize,
) -> Result<()> {
    check_multinomial_weights(weights, rows, cols, samples)?;
    let q: Vec<T> = weights
        .iter()
        .map(|_| T::from_f64(-(-g.d53()).ln_1p()))
        .collect();
    largest_quotients(out, weights, &q, cols, samples);
    Ok(())
}

/// The checks of a draw without replacement.
///
/// # Errors
/// As [`multinomial_without_replacement`].
pub fn check_multinomial_weights<T: RandomElement + Into<f64>>(
    weights: &[T],
    rows: usize,
    cols: usize,
    samples: usize,
) -> Result<()> {
    check_weights(weights, [rows, cols], rows * samples, samples, false)?;
    ensure!(
        samples <= cols,
        Runtime,
        "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
    );
    Ok(())
}

/// For each row of `cols` quotients `w / q` the places of the largest, in descending order.
pub fn largest_quotients<T: RandomElement + Into<f64>>(
    out: &mut [i64],
    weights: &[T],
    q: &[T],
    cols: usize,
    samples: usize,
) {
    if cols == 0 || samples == 0 {
        return;
    }
    // The quotient is rounded to the weights' type, which can tie.
    let keys: Vec<f64> = weights
        .iter()
        .zip(q)
        .map(|(&w, &q)| T::from_f64(w.into() / q.into()).into())
        .collect();
    largest(out, &keys, cols, samples);
}

/// For each row of `cols` numbers the places of the largest, in descending order.
fn largest(out: &mut [i64], keys: &[f64], cols: usize, samples: usize) {
    let mut order: Vec<usize> = Vec::with_capacity(cols);
    for (keys, out) in keys.chunks_exact(cols).zip(out.chunks_exact_mut(samples)) {
        order.clear();
        order.extend(0..cols);
        // NaN (0 / 0) counts as the largest, as in a top-k.
        let rank = |i: &usize| {
            if keys[*i].is_nan() {
                f64::INFINITY
            } else {
                keys[*i]
            }
        };
        let descending = |a: &usize, b: &usize| rank(b).total_cmp(&rank(a)).then(a.cmp(b));
        if samples < cols {
            order.select_nth_unstable_by(samples - 1, descending);
            order.truncate(samples);
        }
        order.sort_unstable_by(descending);
        for (o, &i) in out.iter_mut().zip(&order) {
            *o = i as i64;
        }
    }
}

/// Bytes of the keys and of the order that [`largest_quotients`] makes.
#[must_use]
pub fn keys_of(rows: usize, cols: usize, samples: usize) -> usize {
    if samples == 0 {
        return 0;
    }
    rows * cols * size_of::<f64>() + cols * size_of::<usize>()
}

/// Bytes of the running sums of a row of weights.
#[must_use]
pub fn sums_of(cols: usize, weights: DType) -> usize {
    cols * weights.size().max(4)
}

/// Samples with replacement from each row of `weights` (`rows` by `cols`) into `out` (`rows` by `samples`).
///
/// # Errors
/// Where a weight is negative or not finite, or a row's sum is not positive.
pub fn multinomial_with_replacement<T: RandomElement + PartialOrd + Into<f64>>(
    g: &mut Generator,
    out: &mut [i64],
    weights: &[T],
    rows: usize,
    cols: usize,
    samples: usize,
) -> Result<()> {
    check_weights(weights, [rows, cols], out.len(), samples, true)?;
    if cols == 0 || samples == 0 {
        return Ok(());
    }
    // Sums are kept in the weights' type, those of 16-bit types in f32.
    if T::DTYPE.size() <= 4 {
        draw_rows::<T, f32>(g, out, weights, [cols, samples]);
    } else {
        draw_rows::<T, f64>(g, out, weights, [cols, samples]);
    }
    Ok(())
}

/// Draws samples of each row by its running sums, which are kept as `A`.
fn draw_rows<T: RandomElement + Into<f64>, A: Float>(
    g: &mut Generator,
    out: &mut [i64],
    weights: &[T],
    [cols, samples]: [usize; 2],
) {
    let number = |v: f64| A::from(v).unwrap_or_else(A::nan);
    let mut cum = vec![A::zero(); cols];
    let rows = weights.chunks_exact(cols);
    for (row, out) in rows.zip(out.chunks_exact_mut(samples)) {
        let mut sum = A::zero();
        for (c, &w) in cum.iter_mut().zip(row) {
            sum = sum + number(w.into());
            *c = sum;
        }
        for c in &mut cum {
            *c = *c / sum;
        }
        cum[cols - 1] = A::one();
        for o in out {
            let u = g.d53();
            *o = cum.partition_point(|c| c.to_f64().is_some_and(|c| c < u)) as i64;
        }
    }
}

/// Weights that are looked at together.
const PART: usize = 256;

/// What a draw needs of its weights; one that puts back what it drew says which kind of number was wrong.
fn check_weights<T: RandomElement + Into<f64>>(
    weights: &[T],
    [rows, cols]: [usize; 2],
    out: usize,
    samples: usize,
    again: bool,
) -> Result<()> {
    ensure!(
        rows.checked_mul(cols) == Some(weights.len()) && rows.checked_mul(samples) == Some(out),
        Runtime,
        "multinomial: {} weights and {out} results do not make {rows} rows of {cols} and {samples}",
        weights.len()
    );
    let inside = |w: f64| (w >= 0.0) & w.is_finite();
    let fine = |part: &[T]| part.iter().fold(true, |all, &w| all & inside(w.into()));
    if !weights.chunks(PART).all(fine) {
        let wrong = weights.iter().map(|&w| w.into()).find(|&w| !inside(w));
        let huge = wrong.is_some_and(|w| w >= 0.0);
        bail!(
            Runtime,
            "{}",
            match (again, huge) {
                (false, _) => "probability tensor contains either `inf`, `nan` or element < 0",
                (true, false) =>
                    "invalid multinomial distribution (encountering probability entry < 0)",
                (true, true) =>
                    "invalid multinomial distribution (encountering probability entry = infinity or NaN)",
            }
        );
    }
    ensure!(
        cols == 0
            || weights
                .chunks_exact(cols)
                .all(|row| row.iter().any(|&w| w.into() > 0.0)),
        Runtime,
        "invalid multinomial distribution (sum of probabilities <= 0)"
    );
    Ok(())
}

/// A Poisson count for each rate.
///
/// # Errors
/// Where a rate is negative or NaN, or the lengths differ.
pub fn poisson<T: RandomElement + Into<f64>>(
    g: &mut Generator,
    out: &mut [T],
    rates: &[T],
) -> Result<()> {
    ensure!(
        out.len() == rates.len(),
        Runtime,
        "poisson: {} elements but {} rates",
        out.len(),
        rates.len()
    );
    for (o, &rate) in out.iter_mut().zip(rates) {
        let rate: f64 = rate.into();
        ensure!(
            rate >= 0.0,
            Runtime,
            "invalid Poisson rate, expected rate to be non-negative"
        );
        *o = T::from_i64(poisson_one(g, rate));
    }
    Ok(())
}

/// Multiplication for small rates, Hoermann's transformed rejection (PTRS, 1993) from 10 on.
fn poisson_one(g: &mut Generator, rate: f64) -> i64 {
    if rate == 0.0 {
        return 0;
    }
    if rate < 10.0 {
        let limit = (-rate).exp();
        let (mut k, mut product) = (0, 1.0);
        loop {
            product *= g.d53();
            if product <= limit {
                return k;
            }
            k += 1;
        }
    }
    if rate.is_infinite() {
        // The rejection would never accept; the cast of an infinite count gives the same value.
        return i64::MIN;
    }
    let log_rate = rate.ln();
    let b = 0.931 + 2.53 * rate.sqrt();
    let a = -0.059 + 0.02483 * b;
    let inv_alpha = 1.1239 + 1.1328 / (b - 3.4);
    let vr = 0.9277 - 3.6224 / (b - 2.0);
    loop {
        let u = g.d53() - 0.5;
        let v = g.d53();
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + rate + 0.43).floor();
        if us >= 0.07 && v <= vr {
            return k as i64;
        }
        if k < 0.0 || (us < 0.013 && v > us) {
            continue;
        }
        if v.ln() + inv_alpha.ln() - (a / (us * us) + b).ln()
            <= -rate + k * log_rate - libm::lgamma(k + 1.0)
        {
            return k as i64;
        }
    }
}
