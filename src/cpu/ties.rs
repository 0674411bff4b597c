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

/// What is asked of a line.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// The `k` smallest in front, as `topk` finds them where there are not many more; the last of them in its place.
    First { k: usize, sorted: bool },
    /// The element at this position in order, as `kthvalue` finds it.
    Kth(usize),
    /// All in order, as `std::sort` leaves them.
    All,
}

/// Positions of a line's elements, arranged by their keys, or from the largest on.
pub(super) fn arranged<T: Key>(line: &[T], largest: bool, wanted: Wanted, out: &mut [i64]) {
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
        let mut pairs: Line<_> = keys.map(|key| key ^ flip).zip(0..).collect();
        arrange(&mut pairs, wanted, out);
    }
}

fn arrange<K: Keyed>(v: &mut [K], wanted: Wanted, out: &mut [i64]) {
    match wanted {
        Wanted::First { k, sorted } => {
            nth_element(v, k - 1);
            if sorted {
                sort(&mut v[..k - 1]);
            }
        }
        Wanted::Kth(k) => quick_select(v, k),
        Wanted::All => sort(v),
    }
    out.iter_mut()
        .zip(v)
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
    a.key() < b.key()
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
    introsort(v, depth(v.len()));
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
        let (mut i, mut j, pivot) = (left + 1, right, v[left]);
        loop {
            i += 1;
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

fn introsort<K: Keyed>(v: &mut [K], mut left: usize) {
    let mut last = v.len();
    while last > SHORT {
        if left == 0 {
            return partial_sort(&mut v[..last], last);
        }
        left -= 1;
        let cut = partition(&mut v[..last]);
        introsort(&mut v[cut..last], left);
        last = cut;
    }
}

/// Parts a line by the middle one of three elements; where the upper part begins.
fn partition<K: Keyed>(v: &mut [K]) -> usize {
    let last = v.len();
    middle_to_first(v, [1, last / 2, last - 1]);
    let (mut i, mut j, pivot) = (1, last, v[0]);
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
        insert(v, i);
    }
}

/// Brings an element to its place behind its equals, as all before it are in order.
fn insert<K: Keyed>(v: &mut [K], i: usize) {
    let mut at = i;
    while at > 0 && less(v[i], v[at - 1]) {
        at -= 1;
    }
    v[at..=i].rotate_right(1);
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
