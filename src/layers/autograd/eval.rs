//! Computing what the text of a gradient says, by calls of the table.

use super::parse::{Binary, Expr};
use super::rule::{Asked, rows};
use crate::ops::core::schema::{Kind, Param};
use crate::ops::{Arg, Args, Call, Op, OwnedArg, Ret, Value, dispatch};
use crate::tensor::{Meta, node};
use crate::{Dims, Result, Scalar, Tensor, bail, err};
use std::sync::LazyLock;

/// A value while a text is computed.
#[derive(Clone, Debug)]
pub enum Val {
    /// Nothing.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// Several tensors, of which some may be nothing.
    Tensors(Vec<Option<Tensor>>),
    /// The gradient of a result, where none arrived.
    Undefined(usize),
    /// A number or truth value.
    Number(Scalar),
    /// Integers.
    Ints(Dims),
    /// Lists of integers: the sizes of several tensors. A row takes them as one list, each after its length.
    Lists(Vec<Dims>),
    /// Truth values.
    Bools(Vec<bool>),
    /// A word.
    Word(String),
    /// Anything else that a row takes.
    Plain(Arg<'static>),
}

/// What the names in a text stand for.
pub struct Env<'e> {
    /// The gradients of the results, by position.
    pub grads: &'e [Option<Tensor>],
    /// What the results looked like; for a tangent, the operands without one.
    pub outs: &'e [Meta],
    /// What was saved.
    pub slots: &'e [Val],
    /// Which of the clause's inputs want a gradient.
    pub needs: &'e [bool],
    /// The tangents of the parameters.
    pub tangents: &'e [Val],
    /// The row's name, where there is no derivative.
    pub row: &'e str,
}

impl Val {
    /// Of an argument.
    #[must_use]
    pub fn of(arg: &Arg<'_>) -> Self {
        match arg {
            Arg::None => Self::None,
            Arg::Tensor(t) => Self::Tensor((*t).clone()),
            Arg::Tensors(list) => Self::Tensors(list.iter().map(|t| Some((*t).clone())).collect()),
            Arg::OptTensors(list) => Self::Tensors(list.iter().map(|t| t.cloned()).collect()),
            Arg::Scalar(s) => Self::Number(*s),
            Arg::Int(i) => Self::Number(Scalar::Int(*i)),
            Arg::Float(f) => Self::Number(Scalar::Float(*f)),
            Arg::Bool(b) => Self::Number(Scalar::Bool(*b)),
            Arg::Ints(d) => Self::Ints(d.clone()),
            Arg::Bools(b) => Self::Bools(b.clone()),
            Arg::Str(s) => Self::Word((*s).to_owned()),
            other => match other.to_owned() {
                OwnedArg::Plain(p) => Self::Plain(p),
                _ => Self::None,
            },
        }
    }

    /// Something of a value.
    ///
    /// # Errors
    /// If it has no such thing.
    pub fn ask(&self, asked: Asked) -> Result<Self> {
        let int = |n: usize| Ok(Self::Number(Scalar::Int(n as i64)));
        match (self, asked) {
            (_, Asked::Given) => {
                let given = !matches!(self, Self::None | Self::Undefined(_));
                Ok(Self::Number(Scalar::Bool(given)))
            }
            (Self::Tensors(list), Asked::Count) => int(list.len()),
            (Self::Ints(list), Asked::Count) => int(list.len()),
            (Self::Tensor(t), _) => Ok(match asked {
                Asked::Sizes => Self::Ints(t.shape().clone()),
                Asked::Strides => Self::Ints(t.strides().clone()),
                Asked::DType => Self::Plain(Arg::DType(t.dtype())),
                Asked::Device => Self::Plain(Arg::Device(t.device())),
                Asked::Ndim => return int(t.ndim()),
                Asked::Numel => Self::Number(Scalar::Int(t.numel())),
                Asked::Rows => Self::Number(Scalar::Int(t.size(-2)?)),
                Asked::Columns => Self::Number(Scalar::Int(t.size(-1)?)),
                Asked::Offset => Self::Number(Scalar::Int(t.offset())),
                Asked::Complex => Self::Number(Scalar::Bool(t.dtype().is_complex())),
                Asked::Count | Asked::Given => bail!(Runtime, "a tensor is no list"),
            }),
            (Self::Tensors(list), Asked::Sizes) => Ok(Self::Lists(
                list.iter().flatten().map(|t| t.shape().clone()).collect(),
            )),
            (Self::Ints(list), Asked::Ndim) => int(list.len()),
            (Self::Ints(list), Asked::Numel) => {
                Ok(Self::Number(Scalar::Int(list.iter().product())))
            }
            (Self::None, _) => Ok(Self::None),
            // A number in place of a tensor has no dimensions.
            (Self::Number(s), _) => Ok(match asked {
                Asked::Sizes | Asked::Strides => Self::Ints(Dims::default()),
                Asked::Ndim => Self::Number(Scalar::Int(0)),
                Asked::Complex => Self::Number(Scalar::Bool(matches!(s, Scalar::Complex(_)))),
                _ => Self::None,
            }),
            _ => bail!(
                Runtime,
                "internal error in torchlike: {asked:?} of {self:?}"
            ),
        }
    }

