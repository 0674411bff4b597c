//! Finding a row of the table, once a place.

/// A table entry looked up once per call site.
macro_rules! op {
    ($name:literal) => {{
        static OP: std::sync::OnceLock<&'static $crate::ops::Op> = std::sync::OnceLock::new();
        match OP.get() {
            Some(op) => Ok::<&'static $crate::ops::Op, $crate::Error>(*op),
            None => $crate::ops::find($name).map(|op| *OP.get_or_init(|| op)),
        }
    }};
}
pub(crate) use op;
