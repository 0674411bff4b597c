//! More pointwise operators: bounds, rounding, angles, comparisons with tolerance, complex numbers from parts.

use crate::cpu::map::Ctx;
use crate::cpu::special;
use crate::dims::wrap_dim;
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{
    F, FM, FMIO, FMO, KernelBody, O, OpDef, OutSpec, Plan, Ret, X, kernel, old_compose,
};
use crate::ops::pointwise::rule::{compare, float, result_layout, same};
use crate::{
    DType, Dims, Result, Scalar, Tensor, bail, cpu, dims, ensure, map_op, map_row, run, run1,
};
use num_complex::{Complex32, Complex64};
use torchlike_macros::operators;

map_op!(
    Deg2rad,
    1,
    [light] | x,
    c | x * (std::f64::consts::PI / 180.0) as T
);
map_op!(
    Rad2deg,
    1,
    [light] | x,
    c | x * (180.0 / std::f64::consts::PI) as T
);
map_op!(
    Logit,
    1,
    [heavy] | x,
    c | {
        let z = if c.i[0] != 0 {
            let (lo, hi) = (c.f[0] as T, (1.0 - c.f[0] as T));
            if x < lo {
                lo
            } else if x > hi {
                hi
            } else {
                x
            }
        } else {
            x
        };
        (z / (1.0 - z)).ln()
    }
);
map_op!(
    Sinc,
    1,
    [heavy] | x,
    c | if x == 0.0 {
        1.0
    } else {
        let p = std::f64::consts::PI * f64::from(x);
        (p.sin() / p) as T
    },
    [complex] | x,
    c | if x.re == 0.0 && x.im == 0.0 {
        T::new(1.0, 0.0)
    } else {
        let p = x * T::new(std::f64::consts::PI as _, 0.0);
        p.sin() / p
    }
);
map_op!(NanToNum, 1, [int boolean] |x, c| x, [light] |x, c| if x.is_nan() { c.f[0] as T } else if x == T::INFINITY { c.f[1] as T } else if x == T::NEG_INFINITY { c.f[2] as T } else { x }, [complex] |x, c| {
    let f = |v: f64| if v.is_nan() { c.f[0] } else if v == f64::INFINITY { c.f[1] } else if v == f64::NEG_INFINITY { c.f[2] } else { v };
    T::new(f(x.re as f64) as _, f(x.im as f64) as _)
});
map_op!(
    RoundTo,
    1,
    [int] | x,
    c | x,
    [light] | x,
    c | {
        let ten = c.f[0] as T;
        if c.i[0] < 0 {
            (x / ten).round_ties_even() * ten
        } else {
            (x * ten).round_ties_even() / ten
        }
    }
);
map_op!(Isclose, 2 => bool, [int boolean] |x, y, c| x == y || { let (a, b) = (f64::from(i32::from(x != y)) * (x as i64 as f64 - y as i64 as f64).abs(), (y as i64 as f64 * c.f[0]).abs() + c.f[1]); a <= b }, [light] |x, y, c| x == y || (c.i[0] != 0 && x.is_nan() && y.is_nan()) || { let (a, b) = ((x - y).abs(), c.f[1] as T + (c.f[0] as T * y).abs()); a.is_finite() && a <= b }, [complex] |x, y, c| x == y || (c.i[0] != 0 && x.is_nan() && y.is_nan()) || { let (a, b) = (f64::from((x - y).norm()), c.f[1] + c.f[0] * f64::from(y.norm())); a.is_finite() && a <= b });
map_op!(Isreal, 1 => bool, [int uint light boolean] |x, c| true, [complex] |x, c| x.im == 0.0);
map_op!(Angle, 1 => real, [light] |x, c| if x.is_nan() { x } else if x < 0.0 { std::f64::consts::PI as T } else { 0.0 }, [complex] |x, c| if x.is_nan() { x.re + x.im } else { x.im.atan2(x.re) });
map_op!(
    Mvlgamma,
    1,
    [heavy] | x,
    c | special::mvlgamma(f64::from(x), c.i[0]) as T
);

