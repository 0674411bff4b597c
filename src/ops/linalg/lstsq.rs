//! Least squares.

use crate::cpu::dense::number::{Factor, Number, Real, add_product, set_product};
use crate::cpu::dense::reflect;
use crate::cpu::dense::singular::{Vectors, singular};
use crate::cpu::dense::triangular::{Triangle, solve_left};
use crate::cpu::dense::view::{Matrix, View, ViewMut};
use crate::cpu::matrices::{self, Pieces, Stack};
use crate::ops::batch;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, F, Hidden, O, OpDef, OutSpec, P, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{batch_note, columnwise, cubic, lead, plan, tail, with_numbers};
use crate::ops::linalg::spectral::{finite, singular_values};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_lstsq",
        "(Tensor self, Tensor b, float? rcond, str driver) -> (Tensor X, Tensor residuals, Tensor rank, Tensor singular_values)",
        0,
        body!(rule, write).unmeasured(),
        "",
    )
    .samples("f32[4, 3], f32[4, 2], None, 'gelsy'; f64[2, 3, 4], f64[2, 3, 1], 0.1, 'gelsd'; c64[4, 2], c64[4, 2], None, 'gels'")
    .refused()
    .batch(Batch::Lead),
    compose(
        "linalg.lstsq",
        "(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution, Tensor residuals, Tensor rank, Tensor singular_values)",
        F | O | P,
        lstsq,
        "The solutions X for which A X is as near to B as can be, of least size where there are many.",
    )
    .samples("f32[4, 3], f32[4, 2]; f64[3, 4], f64[3, 2], driver='gelsd'; f32[2, 4, 3], f32[2, 4], driver='gels'")
    .grad("LinalgLstsqBackward0 | self, b: _grad.lstsq(grads[0], grads[1], self, b, solution, needs)")
    .batch(Batch::As(typed!(batch::lstsq, Hidden))),
];

/// PyTorch's words before any work is done; true if `b` holds vectors.
fn check(a: &calls::LinalgLstsq) -> Result<bool> {
    let (t, b) = (a.input, a.b);
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "torch.linalg.lstsq: input must have at least 2 dimensions."
    );
    ensure!(
        b.ndim() >= 1,
        Runtime,
        "torch.linalg.lstsq: other must have at least 1 dimension."
    );
    ensure!(
        t.dtype() == b.dtype(),
        Runtime,
        "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype {} and other's dtype {}",
        t.dtype().scalar_type(),
        b.dtype().scalar_type()
    );
    let apart = t.ndim() - b.ndim().min(t.ndim());
    ensure!(
        b.ndim() <= t.ndim() && apart <= 1,
        Runtime,
        "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1"
    );
    let rows = t.shape()[t.ndim() - 2];
    let batch = t.ndim() - 2;
    let vector = apart == 1 && b.shape()[..batch] == t.shape()[..batch];
    let (at, have) = if vector {
        (1, b.size(-1)?)
    } else {
        (2, b.size(-2)?)
    };
    ensure!(
        rows == have,
        Runtime,
        "torch.linalg.lstsq: input.size(-2) should match other.size(-{at})"
    );
    if let Some(driver) = a.driver {
        ensure!(
            matches!(driver, "gels" | "gelsy" | "gelsd" | "gelss"),
            Runtime,
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        );
    }
    ensure!(
        matches!(
            t.dtype(),
            DType::F32 | DType::F64 | DType::C64 | DType::C128
        ),
        Runtime,
        "This function doesn't handle types other than float and double"
    );
    Ok(vector)
}

fn lstsq(a: &calls::LinalgLstsq) -> Result<Ret> {
    let vector = check(a)?;
    let (m, n) = (tail(a.input.shape())[0], tail(a.input.shape())[1]);
    let driver = a.driver.unwrap_or("gelsy");
    let b = if vector {
        f::unsqueeze(a.b, -1)?
    } else {
        a.b.clone()
    };
    let [x, residuals, rank, values] = f::_lstsq(a.input, &b, a.rcond, driver)?;
    let x = f::narrow(&x, -2, 0, n)?;
    let told = Told::by(driver)?;
    let asked = |wanted: bool, t: Tensor| {
        if wanted {
            Ok(t)
        } else {
            f::new_empty(&t, &[0])
        }
    };
    // Drivers that find the rank say how far off they are where it is full.
    let far = told.residuals && m > n;
    let far = far && (!told.rank || helpers::has_no_values(&rank) || full(&rank, n)?);
    Ok(Ret::Tuple(vec![
        if vector { f::squeeze_dim(&x, -1)? } else { x },
        asked(far, residuals)?,
        asked(told.rank, rank)?,
        asked(told.values, values)?,
    ]))
}

