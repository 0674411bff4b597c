//! Eigenvalues of symmetric tridiagonal matrices: implicit QL steps for small ones, larger ones by halves.
//!
//! Sources: Golub and Van Loan, sections 8.3 and 8.4; J. Rutter, "A serial implementation of Cuppen's divide and conquer
//! algorithm for the symmetric eigenvalue problem", LAPACK working note 69 (1994).

use super::number::{Factor, Real, hypotenuse, set_product};
use super::secular::{Equation, corrected, ratios};
use super::view::{Matrix, ViewMut};
use super::{columns, vector};
use crate::cpu::{lines::Shared, pool};
use num_traits::Float;

/// Rows of a matrix that QL steps do.
const SMALL: usize = 24;

/// Turns `d`, with `e` beside it, into the eigenvalues, ascending, and `q` into the eigenvectors. False if it does not converge.
pub fn eigen<R: Real>(d: &mut [R], e: &mut [R], q: Option<ViewMut<R>>) -> bool {
    let n = d.len();
    let most = |x: &[R]| super::number::largest(x);
    let size = Float::max(most(d), most(e));
    if n == 0 || size.is_zero() {
        if let Some(mut q) = q {
            q.set_identity();
        }
        return true;
    }
    let shrink = R::one() / size;
    let by = if Float::is_finite(shrink) {
        shrink
    } else {
        R::one()
    };
    d.iter_mut().chain(e.iter_mut()).for_each(|v| *v *= by);
    let done = match q {
        None => {
            if Float::abs(d[0]) > Float::abs(d[n - 1]) {
                d.reverse();
                e.reverse();
            }
            let done = steps(d, e, None);
            ascend(d);
            done
        }
        Some(mut q) => by_halves(d, e, &mut q).is_some_and(|order| {
            sort(d, &mut q, &order);
            true
        }),
    };
    d.iter_mut().for_each(|v| *v /= by);
    done
}

/// Brings values and columns into an order.
pub(super) fn sort<R: Real>(d: &mut [R], q: &mut ViewMut<R>, order: &[usize]) {
    if order.iter().enumerate().all(|(i, &k)| i == k) {
        return;
    }
    let values: Vec<R> = order.iter().map(|&i| d[i]).collect();
    d.copy_from_slice(&values);
    arrange(q, order);
}

/// Brings columns into an order.
pub(super) fn arrange<R: Real>(q: &mut ViewMut<R>, order: &[usize]) {
    let mut copy = Matrix::filled(q.rows(), q.columns(), R::zero());
    copy.view_mut().copy(q.view());
    for (to, &from) in order.iter().enumerate() {
        q.column(to).copy_from_slice(copy.view().column(from));
    }
}

/// The places of numbers in ascending order.
pub(super) fn ascending<R: Real>(d: &[R]) -> Vec<usize> {
    places(&d.iter().map(|v| v.double()).collect::<Vec<_>>())
}

fn places(d: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..d.len()).collect();
    order.sort_by(|&i, &j| d[i].total_cmp(&d[j]));
    order
}

/// Sorts numbers, the least first.
pub(super) fn ascend<R: Real>(d: &mut [R]) {
    let values: Vec<R> = ascending(d).into_iter().map(|i| d[i]).collect();
    d.copy_from_slice(&values);
}

