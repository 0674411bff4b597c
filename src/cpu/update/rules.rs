//! What each optimizer does to one element, in the operations and with the roundings of PyTorch's.

use super::number::{Number, Rounding, Stored};
use super::{States, Stepped, Update};

/// How the gradient and the parameter come into an update.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    /// Up the gradient instead of down.
    pub maximize: bool,
    /// Times the parameter, added to the gradient.
    pub decay: f64,
    /// Times this the parameter shrinks before the step.
    pub shrink: Option<f64>,
}

impl Entry {
    /// The parameter and the gradient that the update proper works with.
    #[inline(always)]
    fn enter<S: Stored, R: Rounding>(self, p: S::In, g: S::In) -> (S::In, S::In) {
        let g = if self.maximize { -g } else { g };
        let p = match self.shrink {
            Some(by) => R::r::<S>(p * S::In::of(by)),
            None => p,
        };
        if self.decay == 0.0 {
            return (p, g);
        }
        (p, R::r::<S>(p.fma(added::<S, R>(self.decay), g)))
    }
}

/// A number that is added, or times what is added: PyTorch has it in the type of the tensor. Factors stay as they are.
#[inline(always)]
fn added<S: Stored, R: Rounding>(v: f64) -> S::In {
    R::r::<S>(S::In::of(v))
}

/// The point between two numbers.
#[inline(always)]
fn lerp<S: Stored, R: Rounding>(x: S::In, y: S::In, weight: f64) -> S::In {
    R::r::<S>(if weight.abs() < 0.5 {
        S::In::of(weight).fma(y - x, x)
    } else {
        (x - y).fma(S::In::of(1.0) - S::In::of(weight), y)
    })
}

/// A running average of squares.
#[inline(always)]
fn squares<S: Stored, R: Rounding>(v: S::In, g: S::In, keep: f64) -> S::In {
    let kept = R::r::<S>(v * S::In::of(keep));
    R::r::<S>((S::In::of(1.0 - keep) * g).fma(g, kept))
}

/// `p + value * x / y`.
#[inline(always)]
fn addcdiv<S: Stored, R: Rounding>(p: S::In, x: S::In, y: S::In, value: f64) -> S::In {
    R::r::<S>(p + S::In::of(value) * x / y)
}

/// The larger; a NaN stays.
#[inline(always)]
fn larger<N: Number>(x: N, y: N) -> N {
    if x > y || x != x { x } else { y }
}

/// SGD; with momentum there is a state.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sgd<const MOMENTUM: bool> {
    pub entry: Entry,
    pub lr: f64,
    pub momentum: f64,
    pub dampening: f64,
    pub nesterov: bool,
    /// The momentum begins with this gradient.
    pub first: bool,
}

impl<const MOMENTUM: bool> Update for Sgd<MOMENTUM> {
    const STATES: usize = MOMENTUM as usize;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, s: States<S>) -> Stepped<S> {
        let (p, mut g) = self.entry.enter::<S, R>(p, g);
        let mut buffer = s[0];
        if MOMENTUM {
            let momentum = S::In::of(self.momentum);
            buffer = if self.first {
                g
            } else {
                R::r::<S>(g.fma(
                    added::<S, R>(1.0 - self.dampening),
                    R::r::<S>(buffer * momentum),
                ))
            };
            g = if self.nesterov {
                R::r::<S>(buffer.fma(added::<S, R>(self.momentum), g))
            } else {
                buffer
            };
        }
        let p = R::r::<S>(g.fma(added::<S, R>(-self.lr), p));
        (p, [buffer, s[1], s[2]])
    }
}

/// Adam and AdamW; with the largest average of squares as a third state.
#[derive(Clone, Copy, Default)]
pub(crate) struct Adam<const LARGEST: bool> {
    pub entry: Entry,
    pub betas: [f64; 2],
    pub eps: f64,
    /// The rate over the correction of the average.
    pub size: f64,
    /// The root of the correction of the average of squares.
    pub root: f64,
}

impl<const LARGEST: bool> Update for Adam<LARGEST> {
    const STATES: usize = 2 + LARGEST as usize;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, s: States<S>) -> Stepped<S> {
        let (p, g) = self.entry.enter::<S, R>(p, g);
        let m = lerp::<S, R>(s[0], g, 1.0 - self.betas[0]);
        let v = squares::<S, R>(s[1], g, self.betas[1]);
        let top = if LARGEST { larger(s[2], v) } else { v };
        let root = R::r::<S>(R::r::<S>(top.root()) / S::In::of(self.root));
        let root = R::r::<S>(root + added::<S, R>(self.eps));
        (addcdiv::<S, R>(p, m, root, -self.size), [m, v, top])
    }
}