fn angle_types(d: DType) -> (DType, DType) {
    let (d, _) = float(d);
    (d, d.to_real())
}

fn logit_ctx(a: &Args, _: DType) -> Result<Ctx> {
    let mut ctx = Ctx::default();
    if let Some(eps) = a.opt_float(1)
        && eps >= 0.0
    {
        (ctx.f[0], ctx.i[0]) = (eps, 1);
    }
    Ok(ctx)
}

/// The largest finite number of a type.
fn largest(d: DType) -> f64 {
    match d.to_real() {
        DType::F16 => 65504.0,
        DType::BF16 => 3.389_531_389_251_535_5e38,
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

fn nan_ctx(a: &Args, d: DType) -> Result<Ctx> {
    let f = [
        a.opt_float(1).unwrap_or(0.0),
        a.opt_float(2).unwrap_or(largest(d)),
        a.opt_float(3).unwrap_or(-largest(d)),
    ];
    Ok(Ctx {
        f,
        ..Ctx::default()
    })
}

fn round_ctx(a: &Args, _: DType) -> Result<Ctx> {
    let mut ctx = Ctx::default();
    let decimals = a.int(1)?;
    (ctx.i[0], ctx.f[0]) = (
        decimals,
        10f64.powi(decimals.unsigned_abs().min(400) as i32),
    );
    Ok(ctx)
}

fn close_ctx(a: &Args, _: DType) -> Result<Ctx> {
    let (x, y, rtol, atol) = (a.tensor(0)?, a.tensor(1)?, a.float(2)?, a.float(3)?);
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "{} did not match {}",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    ensure!(
        rtol >= 0.0,
        Runtime,
        "rtol must be greater than or equal to zero, but got {rtol}"
    );
    ensure!(
        atol >= 0.0,
        Runtime,
        "atol must be greater than or equal to zero, but got {atol}"
    );
    let mut ctx = Ctx::default();
    (ctx.f[0], ctx.f[1], ctx.i[0]) = (rtol, atol, i64::from(a.bool(4)));
    Ok(ctx)
}

fn mvlgamma_ctx(a: &Args, _: DType) -> Result<Ctx> {
    let mut ctx = Ctx::default();
    ctx.i[0] = a.int(1)?;
    ensure!(
        ctx.i[0] >= 1,
        Runtime,
        "p has to be greater than or equal to 1"
    );
    Ok(ctx)
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_compose(
        "clamp#tensor",
        "(Tensor self, Tensor? min=None, Tensor? max=None)",
        FMIO,
        clamp,
        "Each element within two bounds.",
    ),
    old_compose(
        "clamp",
        "(Tensor self, Scalar? min=None, Scalar? max=None)",
        FMIO,
        clamp,
        "Each element within two bounds.",
    ),
    old_compose(
        "clamp_min#tensor",
        "(Tensor self, Tensor min)",
        FMIO,
        |a| run!("maximum", a.values[0].clone(), a.values[1].clone()),
        "Each element, or the bound if that is larger.",
    ),
    old_compose(
        "clamp_min",
        "(Tensor self, Scalar min)",
        FMIO,
        |a| run!("maximum", a.values[0].clone(), a.values[1].clone()),
        "Each element, or the bound if that is larger.",
    ),
    old_compose(
        "clamp_max#tensor",
        "(Tensor self, Tensor max)",
        FMIO,
        |a| run!("minimum", a.values[0].clone(), a.values[1].clone()),
        "Each element, or the bound if that is smaller.",
    ),
    old_compose(
        "clamp_max",
        "(Tensor self, Scalar max)",
        FMIO,
        |a| run!("minimum", a.values[0].clone(), a.values[1].clone()),
        "Each element, or the bound if that is smaller.",
    ),
    map_row!(RoundTo "round#decimals", 1, same, round_ctx, FMIO, "", "(Tensor self, *, int decimals)", "Rounded to a number of decimals."),
    map_row!(NanToNum "nan_to_num", 1, same, nan_ctx, FMIO, "", "(Tensor self, float? nan=None, float? posinf=None, float? neginf=None)", "Infinities and NaN replaced by numbers."),
    map_row!(Isclose "isclose", 2, compare, close_ctx, FM, "", "(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False)", "True where the operands are equal within a tolerance."),
    map_row!(Isreal "isreal", 1, compare, FM, "true", "(Tensor self)", "True where the imaginary part is zero."),
    map_row!(Angle "angle", 1, angle_types, FMO, "", "(Tensor self)", "The angle of each element in the complex plane."),
    map_row!(Deg2rad "deg2rad", 1, float, FMIO, "a * T(0.017453292519943295)", "(Tensor self)", "Degrees as radians."),
    map_row!(Rad2deg "rad2deg", 1, float, FMIO, "a * T(57.29577951308232)", "(Tensor self)", "Radians as degrees."),
    map_row!(Logit "logit", 1, float, logit_ctx, FMIO, "", "(Tensor self, float? eps=None)", "log(x / (1 - x)), with x kept `eps` away from 0 and 1."),
    map_row!(Sinc "sinc", 1, float, FMIO, "", "(Tensor self)", "sin(pi x) / (pi x)."),
    old_compose(
        "mvlgamma",
        "(Tensor self, int p)",
        FMIO,
        |a| run!("_mvlgamma", &a.tensor(0)?.contiguous()?, a.int(1)?),
        "The logarithm of the multivariate gamma function.",
    ),
    map_row!(Mvlgamma "_mvlgamma", 1, float, mvlgamma_ctx, F, "", "(Tensor self, int p)", "The logarithm of the multivariate gamma function."),
    old_compose(
        "float_power",
        "(Tensor self, Operand exponent)",
        FMIO,
        float_power,
        "The power in double precision.",
    ),
    old_compose(
        "float_power#scalar",
        "(Scalar self, Tensor exponent)",
        F | O,
        float_power,
        "The power in double precision.",
    ),
    old_compose(
        "ldexp",
        "(Tensor self, Tensor other)",
        FMIO,
        ldexp,
        "self * 2 ** other.",
    ),
    kernel(
        "frexp",
        "(Tensor self) -> (Tensor mantissa, Tensor exponent)",
        FMO | X,
        KernelBody::new(infer_frexp, frexp),
        "Mantissa and exponent of 2.",
    ),
    kernel(
        "complex",
        "(Tensor real, Tensor imag)",
        F | O,
        KernelBody::new(infer_complex, complex),
        "Complex numbers from real and imaginary parts.",
    ),
    old_compose(
        "polar",
        "(Tensor abs, Tensor angle)",
        F | O,
        polar,
        "Complex numbers from absolute values and angles.",
    ),
    old_compose(
        "cross",
        "(Tensor self, Tensor other, int? dim=None)",
        FMO | X,
        cross_default,
        "The vector product.",
    ),
    kernel(
        "linalg.cross",
        "(Tensor self, Tensor other, *, int dim=-1)",
        F | O | X,
        KernelBody::new(infer_cross, cross),
        "The vector product along a dimension.",
    ),
    old_compose(
        "vander",
        "(Tensor x, int? N=None, bool increasing=False)",
        F,
        vander,
        "Powers of each element as rows.",
    ),
    old_compose(
        "linalg.vander",
        "(Tensor x, *, int? N=None)",
        F,
        linalg_vander,
        "Powers of each element as rows.",
    ),
];

fn clamp(a: &Args) -> Result<Ret> {
    let given = |v: &Arg| !matches!(v, Arg::None);
    match (given(&a.values[1]), given(&a.values[2])) {
        (false, false) => bail!(
            Runtime,
            "torch.clamp: At least one of 'min' or 'max' must not be None"
        ),
        (true, false) => run!("maximum", a.values[0].clone(), a.values[1].clone()),
        (false, true) => run!("minimum", a.values[0].clone(), a.values[2].clone()),
        _ => run!(
            "_clamp",
            a.values[0].clone(),
            a.values[1].clone(),
            a.values[2].clone()
        ),
    }
}

fn float_power(a: &Args) -> Result<Ret> {
    let complex = a.values.iter().any(|v| match v {
        Arg::Tensor(t) => t.dtype().is_complex(),
        Arg::Scalar(s) => matches!(s, Scalar::Complex(_)),
        _ => false,
    });
    let d = if complex { DType::C128 } else { DType::F64 };
    let mut wide = Vec::with_capacity(2);
    for v in &a.values {
        if let Arg::Tensor(t) = v {
            wide.push(t.to_dtype(d)?);
        }
    }
    let number = |i: usize| -> Result<Scalar> {
        let s = a.scalar(i)?;
        Ok(if complex {
            Scalar::Complex(s.to_c64())
        } else {
            Scalar::Float(s.to_f64())
        })
    };
    match (&wide[..], a.opt_tensor(0)) {
        ([x, y], _) => run!("pow", x, y),
        ([x], Some(_)) => run!("pow", x, number(1)?),
        ([y], None) => run!("pow", number(0)?, y),
        _ => bail!(Type, "float_power() needs a tensor"),
    }
}

fn ldexp(a: &Args) -> Result<Ret> {
    let power = run1!("pow", Scalar::Float(2.0), a.tensor(1)?)?;
    run!("mul", a.tensor(0)?, &power)
}

fn infer_frexp(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    ensure!(
        t.dtype().is_float() && !t.dtype().is_storage_only(),
        Runtime,
        "torch.frexp() only supports floating-point dtypes"
    );
    let strides = dims::preserved_strides(t.shape(), t.strides());
    let spec = |dtype| OutSpec {
        shape: t.shape().clone(),
        strides: strides.clone(),
        dtype,
    };
    Ok(Plan {
        outs: [spec(t.dtype()), spec(DType::I32)].into_iter().collect(),
        device: None,
    })
}

fn frexp(a: &Args, outs: &[Tensor]) -> Result<()> {
    let wide = cpu::copy::dense(a.tensor(0)?, DType::F64)?;
    let parts: Vec<(f64, i32)> = cpu::slice::<f64>(&wide)
        .iter()
        .map(|&x| special::frexp(x))
        .collect();
    let mantissa: Vec<f64> = parts.iter().map(|p| p.0).collect();
    let exponent: Vec<i32> = parts.iter().map(|p| p.1).collect();
    cpu::copy::copy(&outs[0], &Tensor::from_slice(&mantissa, wide.shape())?)?;
    cpu::copy::copy(&outs[1], &Tensor::from_slice(&exponent, wide.shape())?)
}

fn infer_complex(a: &Args) -> Result<Plan> {
    let (re, im) = (a.tensor(0)?, a.tensor(1)?);
    let fine = |t: &Tensor| matches!(t.dtype(), DType::F16 | DType::F32 | DType::F64);
    ensure!(
        fine(re) && fine(im),
        Runtime,
        "Expected both inputs to be Half, Float or Double tensors but got {} and {}",
        re.dtype().scalar_type(),
        im.dtype().scalar_type()
    );
    ensure!(
        re.dtype() == im.dtype(),
        Runtime,
        "Expected object of scalar type {} but got scalar type {} for second argument",
        re.dtype().scalar_type(),
        im.dtype().scalar_type()
    );
    let operands = &a.values[..2];
    let (shape, strides) = result_layout(operands)?;
    Ok(Plan::one(shape, strides, re.dtype().to_complex()))
}

fn complex(a: &Args, outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    let strides: Dims = out.strides().iter().map(|s| s * 2).collect();
    for i in 0..2 {
        let part = out.reinterpret(
            out.dtype().to_real(),
            out.shape().clone(),
            strides.clone(),
            out.offset() * 2 + i as i64,
        );
        cpu::copy::copy(&part, a.tensor(i)?)?;
    }
    Ok(())
}

fn polar(a: &Args) -> Result<Ret> {
    let (r, angle) = (a.tensor(0)?, a.tensor(1)?);
    let fine = |t: &Tensor| matches!(t.dtype(), DType::F32 | DType::F64);
    ensure!(
        fine(r) && fine(angle),
        Runtime,
        "Expected both inputs to be Half, Float or Double tensors but got {} and {}",
        r.dtype().scalar_type(),
        angle.dtype().scalar_type()
    );
    ensure!(
        r.dtype() == angle.dtype(),
        Runtime,
        "Expected object of scalar type {} but got scalar type {} for second argument",
        r.dtype().scalar_type(),
        angle.dtype().scalar_type()
    );
    let re = run1!("mul", r, &run1!("cos", angle)?)?;
    let im = run1!("mul", r, &run1!("sin", angle)?)?;
    run!("complex", &re, &im)
}

fn cross_default(a: &Args) -> Result<Ret> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    let dim = match a.opt_int(2) {
        Some(d) => d,
        None => match x.shape().iter().position(|&d| d == 3) {
            Some(d) if x.ndim() == y.ndim() => d as i64,
            None => bail!(Runtime, "no dimension of size 3 in input"),
            Some(_) => bail!(
                Runtime,
                "linalg.cross: inputs must have the same number of dimensions."
            ),
        },
    };
    run!("linalg.cross", x, y, dim)
}

fn infer_cross(a: &Args) -> Result<Plan> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(
        x.ndim() == y.ndim(),
        Runtime,
        "linalg.cross: inputs must have the same number of dimensions."
    );
    let dim = a.int(2)?;
    let d = wrap_dim(dim, x.ndim())?;
    let size = |t: &Tensor| t.shape().get(d).copied().unwrap_or(1);
    ensure!(
        size(x) == 3 && size(y) == 3,
        Runtime,
        "linalg.cross: inputs dimension {dim} must have length 3. Got {} and {}",
        size(x),
        size(y)
    );
    let shape = dims::broadcast(x.shape(), y.shape())?;
    Ok(Plan::contiguous(
        &shape,
        crate::ops::pointwise::rule::result_type(&a.values[..2])?,
    ))
}

