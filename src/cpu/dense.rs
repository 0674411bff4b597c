//! Factorisations of small dense matrices, in double precision complex arithmetic whatever the element type.

use num_complex::Complex64 as C;

/// A row-major matrix.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Elements, row by row.
    pub data: Vec<C>,
}

/// Zero.
pub const ZERO: C = C::new(0.0, 0.0);
/// One.
pub const ONE: C = C::new(1.0, 0.0);

impl std::ops::Index<(usize, usize)> for Matrix {
    type Output = C;
    fn index(&self, (i, j): (usize, usize)) -> &C {
        &self.data[i * self.columns + j]
    }
}
impl std::ops::IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut C {
        &mut self.data[i * self.columns + j]
    }
}

impl Matrix {
    /// A matrix from a function of row and column.
    #[must_use]
    pub fn from_fn(rows: usize, columns: usize, f: impl Fn(usize, usize) -> C) -> Self {
        let data = (0..rows)
            .flat_map(|i| (0..columns).map(move |j| (i, j)))
            .map(|(i, j)| f(i, j))
            .collect();
        Self {
            rows,
            columns,
            data,
        }
    }

    /// The identity.
    #[must_use]
    pub fn eye(n: usize) -> Self {
        Self::from_fn(n, n, |i, j| if i == j { ONE } else { ZERO })
    }

    /// Transposed and conjugated.
    #[must_use]
    pub fn adjoint(&self) -> Self {
        Self::from_fn(self.columns, self.rows, |i, j| self[(j, i)].conj())
    }

    /// The product.
    #[must_use]
    pub fn times(&self, other: &Self) -> Self {
        let mut out = Self::from_fn(self.rows, other.columns, |_, _| ZERO);
        for i in 0..self.rows {
            for k in 0..self.columns {
                let x = self[(i, k)];
                for j in 0..other.columns {
                    out[(i, j)] += x * other[(k, j)];
                }
            }
        }
        out
    }

    /// The first `n` columns.
    #[must_use]
    pub fn left(&self, n: usize) -> Self {
        Self::from_fn(self.rows, n, |i, j| self[(i, j)])
    }
}

/// An LU factorisation with row exchanges.
pub struct Lu {
    /// L below the diagonal, U on and above it.
    pub lu: Matrix,
    /// The row exchanged with row i, from 0.
    pub pivots: Vec<usize>,
    /// The first zero on the diagonal, from 1; 0: none.
    pub info: i32,
}

/// Factorises any matrix.
#[must_use]
pub fn lu(mut a: Matrix) -> Lu {
    let n = a.rows.min(a.columns);
    let (mut pivots, mut info) = (Vec::with_capacity(n), 0);
    for k in 0..n {
        let size = |c: C| c.re.abs() + c.im.abs();
        let mut p = k;
        for i in k + 1..a.rows {
            if size(a[(i, k)]) > size(a[(p, k)]) {
                p = i;
            }
        }
        pivots.push(p);
        if a[(p, k)] == ZERO {
            if info == 0 {
                info = k as i32 + 1;
            }
            continue;
        }
        if p != k {
            for j in 0..a.columns {
                a.data.swap(k * a.columns + j, p * a.columns + j);
            }
        }
        let by = a[(k, k)];
        for i in k + 1..a.rows {
            let f = a[(i, k)] / by;
            a[(i, k)] = f;
            if f != ZERO {
                for j in k + 1..a.columns {
                    let v = a[(k, j)];
                    a[(i, j)] -= f * v;
                }
            }
        }
    }
    Lu {
        lu: a,
        pivots,
        info,
    }
}

/// Solves `L U X = P B` in place of `b`.
pub fn lu_solve(lu: &Matrix, pivots: &[usize], b: &mut Matrix) {
    for (i, &p) in pivots.iter().enumerate() {
        if p != i {
            for j in 0..b.columns {
                b.data.swap(i * b.columns + j, p * b.columns + j);
            }
        }
    }
    triangular(lu, b, false, true);
    triangular(lu, b, true, false);
}

/// Solves `T X = B` in place of `b`, with the upper or lower triangle of `t`.
pub fn triangular(t: &Matrix, b: &mut Matrix, upper: bool, unit: bool) {
    let n = t.rows;
    for step in 0..n {
        let i = if upper { n - 1 - step } else { step };
        let range = if upper { i + 1..n } else { 0..i };
        for j in 0..b.columns {
            let mut v = b[(i, j)];
            for k in range.clone() {
                v -= t[(i, k)] * b[(k, j)];
            }
            b[(i, j)] = if unit { v } else { v / t[(i, i)] };
        }
    }
}

