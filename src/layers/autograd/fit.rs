//! Gradients in the shape, type and place that their edges expect.

use crate::ops::f;
use crate::tensor::{Grads, Meta, Node};
use crate::{Result, Tensor, bail, dims, parts::located};

/// Makes what a node gave look like what its edges expect; true if calls were made for that.
pub(super) fn validate(node: &Node, made: &mut Grads) -> Result<bool> {
    let edges = node.edges();
    let mut changed = false;
    if made.len() != edges.len() {
        // Functions of users may give more, if the rest is nothing.
        if made.len() < edges.len() || made[edges.len()..].iter().any(Option::is_some) {
            bail!(
                Runtime,
                "Function {} returned an invalid number of gradients (expected {}, but got {})",
                node.body().name(),
                edges.len(),
                made.len()
            );
        }
        made.truncate(edges.len());
    }
    for (i, (place, edge)) in made.iter_mut().zip(edges).enumerate() {
        let fits = match (&*place, edge) {
            (Some(grad), Some(edge)) => edge.fits(grad),
            (None, _) | (_, None) => true, // hooks see what nobody asked for, too
        };
        if !fits {
            changed = true;
            *place = match (place.take(), edge) {
                (Some(grad), Some(edge)) => {
                    let meta = edge.meta(grad.dtype());
                    Some(fitted(grad, &meta, || node.body().name().into_owned(), i)?)
                }
                _ => None,
            };
        }
    }
    Ok(changed)
}

/// Who gave a gradient; nothing for what the walk starts with.
fn blamed(name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    format!("Function {name} returned an ")
}

/// A gradient of the shape, type and device that are expected.
///
/// # Errors
/// If it cannot be, with what `name` gives for the node that made it.
pub fn fitted(grad: Tensor, to: &Meta, name: impl Fn() -> String, i: usize) -> Result<Tensor> {
    if to.fits(&grad) {
        return Ok(grad);
    }
    let Meta {
        shape,
        dtype,
        device,
    } = to;
    let mut grad = grad;
    if grad.shape() != shape {
        if !dims::broadcast(shape, grad.shape()).is_ok_and(|both| both == *grad.shape()) {
            bail!(
                Runtime,
                "{}invalid gradient at index {i} - got {} but expected shape compatible with {shape}",
                blamed(&name()),
                grad.shape()
            );
        }
        grad = crate::ops::grad::layout::sum_to(&grad, shape)?;
    }
    if grad.dtype() != *dtype {
        if grad.dtype().is_complex() && !dtype.is_complex() {
            grad = f::real(&grad)?;
        }
        if grad.dtype() != *dtype {
            grad = f::to_dtype(&grad, *dtype)?;
        }
    }
    if located(&grad) != *device && grad.ndim() > 0 {
        bail!(
            Runtime,
            "{}invalid gradient at index {i} - expected device {device} but got {}",
            blamed(&name()),
            located(&grad)
        );
    }
    Ok(grad)
}