/// Implicit QL steps with Wilkinson's shifts; columns of `q` turn along.
fn steps<R: Real>(d: &mut [R], e: &mut [R], mut q: Option<&mut ViewMut<R>>) -> bool {
    let n = d.len();
    let two = R::near(2.0);
    for l in 0..n {
        for turn in 0.. {
            let negligible = |m: &usize| {
                let near = Float::abs(d[*m]) + Float::abs(d[*m + 1]);
                // The whole has size one: what rounding left of its last values may not settle otherwise.
                let near = if turn > 30 { R::one() } else { near };
                Float::abs(e[*m]) <= R::epsilon() * near
                    || Float::abs(e[*m]) < R::min_positive_value()
            };
            let m = (l..n - 1).find(negligible).unwrap_or(n - 1);
            if m == l {
                break;
            }
            if turn > 80 {
                return false;
            }
            let g = (d[l + 1] - d[l]) / (two * e[l]);
            let r = Float::copysign(hypotenuse(g, R::one()), g);
            let mut g = d[m] - d[l] + e[l] / (g + r);
            let (mut s, mut c, mut p) = (R::one(), R::one(), R::zero());
            let mut early = false;
            for i in (l..m).rev() {
                let (f, b) = (s * e[i], c * e[i]);
                let r = Float::sqrt(f * f + g * g);
                if i + 1 < n - 1 || m < n - 1 {
                    e[i + 1] = r;
                }
                if r.is_zero() {
                    d[i + 1] -= p;
                    early = true;
                    break;
                }
                (s, c) = (f / r, g / r);
                g = d[i + 1] - p;
                let t = (d[i] - g) * s + two * c * b;
                p = s * t;
                d[i + 1] = g + p;
                g = c * t - b;
                if let Some(q) = q.as_deref_mut() {
                    let (x, y) = q.two_columns(i + 1, i);
                    columns::rotate(x, y, c, s);
                }
            }
            if !early {
                d[l] -= p;
                e[l] = g;
            }
            if m < n - 1 {
                e[m] = R::zero();
            }
        }
    }
    true
}

/// Values and vectors in some order; gives the places of the values in ascending order.
fn by_halves<R: Real>(d: &mut [R], e: &mut [R], q: &mut ViewMut<R>) -> Option<Vec<usize>> {
    let n = d.len();
    if n <= SMALL {
        return small(d, e, q).then(|| ascending(d));
    }
    let h = n / 2;
    let joint = e[h - 1];
    let rho = Float::abs(joint);
    d[h - 1] -= rho;
    d[h] -= rho;
    q.block(0, h, h, n - h).fill(R::zero());
    q.block(h, 0, n - h, h).fill(R::zero());
    let (upper, lower) = e.split_at_mut(h - 1);
    let first = by_halves(&mut d[..h], upper, &mut q.block(0, 0, h, h))?;
    let second = by_halves(
        &mut d[h..],
        &mut lower[1..],
        &mut q.block(h, h, n - h, n - h),
    )?;
    // Both rows have length one.
    let half = Float::sqrt(R::near(0.5));
    let sign = Float::copysign(half, joint);
    let mut z: Vec<R> = (0..h).map(|j| q.get(h - 1, j) * half).collect();
    z.extend((h..n).map(|j| q.get(h, j) * sign));
    let order: Vec<usize> = merged(d, first, second.into_iter().map(|i| i + h).collect());
    Some(merge(d, z, rho + rho, &order, h, q))
}

/// Values and vectors by steps, at a size where squares do not vanish.
fn small<R: Real>(d: &mut [R], e: &mut [R], q: &mut ViewMut<R>) -> bool {
    let n = d.len();
    q.set_identity();
    let size = Float::max(super::number::largest(d), super::number::largest(e));
    let up = R::one() / size;
    if size.is_zero() || !Float::is_finite(up) {
        // Of the size of the least number: nothing, beside the whole.
        e.fill(R::zero());
        return true;
    }
    d.iter_mut().chain(e.iter_mut()).for_each(|v| *v *= up);
    if Float::abs(d[0]) > Float::abs(d[n - 1]) {
        // Steps go upwards, where what is large should be last.
        d.reverse();
        e.reverse();
        (0..n).for_each(|j| q.column(j).reverse());
    }
    let done = steps(d, e, Some(q));
    d.iter_mut().for_each(|v| *v *= size);
    done
}

/// Two ascending orders as one.
fn merged<R: Real>(d: &[R], first: Vec<usize>, second: Vec<usize>) -> Vec<usize> {
    let (mut a, mut b) = (first.into_iter().peekable(), second.into_iter().peekable());
    let mut out = Vec::with_capacity(d.len());
    while let (Some(&i), Some(&j)) = (a.peek(), b.peek()) {
        out.extend(if d[j] < d[i] { b.next() } else { a.next() });
    }
    out.extend(a);
    out.extend(b);
    out
}

/// Where a column of the basis is not zero.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Top,
    Both,
    Bottom,
}