    fn truth(&self) -> bool {
        match self {
            Self::None | Self::Undefined(_) => false,
            Self::Number(s) => s.to_bool(),
            Self::Ints(d) => !d.is_empty(),
            Self::Word(w) => !w.is_empty(),
            _ => true,
        }
    }

    /// As an argument for a parameter; nothing if it does not fit.
    fn fit(&self, p: &Param) -> Option<Arg<'_>> {
        match (self, p.kind) {
            (Self::None | Self::Undefined(_), _) if p.optional => Some(Arg::None),
            (Self::None, Kind::VarInts) => Some(Arg::Ints(Dims::default())),
            (Self::Tensor(t), Kind::Tensor | Kind::Operand) => Some(Arg::Tensor(t)),
            (Self::Number(s), Kind::Operand | Kind::Scalar) => Some(Arg::Scalar(*s)),
            (Self::Number(s), Kind::Int) if !s.is_floating() => Some(Arg::Int(s.to_i64())),
            (Self::Number(s), Kind::Float) => Some(Arg::Float(s.to_f64())),
            (Self::Number(Scalar::Bool(b)), Kind::Bool) => Some(Arg::Bool(*b)),
            (Self::Number(Scalar::Int(i)), Kind::Ints | Kind::VarInts) => {
                Some(Arg::Ints(Dims::from([*i])))
            }
            (Self::Number(Scalar::Int(i)), Kind::IntsOf(n)) => {
                Some(Arg::Ints(Dims::filled(n.into(), *i)))
            }
            (Self::Ints(d), Kind::Ints | Kind::IntsOf(_) | Kind::VarInts | Kind::OptInts) => {
                Some(Arg::Ints(d.clone()))
            }
            (Self::Lists(lists), Kind::Ints) => {
                let with_count = |d: &Dims| Dims::from([d.len() as i64]).concat(d);
                let all = lists.iter().map(with_count);
                Some(Arg::Ints(all.fold(Dims::default(), |l, d| l.concat(&d))))
            }
            (Self::Bools(b), Kind::Bools) => Some(Arg::Bools(b.clone())),
            (Self::Word(w), Kind::Str) => Some(Arg::Str(w)),
            (Self::Tensors(list), Kind::OptTensors) => {
                Some(Arg::OptTensors(list.iter().map(Option::as_ref).collect()))
            }
            (Self::Tensors(list), Kind::Tensors | Kind::VarTensors) => {
                let list: Option<Vec<_>> = list.iter().map(Option::as_ref).collect();
                list.map(Arg::Tensors)
            }
            (Self::Plain(a), kind) => plain_fits(a, kind).then(|| a.clone()),
            _ => None,
        }
    }
}

