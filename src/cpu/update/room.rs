//! What a step takes besides what it writes.

use super::{are_apart, bytes, lies};
use crate::cpu::room::Room;
use crate::{Result, Tensor};
use std::collections::BTreeMap;

/// What a step of all parameters takes; each list has a tensor for every parameter, or is empty: parameters, gradients, state.
///
/// # Errors
/// If a size overflows.
pub(crate) fn step(lists: &[Vec<&Tensor>], room: &mut Room) -> Result<()> {
    let [params, grads, states @ ..] = lists else {
        return Ok(());
    };
    let mut sets = Vec::with_capacity(params.len());
    for (i, (p, g)) in params.iter().zip(grads).enumerate() {
        let state = states.iter().filter_map(|list| list.get(i));
        let written = std::iter::once(p).chain(state).map(|t| (*t, true));
        let mut here = Vec::new();
        for (t, written) in written.chain([(*g, false)]) {
            match lies(t, p) {
                true => here.push((t, written)),
                false => drop(room.empty(p.shape(), t.dtype())?),
            }
        }
        sets.push((here, *g));
    }
    if apart(sets.iter().flat_map(|(here, _)| here)) {
        return Ok(());
    }
    for (here, g) in sets {
        // The gradient is copied where it lies over what is written.
        if !apart(&here) {
            room.converted(g, g.dtype())?;
        }
    }
    Ok(())
}

/// Whether nothing that is written lies over anything else: storages are apart from each other.
fn apart<'t>(tensors: impl IntoIterator<Item = &'t (&'t Tensor, bool)>) -> bool {
    let mut ranges: BTreeMap<usize, Vec<(usize, usize, bool)>> = BTreeMap::new();
    for (t, written) in tensors {
        let start = t.offset() as usize * t.dtype().size();
        let range = (start, start + bytes(t), *written);
        ranges.entry(t.storage().id()).or_default().push(range);
    }
    ranges.into_values().all(|mut of_one| {
        of_one.sort_unstable();
        are_apart(of_one)
    })
}