/// The eigenvalues and vectors of `D + rho z z'` in the basis `q`, whose halves meet at row `h`.
fn merge<R: Real>(
    d: &mut [R],
    mut z: Vec<R>,
    rho: R,
    order: &[usize],
    h: usize,
    q: &mut ViewMut<R>,
) -> Vec<usize> {
    let n = d.len();
    let most = Float::max(super::number::largest(d), super::number::largest(&z));
    let limit = R::near(8.0) * R::epsilon() * most;
    let mut parts: Vec<Part> = (0..n)
        .map(|i| if i < h { Part::Top } else { Part::Bottom })
        .collect();
    let (mut kept, mut left) = (Vec::new(), Vec::new());
    let mut last: Option<usize> = None;
    for &j in order {
        if rho * Float::abs(z[j]) <= limit {
            left.push(j);
            continue;
        }
        let Some(p) = last.replace(j) else {
            continue;
        };
        let length = hypotenuse(z[j], z[p]);
        let (c, s) = (z[j] / length, -z[p] / length);
        let apart = d[j] - d[p];
        if Float::abs(apart * c * s) > limit {
            kept.push(p);
            continue;
        }
        // Two values that are nearly one: a rotation leaves all of z to the second.
        (z[j], z[p]) = (length, R::zero());
        if parts[j] != parts[p] {
            parts[j] = Part::Both;
        }
        let (x, y) = q.two_columns(p, j);
        columns::rotate(x, y, c, s);
        (d[p], d[j]) = (d[p] * c * c + d[j] * s * s, d[p] * s * s + d[j] * c * c);
        left.push(p);
    }
    kept.extend(last);
    if !kept.is_empty() {
        joined(d, &z, rho, h, q, &kept, &left, &parts);
    }
    ascending(d)
}

/// The roots and vectors of what did not fall out; they take the first places.
fn joined<R: Real>(
    d: &mut [R],
    z: &[R],
    rho: R,
    h: usize,
    q: &mut ViewMut<R>,
    kept: &[usize],
    left: &[usize],
    parts: &[Part],
) {
    let (n, k) = (d.len(), kept.len());
    let poles: Vec<R> = kept.iter().map(|&i| d[i]).collect();
    let above: Vec<R> = kept.iter().map(|&i| z[i]).collect();
    let gaps = |j: usize, to: &mut [R]| {
        to.iter_mut()
            .zip(&poles)
            .for_each(|(to, &p)| *to = p - poles[j]);
    };
    let equation = Equation {
        z: &above,
        rho,
        gaps: &gaps,
    };
    let (values, mut delta) = roots(&equation, |base, tau| poles[base] + tau);
    let w = corrected(&delta, &above, &gaps);
    // Rows by where the columns of the basis are not zero, so that products leave out what is.
    let of = |part: Part| (0..k).filter(move |&i| parts[kept[i]] == part);
    let rows: Vec<usize> = of(Part::Top)
        .chain(of(Part::Both))
        .chain(of(Part::Bottom))
        .collect();
    let (tops, boths) = (of(Part::Top).count(), of(Part::Both).count());
    let mut column = vec![R::zero(); k];
    for j in 0..k {
        let to = &mut delta.data[j * k..(j + 1) * k];
        ratios(&mut column, &w, to);
        let by = R::one() / vector::norm(&column);
        for (to, &i) in to.iter_mut().zip(&rows) {
            *to = column[i] * by;
        }
    }
    let view = q.view();
    let gather = |from: usize, to: usize, top: usize, high: usize| {
        let mut out = Matrix::filled(high, to - from, R::zero());
        for (j, &i) in rows[from..to].iter().enumerate() {
            let column = &view.column(kept[i])[top..top + high];
            out.view_mut().column(j).copy_from_slice(column);
        }
        out
    };
    let (upper, lower) = (gather(0, tops + boths, 0, h), gather(tops, k, h, n - h));
    let mut rest = Matrix::filled(n, left.len(), R::zero());
    for (j, &i) in left.iter().enumerate() {
        rest.view_mut().column(j).copy_from_slice(view.column(i));
    }
    let others: Vec<R> = left.iter().map(|&i| d[i]).collect();
    let turn = delta.view();
    let (a, b) = (
        turn.block(0, 0, tops + boths, k),
        turn.block(tops, 0, k - tops, k),
    );
    set_product(
        Factor::Plain(upper.view()),
        Factor::Plain(a),
        q.block(0, 0, h, k),
    );
    set_product(
        Factor::Plain(lower.view()),
        Factor::Plain(b),
        q.block(h, 0, n - h, k),
    );
    q.block(0, k, n, left.len()).copy(rest.view());
    d[..k].copy_from_slice(&values);
    d[k..].copy_from_slice(&others);
}

