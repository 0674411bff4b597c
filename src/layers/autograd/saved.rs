//! Tensors that nodes keep for their way back, and hooks that keep something else in their place.

use crate::tensor::{Bare, Edge, Link};
use crate::{Result, Tensor, bail, mode};
use std::cell::RefCell;
use std::sync::Arc;

/// Keeps something in place of tensors that are saved.
pub trait Packer: Send + Sync {
    /// What is kept of a tensor, which is apart from its history.
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
}

/// From now on the packer keeps what is saved on this thread.
pub fn push(packer: Arc<dyn Packer>) {
    PACKERS.with_borrow_mut(|p| p.push(packer));
}

/// Ends the newest packer of this thread.
pub fn pop() {
    let old = PACKERS.with_borrow_mut(Vec::pop);
    drop(old);
}

fn packer() -> Option<Arc<dyn Packer>> {
    PACKERS.with_borrow(|p| p.last().cloned())
}

/// That what was saved is gone.
pub const FREED: &str = "Trying to backward through the graph a second time (or directly access saved tensors after they have \
    already been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify \
    retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors after \
    calling backward.";

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
    pub fn new(t: &Tensor, from: From) -> Result<Self> {
        if t.is_inference() {
            bail!(
                Runtime,
                "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in \
                 computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it \
                 in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
            );
        }
        let kept = match packer() {
            None => Kept::Tensor(Bare::of(t), t.storage().version()),
            Some(packer) => {
                let before = t.storage().version();
                let packed = mode::with_grad(false, || packer.pack(t.bare()))?;
                if t.storage().version() != before {
                    bail!(
                        Runtime,
                        "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can \
                         not be modified by in-place operations as this can lead to unexpected side-effects. Please open an \
                         issue if you need to perform in-place operations on the input to a pack hook."
                    );
                }
                Kept::Packed(packed)
            }
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

    /// The tensor, with its history if `whole`.
    ///
    /// # Errors
    /// If it was written since.
    pub fn unpack(&self, this: &Arc<Link>, name: &str, whole: bool) -> Result<Tensor> {
        let t = match &self.kept {
            Kept::Packed(packed) => packed.unpack()?.bare(),
            Kept::Tensor(t, version) => {
                let t = t.get();
                let now = t.storage().version();
                if now != *version {
                    return Err(self.changed(t, *version, now, this, name));
                }
                t.clone()
            }
        };
        let t = match &self.from {
            From::Output(nr) => super::forward::noted(t, this, *nr),
            _ => t,
        };
        if !whole {
            return Ok(t);
        }
        Ok(match &self.from {
            From::Nowhere => t,
            From::There(edge) => t.tracked(edge.to.clone(), edge.nr),
            From::Output(nr) => t.tracked(this.clone(), *nr),
            From::Edge(e) => {
                let edges = this.node().map_or(&[][..], |n| n.edges());
                match edges.get(usize::from(*e)) {
                    Some(Some(edge)) => t.tracked(edge.to.clone(), edge.nr),
                    _ => t,
                }
            }
        })
    }

    #[cold]
    fn changed(
        &self,
        t: &Tensor,
        version: u32,
        now: u32,
        this: &Arc<Link>,
        name: &str,
    ) -> crate::Error {
        let made_by = |edge: &Edge| Some((edge.nr, edge.to.node()?.body().name().into_owned()));
        let of = match &self.from {
            From::Output(nr) => Some((*nr, name.to_owned())),
            From::Edge(e) => this.node().and_then(|n| {
                let edge = n.edges().get(usize::from(*e))?.as_ref()?;
                made_by(edge)
            }),
            From::There(edge) => made_by(edge),
            From::Nowhere => None,
        };
        let of = of.map_or_else(String::new, |(nr, name)| {
            let name = name.trim_end_matches("Backward0");
            format!(", which is output {nr} of {name},")
        });
        let kind = crate::ops::view::shape::type_name(t);
        crate::err!(
            Runtime,
            "one of the variables needed for gradient computation has been modified by an inplace operation: [{kind} {}]{of} is \
             at version {now}; expected version {} instead. Hint: enable anomaly detection to find the operation that failed \
             to compute its gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).",
            t.shape(),
            version
        )
    }
}
