//! `save`: from Python objects to a tree, and the bytes of their tensors.

use super::object::{PyParameter, PyTensor};
use super::sink::{host, to_file};
use super::storage::storage_of;
use super::types::{self, PyDType, PyDevice, PyFormat, PyLayout};
use crate::io::tree::{Call, CallExtra, CallKind, Channels, Composite, CompositeKind, Quant};
use crate::io::write::Sink;
use crate::io::{self, Data, Object, StorageRef, TensorClass, TensorRef, Tree, Value};
use crate::parts::Parts;
use crate::{DType, Result, Storage, Tensor, err};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple, PyType,
};
use smallvec::SmallVec;
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

    /// The attributes of a tensor that are saved with it.
    fn attributes(&mut self, o: &Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        let attrs = o.getattr("__dict__")?;
        let attrs = attrs.cast::<PyDict>()?.copy()?;
        if attrs.contains("_grad")? {
            attrs.del_item("_grad")?;
        }
        if o.get_type().is(&self.classes.buffer) {
            attrs.set_item("_is_buffer", true)?;
        }
        if attrs.is_empty() {
            return Ok(Value::None);
        }
        self.temporary(attrs.into_any(), depth)
    }

    /// The value of an object that lives only as long as we see to it.
    fn temporary(&mut self, o: Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        let value = self.value(&o, depth + 1)?;
        self.alive.push(o);
        Ok(value)
    }

    fn tensor(&mut self, o: &Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        let t = PyTensor::of(o)?.get().clone();
        let class = o.get_type();
        let class = if class.is(self.py.get_type::<PyParameter>()) {
            Some(TensorClass::Parameter)
        } else if class.is(self.py.get_type::<PyTensor>()) || class.is(&self.classes.buffer) {
            Some(TensorClass::Tensor)
        } else {
            None
        };
        let Some(class) = class else {
            return self.subclass(o, &t, depth);
        };
        let attrs = self.attributes(o, depth)?;
        let parts = t.storage().parts();
        if t.dtype().is_quantized() && super::parts::located(&t).is_meta() {
            return Err(err!(
                NotImplemented,
                "save(): a quantized tensor on meta cannot be saved without its data"
            )
            .into());
        }
        if let Some(parts) = parts.as_deref().filter(|p| p.is_opaque()) {
            let (kind, parts) = self.parts(parts)?;
            let shape = t.shape().iter().copied();
            return Ok(self.tree.push_composite(Composite {
                kind,
                parts,
                shape: shape.filter(|_| kind != CompositeKind::Nested).collect(),
                class,
                requires_grad: t.requires_grad(),
                attrs,
            }));
        }
        let mut r = self.plain(&t);
        r.quant = parts.as_deref().and_then(|p| self.quantizer(p));
        r.class = class;
        r.attrs = attrs;
        Ok(self.tree.push_tensor(r))
    }

    fn quantizer(&mut self, parts: &Parts) -> Option<Box<Quant>> {
        let quant = match parts {
            Parts::PerTensor { scale, zero_point } => Quant {
                scale: *scale,
                zero_point: *zero_point,
                channels: None,
            },
            Parts::PerChannel {
                scales,
                zero_points,
                axis,
                float_zero_points,
            } => {
                let (scales, zero_points) = (self.plain(scales), self.plain(zero_points));
                let channels = Channels {
                    scales: self.tree.push_tensor(scales),
                    zero_points: self.tree.push_tensor(zero_points),
                    axis: *axis,
                    float: *float_zero_points,
                };
                Quant {
                    scale: 1.0,
                    zero_point: 0,
                    channels: Some(channels),
                }
            }
            _ => return None,
        };
        Some(Box::new(quant))
    }

    /// A tensor by its layout and storage alone.
    fn plain(&mut self, t: &Tensor) -> TensorRef {
        let storage = self.storage(t.storage(), t.dtype());
        let mut r = TensorRef::new(storage, t.dtype(), t.shape(), t.strides(), t.offset());
        r.requires_grad = t.requires_grad();
        r.conj = t.is_conj();
        r.neg = t.is_neg();
        r
    }

    /// What a sparse, nested or packed tensor is made of.
    fn parts(&mut self, parts: &Parts) -> Result<(CompositeKind, SmallVec<[Value; 4]>)> {
        let matrix = |rows: &[Vec<i64>]| -> Result<Tensor> {
            let columns = rows.first().map_or(0, Vec::len);
            let flat: Vec<i64> = rows.iter().flatten().copied().collect();
            Tensor::from_slice(&flat, &[rows.len() as i64, columns as i64])
        };
        let (kind, tensors) = match parts {
            Parts::Coo {
                indices,
                values,
                coalesced,
            } => (
                CompositeKind::Coo(*coalesced),
                vec![indices.clone(), values.clone()],
            ),
            Parts::Compressed {
                kind,
                compressed,
                plain,
                values,
            } => (
                CompositeKind::Compressed(*kind),
                vec![compressed.clone(), plain.clone(), values.clone()],
            ),
            Parts::Nested {
                buffer,
                sizes,
                strides,
                offsets,
            } => (
                CompositeKind::Nested,
                vec![
                    buffer.clone(),
                    matrix(sizes)?,
                    matrix(strides)?,
                    Tensor::from_slice(offsets, &[offsets.len() as i64])?,
                ],
            ),
            Parts::Packed {
                bytes,
                dtype,
                quantizer,
            } => {
                let layout = (bytes.shape().clone(), bytes.strides().clone());
                let typed = bytes.look(crate::plan::ViewPlan::reinterpret(
                    *dtype,
                    layout.0,
                    layout.1,
                    bytes.offset(),
                ));
                let mut r = self.plain(&typed);
                r.quant = self.quantizer(quantizer);
                let packed = self.tree.push_tensor(r);
                return Ok((CompositeKind::Packed, SmallVec::from_slice(&[packed])));
            }
            Parts::PerTensor { .. } | Parts::PerChannel { .. } => {
                return Err(err!(Runtime, "a quantized tensor is no composite"));
            }
        };
        let mut values = SmallVec::new();
        for t in tensors {
            let r = self.plain(&t);
            values.push(self.tree.push_tensor(r));
        }
        Ok((kind, values))
    }

    /// A tensor of a class of the user's: a call that makes a plain tensor and gives it the class.
    fn subclass(&mut self, o: &Bound<'py, PyAny>, t: &Tensor, depth: usize) -> PyResult<Value> {
        let class = o.get_type().into_any();
        // A class that takes itself apart in its own way is asked to.
        let own = class.getattr("__reduce_ex__")?;
        let plain = |t: Bound<'py, PyType>| t.getattr("__reduce_ex__");
        if !own.eq(plain(self.py.get_type::<PyTensor>())?)?
            && !own.eq(plain(self.py.get_type::<PyParameter>())?)?
        {
            return self.reduced(o, depth);
        }
        if t.is_meta() && !(self.materialize && t.storage().is_sourced()) {
            return Err(err!(
                NotImplemented,
                "save(): a meta tensor of class {} cannot be saved without its data",
                types::type_name(o)
            )
            .into());
        }
        let number = self.storage(t.storage(), t.dtype());
        let ints = |tree: &mut Tree, dims: &[i64]| {
            let items: Vec<Value> = dims.iter().map(|&n| Value::Int(n)).collect();
            tree.push_items(Object::Tuple, &items)
        };
        let tree = &mut self.tree;
        let storage = tree.push(Object::Storage(number, None));
        let (shape, stride) = (ints(tree, t.shape()), ints(tree, t.strides()));
        let hooks = tree.push_dict(Object::OrderedDict, Vec::new());
        let dtype = tree.push(Object::DType(t.dtype()));
        let mut flags = Vec::new();
        for (name, set) in [("conj", t.is_conj()), ("neg", t.is_neg())] {
            if set {
                flags.push((tree.push_str(name), Value::Bool(true)));
            }
        }
        let flags = if flags.is_empty() {
            Value::None
        } else {
            tree.push_dict(Object::Dict, flags)
        };
        let inner = [
            storage,
            Value::Int(t.offset()),
            shape,
            stride,
            Value::Bool(t.requires_grad()),
            hooks,
            dtype,
            flags,
        ];
        let inner = tree.push_items(Object::Tuple, &inner);
        let func = self.name("torch._utils", "_rebuild_tensor_v3");
        let class = self.value(&class, depth + 1)?;
        let attrs = match self.attributes(o, depth)? {
            Value::None => self.tree.push_dict(Object::Dict, Vec::new()),
            attrs => attrs,
        };
        let args = self
            .tree
            .push_items(Object::Tuple, &[func, class, inner, attrs]);
        let func = self.name("torch._tensor", "_rebuild_from_type_v2");
        Ok(self.tree.push_call(Call {
            kind: CallKind::Reduce,
            func,
            args,
            kwargs: Value::None,
            extra: None,
        }))
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
        let class = o.get_type();
        let plain = |t: Bound<'py, PyType>| class.is(&t);
        let py = self.py;
        Ok(if plain(py.get_type::<pyo3::types::PyBool>()) {
            Value::Bool(o.extract()?)
        } else if plain(py.get_type::<pyo3::types::PyInt>()) {
            self.int(o)?
        } else if plain(py.get_type::<pyo3::types::PyFloat>()) {
            Value::Float(o.extract()?)
        } else if let Ok(s) = o.cast_exact::<PyString>() {
            match s.to_cow() {
                Ok(text) => self.tree.push_str(&text),
                Err(_) => {
                    let bytes: Vec<u8> = s
                        .call_method1("encode", ("utf-8", "surrogatepass"))?
                        .extract()?;
                    self.tree.push_bytes(Object::Surrogates, &bytes)
                }
            }
        } else if o.is_instance_of::<PyTensor>() {
            self.tensor(o, depth)?
        } else if let Ok(d) = o.cast_exact::<PyDict>() {
            let v = self.tree.push_dict(Object::Dict, Vec::new());
            self.made.insert(key, v);
            self.fill_dict(v, d, depth)?;
            v
        } else if let Ok(l) = o.cast_exact::<PyList>() {
            let v = self.tree.push_list(Object::List, Vec::new());
            self.made.insert(key, v);
            let items = self.items(l.iter(), depth)?;
            if let Some(Object::List(n)) = self.tree.object(v).copied() {
                self.tree.lists[n as usize] = items;
            }
            v
        } else if let Ok(t) = o.cast_exact::<PyTuple>() {
            let items = self.items(t.iter(), depth)?;
            self.tree.push_items(Object::Tuple, &items)
        } else if class.is(&self.classes.size) {
            let items = self.items(o.cast::<PyTuple>()?.iter(), depth)?;
            self.tree.push_items(Object::Size, &items)
        } else if class.is(&self.classes.ordered_dict) || class.is(&self.classes.counter) {
            self.dict_class(o, key, depth)?
        } else if let Ok(b) = o.cast_exact::<PyBytes>() {
            self.tree.push_bytes(Object::Bytes, b.as_bytes())
        } else if plain(py.get_type::<PyByteArray>()) {
            let bytes: Vec<u8> = o.extract()?;
            self.tree.push_bytes(Object::ByteArray, &bytes)
        } else if plain(py.get_type::<pyo3::types::PyComplex>()) {
            let c: num_complex::Complex64 = o.extract()?;
            self.tree
                .push_items(Object::Complex, &[Value::Float(c.re), Value::Float(c.im)])
        } else if plain(py.get_type::<PySet>()) || plain(py.get_type::<PyFrozenSet>()) {
            let items = o.try_iter()?.collect::<PyResult<Vec<_>>>()?;
            let items = self.items(items.into_iter(), depth)?;
            let kind = match plain(py.get_type::<PySet>()) {
                true => Object::Set,
                false => Object::FrozenSet,
            };
            self.tree.push_list(kind, items)
        } else if let Ok(d) = o.cast::<PyDType>() {
            self.tree.push(Object::DType(d.get().0))
        } else if let Ok(d) = o.cast::<PyDevice>() {
            self.tree.push_text(Object::Device, &d.get().0.to_string())
        } else if let Ok(l) = o.cast::<PyLayout>() {
            let name = l.get().0;
            let name = name.strip_prefix("torch.").unwrap_or(name);
            self.tree
                .push_text(Object::Layout, &format!("torch.{name}"))
        } else if let Ok(f) = o.cast::<PyFormat>() {
            self.name("torch", f.get().format().name())
        } else if let Ok(s) = storage_of(o) {
            let dtype = match o.getattr("dtype") {
                Ok(d) => Some(
                    d.cast::<PyDType>()
                        .map_err(|_| PyTypeError::new_err("a storage's dtype"))?
                        .get()
                        .0,
                ),
                Err(_) => None,
            };
            let n = self.storage(&s, dtype.unwrap_or(DType::U8));
            self.tree.push(Object::Storage(n, dtype))
        } else {
            self.reduced(o, depth)?
        })
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

/// Writes an object in PyTorch's zip format to a path or file object. With `materialize`, meta tensors that know their
/// data are saved with it, one at a time in memory.
#[pyfunction]
#[pyo3(signature = (obj, file, materialize=false))]
pub fn _save<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    file: &Bound<'py, PyAny>,
    materialize: bool,
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
        alive: Vec::new(),
    };
    saver.tree.root = saver.value(obj, 0)?;
    let (tree, storages) = (&saver.tree, &saver.storages);
    let mut provider = |n: u32, sink: &mut Sink<'_>| -> Result<()> {
        let storage = storages
            .get(n as usize)
            .ok_or_else(|| err!(Value, "no storage {n}"))?;
        host(storage)?.with_bytes(sink)
    };
    if file.is_instance_of::<PyString>() {
        let path: std::path::PathBuf = file.extract()?;
        return Ok(py.detach(|| io::write::save(&path, tree, &mut provider))?);
    }
    to_file(file, |out| {
        io::write::write(out, tree, "archive", &mut provider)
    })
}