/// Adagrad.
#[derive(Clone, Copy, Default)]
pub(crate) struct Adagrad {
    pub entry: Entry,
    /// The rate of this step.
    pub lr: f64,
    pub eps: f64,
}

impl Update for Adagrad {
    const STATES: usize = 1;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, s: States<S>) -> Stepped<S> {
        let (p, g) = self.entry.enter::<S, R>(p, g);
        let sum = R::r::<S>(g.fma(g, s[0]));
        let root = R::r::<S>(R::r::<S>(sum.root()) + added::<S, R>(self.eps));
        (addcdiv::<S, R>(p, g, root, -self.lr), [sum, s[1], s[2]])
    }
}

/// Adadelta.
#[derive(Clone, Copy, Default)]
pub(crate) struct Adadelta {
    pub entry: Entry,
    pub lr: f64,
    pub rho: f64,
    pub eps: f64,
}

impl Update for Adadelta {
    const STATES: usize = 2;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, s: States<S>) -> Stepped<S> {
        let (p, g) = self.entry.enter::<S, R>(p, g);
        let eps = added::<S, R>(self.eps);
        let root = |x: S::In| R::r::<S>(R::r::<S>(x + eps).root());
        let square = squares::<S, R>(s[0], g, self.rho);
        let delta = R::r::<S>(R::r::<S>(root(s[1]) / root(square)) * g);
        let deltas = squares::<S, R>(s[1], delta, self.rho);
        let p = R::r::<S>(delta.fma(added::<S, R>(-self.lr), p));
        (p, [square, deltas, s[2]])
    }
}

/// Adamax.
#[derive(Clone, Copy, Default)]
pub(crate) struct Adamax {
    pub entry: Entry,
    pub betas: [f64; 2],
    pub eps: f64,
    /// The rate over the correction of the average.
    pub size: f64,
}

impl Update for Adamax {
    const STATES: usize = 2;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, s: States<S>) -> Stepped<S> {
        let (p, g) = self.entry.enter::<S, R>(p, g);
        let m = lerp::<S, R>(s[0], g, 1.0 - self.betas[0]);
        let before = R::r::<S>(s[1] * S::In::of(self.betas[1]));
        let now = R::r::<S>(g.size() + added::<S, R>(self.eps));
        let largest = larger(before, now);
        (
            addcdiv::<S, R>(p, m, largest, -self.size),
            [m, largest, s[2]],
        )
    }
}

/// ASGD.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asgd {
    pub entry: Entry,
    pub lambd: f64,
    /// The rate of this step.
    pub eta: f64,
    /// How much of the way the average goes.
    pub mu: f64,
}

impl Update for Asgd {
    const STATES: usize = 1;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, s: States<S>) -> Stepped<S> {
        let (p, g) = self.entry.enter::<S, R>(p, g);
        let p = R::r::<S>(p * S::In::of(1.0 - self.lambd * self.eta));
        let p = R::r::<S>(g.fma(added::<S, R>(-self.eta), p));
        let average = if self.mu == 1.0 {
            p
        } else {
            let way = R::r::<S>(R::r::<S>(p - s[0]) * S::In::of(self.mu));
            R::r::<S>(s[0] + way)
        };
        (p, [average, s[1], s[2]])
    }
}

/// NAdam.
#[derive(Clone, Copy, Default)]
pub(crate) struct Nadam {
    pub entry: Entry,
    pub betas: [f64; 2],
    pub eps: f64,
    /// The correction of the average of squares.
    pub correction: f64,
    /// Times the gradient, and times the average.
    pub sizes: [f64; 2],
}

impl Update for Nadam {
    const STATES: usize = 2;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, s: States<S>) -> Stepped<S> {
        let (p, g) = self.entry.enter::<S, R>(p, g);
        let m = lerp::<S, R>(s[0], g, 1.0 - self.betas[0]);
        let v = squares::<S, R>(s[1], g, self.betas[1]);
        let root = R::r::<S>(R::r::<S>(v / S::In::of(self.correction)).root());
        let root = R::r::<S>(root + added::<S, R>(self.eps));
        let p = addcdiv::<S, R>(p, g, root, self.sizes[0]);
        (addcdiv::<S, R>(p, m, root, self.sizes[1]), [m, v, s[2]])
    }
}

/// RAdam.
#[derive(Clone, Copy, Default)]
pub(crate) struct Radam {
    pub entry: Entry,
    pub lr: f64,
    pub betas: [f64; 2],
    pub eps: f64,
    /// The correction of the average.
    pub correction: f64,
    /// The root of the correction of the average of squares, and what it is trusted, if that is enough.
    pub adaptive: Option<[f64; 2]>,
}

