//! Einstein sums: a chain of batched products, by PyTorch's rules for the order of dimensions.

use crate::ops::core::args::Args;
use crate::ops::core::op::{F, OpDef, Ret, old_compose};
use crate::{Dims, Result, Tensor, bail, dims, ensure, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[old_compose(
    "einsum",
    "(str equation, Tensor[*] operands)",
    F,
    einsum,
    "Sums of products of elements, as the equation says.",
)];

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

/// The labels of one side's term.
fn labels(text: &str, place: &str) -> Result<Vec<usize>> {
    let (mut out, mut chars) = (Vec::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            ' ' => {}
            '.' => {
                ensure!(
                    !out.contains(&ELLIPSIS),
                    Runtime,
                    "einsum(): found '.' for {place} for which an ellipsis was already found"
                );
                ensure!(
                    chars.next() == Some('.') && chars.next() == Some('.'),
                    Runtime,
                    "einsum(): found '.' for {place} that is not part of any ellipsis"
                );
                out.push(ELLIPSIS);
            }
            c => match subscript(c) {
                Some(l) => out.push(l),
                None => bail!(
                    Runtime,
                    "einsum(): invalid subscript given at index {c} in the equation string, subscripts must be in [a-zA-Z]"
                ),
            },
        }
    }
    Ok(out)
}

fn einsum(a: &Args) -> Result<Ret> {
    let Some(equation) = a.str(0) else {
        bail!(Type, "einsum() needs an equation")
    };
    contract(equation, a.tensors(1)?).map(Ret::from)
}

fn contract(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
    ensure!(
        !operands.is_empty(),
        Runtime,
        "einsum(): must provide at least one operand"
    );
    let (lhs, rhs) = match equation.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (equation, None),
    };
    let mut terms = Vec::new();
    for (i, term) in lhs.split(',').enumerate() {
        ensure!(
            i < operands.len(),
            Runtime,
            "einsum(): fewer operands were provided than specified in the equation"
        );
        terms.push(labels(term, &format!("operand {i}"))?);
    }
    ensure!(
        terms.len() == operands.len(),
        Runtime,
        "einsum(): more operands were provided than specified in the equation"
    );
    // How often each label occurs, and how many dimensions the ellipsis stands for.
    let (mut count, mut ellipsis) = ([0usize; ELLIPSIS + 1], 0usize);
    for (i, (term, t)) in terms.iter().zip(operands).enumerate() {
        let has = term.contains(&ELLIPSIS);
        let given = term.len() - usize::from(has);
        ensure!(
            if has {
                given <= t.ndim()
            } else {
                given == t.ndim()
            },
            Runtime,
            "einsum(): the number of subscripts in the equation ({given}) {} the number of dimensions ({}) for operand {i}{}",
            if has {
                "is more than"
            } else {
                "does not match"
            },
            t.ndim(),
            if has {
                ""
            } else {
                " and no ellipsis was given"
            }
        );
        if has {
            ellipsis = ellipsis.max(t.ndim() - given);
        }
        term.iter().for_each(|&l| count[l] += 1);
    }
    // Places of labels among the permuted dimensions: those of the output first.
    let (mut place, mut next) = ([usize::MAX; ELLIPSIS + 1], 0usize);
    let width = |l: usize| if l == ELLIPSIS { ellipsis } else { 1 };
    let mut put = |l: usize, next: &mut usize| {
        place[l] = *next;
        *next += width(l);
    };
    match rhs {
        None => {
            if count[ELLIPSIS] > 0 {
                put(ELLIPSIS, &mut next);
            }
            (0..ELLIPSIS)
                .filter(|&l| count[l] == 1)
                .for_each(|l| put(l, &mut next));
        }
        Some(text) => {
            let mut seen = Vec::new();
            for l in labels(text, "the output")? {
                if l != ELLIPSIS {
                    ensure!(
                        count[l] > 0,
                        Runtime,
                        "einsum(): output subscript {} does not appear in the equation for any input operand",
                        letter(l)
                    );
                    ensure!(
                        !seen.contains(&l),
                        Runtime,
                        "einsum(): output subscript {} appears more than once in the output",
                        letter(l)
                    );
                }
                seen.push(l);
                put(l, &mut next);
            }
        }
    }
    let outputs = next;
    for l in (0..=ELLIPSIS).rev().take(1).chain(0..ELLIPSIS) {
        if count[l] > 0 && place[l] == usize::MAX {
            place[l] = next;
            next += width(l);
        }
    }
    let total = next;
    check_sizes(&terms, operands)?;
    let mut uses = vec![0usize; total];
    let mut ops = Vec::new();
    for (i, (term, t)) in terms.iter().zip(operands).enumerate() {
        let t = spread(t, term, i, &place, ellipsis, total)?;
        for (d, used) in uses.iter_mut().enumerate() {
            *used += usize::from(t.shape()[d] != 1);
        }
        ops.push(t);
    }
    let many = ops.len() > 1;
    let mut ops = ops.into_iter();
    let Some(mut left) = ops.next() else {
        bail!(Runtime, "einsum(): must provide at least one operand")
    };
    for mut right in ops {
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
                if l {
                    only_left.push(d as i64)
                } else {
                    only_right.push(d as i64)
                }
                uses[d] = 0;
            }
        }
        if !only_left.is_empty() {
            left = run1!("sum#dim", &left, Dims::new(&only_left), true)?;
        }
        if !only_right.is_empty() {
            right = run1!("sum#dim", &right, Dims::new(&only_right), true)?;
        }
        left = pair(&left, &right, &both)?;
    }
    if total > outputs {
        if many {
            return run1!("view", &left, Dims::new(&left.shape()[..outputs]));
        }
        let summed: Dims = (outputs as i64..total as i64).collect();
        return run1!("sum#dim", &left, summed, false);
    }
    Ok(left)
}

