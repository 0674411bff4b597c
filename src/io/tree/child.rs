//! What objects refer to, one value after another: how a tree is walked without recursion.

use super::{Id, Object, Tree, Value};

/// The `i`-th of keys and values, by turns.
fn of_pairs(pairs: &[(Value, Value)], i: usize) -> Option<Value> {
    let pair = pairs.get(i / 2)?;
    Some(if i.is_multiple_of(2) { pair.0 } else { pair.1 })
}

impl Tree {
    /// The `i`-th value an object refers to: items, keys and values, arguments, states, attributes.
    #[must_use]
    pub fn child(&self, id: Id, i: usize) -> Option<Value> {
        let value = Value::Object(id);
        match self.object(value)? {
            Object::Tuple(_)
            | Object::Size(_)
            | Object::List(_)
            | Object::Set(_)
            | Object::FrozenSet(_) => self.items(value)?.get(i).copied(),
            Object::Dict(_) | Object::Counter(_) => of_pairs(self.pairs(value)?, i),
            Object::OrderedDict(_) => {
                let pairs = self.pairs(value)?;
                let attrs = self.attrs.get(&id).filter(|_| i == pairs.len() * 2);
                of_pairs(pairs, i).or(attrs.copied())
            }
            Object::Tensor(_) => self.tensor_child(value, i),
            Object::Composite(n) => {
                let c = self.composites.get(*n as usize)?;
                let attrs = (i == c.parts.len()).then_some(c.attrs);
                c.parts.get(i).copied().or(attrs)
            }
            Object::PersistentId(_) => self.persistent_id(value).filter(|_| i == 0),
            Object::Call(c) => self.call_child(*c, i),
            _ => None,
        }
    }

    fn tensor_child(&self, value: Value, i: usize) -> Option<Value> {
        let t = self.tensor(value)?;
        let channels = || t.quant.as_ref()?.channels;
        match i {
            0 => Some(t.attrs),
            1 => channels().map(|c| c.scales),
            2 => channels().map(|c| c.zero_points),
            _ => None,
        }
    }

    fn call_child(&self, number: u32, i: usize) -> Option<Value> {
        let call = self.calls.get(number as usize)?;
        let Some(rest) = i.checked_sub(3) else {
            return Some([call.func, call.args, call.kwargs][i]);
        };
        let extra = call.extra.as_deref()?;
        let (items, pairs) = (extra.items.len(), extra.pairs.len() * 2);
        if rest < items {
            extra.items.get(rest).copied()
        } else if rest < items + pairs {
            of_pairs(&extra.pairs, rest - items)
        } else {
            extra.states.get(rest - items - pairs).copied()
        }
    }
}
