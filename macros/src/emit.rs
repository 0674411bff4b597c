//! What is made for a row, as tokens.

use crate::rows::{Row, quote};
use crate::schema::{Param, Returns};
use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

const CORE: &str = "crate::ops::core";

/// `MaxDim` of `max#dim`, `NnFunctionalRelu_` of `nn.functional.relu_`.
pub fn class_name(name: &str) -> String {
    let end = if name.ends_with('_') { "_" } else { "" };
    let mut out: String = name
        .split(['.', '#', '_'])
        .filter(|p| !p.is_empty())
        .map(|p| {
            let (first, rest) = p.split_at(1);
            first.to_uppercase() + rest
        })
        .collect();
    if name.starts_with('_') {
        out.insert(0, '_');
    }
    out + end
}

fn function_name(name: &str) -> String {
    let name = name.replace(['.', '#'], "_");
    match name.as_str() {
        "where" | "type" => format!("{name}_"),
        _ => name,
    }
}

/// Replaces identifiers by tokens, in groups too.
pub fn substitute(tokens: TokenStream, places: &[(&str, TokenStream)]) -> TokenStream {
    tokens
        .into_iter()
        .flat_map(|t| match &t {
            TokenTree::Ident(i) => {
                let name = i.to_string();
                match places.iter().find(|(p, _)| *p == name) {
                    Some((_, with)) => TokenStream::from(TokenTree::Group(Group::new(
                        Delimiter::None,
                        with.clone(),
                    ))),
                    None => t.into(),
                }
            }
            TokenTree::Group(g) => {
                let mut group = Group::new(g.delimiter(), substitute(g.stream(), places));
                group.set_span(g.span());
                TokenTree::Group(group).into()
            }
            _ => t.into(),
        })
        .collect()
}

/// The function of a `compose` or `view` row: from dynamic arguments to those of its own.
pub fn function(class: &str, f: TokenStream) -> TokenStream {
    quote(
        &format!(
            "|args: &crate::ops::Args| {{
                fn apply<'a, R: Into<T>, T>(a: calls::{class}<'a>, f: impl FnOnce(&calls::{class}<'a>) -> crate::Result<R>) -> crate::Result<T> {{
                    f(&a).map(Into::into)
                }}
                apply(calls::{class}::read(args)?, FUNCTION)
            }}"
        ),
        &[("FUNCTION", f)],
    )
}

/// `typed!(f)` and `typed!(f, x, y)`: a closure of the dynamic arguments and `x`, `y` that calls `f(&typed, x, y)`.
pub fn typed(class: &str, parts: Vec<Vec<TokenTree>>) -> Result<Vec<TokenTree>, String> {
    let mut parts = parts.into_iter();
    let f: TokenStream = parts
        .next()
        .ok_or("typed!() of nothing")?
        .into_iter()
        .collect();
    let extra: Vec<String> = parts
        .map(|p| p.into_iter().collect::<TokenStream>().to_string())
        .collect();
    let (taken, kinds): (Vec<String>, Vec<String>) = (0..extra.len())
        .map(|i| (format!("x{i}"), extra[i].clone()))
        .unzip();
    let declared: String = taken
        .iter()
        .zip(&kinds)
        .map(|(n, k)| format!(", {n}: {k}"))
        .collect();
    let passed: String = taken.iter().map(|n| format!(", {n}")).collect();
    let kinds: String = kinds.iter().map(|k| format!(", {k}")).collect();
    Ok(quote(
        &format!(
            "|args: &crate::ops::Args{declared}| {{
                fn apply<'a, R>(a: calls::{class}<'a>{declared}, f: impl FnOnce(&calls::{class}<'a>{kinds}) -> crate::Result<R>) -> crate::Result<R> {{
                    f(&a{passed})
                }}
                apply(calls::{class}::read(args)?{passed}, FUNCTION)
            }}"
        ),
        &[("FUNCTION", f)],
    )
    .into_iter()
    .collect())
}

