//! From what a pickle asks for to what a checkpoint means: tensors, parameters, storages, containers.
//!
//! Objects of a pickle refer only to earlier ones when they are made, so one pass in order resolves them all
//! without recursion. Every tensor is proved to lie within its storage.

mod composite;
mod container;
mod plain;
mod storage;
mod tensor;

pub use tensor::extent;

use super::names::{Known, classify};
use super::tree::{Call, CallExtra, CallKind, Id, Object, StorageRef, Tree, Value};
use crate::{DType, Error, Result, bail, ensure, err};
use smallvec::SmallVec;

/// What a persistent id says about a storage.
pub(super) struct StorageRequest<'a> {
    pub key: &'a str,
    pub dtype: Option<DType>,
    pub location: &'a str,
    pub nbytes: u64,
    /// In the legacy format: the key of a part of the storage, where it begins, and its bytes.
    pub view: Option<(&'a str, u64, u64)>,
}

/// Finds or makes the storage that a persistent id names.
pub(super) type StorageFinder<'a> =
    dyn FnMut(&StorageRequest<'_>, &mut Vec<StorageRef>) -> Result<u32> + 'a;

/// Gives the recorded calls and persistent ids of `tree` their meaning, in place. What has none stays recorded.
pub(super) fn resolve(tree: &mut Tree, storages: &mut StorageFinder<'_>) -> Result<()> {
    resolve_as(tree, storages, false)
}

/// As [`resolve`], with the persistent ids of the formats before zip: classes with their source text, and views.
pub(super) fn resolve_legacy(tree: &mut Tree, storages: &mut StorageFinder<'_>) -> Result<()> {
    resolve_as(tree, storages, true)
}

fn resolve_as(tree: &mut Tree, storages: &mut StorageFinder<'_>, legacy: bool) -> Result<()> {
    let known = tree.globals.iter().map(classify).collect();
    let budget = (1 << 20) + tree.text.len() + tree.pool.len() + 4 * tree.objects.len();
    let mut resolver = Resolver {
        known,
        budget,
        no_pairs: None,
        legacy,
        tree,
    };
    // Storages first: a state, unlike an argument, may be younger than the tensor that takes it.
    resolver.storages(storages)?;
    resolver.calls()
}

type Extra = Option<Box<CallExtra>>;

struct Resolver<'a> {
    tree: &'a mut Tree,
    known: Vec<Known>,
    /// How much may still be copied out of shared objects, so that sharing cannot multiply memory.
    budget: usize,
    no_pairs: Option<u32>,
    legacy: bool,
}

