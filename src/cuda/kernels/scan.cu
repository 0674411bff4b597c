// Results so far along lines. Before this text: T (elements), O (of the result), V (what is carried), LOAD(x), JOIN(a, b) and,
// where positions are wanted, ARG. A line's elements lie `inner` apart; a block has a line, or each thread has one.

#ifdef LOG_ADD
template <class R> FN R log_add(R a, R b) {
    if (a != a || b != b) return a + b;
    const R top = a > b ? a : b, low = a > b ? b : a;
    return isinf_(top) && top == low ? top : top + log1p(exp(low - top));
}
template <class R> FN cx<R> log_add(cx<R> a, cx<R> b) {
    const cx<R> top = a.re >= b.re ? a : b, low = a.re >= b.re ? b : a;
    if (isinf_(top.re) && top.re < R(0)) return top;
    return top + log1p(exp(low - top));
}
#endif

#if ARG
struct Acc {
    TV v;
    i64 at;
};
FN Acc join(Acc a, Acc b) {
    if (b.at < 0) return a;
    if (a.at < 0) return b;
    const bool na = a.v != a.v, nb = b.v != b.v;
    return nb || (!na && (JOIN(b.v, a.v))) ? b : a;
}
FN Acc load(T x, i64 at) {
    Acc a;
    a.v = up(x);
    a.at = at;
    return a;
}
FN void store(O* out, i64* index, i64 at, Acc a) {
    out[at] = make<O>(a.v);
    index[at] = a.at;
}
FN Acc nothing() {
    Acc a;
    a.v = TV(0);
    a.at = -1;
    return a;
}
#else
typedef V Acc;
FN Acc join(Acc a, Acc b) { return JOIN(a, b); }
FN Acc load(T x, i64) { return to<V>(up(x)); }
FN void store(O* out, i64*, i64 at, Acc a) { out[at] = make<O>(a); }
FN Acc nothing() { return NOTHING; }
#endif

KERNEL(side_by_side)(O* out, i64* index, const T* x, i64 lines, i64 n, i64 inner) {
    EACH(line, lines);
    const i64 base = line / inner * inner * n + line % inner;
    Acc a = nothing();
    for (i64 j = 0; j < n; j++) {
        a = join(a, load(x[base + j * inner], j));
        store(out, index, base + j * inner, a);
    }
}

// Elements of a thread, and of a block at a time.
#define ITEMS 4
#define STEP (256 * ITEMS)

KERNEL(one_by_one)(O* out, i64* index, const T* x, i64 n, i64 inner) {
    const i64 line = blockIdx.x, base = line / inner * inner * n + line % inner;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __shared__ Acc parts[256], ends[8];
    Acc before = nothing();
    for (i64 start = 0; start < n; start += STEP) {
        // What a thread has so far, then the threads of its warp, then the warps.
        const i64 first = start + i64(threadIdx.x) * ITEMS;
        Acc own[ITEMS];
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            const Acc next = first + k < n ? load(x[base + (first + k) * inner], first + k) : nothing();
            own[k] = k ? join(own[k ? k - 1 : 0], next) : next;
        }
        parts[threadIdx.x] = own[ITEMS - 1];
        for (u32 step = 1; step < 32; step *= 2) {
            __syncwarp();
            const Acc left = lane >= step ? parts[threadIdx.x - step] : nothing();
            __syncwarp();
            if (lane >= step) parts[threadIdx.x] = join(left, parts[threadIdx.x]);
        }
        __syncwarp();
        if (lane == 31) ends[warp] = parts[threadIdx.x];
        __syncthreads();
        Acc left = before;
        for (u32 w = 0; w < 8; w++) {
            if (w < warp) left = join(left, ends[w]);
            before = join(before, ends[w]);
        }
        if (lane > 0) left = join(left, parts[threadIdx.x - 1]);
#pragma unroll
        for (int k = 0; k < ITEMS; k++)
            if (first + k < n) store(out, index, base + (first + k) * inner, join(left, own[k]));
        __syncthreads();
    }
}
