//! Orders of equal elements as PyTorch leaves them: the steps of its selections and of the C++ library's algorithms under
//! them (libstdc++: introsort, introselect, heaps), over keys that carry positions. What is selected among equals, and so
//! where gradients go, depends on nothing else. Slower than `sort.rs`, and asked only where there are equals.

use super::sort::{FEWEST, Key};
use smallvec::SmallVec;

/// The keys of a line, which need no memory if it is short.
type Line<K> = SmallVec<[K; 128]>;

/// A key that carries the position of its element.
trait Keyed: Copy {
    fn key(self) -> u64;
    fn position(self) -> usize;
    /// Whether this one is the smaller one.
    #[inline(always)]
    fn before(self, other: Self) -> bool {
        self.key() < other.key()
    }
}

/// A short key over a position.
impl Keyed for u64 {
    #[inline(always)]
    fn key(self) -> u64 {
        self >> 32
    }
    #[inline(always)]
    fn position(self) -> usize {
        (self & 0xffff_ffff) as usize
    }
}

impl Keyed for (u64, usize) {
    #[inline(always)]
    fn key(self) -> u64 {
        self.0
    }
    #[inline(always)]
    fn position(self) -> usize {
        self.1
    }
}

/// A key over a position, where the largest key stands for NaN: neither smaller nor larger than anything.
#[derive(Clone, Copy)]
struct Loose((u64, usize));

impl Keyed for Loose {
    fn key(self) -> u64 {
        self.0.0
    }
    fn position(self) -> usize {
        self.0.1
    }
    fn before(self, other: Self) -> bool {
        self.key() < other.key() && other.key() != u64::MAX
    }
}

/// What is asked of a line.
#[derive(Clone, Copy)]
enum Wanted {
    /// The `k` smallest in front; the last of them in its place.
    First { k: usize, sorted: bool },
    /// The element at this position in order.
    Kth(usize),
    /// The first and the last element with this key, which there is.
    Run(u64),
}

/// Among so many numbers of 16 bits, or integers, some are equal.
const MANY_ENOUGH: usize = 256;

/// Whether a line is that long that some of its elements will be equal.
pub(super) fn are_sure<T: Key>(line: &[T]) -> bool {
    line.len() >= MANY_ENOUGH && (size_of::<T>() <= 2 || T::ODD.is_none())
}

/// As many positions as there is room for, of the smallest or largest elements, as `topk` finds them where there are not many more.
pub(super) fn first<T: Key>(line: &[T], largest: bool, sorted: bool, out: &mut [i64]) {
    let k = out.len();
    arranged(line, largest, Wanted::First { k, sorted }, out);
}

/// The position of the element that is the `k`-th in order, as `kthvalue` finds it.
pub(super) fn kth<T: Key>(line: &[T], k: usize) -> usize {
    let mut at = [0];
    arranged(line, false, Wanted::Kth(k), &mut at);
    at[0] as usize
}

/// The positions of the first and the last element with a key, which there is, once `std::sort` has put all in order.
pub(super) fn ends<T: Key>(line: &[T], key: u64) -> [usize; 2] {
    let mut ends = [0; 2];
    arranged(line, false, Wanted::Run(key), &mut ends);
    ends.map(|at| at as usize)
}

/// The last of the first longest run of equal elements of a line with NaN, wherever `std::sort` has left these: they equal nothing.
pub(super) fn most_frequent_beside_nan<T: Key>(line: &[T]) -> usize {
    let odd = |key| if Some(key) == T::ODD { u64::MAX } else { key };
    let keys = line.iter().map(|x| odd(x.key())).zip(0..);
    let mut v: Vec<_> = keys.map(Loose).collect();
    sort(&mut v);
    let (mut best, mut longest) = (v[0], 0);
    for run in v.chunk_by(|a, b| a.key() == b.key() && a.key() != u64::MAX) {
        if run.len() > longest {
            (best, longest) = (run[run.len() - 1], run.len());
        }
    }
    best.position()
}

