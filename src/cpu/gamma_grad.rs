//! How gamma and Dirichlet samples change with their parameters: implicit derivatives, approximated in pieces.
//!
//! Sources: Figurnov, Mohamed and Mnih, "Implicit reparameterization gradients" (2018), whose derivative `-(dF/da) / p`
//! the pieces stand for; series for small arguments, a saddle point expansion (Rice, 1972) for large ones, and PyTorch's
//! rational fits between them.

use super::vmath64::digamma;

/// Zero in place of what is no number.
fn known(v: f64) -> f64 {
    if v.is_nan() { 0.0 } else { v }
}

fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| c + x * sum)
}

/// The derivative of a gamma sample `x` by its shape `alpha`.
#[must_use]
pub fn standard_gamma(alpha: f64, x: f64) -> f64 {
    if x < 0.8 {
        return small_gamma(alpha, x);
    }
    if alpha > 8.0 {
        return large_gamma(alpha, x);
    }
    const FIT: [[f64; 8]; 3] = [
        [
            0.16009398,
            -0.094634809,
            0.025146376,
            -0.0030648343,
            1.0,
            0.32668115,
            0.10406089,
            0.0014179084,
        ],
        [
            0.53487893,
            0.1298071,
            0.065735949,
            -0.0015649758,
            0.16639465,
            0.020070113,
            -0.0035938915,
            -0.00058392623,
        ],
        [
            0.040121004,
            -0.0065914022,
            -0.0026286047,
            -0.0013441777,
            0.017050642,
            -0.0021309326,
            0.00085092367,
            -1.5247877e-07,
        ],
    ];
    let (u, v) = ((x / alpha).ln(), alpha.ln());
    let c: [f64; 8] = std::array::from_fn(|i| polynomial(&[FIT[0][i], FIT[1][i], FIT[2][i]], u));
    (polynomial(&c[..4], v) / polynomial(&c[4..], v)).exp()
}

/// By the series of the incomplete gamma function.
fn small_gamma(alpha: f64, x: f64) -> f64 {
    let (mut term, mut below) = (1.0, alpha);
    let (mut first, mut second) = (term / below, term / (below * below));
    for i in 1..=5 {
        term *= -x / f64::from(i);
        below += 1.0;
        first += term / below;
        second += term / (below * below);
    }
    let power = x.powf(alpha);
    let density = x.powf(alpha - 1.0) * (-x).exp();
    let share = power * first;
    let change = (x.ln() - digamma(alpha)) * share - power * second;
    known(-change / density)
}

/// By the saddle point expansion, which is singular at the mean.
fn large_gamma(alpha: f64, x: f64) -> f64 {
    if 0.9 * alpha <= x && x <= 1.1 * alpha {
        let first = 1.0 + 24.0 * alpha * (1.0 + 12.0 * alpha);
        let second = 1440.0 * (alpha * alpha) + 6.0 * x * (53.0 - 120.0 * x) - 65.0 * x * x / alpha
            + alpha * (107.0 + 3600.0 * x);
        return first * second / (1_244_160.0 * (alpha * alpha) * (alpha * alpha));
    }
    let below = (8.0 * alpha).sqrt();
    let away = alpha - x;
    let linear = below / away;
    let power = (x - alpha - alpha * (x / alpha).ln()).powf(-1.5);
    let both = if x < alpha {
        linear - power
    } else {
        linear + power
    };
    let sum = (x / alpha).ln() * both - (2.0 / alpha).sqrt() * (alpha + x) / (away * away);
    let stirling = 1.0 + 1.0 / (12.0 * alpha) * (1.0 + 1.0 / (24.0 * alpha));
    -stirling * (x * sum) / below
}

/// The derivative of a Dirichlet sample `x` by its parameter `alpha`, where all parameters sum up to `total`.
#[must_use]
pub fn dirichlet(x: f64, alpha: f64, total: f64) -> f64 {
    let beta = total - alpha;
    let edge = total * x * (1.0 - x);
    if x <= 0.5 && edge < 2.5 {
        return small_beta_by_alpha(x, alpha, beta);
    }
    if x >= 0.5 && edge < 0.75 {
        return -small_beta_by_beta(1.0 - x, beta, alpha);
    }
    if alpha > 6.0 && beta > 6.0 {
        return middle_beta(x, alpha, beta);
    }
    fitted_beta(x, alpha, total)
}

/// The fit of `fitted_beta`: above and below the line, by powers of u, a and b.
const BETA_FIT: [[[[f64; 4]; 3]; 3]; 2] = [
    [
        [
            [1.003668233, -0.01061107488, -0.0657888334, 0.01201642863],
            [0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033],
            [
                -0.03276231906,
                0.004474107445,
                0.002429354597,
                -0.0001557569013,
            ],
        ],
        [
            [0.221950385, -0.3187676331, 0.01799915743, 0.01074823814],
            [-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057],
            [
                0.02155310298,
                0.004170831599,
                0.001292462449,
                6.976601077e-05,
            ],
        ],
        [
            [
                -0.05980841433,
                0.008441916499,
                0.01085618172,
                0.002319392565,
            ],
            [
                0.02911413504,
                0.01400243777,
                -0.002721828457,
                0.000751041181,
            ],
            [
                0.005900514878,
                -0.001936558688,
                -9.495446725e-06,
                5.385558597e-05,
            ],
        ],
    ],
    [
        [
            [1.0, -0.02924021934, -0.04438342661, 0.007285809825],
            [0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521],
            [
                -0.03301322327,
                0.004845219414,
                0.00231480583,
                -0.0002307248149,
            ],
        ],
        [
            [0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273],
            [
                0.1014815858,
                -0.06589186703,
                0.01272886114,
                -0.0007316646956,
            ],
            [
                -0.007258481865,
                0.001096195486,
                0.0003934994223,
                -4.12701925e-05,
            ],
        ],
        [
            [
                0.06469649321,
                -0.0236701437,
                0.002902096474,
                -5.896963079e-05,
            ],
            [
                0.001925008108,
                -0.002869809258,
                0.0008000589141,
                -6.063713228e-05,
            ],
            [
                -0.0003477407336,
                6.959756487e-05,
                1.097287507e-05,
                -1.650964693e-06,
            ],
        ],
    ],
];