/// `body!(rule, cpu, cuda: ..., values: ..., scratch: ...)`: a kernel body whose functions take typed arguments; `anywhere: ...` is a
/// kernel for both.
pub fn body(class: &str, parts: Vec<Vec<TokenTree>>) -> Result<Vec<TokenTree>, String> {
    let (mut plain, mut cuda, mut values, mut scratch) = (Vec::new(), None, None, None);
    for part in parts {
        match part.as_slice() {
            [TokenTree::Ident(i), TokenTree::Punct(p), rest @ ..]
                if p.as_char() == ':'
                    && matches!(
                        i.to_string().as_str(),
                        "cuda" | "values" | "scratch" | "anywhere"
                    ) =>
            {
                let rest: TokenStream = rest.iter().cloned().collect();
                match i.to_string().as_str() {
                    "cuda" => cuda = Some(rest),
                    "values" => values = Some(rest),
                    "scratch" => scratch = Some(rest),
                    _ => {
                        plain.push(rest.clone());
                        cuda = Some(rest);
                    }
                }
            }
            _ => plain.push(part.into_iter().collect::<TokenStream>()),
        }
    }
    let [rule, cpu] = plain.as_slice() else {
        return Err(format!("{class}: body!(rule, cpu, ...)"));
    };
    let a = format!("calls::{class}<'a>");
    let kernel = format!("&{a}, &R::Found, &[crate::Tensor]) -> crate::Result<()>");
    let (cuda_type, cuda_made) = if cuda.is_some() {
        (
            format!(", cuda: impl Fn({kernel}"),
            "Some(&|outs| cuda(&a, &found, outs))",
        )
    } else {
        (String::new(), "None")
    };
    let (values_type, values_made) = if values.is_some() {
        (
            format!(", values: impl Fn(&{a}, &R::Found) -> crate::Result<()>"),
            "&|| values(&a, &found)",
        )
    } else {
        (String::new(), "&|| Ok(())")
    };
    let (scratch_type, scratch_made) = if scratch.is_some() {
        let given = format!("&{a}, &R::Found, &[crate::Tensor], &mut crate::cpu::room::Room");
        (
            format!(", scratch: impl Fn({given}) -> crate::Result<()>"),
            "&|outs, room| scratch(&a, &found, outs, room)",
        )
    } else {
        (String::new(), "&|_, _| Ok(())")
    };
    let template = format!(
        "{CORE}::op::KernelBody::typed(|args, finish| {{
            fn apply<'a, R: {CORE}::op::Ruled>(a: {a}, finish: &mut {CORE}::op::Finish<'_>,
                rule: impl FnOnce(&{a}) -> crate::Result<R>, cpu: impl Fn({kernel}{cuda_type}{values_type}{scratch_type}) -> crate::Result<crate::ops::Ret> {{
                let (plan, found) = rule(&a)?.split();
                finish(plan, &{CORE}::op::Exec {{ values: {values_made}, cpu: &|outs| cpu(&a, &found, outs), cuda: {cuda_made}, scratch: {scratch_made} }})
            }}
            apply(calls::{class}::read(args)?, finish, RULE, CPU {} {} {})
        }})",
        if cuda.is_some() { ", CUDA" } else { "" },
        if values.is_some() { ", VALUES" } else { "" },
        if scratch.is_some() { ", SCRATCH" } else { "" },
    );
    Ok(quote(
        &template,
        &[
            ("RULE", rule.clone()),
            ("CPU", cpu.clone()),
            ("CUDA", cuda.unwrap_or_default()),
            ("VALUES", values.unwrap_or_default()),
            ("SCRATCH", scratch.unwrap_or_default()),
        ],
    )
    .into_iter()
    .collect())
}

