//! Functions that PyTorch writes in Python: what the interpreter calls them, and its words for missing arguments.

/// Functions of `nn.functional` that PyTorch writes in C++; the others word a missing argument as Python does.
const NATIVE_FUNCTIONAL: &[&str] = &[
    "adaptive_avg_pool1d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "bilinear",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_similarity",
    "elu_",
    "gelu",
    "hardshrink",
    "hardtanh_",
    "leaky_relu_",
    "linear",
    "logsigmoid",
    "native_channel_shuffle",
    "one_hot",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "relu_",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu_",
    "softplus",
    "softshrink",
    "threshold_",
];

/// Functions of `nn.functional` that PyTorch calls by another one's name.
const UNDERSCORED: &[&str] = &[
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "threshold",
];

/// Other functions and methods that PyTorch writes in Python, and what the interpreter calls them.
const WRITTEN_IN_PYTHON: &[(&str, &str)] = &[
    ("torchlike.atleast_1d", "atleast_1d"),
    ("torchlike.atleast_2d", "atleast_2d"),
    ("torchlike.atleast_3d", "atleast_3d"),
    ("torchlike.block_diag", "block_diag"),
    ("torchlike.broadcast_tensors", "broadcast_tensors"),
    ("torchlike.cartesian_prod", "cartesian_prod"),
    ("torchlike.cdist", "cdist"),
    ("torchlike.chain_matmul", "chain_matmul"),
    ("torchlike.lu", "_lu_no_infos"),
    ("torchlike.meshgrid", "meshgrid"),
    ("torchlike.norm", "norm"),
    ("torchlike.split", "split"),
    ("torchlike.stft", "stft"),
    ("torchlike.unique", "_return_output"),
    ("torchlike.unique_consecutive", "_consecutive_return_output"),
    ("torchlike.unravel_index", "unravel_index"),
    ("Tensor.istft", "Tensor.istft"),
    ("Tensor.lu", "Tensor.lu"),
    ("Tensor.norm", "Tensor.norm"),
    ("Tensor.split", "Tensor.split"),
    ("Tensor.stft", "Tensor.stft"),
    ("Tensor.unflatten", "Tensor.unflatten"),
    ("Tensor.unique", "Tensor.unique"),
    ("Tensor.unique_consecutive", "Tensor.unique_consecutive"),
];

/// What the interpreter calls a function that PyTorch writes in Python, and which words its binding errors as Python does.
pub fn python_name(full_name: &str) -> Option<String> {
    match full_name.strip_prefix("torchlike.nn.functional.") {
        Some(name) if UNDERSCORED.contains(&name) => Some(format!("_{name}")),
        Some(name) => (!NATIVE_FUNCTIONAL.contains(&name)).then(|| name.to_owned()),
        None => {
            let mut known = WRITTEN_IN_PYTHON.iter();
            let found = known.find(|(full, _)| *full == full_name);
            found.map(|(_, name)| (*name).to_owned())
        }
    }
}

/// The message for arguments that are missing.
pub fn missing(name: &str, names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
    // PyTorch has the plural the wrong way round
    let noun = if names.len() == 1 {
        "arguments"
    } else {
        "argument"
    };
    format!(
        "{name}() missing {} required positional {noun}: {}",
        names.len(),
        quoted.join(", ")
    )
}

/// The same, as the interpreter words it.
pub fn missing_in_python(name: &str, names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("'{n}'")).collect();
    let list = match quoted.as_slice() {
        [one] => one.clone(),
        [a, b] => format!("{a} and {b}"),
        [most @ .., last] => format!("{}, and {last}", most.join(", ")),
        [] => String::new(),
    };
    format!(
        "{name}() missing {} required positional argument{}: {list}",
        names.len(),
        if names.len() == 1 { "" } else { "s" }
    )
}

/// The attribute that a function written in Python asks the tensor at a place for, before anything else.
pub fn first_question(full_name: &str, at: usize) -> Option<&'static str> {
    let Some(name) = full_name.strip_prefix("torchlike.nn.functional.") else {
        return match (full_name, at) {
            ("torchlike.split", 0) => Some("split"),
            ("torchlike.norm", 0) => Some("layout"),
            _ => None,
        };
    };
    Some(match (name, at) {
        (
            "binary_cross_entropy"
            | "binary_cross_entropy_with_logits"
            | "huber_loss"
            | "l1_loss"
            | "mse_loss"
            | "smooth_l1_loss",
            0 | 1,
        )
        | (
            "adaptive_avg_pool2d"
            | "adaptive_avg_pool3d"
            | "adaptive_max_pool2d"
            | "adaptive_max_pool2d_with_indices"
            | "adaptive_max_pool3d"
            | "adaptive_max_pool3d_with_indices"
            | "gaussian_nll_loss"
            | "instance_norm"
            | "max_unpool1d"
            | "max_unpool2d"
            | "max_unpool3d",
            0,
        ) => "size",
        ("margin_ranking_loss", 0..=2)
        | (
            "dropout1d"
            | "dropout2d"
            | "dropout3d"
            | "fractional_max_pool2d"
            | "fractional_max_pool2d_with_indices"
            | "fractional_max_pool3d"
            | "fractional_max_pool3d_with_indices"
            | "glu"
            | "group_norm"
            | "interpolate"
            | "local_response_norm"
            | "softmin"
            | "upsample"
            | "upsample_bilinear"
            | "upsample_nearest",
            0,
        ) => "dim",
        ("lp_pool1d" | "lp_pool2d" | "lp_pool3d", 0) => "pow",
        ("affine_grid", 0) => "is_floating_point",
        ("embedding_bag", 1) => "dtype",
        ("log_softmax", 0) => "log_softmax",
        ("normalize", 0) => "norm",
        ("sigmoid", 0) => "sigmoid",
        ("softmax", 0) => "softmax",
        ("softsign", 0) => "abs",
        ("tanh" | "tanhshrink", 0) => "tanh",
        _ => return None,
    })
}

/// What a function written in Python hands a parameter to, which is what complains of its type.
#[derive(Clone, Copy)]
pub struct Handed {
    /// The function in C++.
    pub function: &'static str,
    /// What it calls the parameter.
    pub parameter: &'static str,
    /// Its place there, if it is handed by place.
    pub position: Option<usize>,
}

/// What parameters of `nn.functional` are handed to: the function, its parameter, then the function, parameter and place in C++.
const HANDED: &str = include_str!("handed.txt");

/// What a parameter of a function is handed to.
pub fn handed(full_name: &str, parameter: &str) -> Option<Handed> {
    let name = full_name.strip_prefix("torchlike.nn.functional.")?;
    HANDED.lines().find_map(|line| {
        let mut words = line.split(' ');
        if words.next() != Some(name) || words.next() != Some(parameter) {
            return None;
        }
        Some(Handed {
            function: words.next()?,
            parameter: words.next()?,
            position: words.next().and_then(|n| n.parse().ok()),
        })
    })
}