/// All roots of an equation, and the distances of all poles from root j in column j.
pub(super) fn roots<R: Real>(
    equation: &Equation<R>,
    value: impl Fn(usize, R) -> R + Sync,
) -> (Vec<R>, Matrix<R>) {
    let k = equation.z.len();
    let mut values = vec![R::zero(); k];
    let mut delta = Matrix::filled(k, k, R::zero());
    let (to, columns) = (Shared::new(&mut values), Shared::new(&mut delta.data));
    pool::parallel_for(k, 1 + 2000 / k, |range| {
        for j in range {
            // SAFETY: every root has its own places.
            #[allow(unsafe_code, reason = "roots write disjoint parts")]
            let (value_of, column) = unsafe { (to.part(j, 1), columns.part(j * k, k)) };
            let (base, tau) = equation.root(j, column);
            value_of[0] = value(base, tau);
        }
    });
    (values, delta)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{Sample, near, orthonormal, same, sample, times};
    use super::*;

    fn check<R: Real + Sample>(name: &str, d: &[R], e: &[R]) {
        let n = d.len();
        let size = d
            .iter()
            .chain(e)
            .fold(R::zero(), |m, v| Float::max(m, Float::abs(*v)));
        let mut q = Matrix::filled(n, n, R::zero());
        let (mut values, mut beside) = (d.to_vec(), e.to_vec());
        assert!(
            eigen(&mut values, &mut beside, Some(q.view_mut())),
            "{name}"
        );
        orthonormal(&q);
        assert!(values.windows(2).all(|w| w[0] <= w[1]), "{name}: ascending");
        let by = if size.is_zero() { R::one() } else { size };
        let t = Matrix::from_fn(n, n, |i, j| {
            if i == j {
                d[i] / by
            } else if i.abs_diff(j) == 1 {
                e[i.min(j)] / by
            } else {
                R::zero()
            }
        });
        let left = times(Factor::Plain(t.view()), Factor::Plain(q.view()), n, n);
        let right = Matrix::from_fn(n, n, |i, j| q[(i, j)] * (values[j] / by));
        near(&left, &right, n.max(10) as f64);
        let mut alone = d.to_vec();
        assert!(eigen(&mut alone, &mut e.to_vec(), None));
        same(name, &alone, &values, by);
    }

    fn all<R: Real + Sample>() {
        for n in [1, 2, 3, 24, 25, 60, 151] {
            let x: Matrix<R> = sample(n, 2, 9);
            let (d, e) = (&x.data[..n], &x.data[n..2 * n - 1]);
            check("random", d, e);
            let one = vec![R::one(); n];
            let zero = vec![R::zero(); n];
            check("identity", &one, &zero[1..]);
            check("zero", &zero, &zero[1..]);
            check(
                "laplace",
                &one.iter().map(|_| R::near(-2.0)).collect::<Vec<_>>(),
                &one[1..],
            );
            check("no diagonal", &zero, e);
            let graded: Vec<R> = (0..n)
                .map(|i| R::near(10f64.powf(-(i as f64) / 4.0)))
                .collect();
            check("graded", &graded, &graded[1..]);
            let wilkinson: Vec<R> = (0..n)
                .map(|i| R::near((i as f64 - n as f64 / 2.0).abs()))
                .collect();
            check("wilkinson", &wilkinson, &one[1..]);
            let glued: Vec<R> = (1..n)
                .map(|i| R::near(if i % 21 == 0 { 1e-9 } else { 1.0 }))
                .collect();
            let again: Vec<R> = (0..n)
                .map(|i| R::near(((i % 21) as f64 - 10.0).abs()))
                .collect();
            check("glued", &again, &glued);
            for scale in [1e-30, 1e30] {
                let by = R::near(scale);
                let (d, e): (Vec<R>, Vec<R>) = (
                    d.iter().map(|&v| v * by).collect(),
                    e.iter().map(|&v| v * by).collect(),
                );
                check("scaled", &d, &e);
            }
        }
    }

    #[test]
    fn vectors_are_stretched_by_their_values() {
        all::<f32>();
        all::<f64>();
    }
}
