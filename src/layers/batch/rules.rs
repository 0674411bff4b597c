//! How rows run on whole batches: by what the row says of itself, or derived from it.

use super::{Levels, aligned, differs, example, single, with_sizes};
use crate::dims::wrap_dim;
use crate::layers::autograd::gather;
use crate::ops::batch;
use crate::ops::core::op::{Batch, Body, Hidden};
use crate::ops::core::schema::{Kind, Param};
use crate::ops::{Arg, Args, Call, Op, OwnedArg, OwnedArgs, Ret, Value, dispatch, f};
use crate::{DType, Dims, ErrorKind, Result, Tensor, bail};

/// The parameters that name dimensions.
const DIMENSIONS: [&str; 8] = [
    "dim",
    "dims",
    "dim0",
    "dim1",
    "dim2",
    "dimension",
    "source",
    "destination",
];

/// A call of examples.
struct Examples<'c, 'a> {
    c: &'c Call<'c, 'a>,
    levels: &'c Levels,
    /// How many dimensions are out of sight.
    k: usize,
}

/// Checks one example by the row's own rule: what is right of a whole batch may be wrong of an example.
///
/// # Errors
/// What the rule reports; of examples whose values have to be known it knows nothing.
pub fn check_example(args: &Args) -> Result<()> {
    let Body::Kernel(k) = &args.op.def.body else {
        return Ok(());
    };
    match (k.run)(args, &mut |_, _| Ok(Ret::Value(Value::None))) {
        Err(e) if !matches!(e.kind(), ErrorKind::Shape | ErrorKind::Data) => Err(e),
        _ => Ok(()),
    }
}

/// Runs a call of examples as one of whole batches.
///
/// # Errors
/// What the calls report.
pub fn run(c: &Call, levels: &Levels) -> Result<Ret> {
    let op = c.args.op;
    let k = levels.len();
    let examples = Examples { c, levels, k };
    let pointwise = matches!(&op.def.body, Body::Kernel(k) if k.traits.pointwise);
    let target = examples.target();
    // What runs for each example is checked there.
    if !pointwise && !matches!(op.def.batch, Batch::Each) {
        check_example(c.args)?;
    }
    let made = match op.def.batch {
        Batch::Lead => Some(examples.call(&examples.whole(0)?)?),
        Batch::Broadcasting(own) => Some(examples.call(&examples.broadcasting(own)?)?),
        Batch::As(f) => examples.other(f)?,
        Batch::Fold(n) => examples.fold(n)?,
        Batch::Each => None,
        Batch::Shared(mask) if examples.differ(mask) => None,
        Batch::Shared(mask) => examples.by_dimension(mask, 0)?,
        Batch::Inserting => examples.by_dimension(0, 1)?,
        Batch::Together => return examples.call(&examples.whole(0)?),
        Batch::Pointwise => Some(examples.pointwise(target.is_none())?),
        Batch::Unknown => return Err(batch::dynamic(op.public_name())),
        Batch::Derived if pointwise => Some(examples.pointwise(false)?),
        Batch::Derived => examples.by_dimension(0, 0)?,
    };
    match made {
        Some(Ret::Same(0)) if target.is_some() => Ok(Ret::Same(0)),
        Some(made) => example(made, levels),
        None => single::looped(c, levels),
    }
}

