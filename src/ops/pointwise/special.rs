//! Special functions: rows over the double-precision formulas of `cpu/special.rs`.

use crate::cpu::map::Ctx;
use crate::cpu::special::{self, Family};
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, FMIO, I, M, O, OpDef, old_compose};
use crate::ops::pointwise::rule::{float, same};
use crate::{DType, Result, ensure, map_op, map_row, run};
use torchlike_macros::operators;

map_op!(Entr, 1, [heavy] | x, c | special::entr(f64::from(x)) as T);
map_op!(Erfcx, 1, [heavy] | x, c | special::erfcx(f64::from(x)) as T);
map_op!(Ndtr, 1, [heavy] | x, c | special::ndtr(f64::from(x)) as T);
map_op!(Ndtri, 1, [heavy] | x, c | special::ndtri(f64::from(x)) as T);
map_op!(
    LogNdtr,
    1,
    [heavy] | x,
    c | special::log_ndtr(f64::from(x)) as T
);
map_op!(
    I0,
    1,
    [heavy] | x,
    c | special::bessel_i(0, f64::from(x)) as T
);
map_op!(
    I0e,
    1,
    [heavy] | x,
    c | special::bessel_ie(0, f64::from(x)) as T
);
map_op!(
    I1,
    1,
    [heavy] | x,
    c | special::bessel_i(1, f64::from(x)) as T
);
map_op!(
    I1e,
    1,
    [heavy] | x,
    c | special::bessel_ie(1, f64::from(x)) as T
);
map_op!(
    AiryAi,
    1,
    [heavy] | x,
    c | special::airy_ai(f64::from(x)) as T
);
map_op!(J0, 1, [heavy] | x, c | libm::j0(f64::from(x)) as T);
map_op!(J1, 1, [heavy] | x, c | libm::j1(f64::from(x)) as T);
map_op!(Y0, 1, [heavy] | x, c | libm::y0(f64::from(x)) as T);
map_op!(Y1, 1, [heavy] | x, c | libm::y1(f64::from(x)) as T);
map_op!(
    Mi0,
    1,
    [heavy] | x,
    c | special::bessel_i(0, f64::from(x)) as T
);
map_op!(
    Mi1,
    1,
    [heavy] | x,
    c | special::bessel_i(1, f64::from(x)) as T
);
map_op!(
    K0,
    1,
    [heavy] | x,
    c | special::bessel_k(0.0, f64::from(x)) as T
);
map_op!(
    K1,
    1,
    [heavy] | x,
    c | special::bessel_k(1.0, f64::from(x)) as T
);
map_op!(
    K0e,
    1,
    [heavy] | x,
    c | special::bessel_ke(0.0, f64::from(x)) as T
);
map_op!(
    K1e,
    1,
    [heavy] | x,
    c | special::bessel_ke(1.0, f64::from(x)) as T
);
map_op!(
    Sj0,
    1,
    [heavy] | x,
    c | special::spherical_j0(f64::from(x)) as T
);
map_op!(
    Polygamma,
    1,
    [heavy] | x,
    c | special::polygamma(c.i[0], f64::from(x), size_of::<T>() == 4) as T
);
map_op!(
    Zeta,
    2,
    [heavy] | x,
    y,
    c | special::zeta(f64::from(x), f64::from(y)) as T
);
map_op!(
    Igamma,
    2,
    [heavy] | x,
    y,
    c | special::igamma(f64::from(x), f64::from(y), false) as T
);
map_op!(
    Igammac,
    2,
    [heavy] | x,
    y,
    c | special::igamma(f64::from(x), f64::from(y), true) as T
);
map_op!(
    ChebT,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::Chebyshev(1, 0),
        f64::from(x),
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    ChebU,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::Chebyshev(2, 0),
        f64::from(x),
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    ChebV,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::Chebyshev(2, -1),
        f64::from(x),
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    ChebW,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::Chebyshev(2, 1),
        f64::from(x),
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    SChebT,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::Chebyshev(1, 0),
        2.0 * f64::from(x) - 1.0,
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    SChebU,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::Chebyshev(2, 0),
        2.0 * f64::from(x) - 1.0,
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    SChebV,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::Chebyshev(2, -1),
        2.0 * f64::from(x) - 1.0,
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    SChebW,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::Chebyshev(2, 1),
        2.0 * f64::from(x) - 1.0,
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    HermH,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::HermiteH,
        f64::from(x),
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    HermHe,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::HermiteHe,
        f64::from(x),
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    Lag,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::Laguerre,
        f64::from(x),
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);
map_op!(
    Leg,
    2,
    [heavy] | x,
    y,
    c | special::polynomial(
        Family::Legendre,
        f64::from(x),
        f64::from(y),
        if size_of::<T>() == 4 { 128 } else { 512 }
    ) as T
);

