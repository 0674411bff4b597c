//! Dictionaries, lists and sets that a pickle makes by calls, and calls that make objects.

use super::{Extra, Resolver};
use crate::io::names::Known;
use crate::io::tree::{CallExtra, CallKind, Id, Object, Value};
use crate::{Result, ensure, err};

impl Resolver<'_> {
    /// Turns a call of a function that makes objects into the making of one.
    pub(super) fn construct(
        &mut self,
        id: Id,
        known: Known,
        kind: CallKind,
        args: &[Value],
    ) -> Result<()> {
        let bad = || {
            err!(
                Checkpoint,
                "an object is made in a way that is not supported"
            )
        };
        ensure!(kind == CallKind::Reduce, Checkpoint, "{}", bad());
        let Some(&Object::Call(number)) = self.tree.object(Value::Object(id)) else {
            return Err(bad());
        };
        let is_object = |v: Value| {
            self.tree
                .global(v)
                .is_some_and(|g| &*g.module == "builtins" && &*g.name == "object")
        };
        let (class, args, kwargs) = match (known, args) {
            (Known::Reconstructor, &[class, base, Value::None]) if is_object(base) => {
                let none = self.tree.push_items(Object::Tuple, &[]);
                (class, none, Value::None)
            }
            (Known::NewObj, &[class, ref rest @ ..]) => {
                let rest = self.tree.push_items(Object::Tuple, rest);
                (class, rest, Value::None)
            }
            (Known::NewObjEx, &[class, args, kwargs])
                if self.tree.tuple(args).is_some() && self.tree.pairs(kwargs).is_some() =>
            {
                (class, args, kwargs)
            }
            _ => return Err(bad()),
        };
        ensure!(
            self.tree.global(class).is_some() && self.known(class) == Known::Unknown,
            Checkpoint,
            "{}",
            bad()
        );
        let call = &mut self.tree.calls[number as usize];
        (call.kind, call.func, call.args, call.kwargs) = (CallKind::New, class, args, kwargs);
        Ok(())
    }

    /// One empty dictionary for the hooks of all tensors, which nothing can change any more.
    fn empty(&mut self) -> u32 {
        *self
            .no_pairs
            .get_or_insert_with(|| self.tree.add_dict(Vec::new()))
    }

    pub(super) fn container(
        &mut self,
        id: Id,
        known: Known,
        args: &[Value],
        extra: Extra,
    ) -> Result<(Option<Object>, Extra)> {
        let bad = || {
            err!(
                Checkpoint,
                "a container ({known:?}) made or filled in an impossible way"
            )
        };
        let extra = extra.map_or_else(CallExtra::default, |e| *e);
        let (mut items, mut pairs) = (Vec::new(), Vec::new());
        let mapping = matches!(known, Known::OrderedDict | Known::Counter | Known::Dict);
        match *args {
            [] => {}
            [from] if mapping && self.tree.pairs(from).is_some() => {
                self.spend(self.tree.pairs(from).map_or(0, <[_]>::len) * 2)?;
                pairs = self.tree.pairs(from).map(<[_]>::to_vec).unwrap_or_default();
            }
            [from] => {
                let list = self.tree.items(from).ok_or_else(bad)?;
                let count = list.len();
                if mapping && known != Known::Counter {
                    pairs = list
                        .iter()
                        .map(|&v| {
                            if let Some(&[k, v]) = self.tree.items(v) {
                                Ok((k, v))
                            } else {
                                Err(bad())
                            }
                        })
                        .collect::<Result<_>>()?;
                } else if mapping {
                    return Err(bad());
                } else {
                    items = list.to_vec();
                }
                self.spend(count * 2)?;
            }
            _ => return Err(bad()),
        }
        if mapping {
            ensure!(extra.items.is_empty(), Checkpoint, "{}", bad());
            pairs.extend_from_slice(&extra.pairs);
        } else {
            ensure!(extra.pairs.is_empty(), Checkpoint, "{}", bad());
            ensure!(
                extra.items.is_empty() || known == Known::List || known == Known::Set,
                Checkpoint,
                "{}",
                bad()
            );
            items.extend_from_slice(&extra.items);
        }
        match extra.states[..] {
            [] => {}
            [state] if matches!(known, Known::OrderedDict) && self.tree.pairs(state).is_some() => {
                self.tree.attrs.insert(id, state);
            }
            _ => return Err(bad()),
        }
        let object = match known {
            Known::OrderedDict if pairs.is_empty() => Object::OrderedDict(self.empty()),
            Known::OrderedDict => Object::OrderedDict(self.tree.add_dict(pairs)),
            Known::Counter => Object::Counter(self.tree.add_dict(pairs)),
            Known::Dict => Object::Dict(self.tree.add_dict(pairs)),
            Known::List => Object::List(self.tree.add_list(items)),
            Known::Set => Object::Set(self.tree.add_list(items)),
            _ => Object::FrozenSet(self.tree.add_list(items)),
        };
        Ok((Some(object), None))
    }
}