/// The lower Cholesky factor of the lower triangle of `a`, or the order of the first minor that is not positive.
///
/// # Errors
/// That order.
pub fn cholesky(a: &Matrix) -> Result<Matrix, (usize, Matrix)> {
    let n = a.rows;
    let mut l = Matrix::from_fn(n, n, |_, _| ZERO);
    for j in 0..n {
        let mut d = a[(j, j)].re;
        for k in 0..j {
            d -= l[(j, k)].norm_sqr();
        }
        if d <= 0.0 || d.is_nan() {
            return Err((j + 1, l));
        }
        let d = d.sqrt();
        l[(j, j)] = C::new(d, 0.0);
        for i in j + 1..n {
            let mut v = a[(i, j)];
            for k in 0..j {
                v -= l[(i, k)] * l[(j, k)].conj();
            }
            l[(i, j)] = v / d;
        }
    }
    Ok(l)
}

/// Householder reflections as LAPACK stores them: R on and above the diagonal, vectors below, and their factors.
#[must_use]
pub fn reflections(mut a: Matrix) -> (Matrix, Vec<C>) {
    let n = a.rows.min(a.columns);
    let mut taus = Vec::with_capacity(n);
    for k in 0..n {
        let alpha = a[(k, k)];
        let below: f64 = (k + 1..a.rows).map(|i| a[(i, k)].norm_sqr()).sum();
        if below == 0.0 && alpha.im == 0.0 {
            taus.push(ZERO);
            continue;
        }
        let norm = (alpha.norm_sqr() + below).sqrt();
        let beta = if alpha.re >= 0.0 { -norm } else { norm };
        let tau = C::new((beta - alpha.re) / beta, -alpha.im / beta);
        let scale = ONE / (alpha - beta);
        for i in k + 1..a.rows {
            a[(i, k)] *= scale;
        }
        a[(k, k)] = C::new(beta, 0.0);
        // The adjoint of the reflection goes over the remaining columns.
        for j in k + 1..a.columns {
            let mut dot = a[(k, j)];
            for i in k + 1..a.rows {
                dot += a[(i, k)].conj() * a[(i, j)];
            }
            dot *= tau.conj();
            a[(k, j)] -= dot;
            for i in k + 1..a.rows {
                let v = a[(i, k)];
                a[(i, j)] -= v * dot;
            }
        }
        taus.push(tau);
    }
    (a, taus)
}

/// Multiplies `c` from the left by the product of the reflections in `a` (or its adjoint).
pub fn reflect(a: &Matrix, taus: &[C], c: &mut Matrix, adjoint: bool) {
    let order: Vec<usize> = if adjoint {
        (0..taus.len()).collect()
    } else {
        (0..taus.len()).rev().collect()
    };
    for k in order {
        let tau = if adjoint { taus[k].conj() } else { taus[k] };
        for j in 0..c.columns {
            let mut dot = c[(k, j)];
            for i in k + 1..c.rows {
                dot += a[(i, k)].conj() * c[(i, j)];
            }
            dot *= tau;
            c[(k, j)] -= dot;
            for i in k + 1..c.rows {
                c[(i, j)] -= a[(i, k)] * dot;
            }
        }
    }
}

