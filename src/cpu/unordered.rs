//! Sorting by a comparison that is no order, step by step as the C++ library that PyTorch is built with does it: where
//! elements are not comparable (NaN), what comes out depends on the steps.

/// How many elements are sorted by insertion alone.
const FEW: usize = 16;

/// Sorts numbers by `less`, which may contradict itself.
pub fn sort(items: &mut [i64], less: &impl Fn(i64, i64) -> bool) {
    let n = items.len();
    if n < 2 {
        return;
    }
    divide(items, less, 2 * n.ilog2());
    let first = n.min(FEW);
    for i in 1..first {
        if less(items[i], items[0]) {
            items[..=i].rotate_right(1);
        } else {
            insert(items, i, less);
        }
    }
    for i in first..n {
        insert(items, i, less);
    }
}

/// Moves one element back to where nothing before it is larger.
fn insert(items: &mut [i64], i: usize, less: &impl Fn(i64, i64) -> bool) {
    let item = items[i];
    let mut at = i;
    while at > 0 && less(item, items[at - 1]) {
        items[at] = items[at - 1];
        at -= 1;
    }
    items[at] = item;
}

/// Splits at pivots, until parts are few or `depth` is used up.
fn divide(mut items: &mut [i64], less: &impl Fn(i64, i64) -> bool, mut depth: u32) {
    while items.len() > FEW {
        if depth == 0 {
            return heap(items, less);
        }
        depth -= 1;
        let last = items.len() - 1;
        median_first(items, [1, items.len() / 2, last], less);
        let cut = split(items, less);
        let (left, right) = items.split_at_mut(cut);
        divide(right, less, depth);
        items = left;
    }
}

/// Swaps the middle one of three to the front.
fn median_first(items: &mut [i64], [a, b, c]: [usize; 3], less: &impl Fn(i64, i64) -> bool) {
    let below = |i: usize, j: usize| less(items[i], items[j]);
    let chosen = match below(a, b) {
        true if below(b, c) => b,
        true if below(a, c) => c,
        true => a,
        false if below(a, c) => a,
        false if below(b, c) => c,
        false => b,
    };
    items.swap(0, chosen);
}

/// Brings what is less than the first element before what is not; where the second part begins.
fn split(items: &mut [i64], less: &impl Fn(i64, i64) -> bool) -> usize {
    let pivot = items[0];
    let (mut low, mut high) = (1, items.len());
    loop {
        while low < items.len() - 1 && less(items[low], pivot) {
            low += 1;
        }
        high -= 1;
        while high > 0 && less(pivot, items[high]) {
            high -= 1;
        }
        if low >= high {
            return low;
        }
        items.swap(low, high);
        low += 1;
    }
}

/// Sorts by a heap.
fn heap(items: &mut [i64], less: &impl Fn(i64, i64) -> bool) {
    for top in (0..items.len() / 2).rev() {
        sift(items, top, items[top], less);
    }
    for end in (1..items.len()).rev() {
        let item = items[end];
        items[end] = items[0];
        sift(&mut items[..end], 0, item, less);
    }
}

/// Lets a hole sink to the bottom along the larger children, and the item rise from there.
fn sift(items: &mut [i64], top: usize, item: i64, less: &impl Fn(i64, i64) -> bool) {
    let n = items.len();
    let mut hole = top;
    while 2 * hole + 2 < n {
        let mut child = 2 * hole + 2;
        if less(items[child], items[child - 1]) {
            child -= 1;
        }
        items[hole] = items[child];
        hole = child;
    }
    if n % 2 == 0 && 2 * hole + 2 == n {
        items[hole] = items[n - 1];
        hole = n - 1;
    }
    while hole > top && less(items[(hole - 1) / 2], item) {
        items[hole] = items[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    items[hole] = item;
}

#[cfg(test)]
mod tests {
    use super::{heap, sort};

    #[test]
    fn orders_are_kept() {
        let numbers: Vec<i64> = (0..500).map(|i| i * 7919 % 503).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        let less = |a: i64, b: i64| a < b;
        let mut given = numbers.clone();
        sort(&mut given, &less);
        assert_eq!(given, sorted);
        given = numbers;
        heap(&mut given, &less);
        assert_eq!(given, sorted);
    }
}