/// Positions of a line's elements, arranged by their keys, or from the largest on.
fn arranged<T: Key>(line: &[T], largest: bool, wanted: Wanted, out: &mut [i64]) {
    // Wide keys of a small range are as good as short ones.
    let keys = line.iter().map(|x| x.key());
    let (lo, hi) = if T::SHORT {
        (0, 0)
    } else {
        keys.clone()
            .fold((u64::MAX, 0), |(lo, hi), key| (lo.min(key), hi.max(key)))
    };
    let short = T::SHORT || hi.saturating_sub(lo) <= u64::from(u32::MAX);
    if short && line.len() <= u32::MAX as usize {
        let flip = if largest { u64::from(u32::MAX) } else { 0 };
        let wanted = match wanted {
            Wanted::Run(key) => Wanted::Run((key - lo) ^ flip),
            _ => wanted,
        };
        let packed = keys
            .zip(0u64..)
            .map(|(key, i)| ((key - lo) ^ flip) << 32 | i);
        if line.len() <= FEWEST {
            let mut room = [0; FEWEST];
            room.iter_mut().zip(packed).for_each(|(to, x)| *to = x);
            arrange(&mut room[..line.len()], wanted, out);
        } else {
            arrange(&mut packed.collect::<Line<_>>(), wanted, out);
        }
    } else {
        let flip = if largest { u64::MAX } else { 0 };
        let wanted = match wanted {
            Wanted::Run(key) => Wanted::Run(key ^ flip),
            _ => wanted,
        };
        let mut pairs: Line<_> = keys.map(|key| key ^ flip).zip(0..).collect();
        arrange(&mut pairs, wanted, out);
    }
}

fn arrange<K: Keyed>(v: &mut [K], wanted: Wanted, out: &mut [i64]) {
    let found = match wanted {
        Wanted::First { k, sorted } => {
            nth_element(v, k - 1);
            if sorted {
                sort(&mut v[..k - 1]);
            }
            &v[..k]
        }
        Wanted::Kth(k) => {
            quick_select(v, k);
            &v[k..=k]
        }
        Wanted::Run(key) => {
            introsort(v, depth(v.len()), Some(key));
            // What is left to do, insertion, changes nothing about the order of equals.
            let is = |x: &K| x.key() == key;
            let ends = [v.iter().position(is), v.iter().rposition(is)];
            for (out, at) in out.iter_mut().zip(ends) {
                *out = at.map_or(0, |at| v[at].position() as i64);
            }
            return;
        }
    };
    out.iter_mut()
        .zip(found)
        .for_each(|(out, x)| *out = x.position() as i64);
}

/// The smallest keys so far, the largest of them first: a heap in the order that `std::partial_sort` has it.
pub(super) struct Smallest {
    heap: Vec<(u64, usize)>,
    most: usize,
}

impl Smallest {
    /// At most so many, and not none.
    pub(super) fn new(most: usize) -> Self {
        let heap = Vec::with_capacity(most);
        Self { heap, most }
    }

    /// Takes a key that is below the bound, and gives the bound, once there is one.
    pub(super) fn take(&mut self, key: u64, position: usize) -> Option<u64> {
        if self.heap.len() == self.most {
            sift(&mut self.heap, 0, (key, position));
        } else {
            self.heap.push((key, position));
            if self.heap.len() == self.most {
                make_heap(&mut self.heap);
            }
        }
        (self.heap.len() == self.most).then(|| self.heap[0].0)
    }

    /// Their positions in order.
    pub(super) fn sorted(mut self) -> impl Iterator<Item = usize> {
        sort_heap(&mut self.heap);
        self.heap.into_iter().map(|x| x.1)
    }
}

/// Lines of at most so many elements are sorted by insertion.
const SHORT: usize = 16;

#[inline(always)]
fn less<K: Keyed>(a: K, b: K) -> bool {
    a.before(b)
}

/// Twice the binary logarithm of a length: the steps after which partitions have gone wrong.
fn depth(n: usize) -> usize {
    2 * n.checked_ilog2().unwrap_or(0) as usize
}