/// The module `calls` of a table.
pub fn module(rows: &[Row]) -> TokenStream {
    let mut text = String::from(
        "/// The arguments of each operator here, by name, and its function.
        pub mod calls {
            #![allow(unused_imports, non_snake_case, non_camel_case_types, clippy::should_implement_trait, clippy::too_many_arguments, clippy::module_name_repetitions, clippy::new_ret_no_self, clippy::wrong_self_convention, reason = \"made from schemas\")]
            use crate::ops::core::typed::{self, Operand, OptTensors, Read, Tensors, Write};
            use crate::ops::{Args, Ret};
            use crate::parts::Layout;
            use crate::random::SharedGenerator;
            use crate::{DType, Device, MemoryFormat, Result, Scalar, Tensor};
        ",
    );
    for row in rows {
        text += &class(row);
    }
    text += "}";
    quote(&text, &[])
}

fn class(row: &Row) -> String {
    let name = class_name(&row.name);
    let public = row.name.replace('#', " (") + if row.name.contains('#') { ")" } else { "" };
    let fields: String = row
        .params
        .iter()
        .map(|p| format!("#[doc = {:?}] pub {}: {},", doc(p), p.name, p.field_type()))
        .collect();
    let (required, optional): (Vec<&Param>, Vec<&Param>) =
        row.params.iter().partition(|p| !p.has_default());
    let taken: String = required
        .iter()
        .map(|p| format!("{}: {},", p.name, p.taken_type()))
        .collect();
    let passed: String = required.iter().map(|p| format!("{},", p.name)).collect();
    let made: String = row
        .params
        .iter()
        .map(|p| match (p.has_default(), p.converts()) {
            (true, _) => format!("{}: {},", p.name, p.default_expression()),
            (false, true) => format!("{0}: {0}.into(),", p.name),
            (false, false) => format!("{},", p.name),
        })
        .collect();
    let setters: String = optional
        .iter()
        .map(|p| {
            let value = if p.converts() { "value.into()" } else { "value" };
            format!(
                "#[doc = {:?}] #[inline] #[must_use] pub fn {}(mut self, value: {}) -> Self {{ self.{} = {value}; self }}",
                format!("Sets `{}` (default {}).", p.name, p.default.as_deref().unwrap_or("None")),
                p.name,
                p.taken_type(),
                p.name
            )
        })
        .collect();
    let reads: String = row
        .params
        .iter()
        .enumerate()
        .map(|(i, p)| format!("{}: Read::read(args, {i})?,", p.name))
        .collect();
    let writes: String = row
        .params
        .iter()
        .map(|p| format!("values.push(Write::arg(&self.{}));", p.name))
        .collect();
    let (result, gather) = match row.returns {
        Returns::One => ("Tensor".to_owned(), "one"),
        Returns::Tuple(n) => (format!("[Tensor; {n}]"), "several"),
        Returns::Gaps(n) => (format!("[Option<Tensor>; {n}]"), "asked"),
        Returns::List => ("Vec<Tensor>".to_owned(), "list"),
        Returns::Value => ("Ret".to_owned(), "any"),
    };
    let lifetimes = if row.params.iter().any(|p| p.field_type().contains("'a")) {
        ""
    } else {
        "#[doc(hidden)] pub lifetime: std::marker::PhantomData<&'a ()>,"
    };
    let phantom = if lifetimes.is_empty() {
        ""
    } else {
        "lifetime: std::marker::PhantomData,"
    };
    format!(
        "#[doc = {about:?}] #[derive(Clone, Debug)] pub struct {name}<'a> {{ {fields} {lifetimes} }}
        impl<'a> {name}<'a> {{
            #[doc = {new_doc:?}] #[inline] #[must_use] pub fn new({taken}) -> Self {{ Self {{ {made} {phantom} }} }}
            {setters}
            /// The arguments from those of a call.
            ///
            /// # Errors
            /// If one is of another kind, which a parsed call cannot have.
            #[inline] pub fn read(args: &'a Args<'_>) -> Result<Self> {{ Ok(Self {{ {reads} {phantom} }}) }}
            /// The arguments in schema order.
            ///
            /// # Errors
            /// If the operator is not in the table.
            #[inline] pub fn args(&self) -> Result<Args<'_>> {{ typed::args(self) }}
            /// Calls the operator.
            ///
            /// # Errors
            /// What its rule or kernel reports.
            #[inline] pub fn call(&self) -> Result<{result}> {{ typed::made(self, typed::{gather}) }}
            /// Calls it in place: the result is written into the first argument.
            ///
            /// # Errors
            /// As `call`, and if the result does not fit.
            #[inline] pub fn call_(&self) -> Result<()> {{ typed::made(self, typed::in_place) }}
            /// Calls it with results that are there already, and are resized if their shape differs.
            ///
            /// # Errors
            /// As `call`, and if a result cannot be cast.
            #[inline] pub fn call_out(&self, outs: &mut [Tensor]) -> Result<()> {{ typed::made(self, |args| typed::into(args, outs)) }}
        }}
        impl typed::Typed for {name}<'_> {{
            #[inline] fn row() -> Result<&'static crate::ops::Op> {{ crate::op!({row_name:?}) }}
            #[inline] fn write<'b>(&'b self, values: &mut crate::ops::core::args::Values<'b>) {{ {writes} }}
        }}
        #[doc = {about:?}]
        ///
        /// # Errors
        /// What its rule or kernel reports.
        #[inline] pub fn {function}<'a>({taken}) -> Result<{result}> {{ {name}::<'a>::new({passed}).call() }}
        ",
        about = format!("`{public}`."),
        new_doc = "The arguments without default; setters change the others.",
        row_name = row.name,
        function = function_name(&row.name),
    )
}

fn doc(p: &Param) -> String {
    let kind = if p.optional {
        format!("{}?", p.kind)
    } else {
        p.kind.clone()
    };
    match &p.default {
        Some(d) => format!("`{kind}`, default `{d}`."),
        None => format!("`{kind}`."),
    }
}
