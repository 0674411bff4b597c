//! Automatic mixed precision: calls whose rows say so run in another type than their arguments have.
//!
//! The outermost layer: what the user calls is cast, not what that is made of. While such a call runs, autocast is off for its device.
//! Casts are calls like any other, so gradients flow back through them.

use super::{Layer, Next};
use crate::ops::core::op::Cast;
use crate::ops::{Args, Call, Form, OwnedArg, Ret, f};
use crate::tensor::Place;
use crate::{DType, DeviceKind, Result, Tensor, bail, err, mode};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Casts the arguments of calls.
pub struct Autocast;

/// The types of devices that autocast can be switched on for, and the low precision that each begins with.
pub const DEVICES: [(&str, DType); 10] = [
    ("cpu", DType::BF16),
    ("cuda", DType::F16),
    ("xpu", DType::F16),
    ("hpu", DType::BF16),
    ("ipu", DType::F16),
    ("xla", DType::BF16),
    ("mps", DType::F16),
    ("mtia", DType::F16),
    ("maia", DType::BF16),
    ("privateuseone", DType::F16),
];
const CPU: usize = 0;
const CUDA: usize = 1;

/// What is set on a thread.
#[derive(Clone, Copy)]
struct State {
    /// The devices it is on for (bits of [`DEVICES`]).
    on: u16,
    /// The low precision of each.
    low: [DType; DEVICES.len()],
    /// Whether casts of parameters are kept.
    keeps: bool,
    /// How many contexts are open.
    depth: i64,
}

impl State {
    const fn new() -> Self {
        let mut low = [DType::BF16; DEVICES.len()];
        let mut i = 0;
        while i < DEVICES.len() {
            low[i] = DEVICES[i].1;
            i += 1;
        }
        Self {
            on: 0,
            low,
            keeps: true,
            depth: 0,
        }
    }
}

/// Casts of leaves, by their place in the graph, which is held so that no other gets its address.
type Kept = HashMap<usize, (Place, Tensor)>;

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::new()) };
    static KEPT: RefCell<Kept> = RefCell::default();
}

fn change(f: impl FnOnce(&mut State)) {
    let mut state = STATE.get();
    f(&mut state);
    STATE.set(state);
    let bit = if state.on == 0 { 0 } else { mode::AUTOCAST };
    mode::set_layers(mode::layers() & !mode::AUTOCAST | bit);
}

/// Whether it is on for a device (its number in [`DEVICES`]) on this thread.
#[must_use]
pub fn is_on(device: usize) -> bool {
    STATE.get().on & 1 << device != 0
}

/// Switches it on or off for a device.
pub fn switch(device: usize, on: bool) {
    change(|s| s.on = s.on & !(1 << device) | u16::from(on) << device);
}

/// The low precision of a device.
#[must_use]
pub fn low(device: usize) -> DType {
    STATE.get().low[device]
}

/// Sets the low precision of a device.
pub fn set_low(device: usize, dtype: DType) {
    change(|s| s.low[device] = dtype);
}

/// Whether casts of leaves are kept until the outermost context is left.
#[must_use]
pub fn keeps() -> bool {
    STATE.get().keeps
}

/// Keeps casts of leaves from now on, or not.
pub fn set_keeps(keeps: bool) {
    change(|s| s.keeps = keeps);
}

/// Counts contexts: one more, or one less. Gives how many are open now.
pub fn nest(by: i64) -> i64 {
    change(|s| s.depth = s.depth.wrapping_add(by));
    STATE.get().depth
}

/// Forgets the casts that were kept.
pub fn forget() {
    // Dropped when nobody looks at the map any more: it may run other people's code.
    drop(KEPT.take());
}

/// Runs `f` with autocast off for every device.
pub fn without<R>(f: impl FnOnce() -> R) -> R {
    let _off = (STATE.get().on != 0).then(|| Off::of(u16::MAX));
    f()
}

/// Off for some devices until it is dropped.
struct Off(u16);

impl Off {
    fn of(devices: u16) -> Self {
        let before = STATE.get().on;
        change(|s| s.on &= !devices);
        Self(before)
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        change(|s| s.on = self.0);
    }
}

/// Where a tensor is, or will be once it is real.
fn device(t: &Tensor) -> Option<usize> {
    match t.device().kind {
        DeviceKind::Cpu => Some(CPU),
        DeviceKind::Cuda => Some(CUDA),
        DeviceKind::Meta => t.storage().is_sourced().then_some(CPU),
    }
}

fn is_cast(t: &Tensor, device: usize) -> bool {
    self::device(t) == Some(device) && t.dtype().is_float() && t.dtype() != DType::F64
}