fn plain_fits(a: &Arg<'_>, kind: Kind) -> bool {
    matches!(
        (a, kind),
        (Arg::DType(_), Kind::DType)
            | (Arg::Device(_), Kind::Device)
            | (Arg::Strided, Kind::Layout)
            | (Arg::Format(_), Kind::Format)
            | (Arg::Generator(_), Kind::Generator)
            | (Arg::Floats(_), Kind::Floats)
            | (Arg::Scalars(_), Kind::Scalars)
    )
}

/// Calls the first of some rows that takes the values.
///
/// # Errors
/// If none does, or what the call reports.
pub fn call(
    name: &str,
    overloads: &[&'static Op],
    values: &[Val],
    named: &[(&str, Val)],
) -> Result<Val> {
    for op in overloads {
        if let Some(args) = fitted(op, values, named) {
            return match dispatch::call(Call::new(&args))? {
                Ret::Same(i) => Ok(Val::of(&args.values[i])),
                ret => Ok(of_ret(ret)),
            };
        }
    }
    bail!(
        Runtime,
        "internal error in torchlike: no form of {name}() takes {values:?} {named:?}"
    )
}

fn fitted<'v>(op: &'static Op, values: &'v [Val], named: &'v [(&str, Val)]) -> Option<Args<'v>> {
    let params = &op.schema.params;
    if values.len() > params.len() {
        return None;
    }
    let mut args = Args::empty(op);
    let mut used = 0;
    for (i, p) in params.iter().enumerate() {
        let value = values.get(i).or_else(|| {
            let found = named.iter().find(|(name, _)| *name == p.name);
            used += usize::from(found.is_some());
            found.map(|(_, v)| v)
        });
        args.values.push(match value {
            Some(v) => v.fit(p)?,
            None => p.default.clone()?,
        });
    }
    (used == named.len()).then_some(args)
}

fn of_ret(ret: Ret) -> Val {
    match ret {
        Ret::One(t) => Val::Tensor(t),
        Ret::Become(t) => Val::Tensor(*t),
        Ret::Tuple(list) | Ret::List(list) => Val::Tensors(list.into_iter().map(Some).collect()),
        Ret::Gaps(list) => Val::Tensors(list),
        Ret::Value(Value::Scalar(s)) => Val::Number(s),
        Ret::Value(Value::Ints(list)) => Val::Ints(Dims::new(&list)),
        Ret::Value(Value::DType(d)) => Val::Plain(Arg::DType(d)),
        Ret::Value(Value::None) | Ret::Same(_) => Val::None,
    }
}

