//! What a node of a call keeps, as those see it who look at the graph, and the hooks that they put on it.

use super::recorded::{Held, Recorded, result_of};
use super::rule::{Asked, Of, Slot};
use super::saved::{At, From, Packer, Saved};
use super::value::Val;
use crate::ops::core::schema::{Kind, Returns};
use crate::tensor::Place;
use crate::{DType, Result, Scalar, Tensor, bail};

/// That what a hook is for was freed.
pub const HOOK_FREED: &str = "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph \
    are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph a \
    second time or if you need to access saved variables after calling backward.";

/// What is saved under a name.
pub enum Raw {
    /// A tensor, or none in its place.
    One,
    /// So many of them.
    Several(usize),
}

impl Recorded {
    /// What was saved under a name: for whoever looks at the graph.
    ///
    /// # Errors
    /// If it is gone, or was changed.
    pub fn saved(&self, this: &Place, name: &str) -> Result<Option<Val>> {
        let Some(i) = self.slot(name) else {
            return Ok(None);
        };
        let slots = self.slots();
        let held = &slots[i];
        if let Held::Number(n) = held {
            return Ok(Some(Val::Tensor(tensor_of(*n)?)));
        }
        let at = At {
            this,
            own: this,
            name: &self.name,
            whole: true,
        };
        held.look(&at).map(|v| Some(v.own()))
    }

    /// Whether an integer argument, or a list of them, is saved under a name: PyTorch shows those without a sign.
    #[must_use]
    pub fn is_int(&self, name: &str) -> bool {
        let Some(i) = self.slot(name) else {
            return false;
        };
        let Slot {
            asked: None,
            of: Of::Input(p),
            ..
        } = self.rule.slots[i]
        else {
            return false;
        };
        matches!(
            self.op.schema.params[p].kind,
            Kind::Int | Kind::Ints | Kind::IntsOf(_) | Kind::VarInts | Kind::OptInts
        )
    }

    /// What kind of tensors are saved under a name.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<Raw> {
        let i = self.slot(name)?;
        let param = match self.rule.slots[i] {
            Slot { asked: Some(_), .. } => return None,
            Slot {
                of: Of::Result(_), ..
            } => return Some(Raw::One),
            Slot {
                of: Of::Input(p), ..
            } => &self.op.schema.params[p],
        };
        match (&self.slots()[i], param.kind) {
            (Held::Tensors(list), _) => Some(Raw::Several(list.len())),
            (Held::Tensor(_) | Held::Number(_) | Held::Gone, _) => Some(Raw::One),
            (_, Kind::Tensor) => Some(Raw::One),
            (Held::Val(Val::None), Kind::Operand) => Some(Raw::One),
            _ => None,
        }
    }

    /// From now on a packer keeps what is saved under a name.
    ///
    /// # Errors
    /// PyTorch's texts if nothing is saved, or a packer keeps it already; and what the packer reports.
    pub fn hook(&self, name: &str, k: Option<usize>, packer: &dyn Packer) -> Result<()> {
        let Some(i) = self.slot(name) else {
            bail!(Runtime, "nothing is saved as {name}");
        };
        let slots = self.slots();
        let held = &slots[i];
        if let Held::Gone = held {
            bail!(Runtime, "{HOOK_FREED}");
        }
        if let Held::Number(n) = held {
            let saved = Saved::new(&tensor_of(*n)?, From::Nowhere)?;
            let packed = saved.hooked(packer)?;
            self.keep(i, None, packed);
            return Ok(());
        }
        let Some(saved) = held.kept(k) else {
            bail!(
                Runtime,
                "Calling register_hooks on a saved tensor with value None is forbidden"
            );
        };
        // The packer runs while nothing is locked.
        let packed = saved.hooked(packer)?;
        self.keep(i, k, packed);
        Ok(())
    }

    /// Saves the results that packers keep, which have their history by now.
    ///
    /// # Errors
    /// What the packers report.
    pub fn save_results(&self, results: &[&Tensor]) -> Result<()> {
        for &i in &self.rule.order {
            let Slot {
                of: Of::Result(k),
                asked: None,
                ..
            } = self.rule.slots[i]
            else {
                continue;
            };
            let waits = matches!(self.slots()[i], Held::Gone);
            let Some(t) = results.get(k).filter(|_| waits) else {
                continue;
            };
            let saved = Saved::new(t, result_of(&self.results, k))?;
            self.keep(i, None, saved);
        }
        Ok(())
    }

    /// The slot that has a name.
    fn slot(&self, name: &str) -> Option<usize> {
        let found = self.named().find(|(_, n)| n == name)?;
        Some(found.0)
    }

    /// The slots that may be shown.
    fn shown(&self) -> impl Iterator<Item = (usize, &'static Slot)> + '_ {
        let slots = self.rule.slots.iter().enumerate();
        slots.filter(|(_, s)| s.used() && !s.asked.is_some_and(|a| self.is_hidden(s.of, a)))
    }

    /// What PyTorch's nodes read off what else they hold.
    fn is_hidden(&self, of: Of, asked: Asked) -> bool {
        match (asked, of) {
            (Asked::Given | Asked::DType | Asked::Device | Asked::Count | Asked::Complex, _) => {
                true
            }
            (Asked::Sizes, Of::Input(i)) => {
                matches!(
                    self.op.schema.params[i].kind,
                    Kind::Tensors | Kind::VarTensors
                )
            }
            _ => false,
        }
    }

    /// The names of what was saved.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.named().map(|(_, name)| name)
    }

    /// The slots that PyTorch's nodes show as well, and what these call them.
    fn named(&self) -> impl Iterator<Item = (usize, String)> + '_ {
        self.shown().filter_map(|(i, s)| {
            let name = match s.of {
                Of::Input(i) => self.op.schema.params[i].name.to_owned(),
                Of::Result(k) => match &self.op.schema.returns {
                    Returns::One => "result".to_owned(),
                    Returns::Tuple(names) if !names[k].is_empty() => names[k].to_owned(),
                    _ => format!("result{k}"),
                },
            };
            let name = match s.asked {
                Some(asked) => format!("{name}_{}", asked.word()),
                None => name,
            };
            Some((i, called(self.op.def.name, name)?))
        })
    }
}

/// What a node of PyTorch calls something that the node of a row keeps: nothing where it has no such thing.
fn called(row: &str, name: String) -> Option<String> {
    /// Rows, what they keep under a name of their own, and PyTorch's name or `-`.
    const OTHERWISE: &str = include_str!("shown.txt");
    let theirs = OTHERWISE.lines().find_map(|line| {
        let own = line.strip_prefix(row)?.strip_prefix(' ')?;
        own.strip_prefix(name.as_str())?.strip_prefix(' ')
    });
    match theirs {
        Some("-") => None,
        Some(other) => Some(other.to_owned()),
        None => Some(name),
    }
}

/// The tensor that a number stands for.
fn tensor_of(n: Scalar) -> Result<Tensor> {
    let dtype = match n {
        Scalar::Bool(_) => DType::Bool,
        Scalar::Int(_) | Scalar::UInt(_) => DType::I64,
        Scalar::Float(_) => DType::F64,
        Scalar::Complex(_) => DType::C128,
    };
    Tensor::scalar(n, dtype)
}