/// A rational correction of an approximation in digamma functions.
fn fitted_beta(x: f64, alpha: f64, total: f64) -> f64 {
    let u = x.ln();
    let a = alpha.ln() - u;
    let b = total.ln() - a;
    let value = |fit: &[[[f64; 4]; 3]; 3]| {
        let by_u: [f64; 3] = std::array::from_fn(|i| {
            let by_a: [f64; 3] = std::array::from_fn(|j| polynomial(&fit[i][j], b));
            polynomial(&by_a, a)
        });
        polynomial(&by_u, u)
    };
    let near = x * (digamma(total) - digamma(alpha)) / (total - alpha);
    value(&BETA_FIT[0]) / value(&BETA_FIT[1]) * near
}

/// The derivative of a beta sample near 0 by `alpha`.
fn small_beta_by_alpha(x: f64, alpha: f64, beta: f64) -> f64 {
    let factor = digamma(alpha) - digamma(alpha + beta) - x.ln();
    let mut term = 1.0;
    let mut series = term / alpha * (factor + 1.0 / alpha);
    for i in 1..=10 {
        let i = f64::from(i);
        term *= (i - beta) * x / i;
        let below = alpha + i;
        series += term / below * (factor + 1.0 / below);
    }
    known(x * (1.0 - x).powf(-beta) * series)
}

/// The derivative of a beta sample near 0 by `beta`.
fn small_beta_by_beta(x: f64, alpha: f64, beta: f64) -> f64 {
    let factor = digamma(alpha + beta) - digamma(beta);
    let (mut term, mut product, mut change) = (1.0, 1.0, 0.0);
    let mut series = factor / alpha;
    for i in 1..=8 {
        let i = f64::from(i);
        term *= -x / i;
        change = change * (beta - i) + product;
        product *= beta - i;
        series += term / (alpha + i) * (change + factor * product);
    }
    known(-(1.0 - x).powf(1.0 - beta) * series)
}

/// The derivative of a beta sample by `alpha` where both parameters are large: a saddle point expansion, singular at the mean.
fn middle_beta(x: f64, alpha: f64, beta: f64) -> f64 {
    let total = alpha + beta;
    let mean = alpha / total;
    let deviation = (alpha * beta / (total + 1.0)).sqrt() / total;
    if mean - 0.1 * deviation <= x && x <= mean + 0.1 * deviation {
        let square = beta * beta;
        let inner = [
            47.0 * x * square * square,
            (43.0 + 20.0 * (16.0 + 27.0 * beta) * x) * square * beta,
            3.0 * (59.0 + 180.0 * beta - 90.0 * x) * square,
            (453.0 + 1620.0 * beta * (1.0 - x) - 455.0 * x) * beta,
            8.0 * (1.0 - x) * (135.0 * beta - 11.0),
        ];
        let above = (1.0 + 12.0 * alpha) * (1.0 + 12.0 * beta) / (total * total);
        let below = 12_960.0 * alpha * alpha * alpha * square * (1.0 + 12.0 * total);
        return above / (1.0 - x) * polynomial(&inner, alpha) / below;
    }
    let stirling = |v: f64| 1.0 + 1.0 / (12.0 * v) + 1.0 / (288.0 * v * v);
    let scale = stirling(alpha) * stirling(beta) / stirling(total)
        * (-x / (2.0 * alpha * beta / total).sqrt());
    let away = alpha * (x - 1.0) + beta * x;
    let first = (2.0 * (alpha * alpha) * (x - 1.0) + alpha * beta * (x - 1.0) - x * (beta * beta))
        / ((2.0 * alpha / beta).sqrt() * total.powf(1.5) * away * away);
    let half = 0.5 * (alpha / (total * x)).ln();
    let third = (8.0 * alpha * beta / total).sqrt() / away;
    let power =
        (beta * (beta / (total * (1.0 - x))).ln() + alpha * (alpha / (total * x)).ln()).powf(-1.5);
    let last = if x < mean { power } else { -power };
    scale * (first + half * (third + last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::incomplete_gamma::igamma;

    #[test]
    fn samples_move_as_their_distribution_does() {
        for alpha in [0.5, 2.0, 7.5, 20.0, 300.0] {
            for q in [0.4, 0.8, 0.97, 1.3, 1.9] {
                let x = q * alpha;
                let h = 1e-4 * alpha;
                let by_alpha =
                    (igamma(alpha + h, x, false) - igamma(alpha - h, x, false)) / (2.0 * h);
                let by_x = (igamma(alpha, x + h, false) - igamma(alpha, x - h, false)) / (2.0 * h);
                if by_x < 1e-6 {
                    continue;
                }
                let want = -by_alpha / by_x;
                let got = standard_gamma(alpha, x);
                assert!((got / want - 1.0).abs() < 5e-3, "{alpha} {x}: {got} {want}");
            }
        }
    }
}
