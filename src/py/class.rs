//! `torchlike.Tensor`: the class over pyo3's `TensorBase` that adds what has to be fast as functions of CPython's C
//! interface: operators, square brackets, and how instances come and go.

#![allow(
    unsafe_code,
    reason = "a type of CPython's C interface is made by hand, and its instances are made and freed by hand"
)]

use super::blocks::{BLOCKS, Blocks, FAKE_BLOCKS};
use super::call::guard;
use super::index;
use super::lives_on;
use super::object::PyTensor;
use super::operators;
use crate::tensor::Leaf;
use crate::{DType, Device, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

static TENSOR: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(null_mut());

/// Where an instance keeps its tensor, its dictionary and its weak references, in bytes from its start.
static PLACE: AtomicUsize = AtomicUsize::new(0);
static DICT: AtomicUsize = AtomicUsize::new(0);
static WEAK: AtomicUsize = AtomicUsize::new(0);

/// True for `Tensor` itself.
#[inline]
pub fn is_tensor_class(class: *mut ffi::PyTypeObject) -> bool {
    class == TENSOR.load(Relaxed)
}

static FAKE: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(null_mut());

/// True for `FakeTensor` itself.
#[inline]
pub fn is_fake_class(class: *mut ffi::PyTypeObject) -> bool {
    class == FAKE.load(Relaxed)
}

/// `torchlike.Tensor`.
///
/// # Errors
/// Before [`register`].
pub fn tensor_class(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    let class = TENSOR.load(Relaxed);
    if class.is_null() {
        return Err(PyRuntimeError::new_err("torchlike is not initialised"));
    }
    // SAFETY: the class lives as long as the process.
    unsafe { Ok(Bound::from_borrowed_ptr(py, class.cast()).cast_into_unchecked()) }
}

/// A new `Tensor`.
#[inline]
pub fn plain(py: Python<'_>, t: Tensor) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: it is `Tensor` itself.
    unsafe { again(py, TENSOR.load(Relaxed), &BLOCKS, t) }
}

/// A new `FakeTensor`.
///
/// # Errors
/// As long as that has not been imported.
pub fn fake(py: Python<'_>, t: Tensor) -> PyResult<Bound<'_, PyAny>> {
    let class = FAKE.load(Relaxed);
    if class.is_null() {
        return Err(PyRuntimeError::new_err("torchlike is not initialised"));
    }
    // SAFETY: `by_hand` made the class, of `Tensor`.
    unsafe { again(py, class, &FAKE_BLOCKS, t) }
}

/// An instance of a class in a block that one of its own has left, if there is one.
///
/// # Safety
/// As [`instance`], and the blocks are those of this very class.
#[inline]
unsafe fn again<'py>(
    py: Python<'py>,
    class: *mut ffi::PyTypeObject,
    blocks: &Blocks,
    t: Tensor,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(block) = blocks.take() {
        // SAFETY: the block is that of an instance that `dealloc` has emptied, of this very class.
        unsafe {
            let o = ffi::PyObject_Init(block, class);
            note_leaf(o, &t);
            place(o).write(PyTensor::new(t));
            ffi::PyObject_GC_Track(o.cast());
            return Ok(Bound::from_owned_ptr(py, o));
        }
    }
    // SAFETY: by contract.
    unsafe { instance(py, class, t) }
}

/// An instance of `class`, without running its `__new__` or `__init__`.
///
/// # Safety
/// The class is `Tensor` or one that Python code derived from it.
pub unsafe fn instance(
    py: Python<'_>,
    class: *mut ffi::PyTypeObject,
    t: Tensor,
) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: an instance of such a class is a block of zeros from its type's allocator (no dict, no weak references)
    // with the tensor at the place where `register` found it in an instance that pyo3 made.
    unsafe {
        let o = Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class, 0))?;
        note_leaf(o.as_ptr(), &t);
        place(o.as_ptr()).write(PyTensor::new(t));
        Ok(o)
    }
}

#[inline]
unsafe fn place(o: *mut PyObject) -> *mut PyTensor {
    // SAFETY: by contract, the object is an instance of the class or a class derived from it.
    unsafe { o.byte_add(PLACE.load(Relaxed)).cast() }
}

/// Notes that a leaf is this object, if it is none yet.
#[inline]
fn note_leaf(o: *mut PyObject, t: &Tensor) {
    if let Some(leaf) = t.link().and_then(|l| l.as_leaf()) {
        let _ = leaf
            .object
            .compare_exchange(0, o as usize, Relaxed, Relaxed);
    }
}

/// How often an object is referred to.
pub fn references(_: Python<'_>, o: &Py<PyAny>) -> usize {
    // SAFETY: the object lives, and this thread is attached.
    unsafe { ffi::Py_REFCNT(o.as_ptr()) as usize }
}

