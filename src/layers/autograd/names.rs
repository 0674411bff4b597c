//! What nodes are called.

use crate::ops::{Arg, Args, Op};

/// The names in a list of them.
pub fn all_of(names: &str) -> Vec<String> {
    let names = names.split('/').map(str::trim);
    names.filter(|n| !n.is_empty()).map(str::to_owned).collect()
}

/// A name with `{parameter value=Text ...}` for what differs from call to call; `else` is any other; without texts the value itself.
pub fn filled(name: &str, args: &Args<'_>) -> String {
    let mut made = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('{') {
        made.push_str(before);
        let (inner, after) = after.split_once('}').unwrap_or((after, ""));
        rest = after;
        let asked = inner.split(' ').next().unwrap_or(inner);
        let (param, count) = match asked.split_once('.') {
            Some((param, _)) => (param, true),
            None => (asked, false),
        };
        let value = match args.op.schema.position(param).map(|i| &args.values[i]) {
            Some(Arg::Ints(d)) if count => d.len().to_string(),
            Some(Arg::Tensor(t)) => t.ndim().to_string(),
            Some(Arg::Str(word)) => (*word).to_owned(),
            Some(Arg::Bool(b)) => b.to_string(),
            Some(Arg::Int(i)) => i.to_string(),
            _ => String::new(),
        };
        let text = |wanted: &str| {
            let mut texts = inner.split(' ').filter_map(|w| w.split_once('='));
            texts.find(|(v, _)| *v == wanted).map(|(_, t)| t)
        };
        made.push_str(text(&value).or_else(|| text("else")).unwrap_or(&value));
    }
    made.push_str(rest);
    made
}

/// The name that PyTorch's nodes are called by: with the module of those that have one of their own.
pub fn family_name(op: &Op) -> &'static str {
    let path = op.path();
    if path.starts_with("linalg.") || path.starts_with("special.") {
        return path;
    }
    op.public_name()
}

/// `max_pool2d` as `MaxPool2D`: letters after an underscore or a digit are capital.
pub fn camel(name: &str) -> String {
    let mut made = String::new();
    let mut capital = true;
    for c in name.chars() {
        if c == '_' || c == '.' {
            capital = true;
        } else {
            made.push(if capital { c.to_ascii_uppercase() } else { c });
            capital = c.is_ascii_digit();
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_pytorchs() {
        assert_eq!(camel("max_pool2d_with_indices"), "MaxPool2DWithIndices");
        assert_eq!(camel("_log_softmax"), "LogSoftmax");
    }
}