impl Examples<'_, '_> {
    fn op(&self) -> &'static Op {
        self.c.args.op
    }

    fn target(&self) -> Option<&Tensor> {
        self.c.form.target()
    }

    /// The number of dimensions of the first tensor, as it is seen.
    fn ndim(&self) -> usize {
        let mut first = None;
        self.c.args.for_each_tensor(|_, t| {
            first.get_or_insert(t.ndim());
        });
        first.unwrap_or(0)
    }

    /// The most dimensions that a tensor has beside its own, of which `own` tells how many for each place.
    fn widest(&self, own: &[usize]) -> usize {
        let mut widest = 0;
        self.c.args.for_each_tensor(|i, t| {
            let own = own.get(i).copied().unwrap_or(0);
            widest = widest.max(t.ndim().saturating_sub(own));
        });
        widest
    }

    /// Rows whose operands broadcast all but their own last dimensions: those out of sight come before what any operand has more.
    fn broadcasting(&self, own: &[usize]) -> Result<OwnedArgs> {
        let widest = self.widest(own);
        let mut args = self.c.args.to_owned();
        args.replace_tensors(|i, t| {
            let mut whole = aligned(t, self.levels, true)?;
            let has = t.ndim().saturating_sub(own.get(i).copied().unwrap_or(0));
            for _ in has..widest {
                whole = f::unsqueeze(&whole, self.k as i64)?;
            }
            Ok(Some(whole))
        })?;
        Ok(args)
    }

    /// The arguments with each tensor changed, but for those in some places (bits).
    fn each(
        &self,
        but: u16,
        mut change: impl FnMut(&Tensor) -> Result<Tensor>,
    ) -> Result<OwnedArgs> {
        let mut args = self.c.args.to_owned();
        args.replace_tensors(|i, t| {
            let same = i < 16 && but & 1 << i != 0;
            (!same).then(|| change(t)).transpose()
        })?;
        Ok(args)
    }

    /// All tensors as whole batches, but for those in some places.
    fn whole(&self, but: u16) -> Result<OwnedArgs> {
        self.each(but, |t| aligned(t, self.levels, true))
    }

    /// True if a tensor in some places differs from example to example.
    fn differ(&self, places: u16) -> bool {
        let mut differ = false;
        self.c.args.for_each_tensor(|i, t| {
            differ |= i < 16 && places & 1 << i != 0 && differs(t, self.levels);
        });
        differ
    }

    /// The row, of whole batches, in the form it was called in.
    fn call(&self, args: &OwnedArgs) -> Result<Ret> {
        let args = args.borrow();
        let form = self.c.form.again(&args)?;
        Ok(match dispatch::call(Call { args: &args, form })? {
            Ret::Same(i) if self.target().is_none() => Ret::One(args.tensor(i)?.clone()),
            ret => ret,
        })
    }

    /// Another call, whose result is written if this one is in place.
    fn other(&self, f: fn(&Args, Hidden) -> Result<Option<Ret>>) -> Result<Option<Ret>> {
        let mut differ = 0;
        self.c.args.for_each_tensor(|i, t| {
            if i < 16 && differs(t, self.levels) {
                differ |= 1 << i;
            }
        });
        let args = self.whole(!differ)?;
        let args = args.borrow();
        let made = match f(&args, Hidden { k: self.k, differ })? {
            None => return Ok(None),
            Some(Ret::Same(i)) => Ret::One(args.tensor(i)?.clone()),
            Some(made) => made,
        };
        let Some(target) = self.target() else {
            return Ok(Some(made));
        };
        if matches!(self.op().def.body, Body::View(_)) {
            return Ok(Some(Ret::Become(Box::new(made.one()?))));
        }
        let target = aligned(target, self.levels, true)?;
        let made = made.one()?;
        let grows = matches!(&self.op().def.body, Body::Kernel(k) if k.traits.grows);
        if grows && made.shape() != target.shape() {
            bail!(
                Runtime,
                "vmap: {}_ would give another shape to a tensor that is being vmapped over",
                self.op().public_name()
            );
        }
        let written = gather::written(&target, &made)?;
        Ok(Some(Ret::Become(Box::new(written))))
    }

    /// Pointwise rows: examples of fewer dimensions get the missing ones after those out of sight. `shapes`: the first operand gives
    /// the result its shape.
    fn pointwise(&self, shapes: bool) -> Result<Ret> {
        let widest = self.widest(&[]);
        let dtype = self.dtype_of_dimensions();
        let target = self.target();
        let mut first = true;
        let args = self.each(0, |t| {
            let first = std::mem::take(&mut first);
            let written = first && target.is_some();
            // Beside examples that are numbers, a number that is the same for all counts as they do.
            if !(differs(t, self.levels) || first && shapes) && widest > 0 {
                return Ok(t.clone());
            }
            let mut whole = aligned(t, self.levels, first && shapes)?;
            if let (Some(d), 0, false) = (dtype, t.ndim(), written)
                && (t.dtype().category() as u8) <= d.category() as u8
                && t.dtype() != d
                && t.dtype() != DType::Bool
            {
                whole = f::to_dtype(&whole, d)?;
            }
            for _ in t.ndim()..widest {
                whole = f::unsqueeze(&whole, self.k as i64)?;
            }
            Ok(whole)
        })?;
        let made = self.call(&args)?;
        if target.is_some() {
            return Ok(made);
        }
        // Dimensions of size 1 stand where all operands are the same for a level; none where only what is not read differs.
        made.map(|_, t| {
            let lead = if t.ndim() < self.k + widest {
                0
            } else {
                self.k
            };
            let shape = with_sizes(self.levels, &t.shape()[lead..]);
            if t.shape() == &shape {
                Ok(t)
            } else {
                f::expand(&t, &shape[..])
            }
        })
    }

    /// The type that operands with dimensions have together, which those without do not change if they are of no higher kind.
    fn dtype_of_dimensions(&self) -> Option<DType> {
        let mut found = None;
        self.c.args.for_each_tensor(|_, t| {
            if t.ndim() > 0 && t.dtype() != DType::Bool {
                found = match found {
                    None => Some(t.dtype()),
                    Some(d) => crate::dtype::promote(d, t.dtype()),
                };
            }
        });
        found
    }

    /// Rows that name dimensions: theirs come after those out of sight. Nothing if the row names none. `more`: how many dimensions
    /// the result has more, which count.
    fn by_dimension(&self, shared: u16, more: usize) -> Result<Option<Ret>> {
        let params = &self.op().schema.params;
        let names = |p: &Param| {
            let kind = matches!(
                p.kind,
                Kind::Int | Kind::Ints | Kind::IntsOf(_) | Kind::VarInts | Kind::OptInts
            );
            kind && DIMENSIONS.contains(&p.name)
        };
        if !params.iter().any(names) {
            return Ok(None);
        }
        let ndim = self.ndim();
        // An example that is a number has one dimension for the time of the call.
        let number = ndim + more == 0;
        if number && self.widest(&[]) > 0 {
            return Ok(None);
        }
        let mut args = self.each(shared, |t| {
            let whole = aligned(t, self.levels, true)?;
            if number && t.ndim() == 0 {
                f::unsqueeze(&whole, self.k as i64)
            } else {
                Ok(whole)
            }
        })?;
        let count = (ndim + more).max(1);
        // Reductions over no dimensions are over all of them.
        let reduces = self.op().schema.position("keepdim").is_some();
        let shift = |d: i64| wrap_dim(d, count).map(|d| (d + self.k) as i64);
        for (p, v) in params.iter().zip(&mut args.values) {
            if !names(p) {
                continue;
            }
            let OwnedArg::Plain(value) = v else { continue };
            *value = match &*value {
                Arg::Int(d) => Arg::Int(shift(*d)?),
                Arg::Ints(list) if !list.is_empty() || !reduces => {
                    let each = list.iter().map(|d| shift(*d)).collect::<Result<Vec<_>>>()?;
                    Arg::Ints(Dims::new(&each))
                }
                Arg::None | Arg::Ints(_) if p.kind == Kind::Int => return self.flat().map(Some),
                _ => {
                    let all = (0..ndim.max(1)).map(|d| (d + self.k) as i64);
                    Arg::Ints(Dims::new(&all.collect::<Vec<_>>()))
                }
            };
        }
        let made = self.call(&args)?;
        if !number {
            return Ok(Some(made));
        }
        made.map(|_, t| {
            if t.ndim() > self.k {
                f::squeeze_dim(&t, self.k as i64)
            } else {
                Ok(t)
            }
        })
        .map(Some)
    }

    /// Over all elements of each example: of one dimension that has them all.
    fn flat(&self) -> Result<Ret> {
        let mut args = self.each(0, |t| self.flattened(t))?;
        for (p, v) in self.op().schema.params.iter().zip(&mut args.values) {
            if p.name == "dim" {
                *v = OwnedArg::Plain(Arg::Int(self.k as i64));
            }
        }
        self.call(&args)
    }

    fn flattened(&self, t: &Tensor) -> Result<Tensor> {
        let shape = with_sizes(self.levels, &[t.numel()]);
        f::reshape(&aligned(t, self.levels, true)?, &shape[..])
    }

    /// Rows whose tensors have batches of their own: the examples join them.
    fn fold(&self, last: usize) -> Result<Option<Ret>> {
        let mut own = None;
        let mut fits = self.target().is_none();
        self.c.args.for_each_tensor(|_, t| {
            fits &= t.ndim() == last || t.ndim() == last + 1;
            if t.ndim() == last + 1 {
                own = Some(t.shape()[0]);
            }
        });
        if !fits {
            return Ok(None);
        }
        // An example without a batch of its own is one of them.
        let mut lone = false;
        self.c.args.for_each_tensor(|_, t| lone |= t.ndim() == last);
        let first = with_sizes(self.levels, own.filter(|_| !lone).as_slice());
        let joined = Dims::from([first.iter().product()]);
        let args = self.each(0, |t| {
            let whole = aligned(t, self.levels, true)?;
            f::reshape(
                &whole,
                &joined.concat(&whole.shape()[whole.ndim() - last..])[..],
            )
        })?;
        self.call(&args)?
            .map(|_, t| f::reshape(&t, &first.concat(&t.shape()[1..])[..]))
            .map(Some)
    }
}
