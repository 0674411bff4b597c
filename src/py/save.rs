//! `save`: from Python objects to a tree, and the bytes of their tensors.

mod tensor;

use super::object::PyTensor;
use super::sink::{host, to_file};
use super::storage::storage_of;
use super::types::{PyDType, PyDevice, PyFormat, PyLayout};
use crate::io::tree::{Call, CallExtra, CallKind};
use crate::io::write::{Sink, torch_legacy};
use crate::io::{self, Data, Object, StorageRef, Tree, Value};
use crate::{DType, Result, Storage, err};
use num_complex::Complex64;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet,
    PyString, PyTuple,
};
use std::collections::HashMap;

/// Objects nested deeper than this are refused, as on loading.
const MAX_DEPTH: usize = 900;

/// What makes a Python object again; see `torchlike._pickling.Parts`.
#[derive(FromPyObject)]
struct Pieces<'py> {
    new: bool,
    func: Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
    state: Bound<'py, PyAny>,
    items: Vec<Bound<'py, PyAny>>,
    pairs: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
}

/// The classes that are asked for once.
struct Classes<'py> {
    ordered_dict: Bound<'py, PyAny>,
    counter: Bound<'py, PyAny>,
    buffer: Bound<'py, PyAny>,
    size: Bound<'py, PyAny>,
    pickling: Bound<'py, PyModule>,
}

impl<'py> Classes<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let collections = py.import("collections")?;
        Ok(Self {
            ordered_dict: collections.getattr("OrderedDict")?,
            counter: collections.getattr("Counter")?,
            buffer: py.import("torchlike.nn.parameter")?.getattr("Buffer")?,
            size: py.import("torchlike")?.getattr("Size")?,
            pickling: py.import("torchlike._pickling")?,
        })
    }
}

struct Saver<'py> {
    py: Python<'py>,
    classes: Classes<'py>,
    tree: Tree,
    made: HashMap<usize, Value>,
    names: HashMap<(String, String), Value>,
    storages: Vec<Storage>,
    numbers: HashMap<usize, u32>,
    /// Meta tensors that know their data are saved with them.
    materialize: bool,
    /// Fake tensors are saved as real ones.
    fakes: bool,
    /// Objects made on the way, kept so that no address is used twice.
    alive: Vec<Bound<'py, PyAny>>,
}

impl<'py> Saver<'py> {
    fn storage(&mut self, s: &Storage, dtype: DType) -> u32 {
        if let Some(n) = self.numbers.get(&s.id()) {
            return *n;
        }
        let meta = s.device().is_meta();
        let given = !meta || (self.materialize && s.is_sourced());
        let location = match given && meta {
            true => "cpu".to_owned(),
            false => s.device().to_string(),
        };
        let n = self.tree.push_storage(StorageRef {
            key: self.storages.len().to_string().into(),
            dtype: Some(dtype),
            location: location.into(),
            nbytes: s.nbytes() as u64,
            data: if given { Data::Given } else { Data::Meta },
            crc: None,
        });
        self.storages.push(s.clone());
        self.numbers.insert(s.id(), n);
        n
    }

    /// The value of an object that lives only as long as we see to it.
    fn temporary(&mut self, o: Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        let value = self.value(&o, depth + 1)?;
        self.alive.push(o);
        Ok(value)
    }

    fn name(&mut self, module: &str, name: &str) -> Value {
        let key = (module.to_owned(), name.to_owned());
        if let Some(value) = self.names.get(&key) {
            return *value;
        }
        let value = self.tree.push_global(module, name);
        self.names.insert(key, value);
        value
    }