fn order_ctx(a: &Args, _: DType) -> Result<Ctx> {
    let mut ctx = Ctx::default();
    ctx.i[0] = a.int(1)?;
    Ok(ctx)
}

/// `polygamma` with its arguments in the order of the method.
fn polygamma(x: &crate::Tensor, n: i64) -> Result<crate::ops::core::op::Ret> {
    ensure!(
        n >= 0,
        Runtime,
        "polygamma(n, x) does not support negative n."
    );
    if n == 0 {
        run!("digamma", x)
    } else {
        run!("_polygamma", x, n)
    }
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Entr "special.entr", 1, float, F | O, "", "(Tensor self)", "-x log x."),
    map_row!(Erfcx "special.erfcx", 1, float, F | O, "", "(Tensor self)", "exp(x^2) erfc(x)."),
    map_row!(Ndtr "special.ndtr", 1, float, F | O, "", "(Tensor self)", "The normal distribution function."),
    map_row!(Ndtri "special.ndtri", 1, float, F | O, "", "(Tensor self)", "The inverse of the normal distribution function."),
    map_row!(LogNdtr "special.log_ndtr", 1, float, F | O, "", "(Tensor self)", "The logarithm of the normal distribution function."),
    map_row!(I0 "i0", 1, float, FMIO, "", "(Tensor self)", "The modified Bessel function of the first kind and order 0."),
    map_row!(I0e "special.i0e", 1, float, F | O, "", "(Tensor self)", "i0(x) exp(-|x|)."),
    map_row!(I1 "special.i1", 1, float, F | O, "", "(Tensor self)", "The modified Bessel function of the first kind and order 1."),
    map_row!(I1e "special.i1e", 1, float, F | O, "", "(Tensor self)", "i1(x) exp(-|x|)."),
    map_row!(AiryAi "special.airy_ai", 1, float, F | O, "", "(Tensor self)", "The Airy function Ai."),
    map_row!(J0 "special.bessel_j0", 1, float, F | O, "", "(Tensor self)", "The Bessel function of the first kind and order 0."),
    map_row!(J1 "special.bessel_j1", 1, float, F | O, "", "(Tensor self)", "The Bessel function of the first kind and order 1."),
    map_row!(Y0 "special.bessel_y0", 1, float, F | O, "", "(Tensor self)", "The Bessel function of the second kind and order 0."),
    map_row!(Y1 "special.bessel_y1", 1, float, F | O, "", "(Tensor self)", "The Bessel function of the second kind and order 1."),
    map_row!(Mi0 "special.modified_bessel_i0", 1, float, F | O, "", "(Tensor self)", "The modified Bessel function of the first kind and order 0."),
    map_row!(Mi1 "special.modified_bessel_i1", 1, float, F | O, "", "(Tensor self)", "The modified Bessel function of the first kind and order 1."),
    map_row!(K0 "special.modified_bessel_k0", 1, float, F | O, "", "(Tensor self)", "The modified Bessel function of the second kind and order 0."),
    map_row!(K1 "special.modified_bessel_k1", 1, float, F | O, "", "(Tensor self)", "The modified Bessel function of the second kind and order 1."),
    map_row!(K0e "special.scaled_modified_bessel_k0", 1, float, F | O, "", "(Tensor self)", "k0(x) exp(x)."),
    map_row!(K1e "special.scaled_modified_bessel_k1", 1, float, F | O, "", "(Tensor self)", "k1(x) exp(x)."),
    map_row!(Sj0 "special.spherical_bessel_j0", 1, float, F | O, "", "(Tensor self)", "The spherical Bessel function of order 0."),
    old_compose(
        "polygamma",
        "(int n, Tensor self)",
        F | O,
        |a| polygamma(a.tensor(1)?, a.int(0)?),
        "The n-th derivative of the digamma function.",
    ),
    old_compose(
        "polygamma#method",
        "(Tensor self, int n)",
        M | I,
        |a| polygamma(a.tensor(0)?, a.int(1)?),
        "The n-th derivative of the digamma function.",
    ),
    map_row!(Polygamma "_polygamma", 1, float, order_ctx, F, "", "(Tensor self, int n)", ""),
    map_row!(Zeta "special.zeta", 2, float, F | O, "", "(Tensor self, Operand other)", "Hurwitz' zeta function."),
    map_row!(Zeta "special.zeta#scalar", 2, float, F | O, "", "(Scalar self, Tensor other)", "Hurwitz' zeta function."),
    map_row!(Igamma "igamma", 2, same, FMIO, "", "(Tensor self, Tensor other)", "The regularised lower incomplete gamma function."),
    map_row!(Igammac "igammac", 2, same, FMIO, "", "(Tensor self, Tensor other)", "The regularised upper incomplete gamma function."),
    map_row!(ChebT "special.chebyshev_polynomial_t", 2, float, F | O, "", "(Tensor x, Operand n)", "The chebyshev polynomial t of degree n."),
    map_row!(ChebT "special.chebyshev_polynomial_t#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The chebyshev polynomial t of degree n."),
    map_row!(ChebU "special.chebyshev_polynomial_u", 2, float, F | O, "", "(Tensor x, Operand n)", "The chebyshev polynomial u of degree n."),
    map_row!(ChebU "special.chebyshev_polynomial_u#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The chebyshev polynomial u of degree n."),
    map_row!(ChebV "special.chebyshev_polynomial_v", 2, float, F | O, "", "(Tensor x, Operand n)", "The chebyshev polynomial v of degree n."),
    map_row!(ChebV "special.chebyshev_polynomial_v#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The chebyshev polynomial v of degree n."),
    map_row!(ChebW "special.chebyshev_polynomial_w", 2, float, F | O, "", "(Tensor x, Operand n)", "The chebyshev polynomial w of degree n."),
    map_row!(ChebW "special.chebyshev_polynomial_w#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The chebyshev polynomial w of degree n."),
    map_row!(SChebT "special.shifted_chebyshev_polynomial_t", 2, float, F | O, "", "(Tensor x, Operand n)", "The shifted chebyshev polynomial t of degree n."),
    map_row!(SChebT "special.shifted_chebyshev_polynomial_t#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The shifted chebyshev polynomial t of degree n."),
    map_row!(SChebU "special.shifted_chebyshev_polynomial_u", 2, float, F | O, "", "(Tensor x, Operand n)", "The shifted chebyshev polynomial u of degree n."),
    map_row!(SChebU "special.shifted_chebyshev_polynomial_u#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The shifted chebyshev polynomial u of degree n."),
    map_row!(SChebV "special.shifted_chebyshev_polynomial_v", 2, float, F | O, "", "(Tensor x, Operand n)", "The shifted chebyshev polynomial v of degree n."),
    map_row!(SChebV "special.shifted_chebyshev_polynomial_v#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The shifted chebyshev polynomial v of degree n."),
    map_row!(SChebW "special.shifted_chebyshev_polynomial_w", 2, float, F | O, "", "(Tensor x, Operand n)", "The shifted chebyshev polynomial w of degree n."),
    map_row!(SChebW "special.shifted_chebyshev_polynomial_w#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The shifted chebyshev polynomial w of degree n."),
    map_row!(HermH "special.hermite_polynomial_h", 2, float, F | O, "", "(Tensor x, Operand n)", "The hermite polynomial h of degree n."),
    map_row!(HermH "special.hermite_polynomial_h#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The hermite polynomial h of degree n."),
    map_row!(HermHe "special.hermite_polynomial_he", 2, float, F | O, "", "(Tensor x, Operand n)", "The hermite polynomial he of degree n."),
    map_row!(HermHe "special.hermite_polynomial_he#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The hermite polynomial he of degree n."),
    map_row!(Lag "special.laguerre_polynomial_l", 2, float, F | O, "", "(Tensor x, Operand n)", "The laguerre polynomial l of degree n."),
    map_row!(Lag "special.laguerre_polynomial_l#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The laguerre polynomial l of degree n."),
    map_row!(Leg "special.legendre_polynomial_p", 2, float, F | O, "", "(Tensor x, Operand n)", "The legendre polynomial p of degree n."),
    map_row!(Leg "special.legendre_polynomial_p#scalar", 2, float, F | O, "", "(Scalar x, Tensor n)", "The legendre polynomial p of degree n."),
];
