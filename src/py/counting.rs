//! The counter of calls, and the notes of when they ran.

use super::types;
use crate::DType;
use crate::layers::{profile, tape};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Starts a counter on this thread, or ends the newest and gives its rows: `(operator, calls, flops, bytes)`.
#[pyfunction]
fn _count(start: bool) -> Vec<(&'static str, u64, u64, u64)> {
    if start {
        tape::start();
        return Vec::new();
    }
    tape::stop()
        .into_iter()
        .map(|(name, c)| (name, c.calls, c.flops, c.bytes))
        .collect()
}

/// Starts to note the calls of this thread; false if they are noted already.
#[pyfunction]
fn _profile_start(shapes: bool) -> bool {
    profile::start(shapes)
}

/// Ends the notes. Each is `(kind, name, how, start, end, depth, arguments, flops, bytes, sequence)`: kinds are 0, a call (`how`
/// is 1 in place, 2 with `out=`), 1, a node (`how` is 1 for its whole visit), 2, what the user named. And the time they were taken.
#[pyfunction]
fn _profile_stop<'py>(py: Python<'py>) -> PyResult<(Bound<'py, PyList>, u64)> {
    let (events, time) = profile::stop();
    let rows = PyList::empty(py);
    for e in events {
        let (kind, name, how) = match e.what {
            profile::What::Call(name, inplace, out) => {
                (0, name.into(), if out { 2 } else { i32::from(inplace) })
            }
            profile::What::Node(name, whole) => (1, name, i32::from(whole)),
            profile::What::Mark(name) => (2, name.into(), 0),
        };
        let given = PyList::empty(py);
        for g in &e.given {
            given.append(argument(py, g)?)?;
        }
        rows.append((
            kind, name, how, e.start, e.end, e.depth, given, e.flops, e.bytes, e.sequence,
        ))?;
    }
    Ok((rows, time))
}

/// A tensor's shape and dtype, a list of those, or nothing.
fn argument<'py>(py: Python<'py>, given: &profile::Given) -> PyResult<Bound<'py, PyAny>> {
    let one =
        |shape: &[i64], dtype: DType| (shape.to_vec(), types::dtype(py, dtype)?).into_pyobject(py);
    Ok(match given {
        profile::Given::Tensor(shape, dtype) => one(shape, *dtype)?.into_any(),
        profile::Given::Tensors(list) => {
            let all = PyList::empty(py);
            for (shape, dtype) in list {
                all.append(one(shape, *dtype)?)?;
            }
            all.into_any()
        }
        profile::Given::Other => py.None().into_bound(py),
    })
}

/// Enters what the user named, if calls are noted.
#[pyfunction]
fn _profile_enter(name: &str) -> Option<usize> {
    profile::enter(name)
}

/// Leaves it.
#[pyfunction]
fn _profile_leave(at: usize) {
    profile::leave(at, 0, 0);
}

/// Registers the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_profile_start, m)?)?;
    m.add_function(wrap_pyfunction!(_profile_stop, m)?)?;
    m.add_function(wrap_pyfunction!(_profile_enter, m)?)?;
    m.add_function(wrap_pyfunction!(_profile_leave, m)?)?;
    m.add_function(wrap_pyfunction!(_count, m)?)
}