    /// An object of any other class, by the parts that the pickle protocol takes it apart to.
    fn reduced(&mut self, o: &Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        let found = self.classes.pickling.call_method1("parts_of", (o,))?;
        self.alive.push(found.clone());
        if let Ok((module, name)) = found.extract::<(String, String)>() {
            return Ok(self.name(&module, &name));
        }
        let parts: Pieces<'py> = found.extract()?;
        let func = self.value(&parts.func, depth + 1)?;
        let args = self.items(parts.args.iter(), depth)?;
        self.alive.push(parts.args.into_any());
        // By way of its own arguments an object may have been saved meanwhile.
        if let Some(v) = self.made.get(&(o.as_ptr() as usize)) {
            return Ok(*v);
        }
        let args = self.tree.push_items(Object::Tuple, &args);
        let kind = match parts.new {
            true => CallKind::New,
            false => CallKind::Reduce,
        };
        let call = self.tree.push_call(Call {
            kind,
            func,
            args,
            kwargs: Value::None,
            extra: None,
        });
        self.made.insert(o.as_ptr() as usize, call);
        let mut extra = CallExtra::default();
        for item in parts.items {
            extra.items.push(self.temporary(item, depth)?);
        }
        for (key, value) in parts.pairs {
            let key = self.temporary(key, depth)?;
            extra.pairs.push((key, self.temporary(value, depth)?));
        }
        if !parts.state.is_none() {
            extra.states.push(self.temporary(parts.state, depth)?);
        }
        if let Some(Object::Call(n)) = self.tree.object(call).copied() {
            self.tree.calls[n as usize].extra = Some(Box::new(extra));
        }
        Ok(call)
    }