impl Resolver<'_> {
    /// Gives persistent ids their storages, and tensors taken in one step theirs.
    fn storages(&mut self, storages: &mut StorageFinder<'_>) -> Result<()> {
        let objects = self.tree.objects.iter();
        let ids = objects
            .filter(|o| matches!(o, Object::PersistentId(_) | Object::Proto(_)))
            .count();
        self.tree.storages.reserve(ids);
        self.tree.tensors.reserve(ids);
        for i in 0..self.tree.objects.len() {
            if let Object::Proto(n) = self.tree.objects[i] {
                self.tree.objects[i] = self.proto(n, storages)?;
            } else if let Object::PersistentId(_) = self.tree.objects[i] {
                let id = self.tree.persistent_id(Value::Object(Id(i as u32)));
                let object = self.storage(id.unwrap_or(Value::None), storages)?;
                if let Object::Global(g) = object {
                    self.tree.containers.push(g);
                }
                self.tree.objects[i] = object;
            }
        }
        Ok(())
    }

    /// Gives names of dtypes and calls their meaning.
    fn calls(&mut self) -> Result<()> {
        for i in 0..self.tree.objects.len() {
            let replacement = match self.tree.objects[i] {
                Object::Global(g) => match self.known[g as usize] {
                    Known::DType(d) => Some(Object::DType(d)),
                    _ => None,
                },
                Object::Call(c) => {
                    let call = &mut self.tree.calls[c as usize];
                    let extra = call.extra.take();
                    let call = Call {
                        extra: None,
                        ..call.clone()
                    };
                    let (object, extra) = self.call(Id(i as u32), &call, extra)?;
                    self.tree.calls[c as usize].extra = extra;
                    object
                }
                _ => None,
            };
            if let Some(object) = replacement {
                self.tree.objects[i] = object;
            }
        }
        Ok(())
    }

    fn known(&self, value: Value) -> Known {
        match self.tree.object(value) {
            Some(Object::Global(g)) => self.known[*g as usize],
            Some(Object::DType(d)) => Known::DType(*d),
            _ => Known::Unknown,
        }
    }

    fn spend(&mut self, n: usize) -> Result<()> {
        let left = self.budget.checked_sub(n);
        self.budget =
            left.ok_or_else(|| err!(Checkpoint, "the pickle copies one object over and over"))?;
        Ok(())
    }

    /// The object that a call means, or none; and what is left to be done to it.
    fn call(&mut self, id: Id, call: &Call, extra: Extra) -> Result<(Option<Object>, Extra)> {
        let args: SmallVec<[Value; 8]> = self.tree.tuple(call.args).unwrap_or(&[]).into();
        let known = self.known(call.func);
        if let Known::Reconstructor | Known::NewObj | Known::NewObjEx = known {
            self.construct(id, known, call.kind, &args)?;
            return Ok((None, extra));
        }
        let callable = known != Known::Unknown
            || matches!(
                self.tree.object(call.func),
                Some(Object::Global(_) | Object::Call(_))
            );
        ensure!(
            callable,
            Checkpoint,
            "it calls something that is no function or class"
        );
        if known.is_container() {
            return self.container(id, known, &args, extra);
        }
        if let (Known::TypedTensor(dtype), Some(e)) = (known, &extra)
            && let Some(state) = only_state(call, &args, e)
        {
            return Ok((Some(self.typed_tensor(dtype, state)?), None));
        }
        if call.kind == CallKind::New && known != Known::Unknown && !matches!(known, Known::Size) {
            bail!(
                Checkpoint,
                "it makes a {} in a way that is not supported",
                self.name(call.func)
            );
        }
        let object = self.rebuild(known, &args)?;
        if object.is_some() && extra.is_some() {
            bail!(
                Checkpoint,
                "it changes the result of {}, which takes no items or state",
                self.name(call.func)
            );
        }
        Ok((object, extra))
    }

    fn name(&self, func: Value) -> String {
        self.tree
            .global(func)
            .map_or_else(|| "an unnamed function".into(), ToString::to_string)
    }

    /// The object that a call of a known function means, if it means one.
    fn rebuild(&mut self, known: Known, args: &[Value]) -> Result<Option<Object>> {
        match known {
            Known::Unknown => Ok(None),
            Known::RebuildFromTypeV2 => match args {
                &[func, class, inner, state] => self.of_type(func, class, inner, state),
                _ => Err(few(known, args)),
            },
            Known::RebuildParameter => match args {
                &[data, grad, _hooks] => self.parameter(data, grad, Value::None),
                _ => Err(few(known, args)),
            },
            Known::RebuildParameterWithState => match args {
                &[data, grad, _hooks, state] => self.parameter(data, grad, state),
                _ => Err(few(known, args)),
            },
            Known::RebuildDeviceFromCpu => self.brought_to_host(known, args),
            _ if known.is_tensor() => self.rebuild_tensor(known, args).map(Some),
            _ => self.rebuild_plain(known, args).map(Some),
        }
    }
}

/// The state of a call that has nothing else: no arguments, items or other states.
fn only_state(call: &Call, args: &[Value], extra: &CallExtra) -> Option<Value> {
    let plain = matches!(call.kind, CallKind::New | CallKind::Reduce) && args.is_empty();
    match extra.states[..] {
        [state] if plain && extra.items.is_empty() && extra.pairs.is_empty() => Some(state),
        _ => None,
    }
}

fn few(known: Known, args: &[Value]) -> Error {
    err!(
        Checkpoint,
        "a call of a known function ({known:?}) with {} arguments of the wrong kind or number",
        args.len()
    )
}