/// Notes that the leaf that an object holds is this object.
pub fn note_object(holder: &PyTensor) {
    let at = std::ptr::from_ref(holder) as usize - PLACE.load(Relaxed);
    note_leaf(at as *mut PyObject, holder.get());
}

/// Notes that the leaf that an object holds is this object, whichever it was before.
pub fn move_object(holder: &PyTensor) {
    if let Some(leaf) = holder.get().link().and_then(|l| l.as_leaf()) {
        leaf.object.store(0, Relaxed);
        note_object(holder);
    }
}

/// The object that a leaf is.
pub fn leaf_object<'py>(py: Python<'py>, leaf: &Leaf) -> Option<Bound<'py, PyAny>> {
    let at = leaf.object.load(Relaxed) as *mut PyObject;
    // SAFETY: an object is noted as long as it lives: `dealloc` forgets it first, and both hold the lock. Only tensors are noted.
    unsafe {
        let found = Bound::from_borrowed_ptr_or_opt(py, at)?;
        drop(lives_on::taken(&*place(at)));
        Some(found)
    }
}

/// Whether an instance has what a new one in its place had not: a class, attributes, or who looks whether it lives.
unsafe fn is_noticed(o: *mut PyObject) -> bool {
    // SAFETY: by contract; the places are those of the class.
    let noted = |at: &AtomicUsize| unsafe {
        !(o.byte_add(at.load(Relaxed)).cast::<*mut PyObject>().read()).is_null()
    };
    // SAFETY: by contract.
    let class = unsafe { ffi::Py_TYPE(o) };
    !(is_tensor_class(class) || is_fake_class(class)) || noted(&DICT) || noted(&WEAK)
}

/// Frees an instance of `Tensor` or of a class derived from it.
unsafe extern "C" fn dealloc(o: *mut PyObject) {
    // SAFETY: the interpreter calls this once, when no reference is left. Weak references and the dictionary go first, as
    // they may run code that looks at the object; then what is left is emptied memory. The places are those of the class.
    unsafe {
        if let Some(leaf) = (*place(o)).get().link().and_then(|l| l.as_leaf()) {
            let known = leaf.object.load(Relaxed) == o as usize && is_noticed(o);
            if known && lives_on::keep(o, &*place(o)) {
                return;
            }
            let _ = leaf
                .object
                .compare_exchange(o as usize, 0, Relaxed, Relaxed);
        }
        ffi::PyObject_GC_UnTrack(o.cast());
        let class = ffi::Py_TYPE(o);
        let weak: *mut *mut PyObject = o.byte_add(WEAK.load(Relaxed)).cast();
        if !weak.read().is_null() {
            ffi::PyObject_ClearWeakRefs(o);
            weak.write(null_mut());
        }
        let dict: *mut *mut PyObject = o.byte_add(DICT.load(Relaxed)).cast();
        ffi::Py_XDECREF(dict.replace(null_mut()));
        if let Some(base) = (*place(o)).take_base() {
            ffi::Py_DECREF(base.into_ptr());
        }
        release(place(o));
        if !Blocks::of(class).is_some_and(|blocks| blocks.keep(o)) {
            ffi::PyObject_GC_Del(o.cast());
        }
        ffi::Py_DECREF(class.cast());
    }
}

/// How the base shows the garbage collector what an instance keeps.
static TRAVERSE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The base's `tp_new`.
static NEW: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Shows the garbage collector what an instance keeps: mostly its class alone, and passing those is what a collection costs.
unsafe extern "C" fn traverse(o: *mut PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: the interpreter calls this with an instance that lives and the lock held; `register` stored the base's function,
    // which is one of this kind, before it made the class.
    unsafe {
        if (*place(o)).keeps_nothing() {
            let dict: *mut *mut PyObject = o.byte_add(DICT.load(Relaxed)).cast();
            let done = visit(ffi::Py_TYPE(o).cast(), arg);
            return match dict.read() {
                dict if done == 0 && !dict.is_null() => match (*place(o)).get().own_place() {
                    None => visit(dict, arg),
                    // The graph keeps the leaf as well, with its attributes.
                    Some(_) => done,
                },
                _ => done,
            };
        }
        let inherited = TRAVERSE.load(Relaxed);
        std::mem::transmute::<*mut c_void, ffi::traverseproc>(inherited)(o, visit, arg)
    }
}

/// How many tensors are released one inside the other before the next ones wait: chains of gradients may be long.
const NESTED: u32 = 32;

thread_local! {
    /// How many releases go on, and the tensors that wait until the outermost is done.
    static GOING: (Cell<u32>, RefCell<Vec<PyTensor>>) =
        const { (Cell::new(0), RefCell::new(Vec::new())) };
}