impl Env<'_> {
    /// Computes an expression.
    ///
    /// # Errors
    /// What its calls report.
    pub fn eval(&self, e: &Expr) -> Result<Val> {
        Ok(match e {
            Expr::Grad(k) => match self.grads.get(*k) {
                Some(Some(g)) => Val::Tensor(g.clone()),
                _ => Val::Undefined(*k),
            },
            Expr::Grads => Val::Tensors(self.grads.to_vec()),
            Expr::Tangent(i) => self.tangents.get(*i).cloned().unwrap_or(Val::None),
            Expr::Slot(i) => self.slots[*i].clone(),
            Expr::Needs => Val::Bools(self.needs.to_vec()),
            Expr::Number(s) => Val::Number(*s),
            Expr::None => Val::None,
            Expr::Word(w) => Val::Word(w.clone()),
            Expr::List(list) => self.list(list)?,
            Expr::Ask(e, asked) => self.eval(e)?.ask(*asked)?,
            Expr::Item(e, i) => item(self.eval(e)?, *i)?,
            Expr::Call(callee, args, kwargs) => {
                let mut values = Vec::with_capacity(args.len());
                for a in args {
                    values.push(self.defined(self.eval(a)?, &callee.overloads, values.len())?);
                }
                let mut named = Vec::with_capacity(kwargs.len());
                for (name, e) in kwargs {
                    named.push((name.as_str(), self.eval(e)?));
                }
                // Numbers may stand where formulas have tensors.
                if let [Val::Number(n)] = values.as_slice()
                    && let Some(n) = of_number(&callee.name, *n)
                {
                    return Ok(Val::Number(n));
                }
                call(&callee.name, &callee.overloads, &values, &named)?
            }
            Expr::Not(e) => Val::Number(Scalar::Bool(!self.eval(e)?.truth())),
            Expr::Binary(op, a, b) => self.binary(*op, a, b)?,
            Expr::If(parts) => {
                let [test, then, other] = &**parts;
                let chosen = if self.eval(test)?.truth() {
                    then
                } else {
                    other
                };
                self.eval(chosen)?
            }
            Expr::Refused(what) => bail!(
                NotImplemented,
                "the derivative for '{}' is not implemented.",
                what.as_deref().unwrap_or(self.row)
            ),
        })
    }

    fn list(&self, list: &[Expr]) -> Result<Val> {
        let values = list
            .iter()
            .map(|e| self.eval(e))
            .collect::<Result<Vec<_>>>()?;
        let tensors = |v: &Val| matches!(v, Val::Tensor(_) | Val::None | Val::Undefined(_));
        if !values.is_empty() && values.iter().all(tensors) {
            return Ok(Val::Tensors(
                values
                    .into_iter()
                    .map(|v| match v {
                        Val::Tensor(t) => Some(t),
                        _ => None,
                    })
                    .collect(),
            ));
        }
        let ints: Vec<i64> = values
            .iter()
            .map(|v| match v {
                Val::Number(s) => Ok(s.to_i64()),
                other => Err(err!(
                    Runtime,
                    "internal error in torchlike: {other:?} in a list"
                )),
            })
            .collect::<Result<_>>()?;
        Ok(Val::Ints(Dims::new(&ints)))
    }

    /// Zeros for a gradient that did not arrive, where every form of a row wants a tensor.
    fn defined(&self, v: Val, overloads: &[&'static Op], at: usize) -> Result<Val> {
        let Val::Undefined(k) = v else { return Ok(v) };
        let takes = |op: &&&'static Op| op.schema.params.get(at).is_some_and(|p| p.optional);
        if overloads.iter().any(|op| takes(&op)) {
            return Ok(v);
        }
        self.zeros(k)
    }

    fn zeros(&self, k: usize) -> Result<Val> {
        let meta = self
            .outs
            .get(k)
            .ok_or_else(|| err!(Runtime, "internal error in torchlike: no result {k}"))?;
        node::zeros(meta).map(Val::Tensor)
    }

    fn binary(&self, op: Binary, a: &Expr, b: &Expr) -> Result<Val> {
        let a = self.eval(a)?;
        match op {
            Binary::And if !a.truth() => return Ok(a),
            Binary::Or if a.truth() => return Ok(a),
            Binary::And | Binary::Or => return self.eval(b),
            _ => {}
        }
        let b = self.eval(b)?;
        if let (Val::Number(x), Val::Number(y)) = (&a, &b) {
            return arithmetic(op, *x, *y).map(Val::Number);
        }
        let equal = match (&a, &b) {
            (Val::Word(x), Val::Word(y)) => Some(x == y),
            (Val::Ints(x), Val::Ints(y)) => Some(x == y),
            (Val::Plain(Arg::DType(x)), Val::Plain(Arg::DType(y))) => Some(x == y),
            _ => None,
        };
        match (op, equal) {
            (Binary::Eq, Some(e)) => return Ok(Val::Number(Scalar::Bool(e))),
            (Binary::Ne, Some(e)) => return Ok(Val::Number(Scalar::Bool(!e))),
            _ => {}
        }
        if !self.tangents.is_empty()
            && let Some(made) = with_zeros(op, &a, &b)?
        {
            return Ok(made);
        }
        let (name, overloads) = tensor_operator(op)?;
        let a = self.defined(a, overloads, 0)?;
        let b = self.defined(b, overloads, 1)?;
        call(name, overloads, &[a, b], &[])
    }
}

