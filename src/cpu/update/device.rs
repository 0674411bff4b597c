//! What each optimizer does to one element, for devices beside the host: the same operations as in `rules`, in their language.

use super::rules::{
    Adadelta, Adafactor, Adagrad, Adam, Adamax, Asgd, Nadam, Radam, Rmsprop, Rprop, Sgd,
};
use super::{Beside, Rule, Update};

/// The statements of all rules, and how many states they have.
pub(crate) fn texts() -> Vec<(&'static str, usize)> {
    fn of<U: Update + Default>() -> (&'static str, usize) {
        (U::default().device().text, U::STATES)
    }
    vec![
        of::<Adafactor<false>>(),
        of::<Adafactor<true>>(),
        of::<Sgd<false>>(),
        of::<Sgd<true>>(),
        of::<Adam<false>>(),
        of::<Adam<true>>(),
        of::<Adagrad>(),
        of::<Adadelta>(),
        of::<Adamax>(),
        of::<Asgd>(),
        of::<Nadam>(),
        of::<Radam>(),
        of::<Rmsprop<false, false>>(),
        of::<Rmsprop<true, false>>(),
        of::<Rmsprop<false, true>>(),
        of::<Rmsprop<true, true>>(),
        of::<Rprop>(),
    ]
}

/// The numbers of a rule for other devices.
fn numbers<const N: usize>(list: [f64; N]) -> [f64; 8] {
    let mut all = [0.0; 8];
    all[..N].copy_from_slice(&list);
    all
}

impl<const MOMENTUM: bool> Beside for Sgd<MOMENTUM> {
    fn device(&self) -> Rule {
        Rule {
            entry: self.entry,
            text: if MOMENTUM {
                "s0 = v[4] != 0 ? g : r(g * added(1 - v[2]) + r(s0 * V(v[1]))); \
                 g = v[3] != 0 ? r(s0 * added(v[1]) + g) : s0; p = r(g * added(-v[0]) + p);"
            } else {
                "p = r(g * added(-v[0]) + p);"
            },
            numbers: numbers([
                self.lr,
                self.momentum,
                self.dampening,
                f64::from(u8::from(self.nesterov)),
                f64::from(u8::from(self.first)),
            ]),
        }
    }
}

impl<const LARGEST: bool> Beside for Adam<LARGEST> {
    fn device(&self) -> Rule {
        Rule {
            entry: self.entry,
            text: if LARGEST {
                "s0 = lerp(s0, g, 1 - v[0]); s1 = squares(s1, g, v[1]); s2 = larger(s2, s1); \
                 p = addcdiv(p, s0, r(r(r(sqrt(s2)) / V(v[4])) + added(v[2])), -v[3]);"
            } else {
                "s0 = lerp(s0, g, 1 - v[0]); s1 = squares(s1, g, v[1]); \
                 p = addcdiv(p, s0, r(r(r(sqrt(s1)) / V(v[4])) + added(v[2])), -v[3]);"
            },
            numbers: numbers([self.betas[0], self.betas[1], self.eps, self.size, self.root]),
        }
    }
}

impl Beside for Adagrad {
    fn device(&self) -> Rule {
        Rule {
            entry: self.entry,
            text: "s0 = r(g * g + s0); p = addcdiv(p, g, r(r(sqrt(s0)) + added(v[1])), -v[0]);",
            numbers: numbers([self.lr, self.eps]),
        }
    }
}

impl Beside for Adadelta {
    fn device(&self) -> Rule {
        Rule {
            entry: self.entry,
            text: "s0 = squares(s0, g, v[1]); \
                   const V d = r(r(r(sqrt(r(s1 + added(v[2])))) / r(sqrt(r(s0 + added(v[2]))))) * g); \
                   s1 = squares(s1, d, v[1]); p = r(d * added(-v[0]) + p);",
            numbers: numbers([self.lr, self.rho, self.eps]),
        }
    }
}

impl Beside for Adamax {
    fn device(&self) -> Rule {
        Rule {
            entry: self.entry,
            text: "s0 = lerp(s0, g, 1 - v[0]); s1 = larger(r(s1 * V(v[1])), r(fabs(g) + added(v[2]))); \
                   p = addcdiv(p, s0, s1, -v[3]);",
            numbers: numbers([self.betas[0], self.betas[1], self.eps, self.size]),
        }
    }
}

