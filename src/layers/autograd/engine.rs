//! Walks the graph back: every node runs once all gradients of its results are there, the newest first, as in PyTorch.

use super::fit::{fitted, validate};
use super::ready::Ready;
use super::{anomaly, gather};
use crate::layers::{modes, profile, program};
use crate::mixed::Map;
use crate::ops::f;
use crate::tensor::{Edge, Grads, Leaf, Link, Node, Place, When, link::Kind};
use crate::{Result, Tensor, bail, mode};
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How to walk.
#[derive(Default)]
pub struct Options {
    /// What was saved stays, for another walk.
    pub keep_graph: bool,
    /// The walk itself is recorded.
    pub create_graph: bool,
    /// Only what these need is computed; none: everything. Their gradients are the result.
    pub inputs: Vec<Edge>,
    /// The gradients of `inputs` are gathered by the leaves, in place of being given back.
    pub gather: bool,
}

/// A place that takes part.
struct Task<'r> {
    link: &'r Place,
    /// How many nodes will still give it a gradient.
    waits: u32,
    /// Something that is wanted depends on it.
    needed: bool,
    /// Where the gradients of its results gather, once one is there.
    place: Option<u32>,
    /// Which results' gradients are asked for, and their places among the inputs.
    captures: Vec<(u16, usize)>,
}

/// The places of one walk, which what it starts from keeps.
struct Walk<'r> {
    options: &'r Options,
    tasks: Vec<Task<'r>>,
    /// The gradients of places that wait for more, and which of these are free: few wait at a time.
    waiting: Vec<Grads>,
    free: Vec<u32>,
    /// The number of this walk.
    run: u32,
    /// Places that another walk holds.
    held: Map<*const Link, u32>,
    captured: Vec<Option<Tensor>>,
}

static RUNS: AtomicU32 = AtomicU32::new(1);

/// A walk that goes on: its number, and the places that will run.
struct Going {
    run: u32,
    needed: SmallVec<[bool; 16]>,
    /// Everything is gathered: no inputs are asked for.
    whole: bool,
    /// Places that another walk holds, by address.
    held: Map<usize, u32>,
}

/// How many walks may go on inside one another on a thread: each takes a part of its stack.
const NESTED: usize = 100;

thread_local! {
    static GOING: RefCell<Vec<Going>> = const { RefCell::new(Vec::new()) };
}

/// The number of the walk that goes on on this thread.
#[must_use]
pub fn current() -> Option<u32> {
    GOING.with_borrow(|g| g.last().map(|g| g.run))
}

/// Whether all walks that go on on this thread gather everything: none asks for the gradients of some inputs.
#[must_use]
pub fn is_whole() -> bool {
    GOING.with_borrow(|g| g.iter().all(|g| g.whole))
}

/// Whether the walk that goes on on this thread asks for the gradients of some inputs only.
#[must_use]
pub fn is_partial() -> bool {
    GOING.with_borrow(|g| g.last().is_some_and(|g| !g.whole))
}

/// Whether the walk that goes on on this thread runs a place.
#[must_use]
pub fn will_run(link: &Link) -> bool {
    GOING.with_borrow(|g| {
        let Some(going) = g.last() else { return false };
        let note = link.scratch.load(Relaxed);
        let at = if note >> 32 == u64::from(going.run) {
            (note & 0xffff_ffff) as usize
        } else if let Some(at) = going.held.get(&(std::ptr::from_ref(link) as usize)) {
            *at as usize
        } else {
            return false;
        };
        going.needed.get(at) == Some(&true)
    })
}

