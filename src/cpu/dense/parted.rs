//! Singular values and vectors of bidiagonal matrices by halves, between which one row is taken out.
//!
//! Source: M. Gu and S. Eisenstat, "A divide-and-conquer algorithm for the bidiagonal SVD" (1995).

use super::chase::{self, Bases};
use super::columns::rotate;
use super::divide::{arrange, ascend, ascending, roots};
use super::number::{Factor, Real, hypotenuse, largest, set_product};
use super::secular::{Equation, corrected, ratios};
use super::vector;
use super::view::{Matrix, View, ViewMut};
use num_traits::Float;

/// Rows of a matrix that QR steps do.
const SMALL: usize = 24;

/// Turns `d`, with `e` above it, into the singular values, descending, and the bases into the vectors. False if it does not
/// converge.
pub fn singular<R: Real>(d: &mut [R], e: &mut [R], bases: Option<Bases<R>>) -> bool {
    let n = d.len();
    if n == 0 {
        return true;
    }
    let size = Float::max(largest(d), largest(e));
    let by = R::one() / size;
    let by = if Float::is_finite(by) { by } else { R::one() };
    d.iter_mut().chain(e.iter_mut()).for_each(|v| *v *= by);
    let done = match bases {
        None => chase::singular(d, e, None),
        Some(mut b) => {
            let done = by_halves(d, e, &mut b);
            let mut order = ascending(d);
            order.reverse();
            arrange(&mut b.u.block(0, 0, n, n), &order);
            arrange(&mut b.v.block(0, 0, n, n), &order);
            done
        }
    };
    ascend(d);
    d.reverse();
    d.iter_mut().for_each(|v| *v /= by);
    done
}

/// A matrix of as many rows as `d`, and one column more if `e` is as long; its last right vector then has no value.
fn by_halves<R: Real>(d: &mut [R], e: &mut [R], b: &mut Bases<R>) -> bool {
    let n = d.len();
    if n <= SMALL {
        b.u.set_identity();
        b.v.set_identity();
        if e.len() == n {
            last_column(d, e, &mut b.v);
        }
        let bases = Bases {
            u: b.u.again(),
            v: b.v.again(),
        };
        return chase::singular(d, &mut e[..n.saturating_sub(1)], Some(bases));
    }
    let (h, width) = (n / 2, e.len() + 1);
    let (alpha, beta) = (d[h], e[h]);
    b.u.set_identity();
    b.v.fill(R::zero());
    let mut first = Bases {
        u: b.u.block(0, 0, h, h),
        v: b.v.block(0, 0, h + 1, h + 1),
    };
    if !by_halves(&mut d[..h], &mut e[..h], &mut first) {
        return false;
    }
    let rest = n - h - 1;
    let mut second = Bases {
        u: b.u.block(h + 1, h + 1, rest, rest),
        v: b.v.block(h + 1, h + 1, width - h - 1, width - h - 1),
    };
    if !by_halves(&mut d[h + 1..], &mut e[h + 1..], &mut second) {
        return false;
    }
    let row = |i: usize, by: R| move |v: View<R>, j: usize| v.get(i, j) * by;
    let (top, bottom) = (row(h, alpha), row(h + 1, beta));
    let v = b.v.view();
    let mut z: Vec<R> = (0..width)
        .map(|j| if j <= h { top(v, j) } else { bottom(v, j) })
        .collect();
    if width > n {
        // One of the two vectors without a value takes all of z.
        let length = hypotenuse(z[h], z[n]);
        if !length.is_zero() {
            let (x, y) = b.v.two_columns(h, n);
            rotate(x, y, z[h] / length, z[n] / length);
        }
        z[h] = length;
        z.truncate(n);
    }
    d[h] = R::zero();
    let most = Float::max(largest(d), Float::max(Float::abs(alpha), Float::abs(beta)));
    // At a size where squares do not vanish; halves of the size of the least number are nothing beside the whole.
    let up = R::one() / most;
    if !most.is_zero() && Float::is_finite(up) {
        d.iter_mut().chain(z.iter_mut()).for_each(|v| *v *= up);
        merge(d, z, h, b);
        d.iter_mut().for_each(|v| *v *= most);
    }
    true
}

/// Turns the column behind the square to zero.
fn last_column<R: Real>(d: &mut [R], e: &mut [R], v: &mut ViewMut<R>) {
    let n = d.len();
    let mut bulge = std::mem::take(&mut e[n - 1]);
    for k in (0..n).rev() {
        if bulge.is_zero() {
            return;
        }
        let length = hypotenuse(d[k], bulge);
        let (c, s) = (d[k] / length, bulge / length);
        d[k] = length;
        if k > 0 {
            bulge = -s * e[k - 1];
            e[k - 1] *= c;
        }
        let (x, y) = v.two_columns(k, n);
        rotate(x, y, c, s);
    }
}

