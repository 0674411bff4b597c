//! Special functions: rows over the double-precision formulas of `cpu/special.rs`.

use crate::cpu::map::Ctx;
use crate::cpu::math::RealFns as _;
use crate::cpu::polynomials::{Family, Type, polynomial};
use crate::cpu::{incomplete_gamma, special, vmath64};
use crate::ops::core::op::{F, FMIO, I, J, M, O, OpDef, Ret, compose};
use crate::ops::f;
use crate::ops::pointwise::rule::{float, same};
use crate::{DType, Result, Tensor, ensure, map_op, map_row};
use torchlike_macros::operators;

map_op! { Entr, 1, [heavy] |x, c| special::entr(f64::from(x)) as T }
map_op! { Erfcx, 1, [heavy] |x, c| special::erfcx(f64::from(x)) as T }
map_op! { Ndtr, 1, [float] |x, c| x.ndtr_() }
map_op! { Ndtri, 1, [float] |x, c| vmath64::ndtri(f64::from(x)) as T }
map_op! { LogNdtr, 1, [float] |x, c| vmath64::log_ndtr(f64::from(x)) as T }
map_op! { I0, 1, [float] |x, c| vmath64::i0(f64::from(x)) as T }
map_op! { I0e, 1, [float] |x, c| vmath64::i0e(f64::from(x)) as T }
map_op! { I1, 1, [float] |x, c| vmath64::i1(f64::from(x)) as T }
map_op! { I1e, 1, [float] |x, c| vmath64::i1e(f64::from(x)) as T }
map_op! { AiryAi, 1, [heavy] |x, c| special::airy_ai(f64::from(x)) as T }
map_op! { J0, 1, [heavy] |x, c| special::bessel_jy(libm::j0, f64::from(x)) as T }
map_op! { J1, 1, [heavy] |x, c| special::bessel_jy(libm::j1, f64::from(x)) as T }
map_op! { Y0, 1, [heavy] |x, c| special::bessel_jy(libm::y0, f64::from(x)) as T }
map_op! { Y1, 1, [heavy] |x, c| special::bessel_jy(libm::y1, f64::from(x)) as T }
map_op! { K0, 1, [float] |x, c| vmath64::k0(f64::from(x)) as T }
map_op! { K1, 1, [float] |x, c| vmath64::k1(f64::from(x)) as T }
map_op! { K0e, 1, [float] |x, c| vmath64::k0e(f64::from(x)) as T }
map_op! { K1e, 1, [float] |x, c| vmath64::k1e(f64::from(x)) as T }
map_op! { Sj0, 1, [heavy] |x, c| special::spherical_j0(f64::from(x)) as T }
map_op! { Polygamma, 1, [heavy] |x, c| special::polygamma(c.i[0], f64::from(x), size_of::<T>() == 4) as T }
map_op! { Zeta, 2, [heavy] |x, y, c| special::zeta(f64::from(x), f64::from(y)) as T }
map_op! { Igamma, 2, [heavy] |x, y, c| incomplete_gamma::igamma(f64::from(x), f64::from(y), false) as T }
map_op! { Igammac, 2, [heavy] |x, y, c| incomplete_gamma::igamma(f64::from(x), f64::from(y), true) as T }
fn plain(x: f64) -> f64 {
    x
}

/// From 0..1 to -1..1.
fn shifted(x: f64) -> f64 {
    2.0 * x - 1.0
}

/// What polynomials have to know of a type of elements.
fn of_type<T>() -> Type {
    let (hermite, largest) = match size_of::<T>() {
        4 => (128, f64::from(f32::MAX)),
        _ => (512, f64::MAX),
    };
    Type { hermite, largest }
}

macro_rules! polynomials {
    ($($N:ident $family:expr, $argument:ident;)+) => {$(
        map_op!($N, 2, [heavy] |x, n, c| polynomial(
            $family,
            $argument(f64::from(x)),
            f64::from(n),
            of_type::<T>(),
        ) as T);
    )+};
}

polynomials! {
    ChebT Family::Chebyshev(1, 0), plain;
    ChebU Family::Chebyshev(2, 0), plain;
    ChebV Family::Chebyshev(2, -1), plain;
    ChebW Family::Chebyshev(2, 1), plain;
    SChebT Family::Chebyshev(1, 0), shifted;
    SChebU Family::Chebyshev(2, 0), shifted;
    SChebV Family::Chebyshev(2, -1), shifted;
    SChebW Family::Chebyshev(2, 1), shifted;
    HermH Family::HermiteH, plain;
    HermHe Family::HermiteHe, plain;
    Lag Family::Laguerre, plain;
    Leg Family::Legendre, plain;
}