/// Drops the tensor of an instance where it lies.
///
/// # Safety
/// It is there, and nobody uses the place after.
#[inline]
unsafe fn release(t: *mut PyTensor) {
    // SAFETY: as the caller promises.
    unsafe {
        if (*t).get().owns_only_memory() {
            quietly(|| t.drop_in_place());
        } else {
            release_owner(t);
        }
    }
}

/// Drops a tensor that may hold objects of Python, others of its kind among them: where pyo3 knows that the lock is held.
/// When the interpreter ends it knows no more, and lets them be. What is asked of callers is as for [`release`].
#[cold]
unsafe fn release_owner(t: *mut PyTensor) {
    // SAFETY: as the caller promises; it is called once.
    let free = move || unsafe { t.drop_in_place() };
    let attached = move || quietly(|| Python::try_attach(|_| free()).unwrap_or_else(free));
    let counted = GOING.try_with(|(depth, later)| {
        let outer = depth.get();
        if outer >= NESTED {
            // SAFETY: as the caller promises: it is moved to where it waits.
            return later.borrow_mut().push(unsafe { t.read() });
        }
        depth.set(outer + 1);
        attached();
        // Nothing is borrowed while one is dropped, which may add others.
        let next = || (outer == 0).then(|| later.borrow_mut().pop()).flatten();
        while let Some(t) = next() {
            quietly(|| _ = Python::try_attach(|_| drop(t)));
        }
        depth.set(outer);
    });
    counted.unwrap_or_else(|_| attached()); // A thread that ends counts no more.
}

/// Runs what frees memory. A panic has been reported where it happened, and nobody is left to tell.
#[inline]
fn quietly(f: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(f)));
}

/// `Tensor.__new__`: that of the base; an instance of a class that handles its calls is noted as such.
unsafe extern "C" fn new(
    class: *mut ffi::PyTypeObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: `register` stored the base's function, which is one of this kind, before it made the class; the interpreter
    // calls this with the lock held, and what comes back is a new instance, or null with an error set.
    unsafe {
        let inherited = NEW.load(Relaxed);
        let made = std::mem::transmute::<*mut c_void, ffi::newfunc>(inherited)(class, args, kwargs);
        if made.is_null() {
            return made;
        }
        let made = Bound::from_owned_ptr(Python::assume_attached(), made);
        if class == TENSOR.load(Relaxed) {
            return guard(|| of_its_class(made).map(Bound::into_ptr));
        }
        guard(|| super::dispatch::constructed(&made).map(|()| made.into_ptr()))
    }
}

/// What `Tensor(...)` gives: in a fake mode it is none of that very class.
fn of_its_class(made: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    match super::object::tensor_ref(&made) {
        Some(t) if t.storage().is_fake() => super::object::wrap(made.py(), t.clone()),
        _ => Ok(made),
    }
}

/// `Tensor.__init__` has nothing to do, whatever classes derived from it give it.
unsafe extern "C" fn init(_: *mut PyObject, _: *mut PyObject, _: *mut PyObject) -> c_int {
    0
}

unsafe extern "C" fn hash(o: *mut PyObject) -> isize {
    o as isize
}

unsafe extern "C" fn get(o: *mut PyObject, key: *mut PyObject) -> *mut PyObject {
    // SAFETY: called by the interpreter with the lock held and both objects alive.
    let (slf, key) = unsafe { (receiver(&o), object(&key)) };
    guard(|| index::get(slf, key).map(Bound::into_ptr))
}

unsafe extern "C" fn get_at(o: *mut PyObject, at: isize) -> *mut PyObject {
    // SAFETY: as in `get`.
    let slf = unsafe { receiver(&o) };
    guard(|| {
        let key = at.into_pyobject(slf.py())?.into_any();
        index::get(slf, &key).map(Bound::into_ptr)
    })
}

unsafe extern "C" fn set(o: *mut PyObject, key: *mut PyObject, value: *mut PyObject) -> c_int {
    // SAFETY: as in `get`; a value that is null means deletion.
    let (slf, key) = unsafe { (receiver(&o), object(&key)) };
    let done = guard(|| {
        if value.is_null() {
            return Err(PyTypeError::new_err(
                "Tensor does not support deleting items",
            ));
        }
        // SAFETY: it is not null, so it is alive.
        index::set(slf, key, unsafe { object(&value) })?;
        Ok(slf.as_ptr())
    });
    if done.is_null() { -1 } else { 0 }
}