/// Where a column of the bases is not zero.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Top,
    Both,
    Bottom,
}

/// The singular values and vectors of the matrix with the diagonal `d` and, in row `h`, where that is zero, `z`; of size one.
fn merge<R: Real>(d: &mut [R], mut z: Vec<R>, h: usize, b: &mut Bases<R>) {
    let n = d.len();
    let limit = R::near(8.0) * R::epsilon();
    if Float::abs(z[h]) <= limit {
        z[h] = Float::copysign(limit, z[h]);
    }
    let mut parts: Vec<Part> = (0..n)
        .map(|i| if i < h { Part::Top } else { Part::Bottom })
        .collect();
    parts[h] = Part::Both;
    let (mut kept, mut left) = (vec![h], Vec::new());
    let mut last: Option<usize> = None;
    for j in ascending(d) {
        if j == h {
            continue;
        }
        if Float::abs(z[j]) <= limit {
            left.push(j);
            continue;
        }
        let Some(p) = last.replace(j) else {
            continue;
        };
        if Float::abs(d[j] - d[p]) > limit {
            kept.push(p);
            continue;
        }
        // Two values that are nearly one: a rotation leaves all of z to the second.
        let length = hypotenuse(z[j], z[p]);
        let (c, s) = (z[j] / length, -z[p] / length);
        (z[j], z[p]) = (length, R::zero());
        if parts[j] != parts[p] {
            parts[j] = Part::Both;
        }
        for m in [&mut b.u, &mut b.v] {
            let (x, y) = m.two_columns(p, j);
            rotate(x, y, c, s);
        }
        left.push(p);
    }
    kept.extend(last);
    let mut poles: Vec<R> = kept.iter().map(|&i| d[i]).collect();
    let half = limit * R::near(0.5);
    poles[1..]
        .iter_mut()
        .for_each(|p| *p = Float::max(*p, half));
    joined(d, &z, h, b, &poles, &Columns { kept, left, parts });
}

/// Which columns take part.
struct Columns {
    kept: Vec<usize>,
    left: Vec<usize>,
    parts: Vec<Part>,
}

/// The roots and vectors of what did not fall out; they take the first places.
fn joined<R: Real>(
    d: &mut [R],
    z: &[R],
    h: usize,
    b: &mut Bases<R>,
    poles: &[R],
    columns: &Columns,
) {
    let Columns { kept, left, parts } = columns;
    let k = kept.len();
    let above: Vec<R> = kept.iter().map(|&i| z[i]).collect();
    let length = vector::norm(&above);
    let unit: Vec<R> = above.iter().map(|&v| v / length).collect();
    let gaps = |j: usize, to: &mut [R]| {
        let of = |p: R| (p - poles[j]) * (p + poles[j]);
        to.iter_mut().zip(poles).for_each(|(to, &p)| *to = of(p));
    };
    let equation = Equation {
        z: &unit,
        rho: length * length,
        gaps: &gaps,
    };
    let (values, delta) = roots(&equation, |base, tau| {
        let p = poles[base];
        let root = Float::sqrt(Float::max(p * p + tau, R::zero()));
        if p.is_zero() {
            root
        } else {
            p + tau / (p + root)
        }
    });
    let w = corrected(&delta, &unit, &gaps);
    let of = |part: Part| (0..k).filter(move |&i| parts[kept[i]] == part);
    let rows: Vec<usize> = of(Part::Top)
        .chain(of(Part::Both))
        .chain(of(Part::Bottom))
        .collect();
    let cuts = (
        of(Part::Top).count(),
        of(Part::Top).count() + of(Part::Both).count(),
    );
    let (mut u, mut v) = (
        Matrix::filled(k, k, R::zero()),
        Matrix::filled(k, k, R::zero()),
    );
    let mut middle = vec![R::zero(); k];
    let mut column = vec![R::zero(); k];
    for j in 0..k {
        ratios(&mut column, &w, delta.view().column(j));
        let by = R::one() / vector::norm(&column);
        let to = &mut v.data[j * k..(j + 1) * k];
        to.iter_mut()
            .zip(&rows)
            .for_each(|(to, &i)| *to = column[i] * by);
        column.iter_mut().zip(poles).for_each(|(c, &p)| *c *= p);
        column[0] = -R::one();
        let by = R::one() / vector::norm(&column);
        let to = &mut u.data[j * k..(j + 1) * k];
        to.iter_mut()
            .zip(&rows)
            .for_each(|(to, &i)| *to = column[i] * by);
        middle[j] = -by;
    }
    let n = d.len();
    let order: Vec<usize> = rows.iter().map(|&i| kept[i]).collect();
    turn(&mut b.u, &order, left, u.view(), cuts, (h, h + 1));
    turn(&mut b.v, &order, left, v.view(), cuts, (h + 1, h + 1));
    (0..k).for_each(|j| b.u.set(h, j, middle[j]));
    let others: Vec<R> = left.iter().map(|&i| d[i]).collect();
    d[..k].copy_from_slice(&values);
    d[k..n].copy_from_slice(&others);
}

