//! Tensors that nodes keep for their way back, and hooks that keep something else in their place.

use crate::ops::f;
use crate::tensor::{Bare, Edge, Place, briefly};
use crate::{Result, Tensor, bail, mode};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Keeps something in place of tensors that are saved.
pub trait Packer: Send + Sync {
    /// What is kept of a tensor.
    ///
    /// # Errors
    /// Its own.
    fn pack(&self, t: Tensor) -> Result<Arc<dyn Packed>>;
}

/// What is kept in place of a tensor.
pub trait Packed: Send + Sync {
    /// The tensor.
    ///
    /// # Errors
    /// Its own.
    fn unpack(&self) -> Result<Tensor>;
}

thread_local! {
    static PACKERS: RefCell<Vec<Arc<dyn Packer>>> = const { RefCell::new(Vec::new()) };
    /// Whether there is one: a plain cell is read at once.
    static PACKING: Cell<bool> = const { Cell::new(false) };
}

/// From now on the packer keeps what is saved on this thread.
pub fn push(packer: Arc<dyn Packer>) {
    PACKERS.with_borrow_mut(|p| p.push(packer));
    PACKING.set(true);
}

/// Ends the newest packer of this thread.
pub fn pop() {
    let old = PACKERS.with_borrow_mut(Vec::pop);
    PACKING.set(PACKERS.with_borrow(|p| !p.is_empty()));
    drop(old);
}

/// Whether a packer keeps what is saved on this thread.
#[inline]
#[must_use]
pub fn packing() -> bool {
    PACKING.get()
}

fn packer() -> Option<Arc<dyn Packer>> {
    PACKERS.with_borrow(|p| p.last().cloned())
}

/// That what was saved is gone.
pub const FREED: &str = "Trying to backward through the graph a second time (or directly access saved tensors after they have \
    already been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify \
    retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors after \
    calling backward.";

/// Where something that was saved is looked at.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// The node.
    pub this: &'a Place,
    /// The place of its results.
    pub own: &'a Place,
    /// Its name.
    pub name: &'a str,
    /// With history.
    pub whole: bool,
}

/// A tensor that was saved, apart from its history.
#[derive(Clone)]
pub struct Saved {
    kept: Kept,
    from: From,
}

#[derive(Clone)]
enum Kept {
    /// The tensor, and how often it had been written.
    Tensor(Bare, u32),
    Packed(Arc<dyn Packed>),
}

/// Where the history of a saved tensor is.
#[derive(Clone)]
pub enum From {
    /// It has none.
    Nowhere,
    /// An edge of the node.
    Edge(u16),
    /// Where it says.
    There(Edge),
    /// The node itself, of which it is this output.
    Output(u16),
}

impl Saved {
    /// Of a tensor.
    ///
    /// # Errors
    /// If it must not be saved, or what a packer reports.
    #[inline]
    pub fn new(t: &Tensor, from: From) -> Result<Self> {
        if t.is_inference() || packing() || is_shown(&from) {
            return Self::seen(t, from);
        }
        let kept = Kept::Tensor(Bare::of(t), t.storage().version());
        Ok(Self { kept, from })
    }

    /// Of a tensor that must not be saved, or is changed before.
    #[cold]
    fn seen(t: &Tensor, from: From) -> Result<Self> {
        if t.is_inference() {
            bail!(
                Runtime,
                "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in \
                 computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it \
                 in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
            );
        }
        let shown = shown(t, &from)?;
        let t = shown.as_ref().unwrap_or(t);
        let kept = match packer() {
            None => Kept::Tensor(Bare::of(t), t.storage().version()),
            Some(packer) => packed(&*packer, t)?,
        };
        Ok(Self { kept, from })
    }

    /// A tensor for a node that finds its own ways; `output`: it is this result of the node.
    ///
    /// # Errors
    /// If it cannot be saved.
    pub fn alone(t: &Tensor, output: Option<u16>) -> Result<Self> {
        let from = match output {
            Some(nr) => From::Output(nr),
            None => t.edge().map_or(From::Nowhere, From::There),
        };
        Self::new(t, from)
    }

    /// From now on a packer keeps the tensor.
    ///
    /// # Errors
    /// If one does already, or what the packer reports.
    pub fn hooked(&self, packer: &dyn Packer) -> Result<Self> {
        let Kept::Tensor(t, _) = &self.kept else {
            bail!(
                Runtime,
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is \
                 allowed at a time."
            );
        };
        Ok(Self {
            kept: packed(packer, t.get())?,
            from: self.from.clone(),
        })
    }