map_op! { Mvlgamma, 1, [heavy] |x, c| special::mvlgamma(f64::from(x), c.i[0], |v| rounded(v, c.i[1])) as T }

/// An integer for the loop.
fn integer(n: i64) -> Ctx {
    let mut ctx = Ctx::default();
    ctx.i[0] = n;
    ctx
}

/// A number as what [`dimension`] notes.
fn rounded(v: f64, kind: i64) -> f64 {
    match kind {
        0 => v,
        1 => f64::from(v as f32),
        2 => half::bf16::from_f64(v).to_f64(),
        _ => half::f16::from_f64(v).to_f64(),
    }
}

fn dimension(a: &calls::_Mvlgamma, compute: DType) -> Result<Ctx> {
    ensure!(
        a.input.dtype() != DType::Bool,
        Runtime,
        "The input tensor may not be a boolean tensor."
    );
    ensure!(a.p >= 1, Runtime, "p has to be greater than or equal to 1");
    let mut ctx = integer(a.p);
    ctx.i[1] = match compute {
        DType::F64 => 0,
        DType::BF16 => 2,
        DType::F16 => 3,
        _ => 1,
    };
    Ok(ctx)
}

/// `polygamma` with its arguments in the order of the method.
fn polygamma(x: &Tensor, n: i64) -> Result<Tensor> {
    ensure!(
        n >= 0,
        Runtime,
        "polygamma(n, x) does not support negative n."
    );
    f::_polygamma(x, n)
}

