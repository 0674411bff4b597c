//! The texts of gradients, read into expressions.
//!
//! A text is `[Node |] names: expression; names: expression; jvp: ...`. An expression names parameters of the row,
//! `grad` (or `grads[1]`), `result` (or a result by its name), `needs` (which of the clause's inputs want a gradient), and calls rows of the
//! table as functions (`mm(a, b)`) or methods (`grad.conj()`). Texts are part of the program: a malformed one is a
//! bug that the table test reports.

use super::rule::{Asked, Slots};
use crate::Scalar;
use crate::ops::Op;

/// An expression of a gradient.
#[derive(Debug)]
pub enum Expr {
    /// The gradient of a result.
    Grad(usize),
    /// The gradients of all results.
    Grads,
    /// The tangent of a parameter.
    Tangent(usize),
    /// What was saved under this number.
    Slot(usize),
    /// Which of the clause's inputs want a gradient.
    Needs,
    /// A number.
    Number(Scalar),
    /// Nothing.
    None,
    /// A word.
    Word(String),
    /// Several values.
    List(Vec<Expr>),
    /// Something of a value.
    Ask(Box<Expr>, Asked),
    /// One of several values.
    Item(Box<Expr>, usize),
    /// A call of the row of this name that fits.
    Call(Callee, Vec<Expr>, Vec<(String, Expr)>),
    /// The conjugate, by the rows of that name if it is another value.
    Conj(Box<Expr>, Callee),
    /// The other truth value.
    Not(Box<Expr>),
    /// `a + b` and its kind.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `a if c else b`, as c, a, b.
    If(Box<[Expr; 3]>),
    /// There is no derivative, of the row (or what PyTorch calls it); its text says so when it is asked for.
    Refused(Option<String>),
}

/// The rows of one name, in the order of the table.
#[derive(Debug)]
pub struct Callee {
    /// The name.
    pub name: String,
    /// The overloads.
    pub overloads: Vec<&'static Op>,
    /// It is called as a method, whose object is computed before the arguments.
    pub method: bool,
    /// It writes its first argument, as the name says that ends in `_`.
    pub in_place: bool,
}

/// An operation on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `**`
    Pow,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `>`
    Gt,
    /// `and`
    And,
    /// `or`
    Or,
}

/// Finds the rows of a name.
pub type Find = fn(&str) -> Vec<&'static Op>;

/// Reads the expressions of one row.
pub struct Parser<'t, 's> {
    text: &'t str,
    rest: &'t str,
    slots: &'s mut Slots,
    find: Find,
}

type Parsed<T> = Result<T, String>;

impl<'t, 's> Parser<'t, 's> {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn expression(text: &'t str, slots: &'s mut Slots, find: Find) -> Parsed<Expr> {
        let mut p = Parser {
            text,
            rest: text.trim(),
            slots,
            find,
        };
        let e = p.choice()?;
        if p.rest.is_empty() {
            Ok(e)
        } else {
            p.wrong("unexpected text")
        }
    }

    fn wrong<T>(&self, what: &str) -> Parsed<T> {
        Err(format!("{what} at '{}' in '{}'", self.rest, self.text))
    }

    /// Takes a sign, if it is next.
    fn sign(&mut self, sign: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(sign) else {
            return false;
        };
        // `*` is not the start of `**`.
        if sign == "*" && rest.starts_with('*') {
            return false;
        }
        self.rest = rest.trim_start();
        true
    }

    fn need(&mut self, sign: &str) -> Parsed<()> {
        if self.sign(sign) {
            Ok(())
        } else {
            self.wrong(&format!("'{sign}' expected"))
        }
    }