/// Eigenvalues (ascending) and eigenvectors (columns) of a Hermitian matrix, by Jacobi rotations.
#[must_use]
pub fn hermitian(a: &Matrix) -> (Vec<f64>, Matrix) {
    let n = a.rows;
    let mut a = a.clone();
    let mut v = Matrix::eye(n);
    let total: f64 = a.data.iter().map(|c| c.norm_sqr()).sum();
    for _ in 0..60 {
        let mut off = 0.0;
        for p in 0..n {
            for q in p + 1..n {
                let apq = a[(p, q)];
                let size = apq.norm();
                off += size * size;
                if size == 0.0 {
                    continue;
                }
                let phase = apq / size;
                let theta = (a[(q, q)].re - a[(p, p)].re) / (2.0 * size);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let t = if theta == 0.0 { 1.0 } else { t };
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = phase * (t * c);
                for m in [&mut a, &mut v] {
                    for i in 0..n {
                        let (x, y) = (m[(i, p)], m[(i, q)]);
                        m[(i, p)] = x * c - y * s.conj();
                        m[(i, q)] = x * s + y * c;
                    }
                }
                for j in 0..n {
                    let (x, y) = (a[(p, j)], a[(q, j)]);
                    a[(p, j)] = x * c - y * s;
                    a[(q, j)] = x * s.conj() + y * c;
                }
            }
        }
        if off <= 1e-32 * total {
            break;
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| a[(i, i)].re.total_cmp(&a[(j, j)].re));
    let values = order.iter().map(|&i| a[(i, i)].re).collect();
    (values, Matrix::from_fn(n, n, |i, j| v[(i, order[j])]))
}

/// Singular values (descending) and vectors: `a = u diag(s) v'` with `min(rows, columns)` columns of u and v, by
/// one-sided Jacobi rotations.
#[must_use]
pub fn singular(a: &Matrix) -> (Matrix, Vec<f64>, Matrix) {
    if a.rows < a.columns {
        let (u, s, v) = singular(&a.adjoint());
        return (v, s, u);
    }
    let (m, n) = (a.rows, a.columns);
    let mut u = a.clone();
    let mut v = Matrix::eye(n);
    // As far as sums of m products can tell a right angle; columns of nothing but rounding have none.
    let right = f64::EPSILON * (m as f64).sqrt();
    let least = a.data.iter().map(C::norm_sqr).sum::<f64>() * f64::EPSILON * f64::EPSILON;
    for _ in 0..60 {
        let mut turned = false;
        for p in 0..n {
            for q in p + 1..n {
                let (mut x, mut y, mut z) = (0.0, 0.0, ZERO);
                for i in 0..m {
                    x += u[(i, p)].norm_sqr();
                    y += u[(i, q)].norm_sqr();
                    z += u[(i, p)].conj() * u[(i, q)];
                }
                let size = z.norm();
                if size <= least || size <= right * (x * y).sqrt() {
                    continue;
                }
                turned = true;
                let phase = z / size;
                let theta = (y - x) / (2.0 * size);
                let t = if theta == 0.0 {
                    1.0
                } else {
                    theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt())
                };
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = phase * (t * c);
                for w in [&mut u, &mut v] {
                    for i in 0..w.rows {
                        let (x, y) = (w[(i, p)], w[(i, q)]);
                        w[(i, p)] = x * c - y * s.conj();
                        w[(i, q)] = x * s + y * c;
                    }
                }
            }
        }
        if !turned {
            break;
        }
    }
    let norms: Vec<f64> = (0..n)
        .map(|j| (0..m).map(|i| u[(i, j)].norm_sqr()).sum::<f64>().sqrt())
        .collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| norms[j].total_cmp(&norms[i]));
    let s: Vec<f64> = order.iter().map(|&j| norms[j]).collect();
    let least = s.first().copied().unwrap_or(0.0) * 1e-15;
    let mut vectors = Matrix::from_fn(m, n, |i, j| {
        if norms[order[j]] > least {
            u[(i, order[j])] / norms[order[j]]
        } else {
            ZERO
        }
    });
    let kept = s.iter().filter(|&&v| v > least).count();
    complete(&mut vectors, kept);
    (vectors, s, Matrix::from_fn(n, n, |i, j| v[(i, order[j])]))
}

/// Replaces the columns of `q` from `from` on by unit vectors at right angles to all before.
pub fn complete(q: &mut Matrix, from: usize) {
    let m = q.rows;
    for j in from..q.columns {
        for candidate in 0..m {
            let mut c: Vec<C> = (0..m)
                .map(|i| if i == (candidate + j) % m { ONE } else { ZERO })
                .collect();
            for _ in 0..2 {
                for k in 0..j {
                    let dot: C = (0..m).map(|i| q[(i, k)].conj() * c[i]).sum();
                    (0..m).for_each(|i| c[i] -= q[(i, k)] * dot);
                }
            }
            let norm = c.iter().map(|v| v.norm_sqr()).sum::<f64>().sqrt();
            if norm > 1e-2 / (m as f64).sqrt() {
                (0..m).for_each(|i| q[(i, j)] = c[i] / norm);
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(m: usize, n: usize) -> Matrix {
        Matrix::from_fn(m, n, |i, j| {
            C::new(
                ((i * 7 + j * 13) % 11) as f64 - 5.0,
                ((i * 5 + j * 3) % 7) as f64 - 3.0,
            )
        })
    }

    fn near(a: &Matrix, b: &Matrix) -> bool {
        a.data
            .iter()
            .zip(&b.data)
            .all(|(x, y)| (x - y).norm() < 1e-9)
    }

    #[test]
    fn factors_multiply_to_the_matrix() {
        for (m, n) in [(3, 3), (5, 3), (3, 5), (1, 4)] {
            let a = sample(m, n);
            let (u, s, v) = singular(&a);
            let scaled = Matrix::from_fn(u.rows, s.len(), |i, j| u[(i, j)] * s[j]);
            assert!(near(&scaled.times(&v.adjoint()), &a));
            let (h, taus) = reflections(a.clone());
            let mut r = Matrix::from_fn(m, n, |i, j| if i <= j { h[(i, j)] } else { ZERO });
            reflect(&h, &taus, &mut r, false);
            assert!(near(&r, &a));
        }
        let a = sample(4, 4);
        let h = a.times(&a.adjoint());
        let (values, v) = hermitian(&h);
        let scaled = Matrix::from_fn(4, 4, |i, j| v[(i, j)] * values[j]);
        assert!(near(&scaled.times(&v.adjoint()), &h));
    }
}