/// An argument that the interpreter lends to a C function.
///
/// # Safety
/// The lock is held, and the object lives as long as the borrow.
#[inline]
pub(super) unsafe fn object<'py>(o: &*mut PyObject) -> &Bound<'py, PyAny> {
    // SAFETY: by contract; a Bound is a pointer to its object.
    unsafe { Bound::ref_from_ptr(Python::assume_attached(), o) }
}

/// As [`object`], for the receiver of a function of the class.
///
/// # Safety
/// As [`object`], and it is a tensor.
#[inline]
pub(super) unsafe fn receiver<'py>(o: &*mut PyObject) -> &Bound<'py, PyTensor> {
    // SAFETY: by contract.
    unsafe { object(o).cast_unchecked() }
}

/// A slot of the class.
pub(super) fn slot(slot: c_int, function: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot {
        slot,
        pfunc: function,
    }
}

/// `FakeTensor` with the name and the methods of a class written in Python, whose instances come and go as those of `Tensor`.
/// The first one is the class of all fake tensors.
///
/// # Errors
/// If the interpreter cannot make it.
pub fn by_hand<'py>(written: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyType>> {
    let py = written.py();
    let name = format!("{}.{}", written.module()?, written.name()?);
    // The interpreter may keep the pointer, as long as the class lives.
    let name = Box::leak(std::ffi::CString::new(name)?.into_boxed_c_str());
    let slots = vec![slot(ffi::Py_tp_dealloc, dealloc as *mut c_void)];
    let made = made(py, name, slots, tensor_class(py)?)?;
    // Messages of the interpreter name classes of its own without their module.
    made.setattr("__name__", written.name()?)?;
    for item in written
        .getattr("__dict__")?
        .call_method0("items")?
        .try_iter()?
    {
        let (name, value): (String, Bound<'_, PyAny>) = item?.extract()?;
        if name != "__dict__" && name != "__weakref__" {
            made.setattr(name, value)?;
        }
    }
    let class = made.clone().into_ptr().cast();
    let _ = FAKE.compare_exchange(null_mut(), class, Relaxed, Relaxed);
    Ok(made)
}

/// A class over another one, of a complete description: the name and what the slots point to live as long as the process.
fn made<'py>(
    py: Python<'py>,
    name: &'static std::ffi::CStr,
    mut slots: Vec<ffi::PyType_Slot>,
    base: Bound<'py, PyType>,
) -> PyResult<Bound<'py, PyType>> {
    let collected = slots.iter().any(|s| s.slot == ffi::Py_tp_traverse);
    let more = if collected {
        ffi::Py_TPFLAGS_HAVE_GC
    } else {
        0
    };
    slots.push(slot(0, null_mut()));
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE | more) as c_uint,
        slots: slots.as_mut_ptr(),
    };
    let bases = PyTuple::new(py, [base])?;
    // SAFETY: the description is complete, and what has to outlive this call is static.
    unsafe {
        let made = ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}

/// Makes the class and adds it to the module.
///
/// # Errors
/// If the interpreter cannot make it.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    let base = py.get_type::<PyTensor>();
    let empty = Tensor::empty(&[], DType::F32, Device::META)?;
    let sample = Bound::new(py, PyTensor::new(empty))?;
    let at = std::ptr::from_ref(sample.get()) as usize - sample.as_ptr() as usize;
    PLACE.store(at, Relaxed);
    DICT.store(base.getattr("__dictoffset__")?.extract()?, Relaxed);
    WEAK.store(base.getattr("__weakrefoffset__")?.extract()?, Relaxed);

    // SAFETY: the base is a class that pyo3 made, with all these functions.
    let clear = unsafe {
        let function = |slot| ffi::PyType_GetSlot(base.as_type_ptr(), slot);
        TRAVERSE.store(function(ffi::Py_tp_traverse), Relaxed);
        NEW.store(function(ffi::Py_tp_new), Relaxed);
        function(ffi::Py_tp_clear)
    };
    let mut slots = vec![
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear),
        slot(ffi::Py_tp_new, new as *mut c_void),
        slot(ffi::Py_tp_init, init as *mut c_void),
        slot(ffi::Py_tp_hash, hash as *mut c_void),
        slot(ffi::Py_mp_subscript, get as *mut c_void),
        slot(ffi::Py_mp_ass_subscript, set as *mut c_void),
        slot(ffi::Py_sq_item, get_at as *mut c_void),
        slot(
            ffi::Py_tp_doc,
            c"Numbers in a strided layout on a device, or the promise of such."
                .as_ptr()
                .cast_mut()
                .cast(),
        ),
    ];
    slots.extend(operators::slots());
    let class = made(py, c"torchlike.Tensor", slots, base)?;
    m.add("Tensor", &class)?;
    TENSOR.store(class.into_ptr().cast(), Relaxed);
    Ok(())
}