    /// The name that is next.
    fn peek(&self) -> &'t str {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(self.rest.len());
        let name = &self.rest[..end];
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            ""
        } else {
            name
        }
    }

    fn word(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        if found {
            self.rest = self.rest[word.len()..].trim_start();
        }
        found
    }

    fn name(&mut self) -> Parsed<&'t str> {
        let name = self.peek();
        if name.is_empty() {
            return self.wrong("a name expected");
        }
        self.rest = self.rest[name.len()..].trim_start();
        Ok(name)
    }

    fn choice(&mut self) -> Parsed<Expr> {
        let then = self.either()?;
        if !self.word("if") {
            return Ok(then);
        }
        let test = self.either()?;
        if !self.word("else") {
            return self.wrong("'else' expected");
        }
        let other = self.choice()?;
        Ok(Expr::If(Box::new([test, then, other])))
    }

    fn either(&mut self) -> Parsed<Expr> {
        let mut left = self.comparison()?;
        loop {
            let op = if self.word("and") {
                Binary::And
            } else if self.word("or") {
                Binary::Or
            } else {
                return Ok(left);
            };
            left = Expr::Binary(op, Box::new(left), Box::new(self.comparison()?));
        }
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        if self.word("not") {
            return Ok(Expr::Not(Box::new(self.comparison()?)));
        }
        let signs = [
            ("==", Binary::Eq),
            ("!=", Binary::Ne),
            ("<", Binary::Lt),
            (">", Binary::Gt),
        ];
        let left = self.sum()?;
        for (sign, op) in signs {
            if self.sign(sign) {
                return Ok(Expr::Binary(op, Box::new(left), Box::new(self.sum()?)));
            }
        }
        Ok(left)
    }

    fn sum(&mut self) -> Parsed<Expr> {
        let mut left = self.product()?;
        loop {
            let op = if self.sign("+") {
                Binary::Add
            } else if self.sign("-") {
                Binary::Sub
            } else {
                return Ok(left);
            };
            left = Expr::Binary(op, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Parsed<Expr> {
        let mut left = self.sign_or_power()?;
        loop {
            let op = if self.sign("*") {
                Binary::Mul
            } else if self.sign("/") {
                Binary::Div
            } else {
                return Ok(left);
            };
            left = Expr::Binary(op, Box::new(left), Box::new(self.sign_or_power()?));
        }
    }

    fn sign_or_power(&mut self) -> Parsed<Expr> {
        if self.sign("-") {
            let e = self.sign_or_power()?;
            return Ok(match e {
                Expr::Number(Scalar::Int(i)) => Expr::Number(Scalar::Int(-i)),
                Expr::Number(Scalar::Float(f)) => Expr::Number(Scalar::Float(-f)),
                e => self.call("neg", vec![e], Vec::new(), true)?,
            });
        }
        let base = self.postfix()?;
        if self.sign("**") {
            let by = self.sign_or_power()?;
            return Ok(Expr::Binary(Binary::Pow, Box::new(base), Box::new(by)));
        }
        Ok(base)
    }

    fn postfix(&mut self) -> Parsed<Expr> {
        let mut e = self.primary()?;
        loop {
            if self.sign(".") {
                let name = self.name()?;
                if self.sign("(") {
                    let (mut args, kwargs) = self.arguments()?;
                    args.insert(0, e);
                    e = self.call(name, args, kwargs, true)?;
                } else {
                    e = self.ask(e, name)?;
                }
            } else if self.sign("[") {
                let i = self.number()?;
                let Scalar::Int(i) = i else {
                    return self.wrong("a position expected");
                };
                self.need("]")?;
                e = Expr::Item(Box::new(e), i as usize);
            } else {
                return Ok(e);
            }
        }
    }

    fn ask(&mut self, e: Expr, name: &str) -> Parsed<Expr> {
        let Some(asked) = Asked::named(name) else {
            return self.wrong(&format!("'{name}' is no attribute"));
        };
        // Of what is saved, only what is asked for is kept.
        Ok(match e {
            Expr::Slot(i) => Expr::Slot(self.slots.asking(i, asked)),
            e => Expr::Ask(Box::new(e), asked),
        })
    }

    fn number(&mut self) -> Parsed<Scalar> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
            .unwrap_or(self.rest.len());
        // A point before a name calls a method.
        let mut text = &self.rest[..end];
        if let Some((whole, method)) = text.split_once('.')
            && method.starts_with(|c: char| c.is_ascii_alphabetic())
        {
            text = whole;
        }
        let number = text
            .parse()
            .map(Scalar::Int)
            .or_else(|_| text.parse().map(Scalar::Float));
        match number {
            Ok(n) => {
                self.rest = self.rest[text.len()..].trim_start();
                Ok(n)
            }
            Err(_) => self.wrong("a number expected"),
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        if self.sign("(") {
            let e = self.choice()?;
            self.need(")")?;
            return Ok(e);
        }
        if self.sign("[") {
            return Ok(Expr::List(self.list("]")?));
        }
        if self.sign("'") {
            let Some((word, rest)) = self.rest.split_once('\'') else {
                return self.wrong("a quote expected");
            };
            self.rest = rest.trim_start();
            return Ok(Expr::Word(word.to_owned()));
        }
        if self.peek().is_empty() {
            return self.number().map(Expr::Number);
        }
        let name = self.name()?;
        match name {
            "None" => return Ok(Expr::None),
            "True" => return Ok(Expr::Number(Scalar::Bool(true))),
            "False" => return Ok(Expr::Number(Scalar::Bool(false))),
            "grad" => return Ok(Expr::Grad(0)),
            "needs" => return Ok(Expr::Needs),
            "refused" => return self.refused(),
            "grads" if !self.sign("[") => return Ok(Expr::Grads),
            "grads" => {
                let i = self.number()?;
                self.need("]")?;
                return Ok(Expr::Grad(i.to_i64() as usize));
            }
            _ => {}
        }
        if !self.rest.starts_with('(') {
            if let Some(i) = self.slots.named(name) {
                return Ok(Expr::Slot(i));
            }
            if let Some(i) = name
                .strip_suffix("_t")
                .and_then(|n| self.slots.parameter(n))
            {
                return Ok(Expr::Tangent(i));
            }
        }
        let mut path = name.to_owned();
        while self.sign(".") {
            path.push('.');
            path.push_str(self.name()?);
        }
        self.need("(")?;
        let (args, kwargs) = self.arguments()?;
        self.call(&path, args, kwargs, false)
    }

    /// `refused`, or `refused('what')`.
    fn refused(&mut self) -> Parsed<Expr> {
        if !self.sign("(") {
            return Ok(Expr::Refused(None));
        }
        let what = self.choice()?;
        self.need(")")?;
        match what {
            Expr::Word(what) => Ok(Expr::Refused(Some(what))),
            _ => self.wrong("a word expected"),
        }
    }

    fn list(&mut self, end: &str) -> Parsed<Vec<Expr>> {
        let mut items = Vec::new();
        while !self.sign(end) {
            items.push(self.choice()?);
            if !self.sign(",") {
                self.need(end)?;
                break;
            }
        }
        Ok(items)
    }

    #[allow(clippy::type_complexity)]
    fn arguments(&mut self) -> Parsed<(Vec<Expr>, Vec<(String, Expr)>)> {
        let (mut args, mut kwargs) = (Vec::new(), Vec::new());
        while !self.sign(")") {
            let before = self.rest;
            let name = self.peek();
            if !name.is_empty() {
                self.rest = self.rest[name.len()..].trim_start();
            }
            if !name.is_empty() && !self.rest.starts_with("==") && self.sign("=") {
                kwargs.push((name.to_owned(), self.choice()?));
            } else {
                self.rest = before;
                args.push(self.choice()?);
            }
            if !self.sign(",") {
                self.need(")")?;
                break;
            }
        }
        Ok((args, kwargs))
    }

    fn call(
        &self,
        name: &str,
        args: Vec<Expr>,
        kwargs: Vec<(String, Expr)>,
        method: bool,
    ) -> Parsed<Expr> {
        let (mut overloads, mut in_place) = ((self.find)(name), false);
        if let (true, Some(base)) = (overloads.is_empty(), name.strip_suffix('_')) {
            (overloads, in_place) = ((self.find)(base), true);
        }
        if overloads.is_empty() {
            return self.wrong(&format!("there is no row '{name}'"));
        }
        let callee = Callee {
            name: name.to_owned(),
            overloads,
            method,
            in_place,
        };
        match <[Expr; 1]>::try_from(args) {
            Ok([e]) if callee.name == "conj" && kwargs.is_empty() => {
                Ok(Expr::Conj(Box::new(e), callee))
            }
            Ok(one) => Ok(Expr::Call(callee, one.into(), kwargs)),
            Err(args) => Ok(Expr::Call(callee, args, kwargs)),
        }
    }
}

/// The results whose gradients an expression names.
pub fn grads(e: &Expr, found: &mut Vec<usize>) {
    match e {
        Expr::Grad(k) => found.push(*k),
        Expr::List(list) => list.iter().for_each(|e| grads(e, found)),
        Expr::Ask(e, _) | Expr::Item(e, _) | Expr::Conj(e, _) | Expr::Not(e) => grads(e, found),
        Expr::Call(_, args, kwargs) => {
            args.iter().for_each(|e| grads(e, found));
            kwargs.iter().for_each(|(_, e)| grads(e, found));
        }
        Expr::Binary(_, a, b) => {
            grads(a, found);
            grads(b, found);
        }
        Expr::If(parts) => parts.iter().for_each(|e| grads(e, found)),
        _ => {}
    }
}
