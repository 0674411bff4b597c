//! The loop nest of a reduction: kept and reduced dimensions, merged and ordered by how memory lies.

use crate::{Tensor, dims};
use smallvec::SmallVec;

/// Kept and reduced dimensions of an input, innermost first, steps in bytes.
#[derive(Clone, Debug, Default)]
pub struct Nest {
    /// Size, step in the input, step in the result.
    pub kept: SmallVec<[(usize, isize, isize); 4]>,
    /// Size and step in the input.
    pub red: SmallVec<[(usize, isize); 4]>,
    /// Whether the second kept dimension lies within the first.
    pub turned: bool,
}

impl Nest {
    /// The nest of reducing `dims` of `input` into `out`, which has the kept dimensions (and perhaps the reduced
    /// ones with size 1).
    #[must_use]
    pub fn new(input: &Tensor, dims: &[usize], out: &Tensor) -> Self {
        let item = input.dtype().size() as isize;
        let out_item = out.dtype().size() as isize;
        let keepdim = out.ndim() == input.ndim();
        let mut nest = Self::default();
        let mut k = 0;
        for d in 0..input.ndim() {
            let (size, step) = (
                input.shape()[d] as usize,
                input.strides()[d] as isize * item,
            );
            if dims.contains(&d) {
                if size != 1 {
                    nest.red.push((size, step));
                }
            } else {
                let at = if keepdim { d } else { k };
                if size != 1 {
                    nest.kept
                        .push((size, step, out.strides()[at] as isize * out_item));
                }
                k += 1;
            }
        }
        nest.red.reverse();
        nest.kept.reverse();
        dims::settle(&mut nest.red, |d| apart(d.1));
        dims::settle(&mut nest.kept, |d| apart(d.1));
        let mut red: SmallVec<[(usize, isize); 4]> = SmallVec::new();
        for d in nest.red {
            match red.last_mut() {
                Some(last) if d.1 == last.1 * last.0 as isize => last.0 *= d.0,
                _ => red.push(d),
            }
        }
        if red.is_empty() {
            red.push((1, item));
        }
        let mut kept: SmallVec<[(usize, isize, isize); 4]> = SmallVec::new();
        for d in nest.kept {
            match kept.last_mut() {
                Some(last)
                    if d.1 == last.1 * last.0 as isize && d.2 == last.2 * last.0 as isize =>
                {
                    last.0 *= d.0
                }
                _ => kept.push(d),
            }
        }
        let mut nest = Self {
            kept,
            red,
            turned: false,
        };
        nest.turn();
        nest
    }

    /// Runs along the longest kept dimension where few results lie side by side that each take little work: less than what
    /// every run costs beside it.
    fn turn(&mut self) {
        const FEW: usize = 8;
        const LITTLE: usize = 256;
        let first = self.kept.first().map_or(FEW, |d| d.0);
        if first >= FEW || self.depth() >= LITTLE {
            return;
        }
        let longest = (0..self.kept.len()).max_by_key(|&k| self.kept[k].0);
        if let Some(longest) = longest.filter(|&k| self.kept[k].0 > first) {
            let run = self.kept.remove(longest);
            self.kept.insert(0, run);
            self.turned = true;
        }
    }

    /// How many results there are.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.kept.iter().map(|d| d.0).product()
    }

    /// How many elements each result is made of.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.red.iter().map(|d| d.0).product()
    }

    /// Whether to run along a reduced dimension; otherwise along a kept one.
    #[must_use]
    pub fn rows_first(&self) -> bool {
        match (self.kept.first(), self.red.first()) {
            // What is alone has no row.
            (Some(_), Some((1, _))) => false,
            (Some(k), Some(r)) => apart(r.1) < apart(k.1),
            _ => true,
        }
    }

    /// Byte offsets in the input and the result of the `t`-th run of the innermost kept dimension.
    #[must_use]
    pub fn place(&self, t: usize) -> (isize, isize) {
        let (mut i, mut o, mut rest) = (0, 0, t);
        for &(n, s, so) in self.kept.iter().skip(1) {
            i += (rest % n) as isize * s;
            o += (rest % n) as isize * so;
            rest /= n;
        }
        (i, o)
    }
}

/// How far a step leads: what repeats elements goes around all others.
fn apart(step: isize) -> usize {
    step.unsigned_abs().wrapping_sub(1)
}