/// `std::nth_element`: puts the element at `nth` where it is in order, smaller ones before it.
fn nth_element<K: Keyed>(v: &mut [K], nth: usize) {
    if nth >= v.len() {
        return;
    }
    let (mut first, mut last, mut left) = (0, v.len(), depth(v.len()));
    while last - first > 3 {
        if left == 0 {
            heap_select(&mut v[first..last], nth + 1 - first);
            v.swap(first, nth);
            return;
        }
        left -= 1;
        let cut = first + partition(&mut v[first..last]);
        if cut <= nth {
            first = cut;
        } else {
            last = cut;
        }
    }
    insertion_sort(&mut v[first..last]);
}

/// `std::partial_sort`: the first `k` in order.
fn partial_sort<K: Keyed>(v: &mut [K], k: usize) {
    heap_select(v, k);
    sort_heap(&mut v[..k]);
}

/// `std::sort`.
fn sort<K: Keyed>(v: &mut [K]) {
    introsort(v, depth(v.len()), None);
    let ordered = v.len().min(SHORT);
    insertion_sort(&mut v[..ordered]);
    for i in ordered..v.len() {
        insert(v, i);
    }
}

/// The quick selection behind `kthvalue`, whose pivot is the middle one of three.
fn quick_select<K: Keyed>(v: &mut [K], k: usize) {
    let (mut left, mut right) = (0, v.len().saturating_sub(1));
    let order = |v: &mut [K], a: usize, b: usize| {
        if less(v[b], v[a]) {
            v.swap(a, b);
        }
    };
    while right > left {
        if right == left + 1 {
            return order(v, left, right);
        }
        v.swap(left + (right - left) / 2, left + 1);
        order(v, left + 1, right);
        order(v, left, right);
        order(v, left + 1, left);
        let pivot = v[left];
        let (mut i, mut j) = from_both_ends(v, pivot, left + 2, right);
        loop {
            while less(v[i], pivot) {
                i += 1;
            }
            j -= 1;
            while less(pivot, v[j]) {
                j -= 1;
            }
            if j < i {
                break;
            }
            v.swap(i, j);
            i += 1;
        }
        v.swap(left, j);
        if j <= k {
            left = i;
        }
        if j >= k {
            right = j - 1;
        }
    }
}

/// Parts a line down to few elements; of a key alone, where only its equals are wanted.
fn introsort<K: Keyed>(v: &mut [K], mut left: usize, wanted: Option<u64>) {
    let mut last = v.len();
    while last > SHORT {
        if left == 0 {
            return partial_sort(&mut v[..last], last);
        }
        left -= 1;
        let cut = partition(&mut v[..last]);
        // The pivot was put first, and is still among the lower ones or their bound.
        let pivot = v[0].key();
        if wanted.is_none_or(|key| key >= pivot) {
            introsort(&mut v[cut..last], left, wanted);
        }
        if wanted.is_some_and(|key| key > pivot) {
            return;
        }
        last = cut;
    }
}

/// Parts a line by the middle one of three elements, which stays first; where the upper part begins.
fn partition<K: Keyed>(v: &mut [K]) -> usize {
    let last = v.len();
    middle_to_first(v, [1, last / 2, last - 1]);
    let pivot = v[0];
    let (i, j) = from_both_ends(v, pivot, 1, last);
    one_by_one(v, pivot, i, j)
}

/// A partition of what lies from `i` to before `j`, whose elements are compared as they come; where the upper part begins.
fn one_by_one<K: Keyed>(v: &mut [K], pivot: K, mut i: usize, mut j: usize) -> usize {
    loop {
        while less(v[i], pivot) {
            i += 1;
        }
        j -= 1;
        while less(pivot, v[j]) {
            j -= 1;
        }
        if i >= j {
            return i;
        }
        v.swap(i, j);
        i += 1;
    }
}

/// Elements at each end that are compared before any moves, so that no branch waits for a comparison.
const BLOCK: usize = 128;
/// Fewer are compared one by one.
const FEW: usize = 8;