/// `ndtr` as the operators that its gradient is made of.
fn ndtr(a: &calls::SpecialNdtr) -> Result<Ret> {
    let x = if a.input.dtype().is_float() {
        a.input.clone()
    } else {
        f::to_dtype(a.input, crate::mode::default_dtype())?
    };
    let scaled = f::_mul_number(&x, std::f64::consts::FRAC_1_SQRT_2)?;
    let one_more = f::_add_number(&f::erf(&scaled)?, 1i64)?;
    f::_mul_number(&one_more, 0.5).map(Ret::One)
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Entr "special.entr", 1, float, F | O, "a != a ? a : a > T(0) ? -a * log(a) : a == T(0) ? T(0) : -T(INF_D)", "(Tensor self)", "-x log x.").grad("self: grad * where(self.isnan(), self, -(self.log() + 1)); jvp: pointwise"),
    map_row!(Erfcx "special.erfcx", 1, float, F | O, "erfcx(a)", "(Tensor self)", "exp(x^2) erfc(x).").grad("self: (2.0 * self * result - 1.1283791670955126) * grad; jvp: pointwise"),
    map_row!(Ndtr "special.ndtr", 1, float, F | O, "normcdf(a)", "(Tensor self)", "The normal distribution function.").through(typed!(ndtr)),
    map_row!(Ndtri "special.ndtri", 1, float, F | O, "normcdfinv(a)", "(Tensor self)", "The inverse of the normal distribution function.").grad("self: grad * 2.5066282746310002 * (result.square() / 2).exp(); jvp: pointwise"),
    map_row!(LogNdtr "special.log_ndtr", 1, float, F | O, "", "(Tensor self)", "The logarithm of the normal distribution function.").grad("self: grad / special.erfcx(self * -0.7071067811865476) * 0.7978845608028654; jvp: pointwise"),
    map_row!(I0 "i0", 1, float, FMIO | J, "cyl_bessel_i0(a)", "(Tensor self)", "The modified Bessel function of the first kind and order 0.").grad("self: grad * special.i1(self); jvp: pointwise"),
    map_row!(I0e "special.i0e", 1, float, F | O, "", "(Tensor self)", "i0(x) exp(-|x|).").grad("self: grad * (special.i1e(self) - self.sgn() * result); jvp: pointwise"),
    map_row!(I1 "special.i1", 1, float, F | O, "cyl_bessel_i1(a)", "(Tensor self)", "The modified Bessel function of the first kind and order 1.").grad("self: _grad.i1(grad, self, result); jvp: pointwise"),
    map_row!(I1e "special.i1e", 1, float, F | O, "", "(Tensor self)", "i1(x) exp(-|x|).").grad("self: _grad.i1e(grad, self, result); jvp: pointwise"),
    map_row!(AiryAi "special.airy_ai", 1, float, F | O, "", "(Tensor x)", "The Airy function Ai.").no_grad(),
    map_row!(J0 "special.bessel_j0", 1, float, F | O, "j0(a)", "(Tensor self)", "The Bessel function of the first kind and order 0.").no_grad(),
    map_row!(J1 "special.bessel_j1", 1, float, F | O, "j1(a)", "(Tensor self)", "The Bessel function of the first kind and order 1.").no_grad(),
    map_row!(Y0 "special.bessel_y0", 1, float, F | O, "y0(a)", "(Tensor self)", "The Bessel function of the second kind and order 0.").no_grad(),
    map_row!(Y1 "special.bessel_y1", 1, float, F | O, "y1(a)", "(Tensor self)", "The Bessel function of the second kind and order 1.").no_grad(),
    map_row!(I0 "special.modified_bessel_i0", 1, float, F | O, "", "(Tensor self)", "The modified Bessel function of the first kind and order 0.").no_grad(),
    map_row!(I1 "special.modified_bessel_i1", 1, float, F | O, "", "(Tensor self)", "The modified Bessel function of the first kind and order 1.").no_grad(),
    map_row!(K0 "special.modified_bessel_k0", 1, float, F | O, "", "(Tensor self)", "The modified Bessel function of the second kind and order 0.").no_grad(),
    map_row!(K1 "special.modified_bessel_k1", 1, float, F | O, "", "(Tensor self)", "The modified Bessel function of the second kind and order 1.").no_grad(),
    map_row!(K0e "special.scaled_modified_bessel_k0", 1, float, F | O, "", "(Tensor x)", "k0(x) exp(x).").no_grad(),
    map_row!(K1e "special.scaled_modified_bessel_k1", 1, float, F | O, "", "(Tensor x)", "k1(x) exp(x).").no_grad(),
    map_row!(Sj0 "special.spherical_bessel_j0", 1, float, F | O, "", "(Tensor x)", "The spherical Bessel function of order 0.").no_grad(),
    compose(
        "polygamma",
        "(int n, Tensor self)",
        F | O,
        |a| polygamma(a.input, a.n),
        "The n-th derivative of the digamma function.",
    ).alike(0b10)
    .samples("5, f64[3, 4]; 1, b8[5, 5]"),
    compose(
        "polygamma#method",
        "(Tensor self, int n)",
        M | I,
        |a| polygamma(a.input, a.n),
        "The n-th derivative of the digamma function.",
    ).alike(1)
    .samples("f32[3].pos, 1"),
    map_row!(Polygamma "_polygamma", 1, float, typed!(|a, _| Ok(integer(a.n)), DType), 0, "", "(Tensor self, int n)", "").samples("f32[3].pos, 2").grad("PolygammaBackward0 | self: grad * polygamma(n + 1, self); jvp: pointwise"),
    compose(
        "mvlgamma",
        "(Tensor self, int p)",
        FMIO,
        |a| f::_mvlgamma(&a.input.contiguous()?, a.p),
        "The logarithm of the multivariate gamma function.",
    ).samples("f32[3, 4], 1; f32[3, 4], p=1"),
    map_row!(Mvlgamma "_mvlgamma", 1, float, typed!(dimension, DType), 0, "", "(Tensor self, int p)", "The logarithm of the multivariate gamma function.").samples("f32([3, 4.5]), 2").grad("MvlgammaBackward0 | self: _grad.mvlgamma(grad, self, p)"),
    map_row!(Zeta "special.zeta", 2, float, F | O, "", "(Tensor self, Operand other)", "Hurwitz' zeta function.").grad("self: refused('zeta'); other: grad * -self * special.zeta(self + 1.0, other)"),
    map_row!(Zeta "special.zeta#scalar", 2, float, F | O, "", "(Scalar self, Tensor other)", "Hurwitz' zeta function.").grad("SpecialZetaBackward1 | other: grad * -self * special.zeta(self + 1.0, other)"),
    map_row!(Igamma "igamma", 2, same, FMIO, "", "(Tensor self, Tensor other)", "The regularised lower incomplete gamma function.").grad("self: refused('igamma: input'); other: grad * exp((self - 1) * log(other) - other - lgamma(self))"),
    map_row!(Igammac "igammac", 2, same, FMIO, "", "(Tensor self, Tensor other)", "The regularised upper incomplete gamma function.").grad("self: refused('igammac: input'); other: -grad * exp((self - 1) * log(other) - other - lgamma(self))"),
    map_row!(ChebT "special.chebyshev_polynomial_t", 2, float, F | O, "", "(Tensor x, Operand n)", "The chebyshev polynomial t of degree n.").no_grad(),
    map_row!(ChebT "special.chebyshev_polynomial_t#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The chebyshev polynomial t of degree n.").no_grad(),
    map_row!(ChebU "special.chebyshev_polynomial_u", 2, float, F | O, "", "(Tensor x, Operand n)", "The chebyshev polynomial u of degree n.").no_grad(),
    map_row!(ChebU "special.chebyshev_polynomial_u#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The chebyshev polynomial u of degree n.").no_grad(),
    map_row!(ChebV "special.chebyshev_polynomial_v", 2, float, F | O, "", "(Tensor x, Operand n)", "The chebyshev polynomial v of degree n.").no_grad(),
    map_row!(ChebV "special.chebyshev_polynomial_v#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The chebyshev polynomial v of degree n.").no_grad(),
    map_row!(ChebW "special.chebyshev_polynomial_w", 2, float, F | O, "", "(Tensor x, Operand n)", "The chebyshev polynomial w of degree n.").no_grad(),
    map_row!(ChebW "special.chebyshev_polynomial_w#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The chebyshev polynomial w of degree n.").no_grad(),
    map_row!(SChebT "special.shifted_chebyshev_polynomial_t", 2, float, F | O, "", "(Tensor x, Operand n)", "The shifted chebyshev polynomial t of degree n.").no_grad(),
    map_row!(SChebT "special.shifted_chebyshev_polynomial_t#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The shifted chebyshev polynomial t of degree n.").no_grad(),
    map_row!(SChebU "special.shifted_chebyshev_polynomial_u", 2, float, F | O, "", "(Tensor x, Operand n)", "The shifted chebyshev polynomial u of degree n.").no_grad(),
    map_row!(SChebU "special.shifted_chebyshev_polynomial_u#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The shifted chebyshev polynomial u of degree n.").no_grad(),
    map_row!(SChebV "special.shifted_chebyshev_polynomial_v", 2, float, F | O, "", "(Tensor x, Operand n)", "The shifted chebyshev polynomial v of degree n.").no_grad(),
    map_row!(SChebV "special.shifted_chebyshev_polynomial_v#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The shifted chebyshev polynomial v of degree n.").no_grad(),
    map_row!(SChebW "special.shifted_chebyshev_polynomial_w", 2, float, F | O, "", "(Tensor x, Operand n)", "The shifted chebyshev polynomial w of degree n.").no_grad(),
    map_row!(SChebW "special.shifted_chebyshev_polynomial_w#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The shifted chebyshev polynomial w of degree n.").no_grad(),
    map_row!(HermH "special.hermite_polynomial_h", 2, float, F | O, "", "(Tensor x, Operand n)", "The hermite polynomial h of degree n.").no_grad(),
    map_row!(HermH "special.hermite_polynomial_h#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The hermite polynomial h of degree n.").no_grad(),
    map_row!(HermHe "special.hermite_polynomial_he", 2, float, F | O, "", "(Tensor x, Operand n)", "The hermite polynomial he of degree n.").no_grad(),
    map_row!(HermHe "special.hermite_polynomial_he#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The hermite polynomial he of degree n.").no_grad(),
    map_row!(Lag "special.laguerre_polynomial_l", 2, float, F | O, "", "(Tensor x, Operand n)", "The laguerre polynomial l of degree n.").no_grad(),
    map_row!(Lag "special.laguerre_polynomial_l#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The laguerre polynomial l of degree n.").no_grad(),
    map_row!(Leg "special.legendre_polynomial_p", 2, float, F | O, "", "(Tensor x, Operand n)", "The legendre polynomial p of degree n.").no_grad(),
    map_row!(Leg "special.legendre_polynomial_p#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The legendre polynomial p of degree n.").no_grad(),
];