/// Walks from some results, each with its gradient, to the leaves. Gives the gradients of `inputs`, if there are any.
///
/// # Errors
/// What nodes and hooks report; nothing is gathered after that.
pub fn run(roots: Vec<(Edge, Tensor)>, options: &Options) -> Result<Vec<Option<Tensor>>> {
    if GOING.with_borrow(Vec::len) >= NESTED {
        bail!(
            Runtime,
            "backward(): more than {NESTED} backward passes inside one another on a thread are not supported"
        );
    }
    let (roots, grads): (SmallVec<[Edge; 2]>, Grads) =
        roots.into_iter().map(|(e, g)| (e, Some(g))).unzip();
    let mut walk = Walk {
        options,
        tasks: Vec::with_capacity(2 * roots.len() + 2),
        waiting: Vec::with_capacity(2),
        free: Vec::new(),
        run: RUNS.fetch_add(1, Relaxed),
        held: Map::default(),
        captured: vec![None; options.inputs.len()],
    };
    walk.find(&roots);
    walk.mark();
    GOING.with_borrow_mut(|g| {
        let needed = walk
            .tasks
            .iter()
            .map(|t| t.needed || !t.captures.is_empty());
        g.push(Going {
            run: walk.run,
            needed: needed.collect(),
            whole: options.inputs.is_empty(),
            held: walk.held.iter().map(|(p, at)| (*p as usize, *at)).collect(),
        });
    });
    let done = mode::with_grad(options.create_graph, || walk.go(&roots, grads));
    GOING.with_borrow_mut(Vec::pop);
    done?;
    Ok(std::mem::take(&mut walk.captured))
}

/// Whether some results depend on leaves that are neither in `own` nor before these.
#[must_use]
pub fn leads_elsewhere(roots: &[Edge], own: &[Edge]) -> bool {
    let mut seen: HashSet<*const Link> = own.iter().map(|e| Place::at(&e.to)).collect();
    let mut todo: Vec<Place> = roots.iter().map(|e| e.to.clone()).collect();
    while let Some(link) = todo.pop() {
        if !seen.insert(Place::at(&link)) {
            continue;
        }
        if link.as_leaf().is_some() {
            return true;
        }
        todo.extend(all_edges(&link).iter().flatten().map(|e| e.to.clone()));
    }
    false
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        for task in &self.tasks {
            let now = task.link.scratch.load(Relaxed);
            if now >> 32 == u64::from(self.run) {
                task.link.scratch.store(0, Relaxed);
            }
        }
    }
}

impl<'r> Walk<'r> {
    /// The number of a place's task, and whether it is new.
    fn task(&mut self, link: &'r Place) -> (usize, bool) {
        if let Some(at) = self.known(link) {
            return (at, false);
        }
        let at = self.tasks.len();
        let note = u64::from(self.run) << 32 | at as u64;
        if link
            .scratch
            .compare_exchange(0, note, Relaxed, Relaxed)
            .is_err()
        {
            self.held.insert(Place::at(link), at as u32);
        }
        self.tasks.push(Task {
            link,
            waits: 0,
            needed: self.options.inputs.is_empty(),
            place: None,
            captures: Vec::new(),
        });
        (at, true)
    }

    fn known(&self, link: &Place) -> Option<usize> {
        let now = link.scratch.load(Relaxed);
        if now >> 32 == u64::from(self.run) {
            return Some((now & 0xffff_ffff) as usize);
        }
        if now == 0 && self.held.is_empty() {
            return None;
        }
        // Another walk had it when this one began, and may be done by now.
        self.held.get(&Place::at(link)).map(|at| *at as usize)
    }

    /// Finds all places, and how many gradients each waits for.
    fn find(&mut self, roots: &'r [Edge]) {
        let mut stack: SmallVec<[usize; 16]> = SmallVec::new();
        for edge in roots {
            let (at, new) = self.task(&edge.to);
            if new {
                stack.push(at);
            }
        }
        while let Some(at) = stack.pop() {
            for edge in edges(self.tasks[at].link) {
                let (to, new) = self.task(&edge.to);
                self.tasks[to].waits += 1;
                if new {
                    stack.push(to);
                }
            }
        }
    }

    /// Marks what the inputs need, and what is asked for.
    fn mark(&mut self) {
        if self.options.inputs.is_empty() {
            return;
        }
        for (i, input) in self.options.inputs.iter().enumerate() {
            let Some(at) = self.known(&input.to) else {
                continue;
            };
            self.tasks[at].captures.push((input.nr, i));
        }
        // A place is needed if it leads to one that is asked for: children are decided before their parents.
        let mut state: SmallVec<[u8; 16]> = smallvec![0; self.tasks.len()];
        let mut stack: SmallVec<[usize; 16]> = SmallVec::new();
        for root in 0..self.tasks.len() {
            if state[root] == 0 {
                stack.push(root);
            }
            while let Some(&at) = stack.last() {
                let link = self.tasks[at].link;
                if state[at] == 0 {
                    state[at] = 1;
                    let below = edges(link).filter_map(|e| self.known(&e.to));
                    stack.extend(below.filter(|to| state[*to] == 0));
                    continue;
                }
                stack.pop();
                if state[at] == 1 {
                    state[at] = 2;
                    let leads = edges(link)
                        .filter_map(|e| self.known(&e.to))
                        .any(|to| self.tasks[to].needed || !self.tasks[to].captures.is_empty());
                    // What gathers runs whole, also where nothing behind it is asked for.
                    let gathers = self.options.gather && !self.tasks[at].captures.is_empty();
                    self.tasks[at].needed = leads || gathers;
                }
            }
        }
    }