/// Of operands of which one is a tangent that is not there: zeros, which cost nothing.
fn with_zeros(op: Binary, a: &Val, b: &Val) -> Result<Option<Val>> {
    Ok(match (op, a, b) {
        (Binary::Mul | Binary::Div, Val::Undefined(_), _) => Some(a.clone()),
        (Binary::Mul, _, Val::Undefined(_)) => Some(b.clone()),
        (Binary::Add, Val::Undefined(_), other)
        | (Binary::Add | Binary::Sub, other, Val::Undefined(_)) => Some(other.clone()),
        (Binary::Sub, Val::Undefined(_), Val::Tensor(t)) => {
            Some(Val::Tensor(crate::ops::f::neg(t)?))
        }
        _ => None,
    })
}

fn item(v: Val, i: usize) -> Result<Val> {
    let missing = || err!(Runtime, "internal error in torchlike: no item {i}");
    match v {
        Val::Tensors(mut list) if i < list.len() => {
            Ok(list.swap_remove(i).map_or(Val::None, Val::Tensor))
        }
        Val::Ints(d) => d
            .get(i)
            .map(|n| Val::Number(Scalar::Int(*n)))
            .ok_or_else(missing),
        _ => Err(missing()),
    }
}

/// Functions of formulas that numbers have too.
fn of_number(name: &str, n: Scalar) -> Option<Scalar> {
    match (name, n) {
        ("conj", Scalar::Complex(c)) => Some(Scalar::Complex(c.conj())),
        ("conj", n) => Some(n),
        ("neg", Scalar::Int(i)) => Some(Scalar::Int(i.wrapping_neg())),
        ("neg", Scalar::Float(f)) => Some(Scalar::Float(-f)),
        ("neg", Scalar::Complex(c)) => Some(Scalar::Complex(-c)),
        ("log", Scalar::Complex(c)) => Some(Scalar::Complex(c.ln())),
        ("log", n) => Some(Scalar::Float(n.to_f64().ln())),
        _ => None,
    }
}

fn arithmetic(op: Binary, x: Scalar, y: Scalar) -> Result<Scalar> {
    if let (Scalar::Complex(_), _) | (_, Scalar::Complex(_)) = (x, y) {
        let (a, b) = (x.to_c64(), y.to_c64());
        return Ok(match op {
            Binary::Add => Scalar::Complex(a + b),
            Binary::Sub => Scalar::Complex(a - b),
            Binary::Mul => Scalar::Complex(a * b),
            Binary::Div => Scalar::Complex(a / b),
            Binary::Eq => Scalar::Bool(a == b),
            Binary::Ne => Scalar::Bool(a != b),
            _ => bail!(
                Runtime,
                "internal error in torchlike: {op:?} of complex numbers"
            ),
        });
    }
    let (a, b) = (x.to_f64(), y.to_f64());
    let whole = !x.is_floating() && !y.is_floating();
    let (i, j) = (x.to_i64(), y.to_i64());
    Ok(match op {
        Binary::Add if whole => Scalar::Int(i.wrapping_add(j)),
        Binary::Sub if whole => Scalar::Int(i.wrapping_sub(j)),
        Binary::Mul if whole => Scalar::Int(i.wrapping_mul(j)),
        Binary::Add => Scalar::Float(a + b),
        Binary::Sub => Scalar::Float(a - b),
        Binary::Mul => Scalar::Float(a * b),
        Binary::Div => Scalar::Float(a / b),
        Binary::Pow => Scalar::Float(a.powf(b)),
        Binary::Eq => Scalar::Bool(a == b),
        Binary::Ne => Scalar::Bool(a != b),
        Binary::Lt => Scalar::Bool(a < b),
        Binary::Gt => Scalar::Bool(a > b),
        Binary::And | Binary::Or => Scalar::Bool(false),
    })
}

type Named = (&'static str, Vec<&'static Op>);

fn tensor_operator(op: Binary) -> Result<(&'static str, &'static [&'static Op])> {
    static FOUND: LazyLock<[Named; 9]> = LazyLock::new(|| {
        ["add", "sub", "mul", "div", "pow", "eq", "ne", "lt", "gt"].map(|n| (n, rows(n)))
    });
    let found = FOUND.get(op as usize);
    let (name, rows) = found.ok_or_else(|| err!(Runtime, "internal error in torchlike: {op:?}"))?;
    Ok((name, rows))
}
