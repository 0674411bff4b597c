//! Einstein sums: a chain of batched products, by PyTorch's rules for the order of dimensions.

use crate::ops::core::op::{Cast, F, OpDef, compose};
use crate::ops::f;
use crate::{Dims, Result, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[compose(
    "einsum",
    "(str equation, Tensor[*] operands)",
    F,
    einsum,
    "Sums of products of elements, as the equation says.",
)
.samples("'ij,jk->ik', f32[2, 3], f32[3, 4]; '...i->...', c64[2, 3]; 'ii->i', i64[3, 3]")
.amp(Cast::Kept, Cast::Low)];

/// The subscript number that stands for the ellipsis; letters come before it, capitals first.
const ELLIPSIS: usize = 52;

fn subscript(c: char) -> Option<usize> {
    match c {
        'A'..='Z' => Some(c as usize - 'A' as usize),
        'a'..='z' => Some(c as usize - 'a' as usize + 26),
        _ => None,
    }
}

fn letter(label: usize) -> char {
    let c = if label < 26 {
        b'A' + label as u8
    } else {
        b'a' + (label - 26) as u8
    };
    c as char
}

/// A piece of the equation, and where it begins there.
type Piece<'a> = (usize, &'a str);

/// The labels of one side's term.
fn labels((from, text): Piece, place: &str) -> Result<Vec<usize>> {
    let (mut out, mut chars) = (Vec::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            ' ' => {}
            '.' => {
                let twice: &str = match place {
                    "the output" => "output but an ellipsis (...) was already found",
                    _ => &format!("{place} for which an ellipsis was already found"),
                };
                ensure!(
                    !out.contains(&ELLIPSIS),
                    Runtime,
                    "einsum(): found '.' for {twice}"
                );
                ensure!(
                    [chars.next(), chars.next()]
                        .iter()
                        .all(|n| matches!(n, Some((_, '.')))),
                    Runtime,
                    "einsum(): found '.' for {place} that is not part of any ellipsis"
                );
                out.push(ELLIPSIS);
            }
            c => match subscript(c) {
                Some(l) => out.push(l),
                None => bail!(
                    Runtime,
                    "einsum(): invalid subscript given at index {} in the equation string, subscripts must be in [a-zA-Z]",
                    from + at
                ),
            },
        }
    }
    Ok(out)
}

/// Where the dimensions of each label go: those of the result first, then those that are summed over.
struct Places {
    /// The first dimension of each label.
    of: [usize; ELLIPSIS + 1],
    /// How many dimensions the ellipsis stands for.
    ellipsis: usize,
    /// Dimensions given out so far, in the end all of them.
    total: usize,
    /// Dimensions of the result.
    outputs: usize,
}

impl Places {
    fn put(&mut self, label: usize) {
        self.of[label] = self.total;
        self.total += if label == ELLIPSIS { self.ellipsis } else { 1 };
    }

    /// Places by the right side of the equation, or without one by how often labels occur.
    fn new(terms: &[Vec<usize>], rhs: Option<Piece>, ellipsis: usize) -> Result<Self> {
        let mut count = [0usize; ELLIPSIS + 1];
        terms.iter().flatten().for_each(|&l| count[l] += 1);
        let mut places = Self {
            of: [usize::MAX; ELLIPSIS + 1],
            ellipsis,
            total: 0,
            outputs: 0,
        };
        match rhs {
            None => {
                if count[ELLIPSIS] > 0 {
                    places.put(ELLIPSIS);
                }
                (0..ELLIPSIS)
                    .filter(|&l| count[l] == 1)
                    .for_each(|l| places.put(l));
            }
            Some(piece) => {
                for l in output_labels(piece, &count)? {
                    places.put(l);
                }
            }
        }
        places.outputs = places.total;
        for l in std::iter::once(ELLIPSIS).chain(0..ELLIPSIS) {
            if count[l] > 0 && places.of[l] == usize::MAX {
                places.put(l);
            }
        }
        Ok(places)
    }
}

/// The labels of the right side, each of which must occur on the left, and once here.
fn output_labels(piece: Piece, count: &[usize]) -> Result<Vec<usize>> {
    let out = labels(piece, "the output")?;
    for (i, &l) in out.iter().enumerate().filter(|(_, l)| **l != ELLIPSIS) {
        ensure!(
            count[l] > 0,
            Runtime,
            "einsum(): output subscript {} does not appear in the equation for any input operand",
            letter(l)
        );
        ensure!(
            !out[..i].contains(&l),
            Runtime,
            "einsum(): output subscript {} appears more than once in the output",
            letter(l)
        );
    }
    Ok(out)
}

