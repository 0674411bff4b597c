//! The rows of a table: found in its tokens, and their functions given typed arguments.

use crate::emit::{self, substitute};
use crate::schema;
use proc_macro::{Delimiter, Group, Literal, TokenStream, TokenTree};

/// A row: what it is called, what it takes, and its tokens.
pub struct Row {
    /// `max#dim`.
    pub name: String,
    pub params: Vec<schema::Param>,
    pub returns: schema::Returns,
}

/// The table with typed functions in its rows, followed by the module `calls`.
pub fn expand(table: TokenStream) -> Result<TokenStream, String> {
    let mut tokens: Vec<TokenTree> = table.into_iter().collect();
    let at = tokens
        .iter()
        .rposition(|t| matches!(t, TokenTree::Group(g) if g.delimiter() == Delimiter::Bracket))
        .ok_or("#[operators] stands before a static list of rows")?;
    let TokenTree::Group(list) = &tokens[at] else {
        return Err("no list of rows".into());
    };
    let (mut made, mut rows) = (Vec::new(), Vec::new());
    for part in split(list.stream()) {
        let (row, part) = typed_row(part)?;
        rows.push(row);
        made.extend(part);
        made.push(TokenTree::Punct(proc_macro::Punct::new(
            ',',
            proc_macro::Spacing::Alone,
        )));
    }
    tokens[at] = TokenTree::Group(Group::new(Delimiter::Bracket, made.into_iter().collect()));
    let mut out: TokenStream = tokens.into_iter().collect();
    out.extend(emit::module(&rows));
    Ok(out)
}

/// Token lists between the commas of a list; those between the parameters of a closure are its own.
fn split(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let (mut parts, mut parameters) = (vec![Vec::new()], false);
    for t in tokens {
        let Some(last) = parts.last_mut() else {
            break;
        };
        match &t {
            TokenTree::Punct(p) if p.as_char() == ',' && !parameters => parts.push(Vec::new()),
            TokenTree::Punct(p) if p.as_char() == '|' => {
                parameters = !parameters && begins(last);
                last.push(t);
            }
            _ => last.push(t),
        }
    }
    parts.retain(|p| !p.is_empty());
    parts
}

/// Whether an expression begins after these tokens: at the start of a part, or of what it names (`cuda: ...`).
fn begins(part: &[TokenTree]) -> bool {
    match part.last() {
        None => true,
        Some(TokenTree::Punct(p)) => p.as_char() == ':',
        Some(_) => false,
    }
}

/// The text of a string literal.
fn text_of(t: &TokenTree) -> Option<String> {
    let TokenTree::Literal(l) = t else {
        return None;
    };
    let text = l.to_string();
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    Some(inner.replace("\\\"", "\""))
}

fn typed_row(part: Vec<TokenTree>) -> Result<(Row, Vec<TokenTree>), String> {
    let maker = match part.first() {
        Some(TokenTree::Ident(i)) => i.to_string(),
        _ => return Err("a row starts with the name of a function or macro".into()),
    };
    let called = part.iter().enumerate().find_map(|(at, t)| match t {
        TokenTree::Group(g) => Some((at, g.clone())),
        _ => None,
    });
    let (at, call) = called.ok_or_else(|| format!("{maker}: a row is a call"))?;
    let texts: Vec<String> = call
        .stream()
        .into_iter()
        .filter_map(|t| text_of(&t))
        .collect();
    let name = texts.first().ok_or_else(|| format!("{maker}: no name"))?;
    let text = texts
        .iter()
        .find(|t| schema::is_schema(t))
        .ok_or_else(|| format!("{name}: no schema"))?;
    let (params, returns) = schema::parse(text)?;
    let row = Row {
        name: name.clone(),
        params,
        returns,
    };
    let class = emit::class_name(&row.name);
    let mut fields = split(call.stream());
    if matches!(maker.as_str(), "compose" | "view" | "forward")
        && let Some(function) = fields.get_mut(3)
    {
        let f: TokenStream = std::mem::take(function).into_iter().collect();
        *function = emit::function(&class, f).into_iter().collect();
    }
    let comma = || TokenTree::Punct(proc_macro::Punct::new(',', proc_macro::Spacing::Alone));
    let mut inner: Vec<TokenTree> = Vec::new();
    for field in fields {
        inner.extend(bodies(field, &class)?);
        inner.push(comma());
    }
    let is_macro = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == '!');
    if inner.len() > 1 && part[..at].iter().any(is_macro) {
        inner.pop(); // macros of rows take no comma at the end
    }
    let mut part = part;
    let mut group = Group::new(call.delimiter(), inner.into_iter().collect());
    group.set_span(call.span());
    part[at] = TokenTree::Group(group);
    // What follows the call says more of the row.
    let after = part.split_off(at + 1);
    part.extend(bodies(after, &class)?);
    Ok((row, part))
}

/// Replaces `body!(...)` and `typed!(...)` anywhere among the tokens.
fn bodies(tokens: Vec<TokenTree>, class: &str) -> Result<Vec<TokenTree>, String> {
    let mut out: Vec<TokenTree> = Vec::new();
    for t in tokens {
        let TokenTree::Group(g) = &t else {
            out.push(t);
            continue;
        };
        let called = match out.as_slice() {
            [.., TokenTree::Ident(i), TokenTree::Punct(p)] if p.as_char() == '!' => i.to_string(),
            _ => String::new(),
        };
        let made = match called.as_str() {
            "body" => emit::body(class, split(g.stream()))?,
            "typed" => emit::typed(class, split(g.stream()))?,
            _ => {
                let inner = bodies(g.stream().into_iter().collect(), class)?;
                let mut group = Group::new(g.delimiter(), inner.into_iter().collect());
                group.set_span(g.span());
                out.push(TokenTree::Group(group));
                continue;
            }
        };
        out.truncate(out.len() - 2);
        out.extend(made);
    }
    Ok(out)
}

/// `template` with the placeholder identifiers replaced.
pub fn quote(template: &str, places: &[(&str, TokenStream)]) -> TokenStream {
    match template.parse() {
        Ok(tokens) => substitute(tokens, places),
        Err(_) => TokenStream::from(TokenTree::Literal(Literal::string(template))),
    }
}