/// Multiplies columns `order` of a basis by a matrix, whose rows before the second cut meet rows of the basis above
/// `edges.0`, and those from the first cut on rows from `edges.1` on. Columns `left` follow.
fn turn<R: Real>(
    q: &mut ViewMut<R>,
    order: &[usize],
    left: &[usize],
    by: View<R>,
    cuts: (usize, usize),
    edges: (usize, usize),
) {
    let (k, height) = (order.len(), q.rows());
    let view = q.view();
    let gather = |columns: &[usize], top: usize, high: usize| {
        let mut out = Matrix::filled(high, columns.len(), R::zero());
        for (j, &i) in columns.iter().enumerate() {
            let column = &view.column(i)[top..top + high];
            out.view_mut().column(j).copy_from_slice(column);
        }
        out
    };
    let upper = gather(&order[..cuts.1], 0, edges.0);
    let lower = gather(&order[cuts.0..], edges.1, height - edges.1);
    let rest = gather(left, 0, height);
    let (a, b) = (
        by.block(0, 0, cuts.1, k),
        by.block(cuts.0, 0, k - cuts.0, k),
    );
    set_product(
        Factor::Plain(upper.view()),
        Factor::Plain(a),
        q.block(0, 0, edges.0, k),
    );
    let to = q.block(edges.1, 0, height - edges.1, k);
    set_product(Factor::Plain(lower.view()), Factor::Plain(b), to);
    q.block(0, k, height, left.len()).copy(rest.view());
}

#[cfg(test)]
mod tests {
    use super::super::samples::{Sample, near, orthonormal, same, sample, times};
    use super::*;

    fn check<R: Real + Sample>(name: &str, d: &[R], e: &[R]) {
        let n = d.len();
        let size = Float::max(largest(d), largest(e));
        let by = if size.is_zero() { R::one() } else { size };
        let (mut u, mut v) = (
            Matrix::filled(n, n, R::zero()),
            Matrix::filled(n, n, R::zero()),
        );
        let mut values = d.to_vec();
        let bases = Bases {
            u: u.view_mut(),
            v: v.view_mut(),
        };
        assert!(
            singular(&mut values, &mut e.to_vec(), Some(bases)),
            "{name}"
        );
        orthonormal(&u);
        orthonormal(&v);
        assert!(
            values.windows(2).all(|w| w[0] >= w[1] && w[1] >= R::zero()),
            "{name}: descending"
        );
        let b = Matrix::from_fn(n, n, |i, j| {
            if i == j {
                d[i] / by
            } else if j == i + 1 {
                e[i] / by
            } else {
                R::zero()
            }
        });
        let left = times(Factor::Plain(b.view()), Factor::Plain(v.view()), n, n);
        let right = Matrix::from_fn(n, n, |i, j| u[(i, j)] * (values[j] / by));
        near(&left, &right, n.max(10) as f64);
        let mut alone = d.to_vec();
        assert!(singular(&mut alone, &mut e.to_vec(), None));
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
            check("ones", &one, &one[1..]);
            check("no diagonal", &zero, e);
            check(
                "singular",
                &d.iter()
                    .enumerate()
                    .map(|(i, &v)| if i % 3 == 1 { R::zero() } else { v })
                    .collect::<Vec<_>>(),
                e,
            );
            let graded: Vec<R> = (0..n)
                .map(|i| R::near(10f64.powf(-(i as f64) / 4.0)))
                .collect();
            check("graded", &graded, &graded[1..]);
            let upwards: Vec<R> = graded.iter().rev().copied().collect();
            check("graded upwards", &upwards, &upwards[1..]);
            let repeated: Vec<R> = (0..n).map(|i| R::near((i % 3) as f64)).collect();
            let small: Vec<R> = (1..n)
                .map(|i| R::near(if i % 21 == 0 { 1e-9 } else { 1e-3 }))
                .collect();
            check("repeated", &repeated, &small);
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
    fn factors_multiply_to_the_matrix() {
        all::<f32>();
        all::<f64>();
    }
}