/// The first steps of a partition of what lies from `i` to before `j`: exchanges the next element from below that is not smaller than
/// the pivot and the next from above that is not larger, while blocks of both ends have one; where it has come to.
fn from_both_ends<K: Keyed>(v: &mut [K], pivot: K, mut i: usize, mut j: usize) -> (usize, usize) {
    loop {
        let size = BLOCK.min((j - i) / 2);
        if size < FEW {
            return (i, j);
        }
        let [low, high] = &mut [[0u8; BLOCK]; 2];
        let lower = misplaced(&v[i..i + size], low, |x| !less(x, pivot));
        let upper = misplaced(&v[j - size..j], high, |x| !less(pivot, x));
        let pairs = lower.min(upper);
        for (low, high) in low[..pairs].iter().zip(high[..upper].iter().rev()) {
            v.swap(i + usize::from(*low), j - size + usize::from(*high));
        }
        i += low[..lower].get(pairs).map_or(size, |&at| usize::from(at));
        j -= size
            - high[..upper - pairs]
                .last()
                .map_or(0, |&at| usize::from(at) + 1);
    }
}

/// Where the elements of a block are that have to move; how many.
#[inline(always)]
fn misplaced<K: Keyed>(block: &[K], to: &mut [u8; BLOCK], moves: impl Fn(K) -> bool) -> usize {
    let mut n = 0;
    for (&x, at) in block.iter().take(BLOCK).zip(0u8..) {
        to[n % BLOCK] = at;
        n += usize::from(moves(x));
    }
    n
}

fn middle_to_first<K: Keyed>(v: &mut [K], [a, b, c]: [usize; 3]) {
    let middle = match (less(v[a], v[b]), less(v[b], v[c]), less(v[a], v[c])) {
        (true, true, _) | (false, false, false) => b,
        (true, false, true) | (false, true, false) => c,
        (true, false, false) | (false, _, true) => a,
    };
    v.swap(0, middle);
}

fn insertion_sort<K: Keyed>(v: &mut [K]) {
    for i in 1..v.len() {
        // What is smaller than the first goes before all, past any NaN.
        if less(v[i], v[0]) {
            v[..=i].rotate_right(1);
        } else {
            insert(v, i);
        }
    }
}

/// Brings an element to its place behind its equals, as all before it are in order.
fn insert<K: Keyed>(v: &mut [K], i: usize) {
    let (x, mut at) = (v[i], i);
    while at > 0 && less(x, v[at - 1]) {
        v[at] = v[at - 1];
        at -= 1;
    }
    v[at] = x;
}

/// Brings the `k` smallest to the front, as a heap with the largest of them first.
fn heap_select<K: Keyed>(v: &mut [K], k: usize) {
    let (heap, rest) = v.split_at_mut(k);
    make_heap(heap);
    for x in rest {
        if heap.first().is_some_and(|top| less(*x, *top)) {
            let value = std::mem::replace(x, heap[0]);
            sift(heap, 0, value);
        }
    }
}

fn make_heap<K: Keyed>(heap: &mut [K]) {
    for parent in (0..heap.len() / 2).rev() {
        sift(heap, parent, heap[parent]);
    }
}

fn sort_heap<K: Keyed>(v: &mut [K]) {
    for last in (1..v.len()).rev() {
        let value = v[last];
        v[last] = v[0];
        sift(&mut v[..last], 0, value);
    }
}

/// Puts a value below `top` of a heap: the hole goes down to a leaf along the larger children, the value up again.
fn sift<K: Keyed>(heap: &mut [K], top: usize, value: K) {
    let (n, mut hole) = (heap.len(), top);
    while 2 * hole + 1 < n {
        let right = 2 * hole + 2;
        let child = if right == n || less(heap[right], heap[right - 1]) {
            right - 1
        } else {
            right
        };
        heap[hole] = heap[child];
        hole = child;
    }
    while hole > top && less(heap[(hole - 1) / 2], value) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_take_the_steps_of_single_elements() {
        let mut state = 1u64;
        for n in (3..2000).step_by(7) {
            for kinds in [1, 2, 3, 50, 1 << 30] {
                let mut v: Vec<u64> = (0..n as u64)
                    .map(|i| {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        ((state >> 33) % kinds) << 32 | i
                    })
                    .collect();
                let mut w = v.clone();
                middle_to_first(&mut w, [1, n / 2, n - 1]);
                let pivot = w[0];
                let cut = one_by_one(&mut w, pivot, 1, n);
                assert_eq!((partition(&mut v), v), (cut, w), "{n} of {kinds}");
            }
        }
    }
}