fn einsum(a: &calls::Einsum) -> Result<Tensor> {
    let operands = a.operands.refs();
    ensure!(
        !operands.is_empty(),
        Runtime,
        "einsum(): must provide at least one operand"
    );
    let (lhs, rhs) = match a.equation.split_once("->") {
        Some((l, r)) => (l, Some((l.len() + 2, r))),
        None => (a.equation, None),
    };
    let terms = parse_terms(lhs, operands.len())?;
    let ellipsis = ellipsis_width(&terms, &operands)?;
    let places = Places::new(&terms, rhs, ellipsis)?;
    check_sizes(&terms, &operands, ellipsis)?;
    let spread = terms
        .iter()
        .zip(&operands)
        .map(|(term, t)| spread(t, term, &places))
        .collect::<Result<_>>()?;
    multiply(spread, &places)
}

/// The labels of each operand.
fn parse_terms(lhs: &str, operands: usize) -> Result<Vec<Vec<usize>>> {
    let (mut terms, mut from) = (Vec::new(), 0);
    for (i, term) in lhs.split(',').enumerate() {
        ensure!(
            i < operands,
            Runtime,
            "einsum(): fewer operands were provided than specified in the equation"
        );
        terms.push(labels((from, term), &format!("operand {i}"))?);
        from += term.len() + 1;
    }
    ensure!(
        terms.len() == operands,
        Runtime,
        "einsum(): more operands were provided than specified in the equation"
    );
    Ok(terms)
}

/// How many dimensions the ellipsis stands for.
fn ellipsis_width(terms: &[Vec<usize>], operands: &[&Tensor]) -> Result<usize> {
    let mut width = 0;
    for (i, (term, t)) in terms.iter().zip(operands).enumerate() {
        let n = t.ndim();
        if term.contains(&ELLIPSIS) {
            let given = term.len() - 1;
            ensure!(
                given <= n,
                Runtime,
                "einsum(): the number of subscripts in the equation ({given}) is more than the number of dimensions ({n}) for operand {i}"
            );
            width = width.max(n - given);
        } else {
            ensure!(
                term.len() == n,
                Runtime,
                "einsum(): the number of subscripts in the equation ({}) does not match the number of dimensions ({n}) for operand {i} and \
                 no ellipsis was given",
                term.len()
            );
        }
    }
    Ok(width)
}

/// The products of operands with all dimensions, summed over those that are not in the result: each as soon as no other
/// operand needs it.
fn multiply(operands: Vec<Tensor>, places: &Places) -> Result<Tensor> {
    let (outputs, total) = (places.outputs, places.total);
    let mut uses: Vec<usize> = (0..total)
        .map(|d| operands.iter().filter(|t| t.shape()[d] != 1).count())
        .collect();
    let many = operands.len() > 1;
    let mut operands = operands.into_iter();
    let Some(mut left) = operands.next() else {
        bail!(Runtime, "einsum(): must provide at least one operand")
    };
    for mut right in operands {
        let (mut both, mut only_left, mut only_right) = (Vec::new(), Vec::new(), Vec::new());
        for d in outputs..total {
            let (l, r) = (left.shape()[d] != 1, right.shape()[d] != 1);
            if l && r {
                uses[d] -= 1;
                if uses[d] == 1 {
                    both.push(d);
                    uses[d] = 0;
                }
            } else if uses[d] == 1 && (l || r) {
                let only = if l { &mut only_left } else { &mut only_right };
                only.push(d as i64);
                uses[d] = 0;
            }
        }
        left = kept_sum(left, &only_left)?;
        right = kept_sum(right, &only_right)?;
        left = pair(&left, &right, &both)?;
    }
    if total == outputs {
        return Ok(left);
    }
    if many {
        return f::view(&left, &left.shape()[..outputs]);
    }
    let summed: Dims = (outputs as i64..total as i64).collect();
    f::sum_dim(&left, &*summed)
}

/// The sum over dimensions, which stay with size 1.
fn kept_sum(t: Tensor, dims: &[i64]) -> Result<Tensor> {
    if dims.is_empty() {
        return Ok(t);
    }
    f::SumDim::new(&t, dims).keepdim(true).call()
}