fn full(rank: &Tensor, n: i64) -> Result<bool> {
    let all = f::all(&f::eq(rank, n)?)?;
    Ok(helpers::item(&all)?.to_f64() != 0.0)
}

/// The solutions lie in the first rows of a larger matrix, as the routines of LAPACK leave them.
fn rule(a: &calls::_Lstsq) -> Result<(Plan, Dims)> {
    let (t, b) = (a.input, a.b);
    ensure!(
        t.ndim() >= 2 && b.ndim() >= 2,
        Runtime,
        "least squares take matrices, got {} and {} dimensions",
        t.ndim(),
        b.ndim()
    );
    let (m, n) = (t.size(-2)?, t.size(-1)?);
    let (rows, columns) = (b.size(-2)?, b.size(-1)?);
    ensure!(
        rows == m && t.dtype() == b.dtype(),
        Runtime,
        "least squares of {m} rows of {} and {rows} of {}",
        t.dtype(),
        b.dtype()
    );
    let batch = dims::broadcast(&lead(t.shape()), &lead(b.shape()))?;
    let real = t.dtype().to_real();
    let told = Told::by(a.driver)?;
    // What is not asked for is nothing of every matrix.
    let besides = |wanted: bool, each: &Dims, more: &[i64], dtype: DType| {
        OutSpec::contiguous(&each.concat(if wanted { more } else { &[0] }), dtype)
    };
    let each = lead(t.shape());
    let plan = plan([
        columnwise(batch.concat(&[m.max(n), columns]), t.dtype()),
        besides(told.residuals && m > n, &batch, &[columns], real),
        besides(told.rank, &each, &[], DType::I64),
        besides(told.values, &each, &[m.min(n)], real),
    ]);
    Ok((plan, batch))
}

fn write(a: &calls::_Lstsq, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.input.dtype(), T => write_of::<T>(a, batch, outs))
}

/// What a driver of LAPACK's tells besides the solutions.
struct Told {
    residuals: bool,
    rank: bool,
    values: bool,
}

impl Told {
    fn by(driver: &str) -> Result<Self> {
        let (residuals, rank, values) = match driver {
            "gels" => (true, false, false),
            "gelsy" => (false, true, false),
            "gelsd" | "gelss" => (true, true, true),
            _ => bail!(Runtime, "least squares have no driver {driver}"),
        };
        Ok(Self {
            residuals,
            rank,
            values,
        })
    }
}

fn write_of<T: Number>(a: &calls::_Lstsq, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    let t = a.input;
    let told = Told::by(a.driver)?;
    let (m, n) = (tail(t.shape())[0] as usize, tail(t.shape())[1] as usize);
    let (each, steps) = (lead(t.shape()), m.min(n));
    let epsilon = <T::Size as num_traits::Float>::epsilon().double();
    let least = a.rcond.unwrap_or(epsilon * m.max(n) as f64);
    let matrices = Stack::<T>::copied(t, &each)?;
    finite(&matrices, t, NAME)?;
    let (ranks, reflected) = if told.values {
        let values = singular_values::<T>(t, NAME)?;
        matrices::write_numbers(&outs[3], &values)?;
        let values = |i: usize| &values[i * steps..(i + 1) * steps];
        let ranks = (0..matrices.count).map(|i| rank(values(i), least));
        (ranks.collect(), None)
    } else {
        let made = Reflected::<T>::of(t)?;
        let ranks = if told.rank {
            ranks(&matrices, &made, least)
        } else {
            full_ranks(&matrices, &made, t)?
        };
        (ranks, Some(made))
    };
    if told.rank {
        matrices::write_numbers(&outs[2], &ranks)?;
    }
    let rights = Stack::<T>::copied(a.b, batch)?;
    let mut solutions = Stack::<T>::empty_for(&outs[0])?;
    let wanted = outs[1].numel() > 0;
    let room = if wanted { rights.columns } else { 0 };
    let mut rests = vec![T::Size::default(); rights.count * room];
    let origins = matrices::origins(&each, batch);
    let parts = (solutions.parts(), Pieces::new(&mut rests, room));
    let work = cubic(m.max(n));
    matrices::each(rights.count, work, &parts, |i, (mut x, rests)| {
        x.fill(T::zero());
        let (at, columns, right) = (origins[i], x.columns(), rights.view(i));
        match &reflected {
            Some(made) if ranks[at] == steps as i64 => made.solve(at, right, &mut x),
            _ => solve(matrices.view(at), right, least, x.block(0, 0, n, columns)),
        }
        if wanted {
            apart(
                matrices.view(at),
                x.view().block(0, 0, n, columns),
                right,
                rests,
            );
        }
    });
    solutions.store(&outs[0])?;
    if wanted {
        matrices::write_numbers(&outs[1], &rests)?;
    }
    Ok(())
}

