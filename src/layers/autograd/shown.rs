//! Views among tensors whose class handles its calls. Each has a storage of its own, without memory, so that nothing tells of them
//! what shares memory. Here stands which is a view of which, and by which calls: writes with a history find their way by making
//! these calls again.

use super::engine::{self, Options};
use crate::mixed::Map;
use crate::ops::{Arg, Args, Call, OwnedArg, OwnedArgs, Ret, dispatch, f};
use crate::storage::{WeakStorage, Witness, watch};
use crate::tensor::{Backward, Grads, Layout, Link, Mark, Meta, Node, Place, WeakPlace};
use crate::{Result, Storage, Tensor, bail, mode};
use smallvec::smallvec;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// What a view is of.
#[derive(Clone)]
struct Shown {
    view: WeakStorage,
    root: WeakStorage,
    /// The root's number, which nobody else has while this stands here.
    root_id: usize,
    lies: Layout,
    /// The calls that lead from the root to the view.
    calls: Arc<[Step]>,
    /// Why it must not be written with a history.
    mark: Mark,
    /// It is a view of a leaf that wants a gradient.
    of_leaf: bool,
    /// What was last written into the root when the view had its history.
    stamp: WeakPlace,
}

/// A call, whose first argument is left out, and which of its results is meant.
#[derive(Clone)]
struct Step(Arc<OwnedArgs>, usize);

#[derive(Default)]
struct All {
    views: Map<usize, Shown>,
    of_root: Map<usize, Vec<usize>>,
}

#[derive(Default)]
struct Registry(Mutex<All>);

static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| {
    let all = Arc::<Registry>::default();
    watch::add(Arc::downgrade(&all) as _);
    all
});

/// Something was written into a tensor that has such views.
static WRITTEN: AtomicBool = AtomicBool::new(false);

impl Registry {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Witness for Registry {
    fn gone(&self, id: usize) {
        let mut all = self.all();
        all.of_root.remove(&id);
        let gone = all.views.remove(&id);
        // No storage is held here: letting go the last hold of one would come back to this lock.
        if let Some(list) = gone.as_ref().and_then(|s| all.of_root.get_mut(&s.root_id)) {
            list.retain(|v| *v != id);
        }
        // What it holds goes after the lock does.
        drop(all);
        drop(gone);
    }

    fn resized(&self, _: usize, _: usize) {}
}

impl Shown {
    fn of(t: &Tensor) -> Option<Self> {
        REGISTRY.all().views.get(&t.storage().id()).cloned()
    }

    /// The root with its history as it is now, if it still lives.
    fn root(&self) -> Option<Tensor> {
        let bare = self.bare()?;
        Some(match bare.family().and_then(|f| f.edge()) {
            Some(edge) => bare.tracked(edge.to, edge.nr),
            None => bare,
        })
    }

    fn bare(&self) -> Option<Tensor> {
        let storage = self.root.upgrade()?;
        self.lies.on(&storage).ok().map(|t| t.with_python(true))
    }

