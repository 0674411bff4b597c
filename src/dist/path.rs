//! The cheapest way between two layouts, where cuts may be made in any order.

use super::local::shard_size;
use super::spec::Order;
use super::{Layout, Mesh, Placement, Reduce, Step, cost};
use crate::{Result, err};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashSet};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    placements: Vec<Placement>,
    order: Order,
}

/// A state that was reached, how, and at what cost; of equal costs the first comes first.
struct Reached {
    cost: f64,
    number: usize,
    state: State,
    before: Option<usize>,
}

impl PartialEq for Reached {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Reached {}
impl PartialOrd for Reached {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Reached {
    fn cmp(&self, other: &Self) -> Ordering {
        let costs = self.cost.total_cmp(&other.cost);
        costs.then(self.number.cmp(&other.number))
    }
}

/// The steps of the cheapest path; nothing if strided shards stand for an order that does not exist.
///
/// # Errors
/// If no path leads there.
pub(super) fn cheapest(
    mesh: &Mesh,
    shape: &[i64],
    itemsize: i64,
    from: &Layout,
    to: &Layout,
) -> Result<Option<Vec<Step>>> {
    let state = |layout: &Layout| {
        if layout.hides_order() {
            let (placements, order) = layout.decoded(mesh, shape.len())?;
            return Some(State { placements, order });
        }
        Some(State {
            placements: layout.placements.clone(),
            order: layout.plain_order(shape.len()),
        })
    };
    let (Some(start), Some(goal)) = (state(from), state(to)) else {
        return Ok(None);
    };
    let search = Search::new(mesh, shape, itemsize, &start, &goal);
    let path = search
        .walk(start, &goal)
        .ok_or_else(|| err!(Assertion, "no way from {from:?} to {to:?}"))?;
    let steps = path.windows(2).filter_map(|w| search.step(&w[0], &w[1]));
    Ok(Some(steps.collect()))
}

struct Search<'a> {
    mesh: &'a Mesh,
    shape: &'a [i64],
    itemsize: i64,
    strided: Vec<Placement>,
    partial: Vec<Reduce>,
}

impl<'a> Search<'a> {
    fn new(mesh: &'a Mesh, shape: &'a [i64], itemsize: i64, start: &State, goal: &State) -> Self {
        let mut strided: Vec<Placement> = Vec::new();
        for p in goal.placements.iter().filter(|p| p.is_strided()) {
            if !strided.contains(p) {
                strided.push(*p);
            }
        }
        let mut partial: Vec<Reduce> = Vec::new();
        for p in start.placements.iter().chain(&goal.placements) {
            if let Placement::Partial { reduce, .. } = p
                && !partial.contains(reduce)
            {
                partial.push(*reduce);
            }
        }
        Self {
            mesh,
            shape,
            itemsize,
            strided,
            partial,
        }
    }

    /// The states from the start to the goal.
    fn walk(&self, start: State, goal: &State) -> Option<Vec<State>> {
        let mut known: Vec<(State, Option<usize>)> = Vec::new();
        let mut visited = HashSet::new();
        let mut queue = BinaryHeap::new();
        let mut number = 0;
        queue.push(Reverse(Reached {
            cost: 0.0,
            number,
            state: start,
            before: None,
        }));
        while let Some(Reverse(reached)) = queue.pop() {
            let at = known.len();
            if reached.state == *goal {
                let mut path = vec![reached.state];
                let mut before = reached.before;
                while let Some(i) = before {
                    path.push(known[i].0.clone());
                    before = known[i].1;
                }
                path.reverse();
                return Some(path);
            }
            if !visited.insert(reached.state.clone()) {
                continue;
            }
            for next in self.neighbours(&reached.state) {
                if visited.contains(&next) {
                    continue;
                }
                let cost = reached.cost + self.cost(&reached.state, &next);
                if cost.is_finite() {
                    number += 1;
                    queue.push(Reverse(Reached {
                        cost,
                        number,
                        state: next,
                        before: Some(at),
                    }));
                }
            }
            known.push((reached.state, reached.before));
        }
        None
    }

    fn cost(&self, from: &State, to: &State) -> f64 {
        let Some(dim) = differs(from, to) else {
            return 0.0;
        };
        let layout = Layout {
            placements: from.placements.clone(),
            ordered: false,
        };
        let gb = cost::part_gb(self.mesh, &layout, self.shape, self.itemsize);
        cost::transition(self.mesh, dim, from.placements[dim], to.placements[dim], gb).0
    }