const NAME: &str = "torch.linalg.lstsq";

/// How many singular values, the largest first, are above `least` times that.
fn rank<R: Real>(values: &[R], least: f64) -> i64 {
    let top = values.first().map_or(0.0, |v| v.double());
    values.iter().filter(|v| v.double() > least * top).count() as i64
}

/// The ranks of matrices, whose singular values are computed where their triangles leave a doubt.
fn ranks<T: Number>(matrices: &Stack<T>, made: &Reflected<T>, least: f64) -> Vec<i64> {
    let steps = made.factors.columns;
    let mut ranks = vec![steps as i64; matrices.count];
    let parts = Pieces::new(&mut ranks, 1);
    matrices::each(matrices.count, cubic(steps), &parts, |i, found| {
        if !well_conditioned(made.triangle(i), least) {
            let mut values = vec![T::Size::default(); steps];
            singular(copied(matrices.view(i)).view_mut(), &mut values, None);
            found[0] = rank(&values, least);
        }
    });
    ranks
}

/// The ranks of matrices that have to be full, or are zero.
///
/// # Errors
/// For another one.
fn full_ranks<T: Number>(matrices: &Stack<T>, made: &Reflected<T>, t: &Tensor) -> Result<Vec<i64>> {
    let steps = made.factors.columns;
    let full = |i: usize| {
        let triangle = made.triangle(i);
        match (0..steps).find(|&k| triangle.get(k, k).is_zero()) {
            None => Ok(steps as i64),
            Some(_) if matrices.flat(i).iter().all(|v| v.is_zero()) => Ok(0),
            Some(k) => bail!(
                LinAlg,
                "{NAME}: {}The least squares solution could not be computed because the input matrix does not have full rank \
                 (error code: {}).",
                batch_note(t, i),
                k + 1
            ),
        }
    };
    (0..matrices.count).map(full).collect()
}

/// The squares of the distances of `a x` from `b`, a column each.
fn apart<T: Number>(a: View<T>, x: View<T>, b: View<T>, to: &mut [T::Size]) {
    let mut rest = copied(b);
    add_product(-1, Factor::Plain(a), Factor::Plain(x), rest.view_mut());
    for (j, to) in to.iter_mut().enumerate() {
        *to = rest.view().column(j).iter().map(|v| v.square()).sum();
    }
}

fn copied<T: Number>(a: View<T>) -> Matrix<T> {
    let mut copy = Matrix::filled(a.rows(), a.columns(), T::zero());
    copy.view_mut().copy(a);
    copy
}

/// Matrices with at least as many rows as columns, or the adjoints of such with fewer, as reflections and a triangle.
struct Reflected<T> {
    factors: Stack<T>,
    taus: Vec<T>,
    adjoint: bool,
}

impl<T: Number> Reflected<T> {
    fn of(t: &Tensor) -> Result<Self> {
        let adjoint = t.size(-2)? < t.size(-1)?;
        let mut factors = if adjoint {
            Stack::adjoints(t, &lead(t.shape()))?
        } else {
            Stack::copied(t, &lead(t.shape()))?
        };
        let (count, steps) = (factors.count, factors.columns);
        let mut taus = vec![T::zero(); count * steps];
        let work = cubic(factors.rows);
        let parts = (factors.parts(), Pieces::new(&mut taus, steps));
        matrices::each(count, work, &parts, |_, (a, taus)| reflect::factor(a, taus));
        Ok(Self {
            factors,
            taus,
            adjoint,
        })
    }