    fn go(&mut self, roots: &'r [Edge], grads: Grads) -> Result<()> {
        let mut ready = BinaryHeap::new();
        for (edge, grad) in roots.iter().zip(grads.into_iter().flatten()) {
            let (at, _) = self.task(&edge.to);
            let meta = edge.meta(grad.dtype());
            let grad = fitted(grad, &meta, String::new, 0)?;
            self.add(at, edge.nr, grad)?;
            if self.tasks[at].waits == 0 && !ready.iter().any(|r: &Ready| r.at == at) {
                ready.push(Ready::new(&edge.to, at));
            }
        }
        while let Some(Ready { at, .. }) = ready.pop() {
            let link = self.tasks[at].link;
            let mut grads = self.take(at);
            let mut made = self.visit(at, link, &mut grads)?;
            // Whoever has a gradient alone may write it.
            drop(grads);
            for (i, edge) in all_edges(link).iter().enumerate() {
                let grad = made.get_mut(i).and_then(Option::take);
                let Some(edge) = edge else { continue };
                let Some(to) = self.known(&edge.to) else {
                    continue;
                };
                if let Some(grad) = grad
                    && self.add(to, edge.nr, grad)?
                    && modes::watch()
                {
                    // Who watches holds the operands of the sum.
                    made[i] = self.waiting(to)[usize::from(edge.nr)].clone();
                    modes::settled(&made, false);
                    made[i] = None;
                }
                self.tasks[to].waits -= 1;
                if self.tasks[to].waits == 0 {
                    ready.push(Ready::new(&edge.to, to));
                }
            }
        }
        Ok(())
    }