/// Sizes of one label, or of one dimension of the ellipsis, must agree, or be 1.
fn check_sizes(terms: &[Vec<usize>], operands: &[&Tensor], ellipsis: usize) -> Result<()> {
    let (mut sizes, mut hidden) = ([1i64; ELLIPSIS], vec![1i64; ellipsis]);
    for (i, (term, t)) in terms.iter().zip(operands).enumerate() {
        let missing = t.ndim() + usize::from(term.contains(&ELLIPSIS)) - term.len();
        let (mut d, mut own) = (0, [None; ELLIPSIS]);
        for &l in term {
            if l == ELLIPSIS {
                for (k, &s) in (d..).zip(&t.shape()[d..d + missing]) {
                    let seen = &mut hidden[ellipsis - missing + k - d];
                    ensure!(
                        s == 1 || *seen == 1 || s == *seen,
                        Runtime,
                        "einsum(): dimension {k} covered by ellipsis in operand {i}has size {s} which does not broadcast with \
                         previously seen ellipsis with size {seen} for the respective dimension"
                    );
                    *seen = if s == 1 { *seen } else { s };
                }
                d += missing;
                continue;
            }
            let s = t.shape()[d];
            d += 1;
            if let Some(first) = own[l].replace(s) {
                ensure!(
                    s == first,
                    Runtime,
                    "einsum(): subscript {} is repeated for operand {i} but the sizes don't match, {s} != {first}",
                    letter(l)
                );
            } else if s != 1 {
                ensure!(
                    sizes[l] == 1 || sizes[l] == s,
                    Runtime,
                    "einsum(): subscript {} has size {s} for operand {i} which does not broadcast with previously seen size {}",
                    letter(l),
                    sizes[l]
                );
                sizes[l] = s;
            }
        }
    }
    Ok(())
}

/// An operand with all dimensions of the sum, in their common order.
fn spread(t: &Tensor, term: &[usize], places: &Places) -> Result<Tensor> {
    let own = t.ndim() + usize::from(term.contains(&ELLIPSIS)) - term.len();
    let mut perm = vec![usize::MAX; places.total];
    let mut t = t.clone();
    let mut j = 0usize;
    for &l in term {
        let place = places.of[l];
        if l == ELLIPSIS {
            for _ in own..places.ellipsis {
                t = f::unsqueeze(&t, j as i64)?;
            }
            for k in 0..places.ellipsis {
                perm[place + k] = j;
                j += 1;
            }
        } else if perm[place] != usize::MAX {
            t = repeated(&t, perm[place], j)?;
        } else {
            perm[place] = j;
            j += 1;
        }
    }
    for p in &mut perm {
        if *p == usize::MAX {
            t = f::unsqueeze(&t, j as i64)?;
            *p = j;
            j += 1;
        }
    }
    f::permute(&t, &perm.iter().map(|&p| p as i64).collect::<Dims>())
}

/// The diagonal of two dimensions with one label, in the place of the first.
fn repeated(t: &Tensor, first: usize, second: usize) -> Result<Tensor> {
    let line = f::Diagonal::new(t)
        .dim1(first as i64)
        .dim2(second as i64)
        .call()?;
    f::movedim_int(&line, -1, first as i64)
}

/// Products summed over `summed`, which stay as dimensions of size 1.
fn pair(left: &Tensor, right: &Tensor, summed: &[usize]) -> Result<Tensor> {
    if summed.is_empty() {
        return f::mul(left, right);
    }
    let n = left.ndim();
    let (mut shared, mut lo, mut ro) = (Vec::new(), Vec::new(), Vec::new());
    for d in (0..n).filter(|d| !summed.contains(d)) {
        match (left.shape()[d] != 1, right.shape()[d] != 1) {
            (true, true) => shared.push(d),
            (true, false) => lo.push(d),
            _ => ro.push(d),
        }
    }
    // As the other product, a result that begins with what is only on the right lies in order.
    if let (Some(first), Some(last)) = (lo.first(), ro.last())
        && last < first
    {
        return pair(right, left, summed);
    }
    let size = |t: &Tensor, dims: &[usize]| {
        dims::numel(&dims.iter().map(|&d| t.shape()[d]).collect::<Dims>())
    };
    let (b, m, k, p) = (
        size(left, &shared)?,
        size(left, &lo)?,
        size(left, summed)?,
        size(right, &ro)?,
    );
    let order = |parts: [&[usize]; 4]| -> Dims {
        parts
            .iter()
            .flat_map(|p| p.iter())
            .map(|&d| d as i64)
            .collect()
    };
    let l = f::reshape(
        &f::permute(left, &order([&shared, &lo, summed, &ro]))?,
        &[b, m, k],
    )?;
    let r = f::reshape(
        &f::permute(right, &order([&shared, summed, &ro, &lo]))?,
        &[b, k, p],
    )?;
    let out = f::bmm(&l, &r)?;
    let arranged = order([&shared, &lo, summed, &ro]);
    let shape: Dims = arranged
        .iter()
        .map(|&d| d as usize)
        .map(|d| {
            if summed.contains(&d) {
                1
            } else if left.shape()[d] != 1 {
                left.shape()[d]
            } else {
                right.shape()[d]
            }
        })
        .collect();
    let mut back = Dims::filled(n, 0);
    for (at, &d) in arranged.iter().enumerate() {
        back[d as usize] = at as i64;
    }
    f::permute(&f::view(&out, &shape)?, &back)
}