    fn triangle(&self, i: usize) -> View<'_, T> {
        let k = self.factors.columns;
        self.factors.view(i).block(0, 0, k, k)
    }

    /// The solution for a matrix of full rank, in the first rows of `x`, which is zero; of least size where there are many.
    fn solve(&self, i: usize, b: View<T>, x: &mut ViewMut<T>) {
        let (factors, triangle) = (self.factors.view(i), self.triangle(i));
        let (k, columns) = (triangle.columns(), b.columns());
        let taus = &self.taus[i * k..(i + 1) * k];
        x.block(0, 0, b.rows(), columns).copy(b);
        let top = x.block(0, 0, k, columns);
        if self.adjoint {
            solve_left(triangle, Triangle::UPPER.turned(), top);
            reflect::apply(factors, taus, false, x);
        } else {
            reflect::apply(factors, taus, true, x);
            solve_left(triangle, Triangle::UPPER, x.block(0, 0, k, columns));
            let rest = x.rows() - k;
            x.block(k, 0, rest, columns).fill(T::zero());
        }
    }
}

/// Whether all singular values of an upper triangle are surely above `least` times the largest: the Frobenius norm of the
/// inverse bounds the one, and that of the triangle the other; closer, by its root, that of the triangle's square `R' R`.
fn well_conditioned<T: Number>(triangle: View<T>, least: f64) -> bool {
    const STRIP: usize = 64;
    let n = triangle.rows();
    let square = |column: &[T]| column.iter().map(|v| v.square().double()).sum::<f64>();
    let (mut size, mut inverse) = (0.0, 0.0);
    for j in (0..n).step_by(STRIP) {
        // Columns of the inverse end where those of the triangle do.
        let (wide, rows) = (STRIP.min(n - j), n.min(j + STRIP));
        let mut strip = Matrix::filled(rows, wide, T::zero());
        (0..wide).for_each(|k| strip[(j + k, k)] = T::one());
        solve_left(
            triangle.block(0, 0, rows, rows),
            Triangle::UPPER,
            strip.view_mut(),
        );
        for k in 0..wide {
            size += square(&triangle.column(j + k)[..=j + k]);
            inverse += square(&strip.view().column(k)[..=j + k]);
        }
    }
    let apart = |size: f64| size * inverse * least * least < 1.0;
    if apart(size) {
        return true;
    }
    let upper = |i, j| {
        if i <= j {
            triangle.get(i, j)
        } else {
            T::zero()
        }
    };
    let r = Matrix::from_fn(n, n, upper);
    let mut squared = Matrix::filled(n, n, T::zero());
    set_product(
        Factor::Adjoint(r.view()),
        Factor::Plain(r.view()),
        squared.view_mut(),
    );
    apart(square(&squared.data).sqrt())
}

/// By singular values, those that are small beside the largest left out.
fn solve<T: Number>(a: View<T>, b: View<T>, least: f64, to: ViewMut<T>) {
    let (m, n) = (a.rows(), a.columns());
    let k = m.min(n);
    let (mut u, mut v) = (
        Matrix::filled(m, k, T::zero()),
        Matrix::filled(n, k, T::zero()),
    );
    let mut values = vec![T::Size::default(); k];
    let vectors = Vectors {
        u: u.view_mut(),
        v: v.view_mut(),
    };
    singular(copied(a).view_mut(), &mut values, Some(vectors));
    let top = values.first().map_or(0.0, |v| v.double());
    let mut along = Matrix::filled(k, b.columns(), T::zero());
    set_product(
        Factor::Adjoint(u.view()),
        Factor::Plain(b),
        along.view_mut(),
    );
    for j in 0..b.columns() {
        for (v, &s) in along.view_mut().column(j).iter_mut().zip(&values) {
            *v = if s.double() > least * top {
                v.over(T::real(s))
            } else {
                T::zero()
            };
        }
    }
    set_product(Factor::Plain(v.view()), Factor::Plain(along.view()), to);
}