impl Update for Radam {
    const STATES: usize = 2;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, s: States<S>) -> Stepped<S> {
        let (p, g) = self.entry.enter::<S, R>(p, g);
        let m = lerp::<S, R>(s[0], g, 1.0 - self.betas[0]);
        let v = squares::<S, R>(s[1], g, self.betas[1]);
        let corrected = R::r::<S>(m / S::In::of(self.correction));
        let mut way = R::r::<S>(corrected * S::In::of(self.lr));
        if let Some([root, trust]) = self.adaptive {
            let size = R::r::<S>(R::r::<S>(v.root()) + added::<S, R>(self.eps));
            let scale = R::r::<S>(R::r::<S>(S::In::of(1.0) / size) * S::In::of(root));
            way = R::r::<S>(R::r::<S>(way * scale) * S::In::of(trust));
        }
        (R::r::<S>(p - way), [m, v, s[2]])
    }
}

/// RMSprop. The states are the average of squares, that of gradients if it is centred, and the momentum if there is one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rmsprop<const CENTERED: bool, const MOMENTUM: bool> {
    pub entry: Entry,
    pub lr: f64,
    pub alpha: f64,
    pub eps: f64,
    pub momentum: f64,
}

impl<const CENTERED: bool, const MOMENTUM: bool> Update for Rmsprop<CENTERED, MOMENTUM> {
    const STATES: usize = 1 + CENTERED as usize + MOMENTUM as usize;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, mut s: States<S>) -> Stepped<S> {
        let (p, g) = self.entry.enter::<S, R>(p, g);
        s[0] = squares::<S, R>(s[0], g, self.alpha);
        let mut spread = s[0];
        if CENTERED {
            s[1] = lerp::<S, R>(s[1], g, 1.0 - self.alpha);
            spread = R::r::<S>((-s[1]).fma(s[1], spread));
        }
        let root = R::r::<S>(R::r::<S>(spread.root()) + added::<S, R>(self.eps));
        if !MOMENTUM {
            return (addcdiv::<S, R>(p, g, root, -self.lr), s);
        }
        let k = 1 + CENTERED as usize;
        let kept = R::r::<S>(s[k] * S::In::of(self.momentum));
        s[k] = addcdiv::<S, R>(kept, g, root, 1.0);
        (R::r::<S>(s[k].fma(added::<S, R>(-self.lr), p)), s)
    }
}

/// Rprop. The states are the last gradient and the size of the step.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rprop {
    pub entry: Entry,
    /// Factors where the sign changed and where it did not.
    pub etas: [f64; 2],
    /// The least and the largest step.
    pub sizes: [f64; 2],
}

impl Update for Rprop {
    const STATES: usize = 2;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, s: States<S>) -> Stepped<S> {
        let (p, g) = self.entry.enter::<S, R>(p, g);
        let [zero, one] = [0.0, 1.0].map(S::In::of);
        let [down, up] = self.etas.map(added::<S, R>);
        let [least, most] = self.sizes.map(added::<S, R>);
        let agreement = R::r::<S>(g * s[0]);
        let falls = agreement < zero;
        let factor = if agreement > zero {
            up
        } else if falls {
            down
        } else {
            one // of NaN, too, whose sign is zero
        };
        let size = R::r::<S>(s[1] * factor);
        let size = if size < least { least } else { size };
        let size = if size > most { most } else { size };
        let g = if falls { zero } else { g };
        let way = if g > zero {
            size
        } else if g < zero {
            -size
        } else {
            zero
        };
        (R::r::<S>(p - way), [g, size, s[2]])
    }
}

/// Adafactor's direction: the gradient over the root of an average of squares. What is written is the direction; where the average
/// is kept by rows and columns, it holds their estimate before, and else the average is a state.
#[derive(Clone, Copy, Default)]
pub(crate) struct Adafactor<const FACTORED: bool> {
    pub entry: Entry,
    /// How much of the way the average goes.
    pub weight: f64,
    /// The least average.
    pub least: f64,
}

impl<const FACTORED: bool> Update for Adafactor<FACTORED> {
    const STATES: usize = !FACTORED as usize;
    #[inline(always)]
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, mut s: States<S>) -> Stepped<S> {
        let (estimate, g) = self.entry.enter::<S, R>(p, g);
        let mut average = estimate;
        if !FACTORED {
            s[0] = lerp::<S, R>(s[0], R::r::<S>(g * g), self.weight);
            average = s[0];
        }
        let root = larger(average, added::<S, R>(self.least)).root();
        (R::r::<S>(R::r::<S>(S::In::of(1.0) / root) * g), s)
    }
}
