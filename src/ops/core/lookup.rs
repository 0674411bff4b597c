//! Finding a row of the table, once a place.

use super::op::Op;
use crate::Result;
use std::sync::OnceLock;

/// A table entry looked up once per call site.
macro_rules! op {
    ($name:literal) => {{
        static OP: $crate::ops::lookup::Place = $crate::ops::lookup::Place::new();
        match OP.get() {
            Some(op) => Ok::<&'static $crate::ops::Op, $crate::Error>(*op),
            None => $crate::ops::lookup::look_up(&OP, $name),
        }
    }};
}
pub(crate) use op;

/// Where a place of the code keeps the row that it found.
pub(crate) type Place = OnceLock<&'static Op>;

/// Finds a row for a place that has none yet.
#[cold]
pub(crate) fn look_up(place: &Place, name: &str) -> Result<&'static Op> {
    let op = crate::ops::find(name)?;
    Ok(place.get_or_init(|| op))
}