    fn is_stale(&self) -> bool {
        let head = self.bare().and_then(|root| root.head());
        head.is_some_and(|head| !std::ptr::eq(self.stamp.at(), Place::at(&head)))
    }
}

/// Makes the calls again, of another tensor.
fn again(calls: &[Step], of: &Tensor) -> Result<Tensor> {
    let mut t = of.clone();
    for Step(call, nr) in calls {
        let mut owned = OwnedArgs::clone(call);
        owned.values[0] = OwnedArg::Tensor(t);
        let ret = dispatch::call(Call::new(&owned.borrow()))?;
        let found = ret.look().get(*nr).copied().cloned();
        let Some(found) = found else {
            bail!(Runtime, "a view cannot be made again");
        };
        t = found;
    }
    Ok(t)
}

/// Notes what a call of a view gave, if its argument and results handle their calls.
pub fn note(args: &Args, ret: &Ret) {
    let Some(Arg::Tensor(of)) = args.values.first() else {
        return;
    };
    let mark = match ret {
        _ if !mode::records() => Mark::NoGrad,
        Ret::One(_) => Mark::None,
        _ => Mark::OneOfSeveral,
    };
    let matters = mode::records() || of.requires_grad() && !mode::inference();
    if !of.is_python() || !matters || args.name() == "detach" {
        return;
    }
    let before = Shown::of(of);
    if before.is_none() {
        of.lay();
    }
    let mut call = args.to_owned();
    call.values[0] = OwnedArg::Plain(Arg::None);
    let call = Arc::new(call);
    for (nr, made) in ret.look().into_iter().enumerate() {
        if made.is_python() && !made.storage().same(of.storage()) {
            add(of, made, before.as_ref(), Step(call.clone(), nr), mark);
        }
    }
}

fn add(of: &Tensor, made: &Tensor, before: Option<&Shown>, step: Step, mark: Mark) {
    let view = made.storage().downgrade();
    let shown = match before {
        Some(before) => Shown {
            view,
            calls: before.calls.iter().cloned().chain([step]).collect(),
            mark: if mark == Mark::None {
                before.mark
            } else {
                mark
            },
            ..before.clone()
        },
        None => Shown {
            view,
            root: of.storage().downgrade(),
            root_id: of.storage().id(),
            lies: Layout::of(of),
            calls: Arc::new([step]),
            stamp: of.head().map_or_else(WeakPlace::new, |h| Place::weak(&h)),
            mark,
            of_leaf: of.requires_grad() && of.is_leaf(),
        },
    };
    let Some(root) = shown.root.upgrade() else {
        return;
    };
    let id = made.storage().id();
    made.storage().tell_all();
    root.tell_all();
    let mut all = REGISTRY.all();
    all.of_root.entry(shown.root_id).or_default().push(id);
    let old = all.views.insert(id, shown);
    drop(all);
    drop(old);
}

/// Why a view must not be written with a history, and whether it is one of a leaf; nothing for what is none.
#[must_use]
pub fn forbids(t: &Tensor) -> Option<(Mark, bool)> {
    Shown::of(t).map(|s| (s.mark, s.of_leaf))
}

/// Whether a view's history is no more what its handle has; nothing for what is none.
#[must_use]
pub fn is_stale(t: &Tensor) -> Option<bool> {
    if !WRITTEN.load(Relaxed) {
        return None;
    }
    Shown::of(t).map(|s| s.is_stale())
}

/// The tensor that a view is of, with its history as it is now.
#[must_use]
pub fn root_of(view: &Tensor) -> Option<Tensor> {
    Shown::of(view)?.root()
}

/// A view whose root was written, with its history as it is now; nothing for what is no such view.
///
/// # Errors
/// What making its calls again reports.
pub fn current(t: &Tensor) -> Result<Option<Tensor>> {
    let Some(shown) = Shown::of(t) else {
        return Ok(None);
    };
    let Some(root) = shown.root() else {
        return Ok(None);
    };
    let made = mode::with_grad(true, || again(&shown.calls, &root))?;
    Ok(made.edge().map(|edge| t.clone().tracked(edge.to, edge.nr)))
}

/// Flags the storages of views, so that calls of them are looked at.
fn flag(root: &Storage) {
    let all = REGISTRY.all();
    let views = all.of_root.get(&root.id());
    let storages = views.into_iter().flatten().filter_map(|v| all.views.get(v));
    let storages: Vec<Storage> = storages.filter_map(|s| s.view.upgrade()).collect();
    drop(all);
    if !storages.is_empty() {
        WRITTEN.store(true, Relaxed);
    }
    storages.iter().for_each(Storage::track);
}

/// Notes that `made` is `target` once it was written with a history: what it is a view of has one then.
pub fn wrote(target: &Tensor, made: &Tensor) {
    let Some(shown) = Shown::of(target) else {
        flag(target.storage());
        return;
    };
    let (Some(root), Some(edge)) = (shown.root(), made.edge()) else {
        return;
    };
    let body = WriteThrough {
        calls: shown.calls.clone(),
    };
    root.bump();
    let node = Node::new(
        Box::new(body),
        smallvec![root.edge(), Some(edge)],
        smallvec![Meta::of(&root)],
    );
    let link = Link::of_node(node.at_version(root.storage().version()));
    root.set_head(&link);
    if let Some(own) = REGISTRY.all().views.get_mut(&target.storage().id()) {
        own.stamp = Place::weak(&link);
    }
    flag(root.storage());
}

/// The node of a tensor that was written through a view: it is what it was, and what was written where the view shows it.
struct WriteThrough {
    calls: Arc<[Step]>,
}

impl WriteThrough {
    /// Where the view shows a tensor that lies as `whole`: not zero there.
    fn places(&self, whole: &Tensor) -> Result<Tensor> {
        mode::with_grad(true, || {
            let leaf = whole.bare().with_requires_grad(true);
            let seen = again(&self.calls, &leaf)?;
            let (Some(from), Some(to)) = (seen.edge(), leaf.edge()) else {
                bail!(Runtime, "a write through a view cannot be followed back");
            };
            let options = Options {
                keep_graph: false,
                create_graph: false,
                inputs: vec![to],
                gather: false,
            };
            let ones = mode::with_grad(false, || f::ones_like(&seen.bare()))?;
            match engine::run(vec![(from, ones)], &options)?.pop().flatten() {
                Some(places) => Ok(places),
                None => f::zeros_like(whole),
            }
        })
    }
}

impl Backward for WriteThrough {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("CopySlices")
    }

    fn apply(&self, _: &Place, grads: &mut Grads) -> Result<Grads> {
        let Some(grad) = grads.swap_remove(0) else {
            return Ok(smallvec![None, None]);
        };
        let written = f::clone(&again(&self.calls, &grad)?)?;
        let rest = f::masked_fill(&grad, &f::ne(&self.places(&grad)?, 0i64)?, 0i64)?;
        Ok(smallvec![Some(rest), Some(written)])
    }

    fn release(&self) {}
}