    /// The tensor, with its history if that is wanted, where it lies if nothing has to be added.
    ///
    /// # Errors
    /// If it was written since.
    pub fn look(&self, at: &At) -> Result<Cow<'_, Tensor>> {
        let t = match &self.kept {
            Kept::Packed(packed) => Cow::Owned(packed.unpack()?.bare()),
            Kept::Tensor(t, version) => {
                let t = t.get();
                let now = t.storage().version();
                if now != *version {
                    return Err(self.changed(t, *version, now, at.this, at.name));
                }
                shown(t, &self.from)?.map_or(Cow::Borrowed(t), Cow::Owned)
            }
        };
        let t = match &self.from {
            From::Output(nr) if super::forward::is_enabled() => {
                Cow::Owned(super::forward::noted(t.into_owned(), at.this, *nr))
            }
            _ => t,
        };
        if !at.whole {
            return Ok(t);
        }
        let found;
        let edge = match &self.from {
            From::Nowhere => return Ok(t),
            From::There(edge) => edge,
            From::Output(nr) => {
                found = Edge {
                    to: at.own.clone(),
                    nr: *nr,
                };
                &found
            }
            From::Edge(e) => {
                let edges = at.this.node().map_or(&[][..], |n| n.edges());
                match edges.get(usize::from(*e)) {
                    Some(Some(edge)) => edge,
                    _ => return Ok(t),
                }
            }
        };
        Ok(Cow::Owned(t.into_owned().tracked(edge.to.clone(), edge.nr)))
    }

    #[cold]
    fn changed(
        &self,
        t: &Tensor,
        version: u32,
        now: u32,
        this: &Place,
        name: &str,
    ) -> crate::Error {
        let of = self.maker(t, this, name);
        let of = of.map_or_else(String::new, |(nr, name)| {
            format!(", which is output {nr} of {},", briefly(&name))
        });
        let hint = if super::anomaly::get().0 {
            "the backtrace further above shows the operation that failed to compute its gradient. The variable in question was \
             changed in there or anywhere later. Good luck!"
        } else {
            "enable anomaly detection to find the operation that failed to compute its gradient, with \
             torch.autograd.set_detect_anomaly(True, check_nan=False)."
        };
        let kind = crate::ops::view::shape::type_name(t);
        crate::err!(
            Runtime,
            "one of the variables needed for gradient computation has been modified by an inplace operation: [{kind} {}]{of} is \
             at version {now}; expected version {version} instead. Hint: {hint}",
            t.shape()
        )
    }

    /// What made a tensor, as it is now: its handle has the history of what was written since.
    fn maker(&self, t: &Tensor, this: &Place, name: &str) -> Option<(u16, String)> {
        let made_by = |edge: &Edge| Some((edge.nr, edge.to.node()?.body().name().into_owned()));
        if let From::Output(nr) = &self.from {
            return Some((*nr, name.to_owned()));
        }
        if !t.is_view()
            && let Some(edge) = t.family().and_then(|f| f.edge())
        {
            return made_by(&edge);
        }
        let known = match &self.from {
            From::Edge(e) => this
                .node()?
                .edges()
                .get(usize::from(*e))?
                .as_ref()
                .and_then(made_by),
            From::There(edge) => made_by(edge),
            From::Nowhere | From::Output(_) => None,
        };
        if t.is_view() && (known.is_some() || t.head().is_some()) {
            return Some((0, "AsStridedBackward0".to_owned()));
        }
        known
    }
}

/// A result as dispatch modes see it saved and unpacked: PyTorch detaches it.
fn shown(t: &Tensor, from: &From) -> Result<Option<Tensor>> {
    is_shown(from).then(|| f::detach(t)).transpose()
}

#[inline]
fn is_shown(from: &From) -> bool {
    matches!(from, From::Output(_)) && mode::layers() & mode::DISPATCH != 0
}

/// What a packer keeps of a tensor.
fn packed(packer: &dyn Packer, t: &Tensor) -> Result<Kept> {
    let before = t.storage().version();
    let packed = mode::with_grad(false, || packer.pack(t.clone()))?;
    if t.storage().version() != before {
        bail!(
            Runtime,
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot be modified \
             by in-place operations as this can lead to unexpected side-effects. Please open an issue if you need to perform \
             in-place operations on the input to a pack hook."
        );
    }
    Ok(Kept::Packed(packed))
}