fn cross(a: &Args, outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    let d = wrap_dim(a.int(2)?, out.ndim())?;
    let compute = if out.dtype().is_reduced_float() {
        DType::F32
    } else {
        out.dtype()
    };
    let (x, y) = (
        cpu::copy::dense(a.tensor(0)?, compute)?,
        cpu::copy::dense(a.tensor(1)?, compute)?,
    );
    for i in 0..3 {
        let (j, k) = ((i + 1) % 3, (i + 2) % 3);
        let part = run1!(
            "sub",
            &run1!("mul", &x.selected(d, j), &y.selected(d, k))?,
            &run1!("mul", &x.selected(d, k), &y.selected(d, j))?
        )?;
        cpu::copy::copy(&out.selected(d, i), &part)?;
    }
    Ok(())
}

/// Powers 0 to n - 1 along a new last dimension; integers become 64-bit ones.
fn powers(x: &Tensor, n: i64, increasing: bool) -> Result<Ret> {
    let x = if x.dtype().is_integral(true) {
        x.to_dtype(DType::I64)?
    } else {
        x.clone()
    };
    let mut list = Vec::new();
    if n > 0 {
        list.push(run1!("ones_like", &x)?);
    }
    for i in 1..n {
        let next = run1!("mul", &list[i as usize - 1], &x)?;
        list.push(next);
    }
    if !increasing {
        list.reverse();
    }
    if list.is_empty() {
        return run!("new_empty", &x, x.shape().concat(&[0]));
    }
    crate::ops::core::dispatch::run(crate::op!("stack")?, &[(&list).into(), (-1i64).into()])
}

fn vander(a: &Args) -> Result<Ret> {
    let x = a.tensor(0)?;
    ensure!(
        x.ndim() == 1,
        Runtime,
        "x must be a one-dimensional tensor."
    );
    let n = a.opt_int(1).unwrap_or(x.shape()[0]);
    ensure!(n >= 0, Runtime, "N must be non-negative.");
    powers(x, n, a.bool(2))
}

fn linalg_vander(a: &Args) -> Result<Ret> {
    let x = a.tensor(0)?;
    let x = if x.ndim() == 0 {
        run1!("unsqueeze", x, -1i64)?
    } else {
        x.clone()
    };
    let n = a.opt_int(1).unwrap_or(x.shape()[x.ndim() - 1]);
    ensure!(n > 1, Runtime, "N must be greater than 1.");
    powers(&x, n, true)
}