impl Layer for Autocast {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        let amp = c.args.op.def.amp;
        let meant = [(CUDA, amp.cuda), (CPU, amp.cpu)]
            .into_iter()
            .find(|(device, cast)| {
                *cast != Cast::Kept && is_on(*device) && any_on(c.args, *device)
            });
        let Some((device, cast)) = meant else {
            return next.call(c);
        };
        let _off = Off::of(1 << device);
        // Only what makes new tensors is cast; forms that write are told their type by what they write to.
        if !matches!(c.form, Form::New) {
            return self.call(c, next);
        }
        let to = match cast {
            Cast::Kept => return self.call(c, next),
            Cast::Refused => return Err(refused()),
            Cast::Low => low(device),
            Cast::Single => DType::F32,
            Cast::Widest => widest(c.args, device)?,
            Cast::Result => return self.call_in_single(c, next, device),
        };
        let mut args = c.args.to_owned();
        let mut made = last_first(c.args, |t| converted(t, to, device))?.into_iter();
        args.replace_tensors(|_, _| Ok(made.next().flatten()))?;
        let args = args.borrow();
        let form = Form::New;
        self.call(Call { args: &args, form }, next)
    }
}

impl Autocast {
    /// Makes a call with single precision for its result, if it says no type.
    fn call_in_single(&self, c: Call, next: Next, device: usize) -> Result<Ret> {
        let mut first = None;
        c.args.for_each_tensor(|_, t| {
            first.get_or_insert(t);
        });
        match c.args.op.schema.position("dtype") {
            Some(at) if c.args.dtype(at).is_none() && first.is_some_and(|t| is_cast(t, device)) => {
                let mut args = c.args.to_owned();
                args.values[at] = OwnedArg::Plain(crate::ops::Arg::DType(DType::F32));
                let args = args.borrow();
                self.call(Call { args: &args, ..c }, next)
            }
            _ => self.call(c, next),
        }
    }
}

fn any_on(args: &Args, device: usize) -> bool {
    let mut any = false;
    args.for_each_tensor(|_, t| any |= self::device(t) == Some(device));
    any
}

/// The widest type of the tensors that are cast: the low precision, or single precision if one of them is that.
fn widest(args: &Args, device: usize) -> Result<DType> {
    let low = low(device);
    let mut found = Ok(low);
    args.for_each_tensor(|_, t| {
        if let Ok(now) = found
            && is_cast(t, device)
        {
            found = match (now, t.dtype()) {
                (DType::F32, _) | (_, DType::F32) => Ok(DType::F32),
                (a, b) if a == low && b == low => Ok(low),
                _ => Err(err!(
                    Runtime,
                    "Unexpected floating ScalarType in at::autocast::prioritize"
                )),
            };
        }
    });
    found
}

/// What `f` makes of each tensor. The last argument comes first, as where a compiler evaluates arguments of functions for
/// PyTorch: the way back meets them in the opposite order.
fn last_first(
    args: &Args,
    f: impl Fn(&Tensor) -> Result<Option<Tensor>>,
) -> Result<Vec<Option<Tensor>>> {
    let mut all = Vec::new();
    args.for_each_tensor(|i, t| all.push((i, all.len(), t)));
    all.sort_by_key(|(i, at, _)| (Reverse(*i), *at));
    let mut made = vec![None; all.len()];
    for (_, at, t) in all {
        made[at] = f(t)?;
    }
    Ok(made)
}

/// The tensor in another type, if it is to be cast.
fn converted(t: &Tensor, to: DType, device: usize) -> Result<Option<Tensor>> {
    if !is_cast(t, device) || t.dtype() == to {
        return Ok(None);
    }
    let Some(place) = keepable(t, to, device) else {
        return f::to_dtype(t, to).map(Some);
    };
    let key = Place::at(place) as usize;
    if let Some(kept) = KEPT.with_borrow(|k| k.get(&key).map(|(_, t)| t.clone()))
        && kept.dtype() == to
    {
        return Ok(Some(kept));
    }
    let made = f::to_dtype(t, to)?;
    let entry = (place.clone(), made.clone());
    let old = KEPT.with_borrow_mut(|k| k.insert(key, entry));
    drop(old);
    Ok(Some(made))
}

/// The place of a leaf whose cast is kept.
fn keepable(t: &Tensor, to: DType, device: usize) -> Option<&Place> {
    let leaf = t.dtype() == DType::F32 && t.requires_grad() && t.is_leaf() && !t.is_view();
    let plain = t.tangents().is_empty() && t.batch().is_empty();
    (leaf && plain && to == low(device) && keeps() && mode::records()).then(|| t.link())?
}

#[cold]
fn refused() -> crate::Error {
    err!(
        Runtime,
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n\
         Many models use a sigmoid layer right before the binary cross entropy layer.\n\
         In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n\
         or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n\
         safe to autocast."
    )
}

/// The number of a type of device in [`DEVICES`].
///
/// # Errors
/// If autocast knows none of this name.
pub fn number(name: &str, unknown: &str) -> Result<usize> {
    match DEVICES.iter().position(|(known, _)| *known == name) {
        Some(i) => Ok(i),
        None => bail!(Runtime, "{unknown}"),
    }
}