    fn items(
        &mut self,
        it: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<Vec<Value>> {
        it.map(|i| self.value(&i, depth + 1)).collect()
    }

    fn value(&mut self, o: &Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        if depth > MAX_DEPTH {
            return Err(pyo3::exceptions::PyRecursionError::new_err(
                "save(): the object is nested too deep",
            ));
        }
        if o.is_none() {
            return Ok(Value::None);
        }
        let key = o.as_ptr() as usize;
        if let Some(v) = self.made.get(&key) {
            return Ok(*v);
        }
        let made = self.make(o, key, depth)?;
        if let Value::Object(_) = made {
            self.made.insert(key, made);
        }
        Ok(made)
    }

    fn make(&mut self, o: &Bound<'py, PyAny>, key: usize, depth: usize) -> PyResult<Value> {
        if o.is_instance_of::<PyTensor>() {
            return self.tensor(o, depth);
        }
        let made = match self.number(o)? {
            None => self.text(o)?,
            made => made,
        };
        let made = match made {
            None => self.container(o, key, depth)?,
            made => made,
        };
        let made = match made {
            None => self.described(o)?,
            made => made,
        };
        match made {
            Some(made) => Ok(made),
            None => self.reduced(o, depth),
        }
    }

    fn number(&mut self, o: &Bound<'py, PyAny>) -> PyResult<Option<Value>> {
        Ok(Some(if o.is_exact_instance_of::<PyBool>() {
            Value::Bool(o.extract()?)
        } else if o.is_exact_instance_of::<PyInt>() {
            self.int(o)?
        } else if o.is_exact_instance_of::<PyFloat>() {
            Value::Float(o.extract()?)
        } else if o.is_exact_instance_of::<PyComplex>() {
            let c: Complex64 = o.extract()?;
            let parts = [Value::Float(c.re), Value::Float(c.im)];
            self.tree.push_items(Object::Complex, &parts)
        } else {
            return Ok(None);
        }))
    }

    /// Strings and bytes.
    fn text(&mut self, o: &Bound<'py, PyAny>) -> PyResult<Option<Value>> {
        if let Ok(s) = o.cast_exact::<PyString>() {
            if let Ok(text) = s.to_cow() {
                return Ok(Some(self.tree.push_str(&text)));
            }
            let bytes = s.call_method1("encode", ("utf-8", "surrogatepass"))?;
            let bytes: Vec<u8> = bytes.extract()?;
            return Ok(Some(self.tree.push_bytes(Object::Surrogates, &bytes)));
        }
        if let Ok(b) = o.cast_exact::<PyBytes>() {
            return Ok(Some(self.tree.push_bytes(Object::Bytes, b.as_bytes())));
        }
        if o.is_exact_instance_of::<PyByteArray>() {
            let bytes: Vec<u8> = o.extract()?;
            return Ok(Some(self.tree.push_bytes(Object::ByteArray, &bytes)));
        }
        Ok(None)
    }

    fn container(
        &mut self,
        o: &Bound<'py, PyAny>,
        key: usize,
        depth: usize,
    ) -> PyResult<Option<Value>> {
        let class = o.get_type();
        Ok(Some(if let Ok(d) = o.cast_exact::<PyDict>() {
            let v = self.tree.push_dict(Object::Dict, Vec::new());
            self.made.insert(key, v);
            self.fill_dict(v, d, depth)?;
            v
        } else if let Ok(l) = o.cast_exact::<PyList>() {
            self.list(l, key, depth)?
        } else if let Ok(t) = o.cast_exact::<PyTuple>() {
            let items = self.items(t.iter(), depth)?;
            self.tree.push_items(Object::Tuple, &items)
        } else if class.is(&self.classes.size) {
            let items = self.items(o.cast::<PyTuple>()?.iter(), depth)?;
            self.tree.push_items(Object::Size, &items)
        } else if class.is(&self.classes.ordered_dict) || class.is(&self.classes.counter) {
            self.dict_class(o, key, depth)?
        } else if o.is_exact_instance_of::<PySet>() {
            self.set(o, Object::Set, depth)?
        } else if o.is_exact_instance_of::<PyFrozenSet>() {
            self.set(o, Object::FrozenSet, depth)?
        } else {
            return Ok(None);
        }))
    }

    fn list(&mut self, l: &Bound<'py, PyList>, key: usize, depth: usize) -> PyResult<Value> {
        let v = self.tree.push_list(Object::List, Vec::new());
        self.made.insert(key, v);
        let items = self.items(l.iter(), depth)?;
        if let Some(Object::List(n)) = self.tree.object(v).copied() {
            self.tree.lists[n as usize] = items;
        }
        Ok(v)
    }

    fn set(
        &mut self,
        o: &Bound<'py, PyAny>,
        kind: fn(u32) -> Object,
        depth: usize,
    ) -> PyResult<Value> {
        let items = o.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let items = self.items(items.into_iter(), depth)?;
        Ok(self.tree.push_list(kind, items))
    }

    /// What describes tensors: dtypes, devices, layouts and formats; and storages.
    fn described(&mut self, o: &Bound<'py, PyAny>) -> PyResult<Option<Value>> {
        Ok(Some(if let Ok(d) = o.cast::<PyDType>() {
            self.tree.push(Object::DType(d.get().0))
        } else if let Ok(d) = o.cast::<PyDevice>() {
            self.tree.push_text(Object::Device, &d.get().__str__())
        } else if let Ok(l) = o.cast::<PyLayout>() {
            let name = l.get().0;
            let name = name.strip_prefix("torch.").unwrap_or(name);
            let name = format!("torch.{name}");
            self.tree.push_text(Object::Layout, &name)
        } else if let Ok(f) = o.cast::<PyFormat>() {
            self.name("torch", f.get().format().name())
        } else if let Ok(s) = storage_of(o) {
            let typed = |d: Bound<'py, PyAny>| -> PyResult<DType> {
                let d = d.cast::<PyDType>();
                let d = d.map_err(|_| PyTypeError::new_err("a storage's dtype"))?;
                Ok(d.get().0)
            };
            let dtype = o.getattr("dtype").ok().map(typed).transpose()?;
            let n = self.storage(&s, dtype.unwrap_or(DType::U8));
            self.tree.push(Object::Storage(n, dtype))
        } else {
            return Ok(None);
        }))
    }

    fn int(&mut self, o: &Bound<'py, PyAny>) -> PyResult<Value> {
        if let Ok(i) = o.extract::<i64>() {
            return Ok(Value::Int(i));
        }
        let bits: usize = o.call_method0("bit_length")?.extract()?;
        let kw = PyDict::new(self.py);
        kw.set_item("signed", true)?;
        let bytes: Vec<u8> = o
            .call_method("to_bytes", (bits / 8 + 1, "little"), Some(&kw))?
            .extract()?;
        Ok(self.tree.push_bytes(Object::BigInt, &bytes))
    }

