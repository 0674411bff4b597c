//! Arguments that are read without running any code of Python's: tensors, numbers and strings of the very types, tuples of
//! integers, and our own frozen objects. [`super::convert`] reads all others.

use super::arguments::{Incoming, OUT_PLACE};
use super::convert::{int, number, text};
use super::groups::Overload;
use super::object::{is_plain_tensor, tensor_ref};
use super::types::{PyDType, PyDevice, PyFormat};
use crate::ops::args::{Arg, Values};
use crate::ops::schema::{Kind, Param};
use crate::{Device, Dims};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyTuple};
use smallvec::SmallVec;

impl<'py> Incoming<'py> {
    /// Takes the positional arguments if all are [`plain`]: reading those runs no Python code, so that nobody has to wait.
    #[inline]
    pub(super) fn all_plain<'c: 'a, 'a>(
        &'c self,
        overload: &Overload,
        values: &mut Values<'a>,
    ) -> bool {
        let schema = &overload.op.schema;
        let given = self.positional.len();
        let single = match overload.varargs {
            Some(at) if self.begins_sizes(schema.params[at].kind, at) => at,
            _ if given > schema.positional => return false,
            _ => given,
        };
        let (one_each, rest) = self.positional.split_at(single);
        for (p, o) in schema.params.iter().zip(one_each) {
            match plain(p, o) {
                Some(value) => values.push(value),
                None => {
                    values.clear();
                    return false;
                }
            }
        }
        if rest.is_empty() {
            return true;
        }
        match spelled(rest) {
            Some(value) => values.push(value),
            None => values.clear(),
        }
        !values.is_empty()
    }

    /// Whether an integer stands where sizes may be given one by one.
    #[inline]
    fn begins_sizes(&self, kind: Kind, at: usize) -> bool {
        let first = self.positional.get(at);
        kind == Kind::VarInts && first.is_some_and(|o| integer(o).is_some())
    }

    /// Takes the keywords and the defaults if all are [`plain`] and the table's own names; gives what `out=` is.
    pub(super) fn plain_keywords<'c: 'a, 'a>(
        &'c self,
        overload: &Overload,
        values: &mut Values<'a>,
    ) -> Option<Option<&'c Bound<'py, PyAny>>> {
        let filled = values.len();
        let mut places: SmallVec<[usize; 4]> = SmallVec::new();
        for (name, _) in &self.keywords {
            places.push(overload.named(name).filter(|&at| at >= filled)?);
        }
        let schema = &overload.op.schema;
        let mut gaps = overload.fill_gaps(values);
        let mut out = None;
        for (&at, (_, object)) in places.iter().zip(&self.keywords) {
            if at == OUT_PLACE {
                out = Some(object).filter(|o| !o.is_none());
                continue;
            }
            values[at] = plain(&schema.params[at], object)?;
            gaps &= !(1 << at);
        }
        (gaps == 0).then_some(out)
    }
}

/// An argument that is read without running any Python code, if this is one.
#[inline]
fn plain<'a>(p: &Param, o: &'a Bound<'_, PyAny>) -> Option<Arg<'a>> {
    match p.kind {
        Kind::Tensor => tensor(o),
        Kind::Operand => tensor(o).or_else(|| scalar(o)),
        Kind::Scalar => scalar(o),
        Kind::Int => integer(o).map(Arg::Int),
        Kind::IntsOf(n) => match integer(o) {
            Some(i) => Some(Arg::Ints(Dims::filled(n as usize, i))),
            None => tuple(o),
        },
        Kind::Ints | Kind::VarInts => tuple(o),
        Kind::Float if o.is_exact_instance_of::<PyFloat>() => o.extract().ok().map(Arg::Float),
        Kind::Bool if o.is_exact_instance_of::<PyBool>() => o.extract().ok().map(Arg::Bool),
        Kind::DType | Kind::Device | Kind::Str | Kind::Format if !o.is_none() => named(p.kind, o),
        Kind::OptInts => None,
        _ => (o.is_none() && p.optional).then_some(Arg::None),
    }
}

/// Element types, devices, formats and strings.
#[inline]
fn named<'a>(kind: Kind, o: &'a Bound<'_, PyAny>) -> Option<Arg<'a>> {
    let string = || match o.is_exact_instance_of::<PyString>() {
        true => text(o).ok(),
        false => None,
    };
    match kind {
        Kind::DType => o.cast::<PyDType>().ok().map(|d| Arg::DType(d.get().0)),
        Kind::Device => match o.cast::<PyDevice>() {
            Ok(d) => d.get().known().ok().map(Arg::Device),
            Err(_) => string().and_then(|s| Device::parse(s).ok().map(Arg::Device)),
        },
        Kind::Format => {
            let format = o.cast::<PyFormat>().ok()?;
            Some(Arg::Format(format.get().format()))
        }
        _ => string().map(Arg::Str),
    }
}

/// Integers, each an argument of its own, if all are plain.
#[inline]
fn spelled<'a>(items: &[Bound<'_, PyAny>]) -> Option<Arg<'a>> {
    let ints: Option<Dims> = items.iter().map(integer).collect();
    ints.map(Arg::Ints)
}

/// An integer of the very type, if it fits.
#[inline]
fn integer(o: &Bound<'_, PyAny>) -> Option<i64> {
    match o.is_exact_instance_of::<PyInt>() {
        true => int(o).ok(),
        false => None,
    }
}

#[inline]
fn tensor<'a>(o: &'a Bound<'_, PyAny>) -> Option<Arg<'a>> {
    match is_plain_tensor(o.get_type_ptr()) {
        true => tensor_ref(o).map(Arg::Tensor),
        false => None,
    }
}

#[inline]
fn scalar<'a>(o: &Bound<'_, PyAny>) -> Option<Arg<'a>> {
    let exact = o.is_exact_instance_of::<PyInt>() || o.is_exact_instance_of::<PyFloat>();
    match exact {
        true => number(o).map(Arg::Scalar),
        false => None,
    }
}

#[inline]
fn tuple<'a>(o: &Bound<'_, PyAny>) -> Option<Arg<'a>> {
    let items = o.cast::<PyTuple>().ok()?;
    let ints: Option<Dims> = items.iter_borrowed().map(|item| integer(&item)).collect();
    ints.map(Arg::Ints)
}