/// Sizes of one label must agree, or be 1.
fn check_sizes(terms: &[Vec<usize>], operands: &[&Tensor]) -> Result<()> {
    let mut sizes = [1i64; ELLIPSIS];
    for (i, (term, t)) in terms.iter().zip(operands).enumerate() {
        let missing = t.ndim() + usize::from(term.contains(&ELLIPSIS)) - term.len();
        let mut d = 0;
        for &l in term {
            if l == ELLIPSIS {
                d += missing;
                continue;
            }
            let s = t.shape()[d];
            d += 1;
            if s != 1 {
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
fn spread(
    t: &Tensor,
    term: &[usize],
    i: usize,
    place: &[usize],
    ellipsis: usize,
    total: usize,
) -> Result<Tensor> {
    let own = t.ndim() + usize::from(term.contains(&ELLIPSIS)) - term.len();
    let mut perm = vec![usize::MAX; total];
    let mut t = t.clone();
    let mut j = 0usize;
    for &l in term {
        if l == ELLIPSIS {
            for _ in own..ellipsis {
                t = run1!("unsqueeze", &t, j as i64)?;
            }
            for k in 0..ellipsis {
                perm[place[l] + k] = j;
                j += 1;
            }
        } else if perm[place[l]] != usize::MAX {
            let d = perm[place[l]];
            ensure!(
                t.shape()[j] == t.shape()[d],
                Runtime,
                "einsum(): subscript {} is repeated for operand {i} but the sizes don't match, {} != {}",
                letter(l),
                t.shape()[j],
                t.shape()[d]
            );
            t = run1!(
                "movedim#int",
                &run1!("diagonal", &t, 0i64, d as i64, j as i64)?,
                -1i64,
                d as i64
            )?;
        } else {
            perm[place[l]] = j;
            j += 1;
        }
    }
    for p in &mut perm {
        if *p == usize::MAX {
            t = run1!("unsqueeze", &t, -1i64)?;
            *p = j;
            j += 1;
        }
    }
    run1!(
        "permute",
        &t,
        perm.iter().map(|&p| p as i64).collect::<Dims>()
    )
}

/// Products summed over `summed`, which stay as dimensions of size 1.
fn pair(left: &Tensor, right: &Tensor, summed: &[usize]) -> Result<Tensor> {
    if summed.is_empty() {
        return run1!("mul", left, right);
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
    let l = run1!(
        "reshape",
        &run1!("permute", left, order([&shared, &lo, summed, &ro]))?,
        Dims::from([b, m, k])
    )?;
    let r = run1!(
        "reshape",
        &run1!("permute", right, order([&shared, summed, &ro, &lo]))?,
        Dims::from([b, k, p])
    )?;
    let out = run1!("bmm", &l, &r)?;
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
    run1!("permute", &run1!("view", &out, shape)?, back)
}
