//! With which placements a call is made: of all that its rule allows, those that cost least to reach.

use super::path::mixed;
use super::{Layout, Mesh, Placement, redistribution};
use crate::{Result, bail, ensure};

/// A tensor among the arguments of a call.
#[derive(Clone, Debug)]
pub struct Input {
    /// How it lies.
    pub layout: Layout,
    /// Its whole shape.
    pub shape: Vec<i64>,
    /// Bytes of an element.
    pub itemsize: i64,
}

/// What is asked of a choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// How many results a row has before its arguments.
    pub results: usize,
    /// The first argument is written: it, and the result, stay where they are.
    pub in_place: bool,
    /// Arguments that are cut into more parts than they have elements may stay so.
    pub uneven: bool,
}

/// Placements of the results (if there is one) and of the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Of each result.
    pub results: Vec<Option<Vec<Placement>>>,
    /// Of each argument.
    pub inputs: Vec<Vec<Placement>>,
}

/// True if no dimension is cut into more parts than it has elements.
fn fits(mesh: &Mesh, shape: &[i64], placements: &[Placement]) -> bool {
    let mut parts = vec![1_i64; shape.len()];
    placements.iter().enumerate().all(|(i, p)| {
        let Some(dim) = p.dim() else { return true };
        let Some(count) = parts.get_mut(dim) else {
            return false;
        };
        *count = count.saturating_mul(mesh.sizes[i]);
        let factor = match p {
            Placement::Strided { factor, .. } => *factor,
            _ => 1,
        };
        shape[dim] >= count.saturating_mul(factor)
    })
}

/// The most ways that are looked at.
const WAYS: usize = 1 << 24;

fn check(
    mesh: &Mesh,
    inputs: &[Input],
    rows: &[Vec<Option<Placement>>],
    wanted: Wanted,
) -> Result<()> {
    ensure!(!inputs.is_empty(), Value, "no tensors to place");
    let length = wanted.results.saturating_add(inputs.len());
    for row in rows {
        ensure!(
            row.len() == length,
            Value,
            "a row of a sharding rule has {} placements, of {} results and {} tensors",
            row.len(),
            wanted.results,
            inputs.len()
        );
    }
    let ways = rows.len().checked_pow(mesh.ndim() as u32);
    ensure!(
        ways.is_some_and(|n| n <= WAYS),
        Value,
        "{} placements for each of {} dimensions of a mesh are too many to choose from",
        rows.len(),
        mesh.ndim()
    );
    Ok(())
}

/// Chooses for each dimension of the mesh one of `rows`, which list placements of the results and then of the arguments.
///
/// # Errors
/// If none can be had.
pub fn choose(
    mesh: &Mesh,
    inputs: &[Input],
    rows: &[Vec<Option<Placement>>],
    wanted: Wanted,
) -> Result<Chosen> {
    check(mesh, inputs, rows, wanted)?;
    let ordered = inputs.iter().find(|i| i.layout.has_strided());
    let ordered = ordered.is_some_and(|i| i.layout.ordered);
    let mut best: Option<(f64, Chosen)> = None;
    let (mut at_rest, mut free) = (None, None);
    let mut blocked = false;
    for combination in combinations(rows.len(), mesh.ndim()) {
        let column = |i: usize| {
            combination
                .iter()
                .map(|r| rows[*r][i])
                .collect::<Option<_>>()
        };
        let Some(chosen) = spread(inputs, column, wanted.results) else {
            continue;
        };
        if chosen
            .results
            .iter()
            .flatten()
            .chain(&chosen.inputs)
            .any(|p| mixed(p))
        {
            continue;
        }
        if wanted.in_place && moves(&chosen, inputs) {
            blocked = true;
            continue;
        }
        let Some(cost) = price(mesh, inputs, &chosen, wanted.uneven, ordered)? else {
            continue;
        };
        if cost == 0.0 {
            let still = inputs.iter().zip(&chosen.inputs);
            if still.into_iter().all(|(i, p)| i.layout.placements == *p) {
                at_rest = Some(chosen);
                continue;
            }
            free.get_or_insert(chosen);
        } else if best.as_ref().is_none_or(|b| cost < b.0) {
            best = Some((cost, chosen));
        }
    }
    match at_rest.or(free).or(best.map(|b| b.1)) {
        Some(chosen) => Ok(chosen),
        None if blocked => bail!(
            Runtime,
            "in-place operations that require placement changes are not supported. Please use the out-of-place version of \
             this operation instead."
        ),
        None => bail!(Runtime, "no placement of the arguments can be had"),
    }
}

/// All ways to take one of `count` for each of `places`, the last changing fastest.
fn combinations(count: usize, places: usize) -> impl Iterator<Item = Vec<usize>> {
    let total = count.checked_pow(places as u32).unwrap_or(0);
    (0..total).map(move |mut n| {
        let mut one = vec![0; places];
        for place in one.iter_mut().rev() {
            *place = n % count;
            n /= count;
        }
        one
    })
}

fn spread(
    inputs: &[Input],
    column: impl Fn(usize) -> Option<Vec<Placement>>,
    results: usize,
) -> Option<Chosen> {
    let of = (results..results + inputs.len()).map(&column);
    Some(Chosen {
        inputs: of.collect::<Option<_>>()?,
        results: (0..results).map(&column).collect(),
    })
}

/// Whether the first argument, or the result that is written to it, would have to lie otherwise.
fn moves(chosen: &Chosen, inputs: &[Input]) -> bool {
    let now = inputs.first().map(|i| &i.layout.placements);
    chosen.inputs.first() != now || chosen.results.first().is_some_and(|r| r.as_ref() != now)
}

/// What it costs to bring the arguments there; nothing if one does not fit.
fn price(
    mesh: &Mesh,
    inputs: &[Input],
    chosen: &Chosen,
    uneven: bool,
    ordered: bool,
) -> Result<Option<f64>> {
    for (input, placements) in inputs.iter().zip(&chosen.inputs) {
        let stays = uneven && input.layout.placements == *placements;
        if !stays && !fits(mesh, &input.shape, placements) {
            return Ok(None);
        }
    }
    let mut cost = 0.0;
    for (input, placements) in inputs.iter().zip(&chosen.inputs) {
        let to = Layout {
            placements: placements.clone(),
            ordered,
        };
        cost += redistribution(mesh, &input.shape, input.itemsize, &input.layout, &to)?;
    }
    Ok(Some(cost))
}