    /// The gradients that gather for a place.
    fn waiting(&mut self, at: usize) -> &mut Grads {
        let (waiting, free) = (&mut self.waiting, &mut self.free);
        let place = self.tasks[at].place.get_or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                waiting.push(Grads::new());
                waiting.len() as u32 - 1
            })
        });
        &mut waiting[*place as usize]
    }

    /// Takes the gradients that gathered for a place.
    fn take(&mut self, at: usize) -> Grads {
        match self.tasks[at].place.take() {
            None => Grads::new(),
            Some(place) => {
                self.free.push(place);
                std::mem::take(&mut self.waiting[place as usize])
            }
        }
    }

    /// Adds a gradient of a result to those that wait; true if it is a sum now.
    fn add(&mut self, at: usize, nr: u16, grad: Tensor) -> Result<bool> {
        let task = &self.tasks[at];
        if !task.needed && task.captures.is_empty() {
            return Ok(false);
        }
        let nr = usize::from(nr);
        let grads = self.waiting(at);
        while grads.len() <= nr {
            grads.push(None);
        }
        let place = &mut grads[nr];
        let old = place.take();
        let summed = old.is_some();
        *place = Some(match old {
            None => grad,
            Some(old) => gather::sum(old, grad)?,
        });
        Ok(summed)
    }

    /// Runs what is at a place; gives the gradients of its edges.
    fn visit(&mut self, at: usize, link: &Place, grads: &mut Grads) -> Result<Grads> {
        if !self.tasks[at].needed && self.tasks[at].captures.is_empty() {
            return Ok(Grads::new());
        }
        let outs = link.node().map_or(1, |n| n.outs().len());
        while grads.len() < outs {
            grads.push(None);
        }
        self.tell_results(link, grads)?;
        for (nr, i) in &self.tasks[at].captures {
            self.captured[*i] = grads[usize::from(*nr)].clone();
        }
        if !self.tasks[at].needed {
            return Ok(Grads::new());
        }
        match &link.kind {
            Kind::Leaf(leaf) => gather_at(link, leaf, grads),
            Kind::Node(node) => {
                program::visit(node);
                profile::noted(node, true, &[], || self.run_node(link, node, grads))
            }
            Kind::Carrier(_) => bail!(Runtime, "internal error in torchlike: a walk met a tangent"),
        }
    }

    /// Shows the gradients of results to those who asked for them.
    fn tell_results(&self, link: &Place, grads: &mut Grads) -> Result<()> {
        let Some(rare) = link.rare() else {
            return Ok(());
        };
        for (when, hook) in rare.hooks(|w| matches!(w, When::Result(_))) {
            let When::Result(nr) = when else { continue };
            // Hooks of results that no gradient came to are told so.
            let place = &mut grads[usize::from(nr)];
            let mut one: Grads = std::iter::once(place.clone()).collect();
            hook.run(link, &mut one, None)?;
            *place = one.swap_remove(0);
        }
        for nr in rare.retained() {
            if let Some(grad) = &grads[usize::from(nr)] {
                let sum = match rare.grad(nr) {
                    None => grad.clone(),
                    Some(old) => f::add(&old.tensor(), grad)?,
                };
                rare.set_grad(nr, Some(Arc::new(sum)));
            }
        }
        Ok(())
    }

    fn run_node(&self, link: &Place, node: &Node, grads: &mut Grads) -> Result<Grads> {
        tell(link, When::Before, grads, None)?;
        let after = link.hooks(When::After);
        let shown = (!after.is_empty()).then(|| grads.clone());
        let made = {
            let _running = anomaly::Running::note(link);
            profile::run(link, node, grads)
        };
        let mut made = anomaly::checked(link, node, made)?;
        let settled =
            |made: &Grads| modes::settled(made, made.iter().flatten().any(Tensor::is_python));
        settled(&made);
        if validate(node, &mut made)? {
            settled(&made);
        }
        for (_, hook) in after {
            hook.run(link, &mut made, shown.as_ref())?;
        }
        if !self.options.keep_graph {
            node.body().release(); // only now, as in PyTorch: plans see what lives while shapes are fitted
        }
        Ok(made)
    }
}

/// Tells the hooks of a moment of gradients, which they may replace.
fn tell(link: &Place, when: When, grads: &mut Grads, others: Option<&Grads>) -> Result<()> {
    let Some(rare) = link.rare() else {
        return Ok(());
    };
    for (_, hook) in rare.hooks(|w| w == when) {
        hook.run(link, grads, others)?;
    }
    Ok(())
}

/// Adds a gradient to what a leaf has gathered, and tells its hooks.
fn gather_at(link: &Place, leaf: &Leaf, grads: &mut Grads) -> Result<Grads> {
    tell(link, When::Before, grads, None)?;
    // A gradient that nobody else has is kept as it is, so it is shown only if somebody looks.
    let after = link.hooks(When::After);
    let shown = (!after.is_empty()).then(|| grads.clone());
    if let Some(grad) = grads.swap_remove(0) {
        modes::settled(&[], grad.is_python());
        let others = usize::from(shown.is_some());
        gather::into_leaf(leaf, grad, others)?;
        tell(link, When::Gathered, &mut Grads::new(), None)?;
    }
    for (_, hook) in after {
        hook.run(link, &mut Grads::new(), shown.as_ref())?;
    }
    Ok(Grads::new())
}

/// What a place makes of gradients of its results, apart from any walk: hooks are not told.
///
/// # Errors
/// What the place reports.
pub fn call(link: &Place, grads: &mut Grads) -> Result<Grads> {
    match &link.kind {
        Kind::Node(node) => node.body().apply(link, grads),
        Kind::Leaf(leaf) => match grads.pop().flatten() {
            Some(grad) => gather::into_leaf(leaf, grad, 0).map(|()| Grads::new()),
            None => Ok(Grads::new()),
        },
        Kind::Carrier(_) => bail!(Runtime, "internal error in torchlike: a tangent was called"),
    }
}

fn all_edges(link: &Link) -> &[Option<Edge>] {
    link.node().map_or(&[], |n| n.edges())
}

fn edges(link: &Link) -> impl Iterator<Item = &Edge> {
    all_edges(link).iter().flatten()
}