    /// An `OrderedDict` or `Counter`, with its attributes.
    fn dict_class(&mut self, o: &Bound<'py, PyAny>, key: usize, depth: usize) -> PyResult<Value> {
        let kind = match o.get_type().is(&self.classes.counter) {
            true => Object::Counter,
            false => Object::OrderedDict,
        };
        let v = self.tree.push_dict(kind, Vec::new());
        self.made.insert(key, v);
        self.fill_dict(v, o.cast::<PyDict>()?, depth)?;
        let attrs = o.getattr("__dict__")?;
        if attrs.len()? > 0
            && let Value::Object(id) = v
        {
            let attrs = self.temporary(attrs, depth)?;
            self.tree.attrs.insert(id, attrs);
        }
        Ok(v)
    }

    fn fill_dict(&mut self, v: Value, d: &Bound<'py, PyDict>, depth: usize) -> PyResult<()> {
        let mut pairs = Vec::with_capacity(d.len());
        // Through items(), which an OrderedDict gives in its own order.
        for item in d.as_any().call_method0("items")?.try_iter()? {
            let item = item?;
            let (k, x) = (item.get_item(0)?, item.get_item(1)?);
            pairs.push((self.value(&k, depth + 1)?, self.value(&x, depth + 1)?));
        }
        if let Some(Object::Dict(n) | Object::OrderedDict(n) | Object::Counter(n)) =
            self.tree.object(v).copied()
        {
            self.tree.dicts[n as usize] = pairs;
        }
        Ok(())
    }
}

/// Zeros, in place of bytes that are written later.
fn room(nbytes: usize, sink: &mut Sink<'_>) -> Result<()> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let mut left = nbytes;
    while left > 0 {
        let now = left.min(ZEROS.len());
        sink(&ZEROS[..now])?;
        left -= now;
    }
    Ok(())
}

/// Writes an object in PyTorch's zip format, or (`legacy`) in the one before it, to a path or file object. With
/// `materialize`, meta tensors that know their data are saved with it, one at a time in memory. With `skip` nobody's data is
/// written, only room for it; for that of fake tensors too, if it is true.
#[pyfunction]
#[pyo3(signature = (obj, file, materialize=false, legacy=false, skip=None))]
pub fn _save<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    file: &Bound<'py, PyAny>,
    materialize: bool,
    legacy: bool,
    skip: Option<bool>,
) -> PyResult<()> {
    let mut saver = Saver {
        py,
        classes: Classes::new(py)?,
        tree: Tree::new(),
        made: HashMap::new(),
        names: HashMap::new(),
        storages: Vec::new(),
        numbers: HashMap::new(),
        materialize,
        fakes: skip == Some(true),
        alive: Vec::new(),
    };
    saver.tree.root = saver.value(obj, 0)?;
    let (tree, storages) = (&saver.tree, &saver.storages);
    let mut provider = |n: u32, sink: &mut Sink<'_>| -> Result<()> {
        let storage = storages
            .get(n as usize)
            .ok_or_else(|| err!(Value, "no storage {n}"))?;
        match skip {
            Some(fakes) if fakes || !storage.is_hollow() => room(storage.nbytes(), sink),
            _ => host(storage)?.with_bytes(sink),
        }
    };
    if file.is_instance_of::<PyString>() {
        let path: std::path::PathBuf = file.extract()?;
        return Ok(py.detach(|| match legacy {
            true => torch_legacy::save(&path, tree, &mut provider),
            false => io::write::save(&path, tree, &mut provider),
        })?);
    }
    to_file(file, |out| match legacy {
        true => torch_legacy::write(out, tree, &mut provider),
        false => io::write::write(out, tree, "archive", &mut provider),
    })
}