impl Beside for Asgd {
    fn device(&self) -> Rule {
        Rule {
            entry: self.entry,
            text: "p = r(p * V(1 - v[0] * v[1])); p = r(g * added(-v[1]) + p); \
                   s0 = v[2] == 1 ? p : r(s0 + r(r(p - s0) * V(v[2])));",
            numbers: numbers([self.lambd, self.eta, self.mu]),
        }
    }
}

impl Beside for Nadam {
    fn device(&self) -> Rule {
        Rule {
            entry: self.entry,
            text: "s0 = lerp(s0, g, 1 - v[0]); s1 = squares(s1, g, v[1]); \
                   const V d = r(r(sqrt(r(s1 / V(v[3])))) + added(v[2])); \
                   p = addcdiv(p, g, d, v[4]); p = addcdiv(p, s0, d, v[5]);",
            numbers: numbers([
                self.betas[0],
                self.betas[1],
                self.eps,
                self.correction,
                self.sizes[0],
                self.sizes[1],
            ]),
        }
    }
}

impl Beside for Radam {
    fn device(&self) -> Rule {
        let [root, trust] = self.adaptive.unwrap_or([0.0, 0.0]);
        Rule {
            entry: self.entry,
            text: "s0 = lerp(s0, g, 1 - v[1]); s1 = squares(s1, g, v[2]); V way = r(r(s0 / V(v[4])) * V(v[0])); \
                   if (v[7] != 0) way = r(r(way * r(r(V(1) / r(r(sqrt(s1)) + added(v[3]))) * V(v[5]))) * V(v[6])); \
                   p = r(p - way);",
            numbers: [
                self.lr,
                self.betas[0],
                self.betas[1],
                self.eps,
                self.correction,
                root,
                trust,
                f64::from(u8::from(self.adaptive.is_some())),
            ],
        }
    }
}

impl<const CENTERED: bool, const MOMENTUM: bool> Beside for Rmsprop<CENTERED, MOMENTUM> {
    fn device(&self) -> Rule {
        Rule {
            entry: self.entry,
            text: match (CENTERED, MOMENTUM) {
                (false, false) => {
                    "s0 = squares(s0, g, v[1]); p = addcdiv(p, g, r(r(sqrt(s0)) + added(v[2])), -v[0]);"
                }
                (true, false) => {
                    "s0 = squares(s0, g, v[1]); s1 = lerp(s1, g, 1 - v[1]); \
                     p = addcdiv(p, g, r(r(sqrt(r(s0 - s1 * s1))) + added(v[2])), -v[0]);"
                }
                (false, true) => {
                    "s0 = squares(s0, g, v[1]); s1 = addcdiv(r(s1 * V(v[3])), g, r(r(sqrt(s0)) + added(v[2])), 1); \
                     p = r(s1 * added(-v[0]) + p);"
                }
                (true, true) => {
                    "s0 = squares(s0, g, v[1]); s1 = lerp(s1, g, 1 - v[1]); \
                     s2 = addcdiv(r(s2 * V(v[3])), g, r(r(sqrt(r(s0 - s1 * s1))) + added(v[2])), 1); p = r(s2 * added(-v[0]) + p);"
                }
            },
            numbers: numbers([self.lr, self.alpha, self.eps, self.momentum]),
        }
    }
}

impl Beside for Rprop {
    fn device(&self) -> Rule {
        Rule {
            entry: self.entry,
            text: "const V sign = r(g * s0); const bool falls = sign < V(0); \
                   V size = r(s1 * (sign > V(0) ? added(v[1]) : falls ? added(v[0]) : V(1))); \
                   if (size < added(v[2])) size = added(v[2]); if (size > added(v[3])) size = added(v[3]); \
                   if (falls) g = 0; p = r(p - (g > V(0) ? size : g < V(0) ? -size : V(0))); s0 = g; s1 = size;",
            numbers: numbers([self.etas[0], self.etas[1], self.sizes[0], self.sizes[1]]),
        }
    }
}

impl<const FACTORED: bool> Beside for Adafactor<FACTORED> {
    fn device(&self) -> Rule {
        Rule {
            entry: self.entry,
            text: if FACTORED {
                "p = r(r(V(1) / V(sqrt(larger(p, added(v[1]))))) * g);"
            } else {
                "s0 = lerp(s0, r(g * g), v[0]); p = r(r(V(1) / V(sqrt(larger(s0, added(v[1]))))) * g);"
            },
            numbers: numbers([self.weight, self.least]),
        }
    }
}
