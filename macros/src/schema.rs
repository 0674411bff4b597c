//! The part of a schema's text that types need: names, kinds and defaults.

/// One parameter.
pub struct Param {
    pub name: String,
    /// `Tensor`, `int[2]`, ..., without the question mark.
    pub kind: String,
    pub optional: bool,
    pub default: Option<String>,
}

/// What a call returns.
pub enum Returns {
    One,
    /// A fixed number of tensors.
    Tuple(usize),
    /// A fixed number of tensors, of which some may not be asked for: `(Tensor?, Tensor?)`.
    Gaps(usize),
    List,
    /// No tensor.
    Value,
}

/// Tells a schema from other texts in a row, such as CUDA expressions.
pub fn is_schema(text: &str) -> bool {
    const KINDS: [&str; 13] = [
        ")",
        "*, ",
        "Tensor",
        "Operand",
        "int",
        "float",
        "bool",
        "str",
        "Scalar",
        "dtype",
        "device",
        "format",
        "Generator",
    ];
    text.strip_prefix('(')
        .is_some_and(|rest| KINDS.iter().any(|k| rest.starts_with(k)))
}

/// Reads `(Tensor self, int dim, *, bool keepdim=False) -> Tensor`.
pub fn parse(text: &str) -> Result<(Vec<Param>, Returns), String> {
    let (args, returns) = text
        .split_once(") -> ")
        .unwrap_or((text.trim_end_matches(')'), "Tensor"));
    let args = args
        .strip_prefix('(')
        .ok_or_else(|| format!("schema without parenthesis: {text}"))?;
    let mut params = Vec::new();
    for part in split(args) {
        if part == "*" || part.is_empty() {
            continue;
        }
        let (kind, rest) = part
            .split_once(' ')
            .ok_or_else(|| format!("bad parameter '{part}' in {text}"))?;
        let (name, default) = match rest.split_once('=') {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (rest, None),
        };
        params.push(Param {
            name: field(name),
            kind: kind.trim_end_matches('?').to_owned(),
            optional: kind.ends_with('?'),
            default,
        });
    }
    Ok((params, returned(returns)))
}

/// The field for a parameter: `self` is a word of Rust, and PyTorch's functions call it `input`.
fn field(name: &str) -> String {
    match name {
        "self" => "input".into(),
        "mod" | "type" | "in" | "as" | "where" | "unsafe" => format!("r#{name}"),
        other => other.to_owned(),
    }
}

fn returned(text: &str) -> Returns {
    match text {
        "Tensor" => Returns::One,
        "Tensor[]" => Returns::List,
        t if t.contains("Tensor?") => Returns::Gaps(t.split(',').count()),
        t if t.starts_with('(') => Returns::Tuple(t.split(',').count()),
        _ => Returns::Value,
    }
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

impl Param {
    /// Whether a call may leave it out.
    pub fn has_default(&self) -> bool {
        self.default.is_some()
    }

    /// The type of the field.
    pub fn field_type(&self) -> String {
        let base = match self.kind.as_str() {
            "Tensor" => "&'a Tensor",
            "Operand" => "Operand<'a>",
            "Tensor[]" | "Tensor[*]" => "Tensors<'a>",
            "Tensor?[]" => "OptTensors<'a>",
            "int" => "i64",
            "float" => "f64",
            "bool" => "bool",
            "str" => "&'a str",
            "Scalar" => "Scalar",
            "float[]" => "&'a [f64]",
            "bool[]" | "bool[2]" | "bool[3]" => "&'a [bool]",
            "Scalar[]" => "&'a [Scalar]",
            "dtype" => "DType",
            "device" => "Device",
            "layout" => "Layout",
            "format" => "MemoryFormat",
            "Generator" => "&'a SharedGenerator",
            _ => "&'a [i64]",
        };
        if self.optional {
            format!("Option<{base}>")
        } else {
            base.to_owned()
        }
    }

    /// The type a function or setter takes.
    pub fn taken_type(&self) -> String {
        match (self.kind.as_str(), self.optional) {
            ("Operand", false) => "impl Into<Operand<'a>>".into(),
            ("Tensor[]" | "Tensor[*]", false) => "impl Into<Tensors<'a>>".into(),
            ("Tensor?[]", false) => "impl Into<OptTensors<'a>>".into(),
            ("Scalar", false) => "impl Into<Scalar>".into(),
            (_, true) => format!("impl Into<{}>", self.field_type()),
            _ => self.field_type(),
        }
    }

    /// Whether a value taken has to be converted into the field.
    pub fn converts(&self) -> bool {
        self.taken_type().starts_with("impl Into")
    }

    /// The default as an expression.
    pub fn default_expression(&self) -> String {
        let text = self.default.as_deref().unwrap_or("None");
        let value = match (self.kind.as_str(), text) {
            (_, "None") => return "None".into(),
            ("bool", t) => (t == "True").to_string(),
            ("float", t) => number(t),
            ("Scalar" | "Operand", t) => match t {
                "True" | "False" => format!("Scalar::Bool({})", t == "True"),
                t if t.parse::<i64>().is_ok() => format!("Scalar::Int({t})"),
                t => format!("Scalar::Float({})", number(t)),
            },
            ("str", t) => format!("{:?}", t.trim_matches(['\'', '"'])),
            ("format", "contiguous_format") => "MemoryFormat::Contiguous".into(),
            ("format", _) => "MemoryFormat::Preserve".into(),
            ("int", "Mean") => "1".into(),
            ("int", t) => t.to_owned(),
            ("Tensor[*]" | "Tensor[]", _) => return "Tensors::EMPTY".into(),
            (kind, t) if t.starts_with(['[', '(']) => {
                let _ = kind;
                format!("&[{}]", t.trim_matches(['[', ']', '(', ')']))
            }
            (kind, t) => {
                let n = kind
                    .strip_prefix("int[")
                    .and_then(|k| k.strip_suffix(']'))
                    .and_then(|k| k.parse().ok())
                    .unwrap_or(1);
                format!("&[{}]", vec![t; n].join(", "))
            }
        };
        let value = if self.kind == "Operand" {
            format!("Operand::Scalar({value})")
        } else {
            value
        };
        if self.optional {
            format!("Some({value})")
        } else {
            value
        }
    }
}

/// A number of Python as a double of Rust.
fn number(text: &str) -> String {
    match text {
        "inf" => "f64::INFINITY".into(),
        "-inf" => "f64::NEG_INFINITY".into(),
        "nan" => "f64::NAN".into(),
        t if t.contains(['.', 'e']) => t.to_owned(),
        t => format!("{t}.0"),
    }
}