    /// The innermost cuts of each dimension, if they are of this kind.
    fn innermost(state: &State, strided: bool) -> impl Iterator<Item = (usize, usize)> {
        let cuts = state.order.iter().enumerate();
        cuts.filter_map(|(dim, cuts)| Some((dim, *cuts.last()?)))
            .filter(move |(_, m)| state.placements[*m].is_strided() == strided)
    }

    /// All states that one change leads to, in the order in which PyTorch finds them.
    fn neighbours(&self, state: &State) -> Vec<State> {
        let mut found = Vec::new();
        let dims = 0..self.shape.len();
        let of = |wanted: fn(&Placement) -> bool| {
            let all = state.placements.iter().enumerate();
            all.filter(move |(_, p)| wanted(p)).map(|(m, _)| m)
        };
        let replicated = |p: &Placement| *p == Placement::Replicate;
        let partial = |p: &Placement| matches!(p, Placement::Partial { .. });
        for (dim, m) in Self::innermost(state, false) {
            for other in dims.clone().filter(|d| *d != dim) {
                found.push(changed(state, m, Placement::Shard(other)));
            }
        }
        for (_, m) in Self::innermost(state, false) {
            found.push(changed(state, m, Placement::Replicate));
        }
        for m in of(partial) {
            found.push(changed(state, m, Placement::Replicate));
        }
        for m in of(replicated).chain(of(partial)) {
            for dim in dims.clone() {
                found.push(changed(state, m, Placement::Shard(dim)));
            }
        }
        for m in of(replicated) {
            for reduce in &self.partial {
                let next = changed(
                    state,
                    m,
                    Placement::Partial {
                        reduce: *reduce,
                        kind: 0,
                    },
                );
                if !mixed(&next.placements) {
                    found.push(next);
                }
            }
        }
        for (_, m) in Self::innermost(state, true) {
            found.push(changed(state, m, Placement::Replicate));
        }
        for m in of(replicated) {
            for strided in &self.strided {
                found.push(changed(state, m, *strided));
            }
        }
        found
    }

    /// The step between two neighbours; nothing if only the order differs.
    fn step(&self, from: &State, to: &State) -> Option<Step> {
        let dim = differs(from, to)?;
        let mut shape = self.shape.to_vec();
        for (d, cuts) in from.order.iter().enumerate() {
            for &m in cuts.iter().filter(|m| **m != dim) {
                let (parts, at) = (self.mesh.sizes[m], self.mesh.at[m]);
                shape[d] = shard_size(from.placements[m], shape[d], parts, at);
            }
        }
        Some(Step {
            dim,
            from: from.placements[dim],
            to: to.placements[dim],
            shape,
        })
    }
}

fn differs(from: &State, to: &State) -> Option<usize> {
    let pairs = from.placements.iter().zip(&to.placements);
    pairs.enumerate().find(|(_, (a, b))| a != b).map(|(i, _)| i)
}

/// The state with one placement changed: its cut is taken away, which has to be the innermost, and the new one is made.
fn changed(state: &State, m: usize, next: Placement) -> State {
    let mut state = state.clone();
    if let Some(dim) = state.placements[m].dim() {
        state.order[dim].retain(|x| *x != m);
    }
    if let Some(dim) = next.dim() {
        state.order[dim].push(m);
    }
    state.placements[m] = next;
    state
}

/// True if partial placements cannot stand beside each other: their reductions differ, and are not sums and means.
pub(super) fn mixed(placements: &[Placement]) -> bool {
    let mut kinds: Vec<(Reduce, i64)> = Vec::new();
    for p in placements {
        if let Placement::Partial { reduce, kind } = *p
            && !kinds.contains(&(reduce, kind))
        {
            kinds.push((reduce, kind));
        }
    }
    let linear = |k: &(Reduce, i64)| matches!(k.0, Reduce::Sum | Reduce::Avg);
    let plain = kinds.iter().all(|k| linear(k) && k.1 == kinds[0].1);
    let same = kinds
        .iter()
        .all(|k| k.0 == kinds.first().map_or(k.0, |f| f.0));
    kinds.len() > 1 && !plain && !(same && kinds.iter().all(|k| k.1 > 0))
}
