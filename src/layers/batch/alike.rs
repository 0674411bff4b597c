//! Examples that are all the same. What a transform inside of `vmap` differentiates is apart for each example, so that gradients are, even if
//! its values are not; who reads values alone is given one of them.

use super::levels;
use crate::ops::core::op::{Body, Grad};
use crate::ops::core::schema::Returns;
use crate::ops::{Args, Call, Form, OwnedArgs, Ret, dispatch};
use crate::{Result, Tensor, mode};
use smallvec::SmallVec;

/// True if the values of a tensor differ from example to example of a level.
pub fn varies(t: &Tensor, level: u32) -> bool {
    t.batch().iter().any(|d| d.level == level && !d.alike)
}

/// Whether an argument's examples are alike at some level.
pub fn any(args: &Args) -> bool {
    let mut found = false;
    args.for_each_tensor(|_, t| found |= t.batch().iter().any(|d| d.alike));
    found
}

/// Whether the values of an argument differ from example to example of a level.
pub fn differ(args: &Args, level: u32) -> bool {
    let mut found = false;
    args.for_each_tensor(|_, t| found |= varies(t, level));
    found
}

/// Makes a call, some of whose arguments are alike: of those that only their values matter of, for one of them. Its results are alike where no
/// argument differs, and one for all if they are no numbers that gradients go through.
///
/// # Errors
/// What the call reports.
pub fn call(c: Call, run: impl FnOnce(Call) -> Result<Ret>) -> Result<Ret> {
    if let Some(args) = written_once(&c)? {
        let args = args.borrow();
        let form = c.form.again(&args)?;
        dispatch::call(Call { args: &args, form })?;
        return Ok(Ret::Same(0));
    }
    let Some(args) = settled(&c)? else {
        return marked(c, run);
    };
    let args = args.borrow();
    let form = c.form.again(&args)?;
    marked(Call { args: &args, form }, run)
}

/// Makes a call, and notes what is alike of its results.
fn marked(c: Call, run: impl FnOnce(Call) -> Result<Ret>) -> Result<Ret> {
    let mut alike: SmallVec<[u32; 2]> = levels(c.args).iter().map(|l| l.0).collect();
    alike.retain(|l| !differ(c.args, *l));
    let fresh = matches!(c.form, Form::New)
        && matches!(c.args.op.def.body, Body::Kernel(_))
        && !is_factory(c.args);
    let made = run(c)?;
    if alike.is_empty() {
        return Ok(made);
    }
    made.map(|_, t| {
        let (d, t) = (t.dtype(), t.alike_at(&alike));
        let whole = fresh && !d.is_float() && !d.is_complex();
        Ok(whole.then(|| t.settled()).flatten().unwrap_or(t))
    })
}

/// True for a row that makes something like its argument, for somebody to write in.
fn is_factory(args: &Args) -> bool {
    args.op.schema.position("device").is_some()
}

/// The arguments of one example of a write to examples that are all the same, by what is the same for all: they lie at one place. None
/// for any other call, and where somebody wants to know of the write.
fn written_once(c: &Call) -> Result<Option<OwnedArgs>> {
    let Form::InPlace(target) = &c.form else {
        return Ok(None);
    };
    let mut each = !target.batch().is_empty() && matches!(c.args.op.def.body, Body::Kernel(_));
    c.args.for_each_tensor(|_, t| {
        let recorded = t.requires_grad() && mode::grad_enabled() || !t.tangents().is_empty();
        each &= t.batch().iter().all(|d| d.alike) && !recorded;
    });
    each &= target.batch().iter().all(|d| d.stride == 0 || d.size == 1);
    if !each {
        return Ok(None);
    }
    let mut args = c.args.to_owned();
    args.replace_tensors(|_, t| Ok(t.settled()))?;
    Ok(Some(args))
}

/// The arguments, with the first example in place of those whose values are read by a row without gradients, or written to another
/// tensor without history; None where the call does neither.
fn settled(c: &Call) -> Result<Option<OwnedArgs>> {
    let (def, schema) = (&c.args.op.def, &c.args.op.schema);
    let reads = match &def.body {
        Body::Kernel(_) | Body::Compose(_) => {
            let never = matches!(def.grad, Grad::Zero | Grad::Refused);
            never && !is_factory(c.args) || matches!(schema.returns, Returns::Value(_))
        }
        _ => false,
    };
    let written = match &def.body {
        Body::Kernel(k) => k.traits.mutates | u16::from(c.form.target().is_some()),
        _ => 0,
    };
    if !reads && written == 0 {
        return Ok(None);
    }
    let history =
        |t: &Tensor| t.requires_grad() && mode::grad_enabled() || !t.tangents().is_empty();
    let mut args = c.args.to_owned();
    args.replace_tensors(|i, t| {
        let stays = i < 16 && written & 1 << i != 0;
        let read = reads || !history(t);
        Ok((read && !stays).then(|| t.settled()).flatten())
    })?;
    Ok(Some(args))
}
