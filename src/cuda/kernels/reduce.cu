// A fold over dimensions in one or two launches. Before this text: IN, OUT (storage types), V (what is folded), PACK (neighbours that
// are read at once, along the fold or, in `columns`, beside it), and IDENTITY, LOAD(x), JOIN(a, b), FINISH(a) (expressions); ARG is
// the type of positions where they are wanted, MOMENTS 1 where variances and means are. `lanes` threads share one result; `splits`
// blocks share one if results are few and folds are long.

struct Nest {
    i64 kept, folded;            // numbers of results and of elements in each
    i64 kept_dims, folded_dims;
    i64 kept_shape[8], kept_in[8], kept_out[8], kept_index[8];
    i64 folded_shape[8], folded_in[8];
    i64 lanes, splits, chunk;
    double p, post;
};

// Reads that a thread has under way.
#define AHEAD (PACK >= 8 ? 2 : 8 / PACK)

// The positions of a thread's values: packs lie `hop` apart.
#define POSITION(k) (j + (k) / NEAR * hop + (k) % NEAR)

#if MOMENTS
typedef Moments<V> Acc;
FN Acc identity() {
    const Acc a = {V(0), V(0), V(0)};
    return a;
}
FN Acc join(Acc a, Acc b) { return a + b; }
template <int N, int NEAR> FN void take(Acc& a, const IN* x, i64, i64, double) { a = a + moments_of<N, V>(x); }
#elif defined(ARG)
struct Acc {
    V v;
    ARG i;
};
FN Acc identity() {
    Acc a;
    a.v = V(0);
    a.i = -1;
    return a;
}
// NaN wins over numbers, then the better value, then the first position.
FN Acc join(Acc a, Acc b) {
    if (a.i < 0) return b;
    if (b.i < 0) return a;
    const bool na = a.v != a.v, nb = b.v != b.v;
    if (na != nb) return na ? a : b;
    if (!na && a.v != b.v) return BETTER(a.v, b.v) ? a : b;
    return a.i < b.i ? a : b;
}
template <int N, int NEAR> FN void take(Acc& a, const IN* x, i64 j, i64 hop, double) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        // Positions grow: only a better value takes the place of one.
        const V v = to<V>(up(x[k]));
        const bool wins = a.i < 0 || ((BETTER(v, a.v) || v != v) && a.v == a.v);
        a.v = wins ? v : a.v;
        a.i = wins ? ARG(POSITION(k)) : a.i;
    }
}
#else
typedef V Acc;
FN Acc identity() { return IDENTITY; }
FN Acc join(Acc a, Acc b) { return JOIN(a, b); }
template <int N, int NEAR> FN void take(Acc& a, const IN* values, i64, i64, double p) {
    (void)p;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const Up<IN>::type x = up(values[k]);
        a = join(a, LOAD(x));
    }
}
#endif

FN void finish(OUT* out, i64* index, i64 at, i64 at_index, Acc a, const Nest& nest) {
#if MOMENTS
    // `p` is what the count is corrected by, and `post` whether the root is wanted; the mean goes where positions go otherwise.
    const V left = a.n - V(nest.p), var = a.square / (left > V(0) ? left : V(0));
    out[at] = Down<OUT>::of(to<Up<OUT>::type>(nest.post != 0 ? sqrt(var) : var));
    if (index) ((OUT*)index)[at_index] = Down<OUT>::of(to<Up<OUT>::type>(a.n == V(0) ? V(INF_D) - V(INF_D) : a.mean));
#elif defined(ARG)
    if (out) out[at] = Down<OUT>::of(to<Up<OUT>::type>(a.v));
    index[at_index] = a.i;
#else
    const double post = nest.post;
    (void)post;
    out[at] = Down<OUT>::of(to<Up<OUT>::type>(FINISH(a)));
#endif
}

// Folds the values of `lanes` neighbouring threads; the first of them has the result.
FN Acc gather(Acc a, unsigned lane, unsigned lanes) {
    __shared__ Acc shared[256];
    shared[threadIdx.x] = a;
    for (unsigned half = lanes / 2; half > 0; half /= 2) {
        if (lanes <= 32) __syncwarp();
        else __syncthreads();
        if (lane < half) shared[threadIdx.x] = join(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    return shared[threadIdx.x];
}

FN void place(const Nest& nest, i64 o, i64& in, i64& out, i64& index) {
    for (int k = 0; k < nest.kept_dims; k++) {
        const i64 size = nest.kept_shape[k], next = o / size, step = o - next * size;
        o = next;
        in += step * nest.kept_in[k];
        out += step * nest.kept_out[k];
        index += step * nest.kept_index[k];
    }
}

FN i64 inside(const Nest& nest, i64 j) {
    if (nest.folded_dims == 1) return j * nest.folded_in[0];
    i64 at = 0;
    for (int k = 0; k < nest.folded_dims; k++) {
        const i64 size = nest.folded_shape[k], next = j / size;
        at += (j - next * size) * nest.folded_in[k];
        j = next;
    }
    return at;
}

KERNEL(first)(const IN* __restrict__ in, Acc* scratch, OUT* out, i64* index, const Nest nest) {
    const unsigned lanes = unsigned(nest.lanes), lane = threadIdx.x % lanes;
    const i64 o = i64(blockIdx.x) * (256 / lanes) + threadIdx.x / lanes;
    const i64 begin = i64(blockIdx.y) * nest.chunk, hop = i64(lanes) * PACK;
    const i64 end = begin + nest.chunk < nest.folded ? begin + nest.chunk : nest.folded;
    i64 base = 0, at = 0, at_index = 0;
    place(nest, o, base, at, at_index);
    Acc a = identity();
    if (o < nest.kept) {
        const IN* const from = in + base;
        i64 j = begin + i64(lane) * PACK;
        for (; j + (AHEAD - 1) * hop < end; j += AHEAD * hop) {
            Packed<IN, PACK> x[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++) x[u] = packed<PACK>(from + inside(nest, j + u * hop));
            take<AHEAD * PACK, PACK>(a, x[0].x, j, hop, nest.p);
        }
        for (; j < end; j += hop) {
            const Packed<IN, PACK> x = packed<PACK>(from + inside(nest, j));
            take<PACK, PACK>(a, x.x, j, hop, nest.p);
        }
    }
    if (lanes > 1) a = gather(a, lane, lanes);
    if (lane != 0 || o >= nest.kept) return;
    if (nest.splits > 1) {
        scratch[i64(blockIdx.y) * nest.kept + o] = a;
    } else {
        finish(out, index, at, at_index, a, nest);
    }
}

// Folds across rows: a thread has PACK neighbouring results, a block 32 threads beside each other and 8 that share their rows.
KERNEL(columns)(const IN* __restrict__ in, Acc* scratch, OUT* out, i64* index, const Nest nest) {
    const i64 o = (i64(blockIdx.x) * 32 + threadIdx.x % 32) * PACK;
    const i64 begin = i64(blockIdx.y) * nest.chunk, row = threadIdx.x / 32;
    const i64 end = begin + nest.chunk < nest.folded ? begin + nest.chunk : nest.folded;
    i64 base = 0, at = 0, at_index = 0;
    place(nest, o, base, at, at_index);
    Acc a[PACK];
#pragma unroll
    for (int e = 0; e < PACK; e++) a[e] = identity();
    if (o < nest.kept) {
        const IN* const from = in + base;
        i64 j = begin + row;
        for (; j + 24 < end; j += 32) {
            Packed<IN, PACK> x[4];
#pragma unroll
            for (int u = 0; u < 4; u++) x[u] = packed<PACK>(from + inside(nest, j + u * 8));
#pragma unroll
            for (int e = 0; e < PACK; e++) {
                const IN own[4] = {x[0].x[e], x[1].x[e], x[2].x[e], x[3].x[e]};
                take<4, 1>(a[e], own, j, 8, nest.p);
            }
        }
        for (; j < end; j += 8) {
            const Packed<IN, PACK> x = packed<PACK>(from + inside(nest, j));
#pragma unroll
            for (int e = 0; e < PACK; e++) take<1, 1>(a[e], x.x + e, j, 8, nest.p);
        }
    }
    __shared__ Acc parts[8][32];
#pragma unroll
    for (int e = 0; e < PACK; e++) {
        __syncthreads();
        parts[row][threadIdx.x % 32] = a[e];
        __syncthreads();
        if (row != 0 || o >= nest.kept) continue;
        for (int k = 1; k < 8; k++) a[e] = join(a[e], parts[k][threadIdx.x]);
        if (nest.splits > 1) {
            scratch[i64(blockIdx.y) * nest.kept + o + e] = a[e];
        } else {
            finish(out, index, at + e * nest.kept_out[0], at_index + e * nest.kept_index[0], a[e], nest);
        }
    }
}

// Joins what several blocks have of each result, by one thread or a block of them.
KERNEL(second)(const Acc* __restrict__ scratch, OUT* out, i64* index, const Nest nest) {
    const i64 many = nest.lanes == 1, o = many ? i64(blockIdx.x) * 256 + threadIdx.x : blockIdx.x;
    if (o >= nest.kept) return;
    i64 base = 0, at = 0, at_index = 0;
    place(nest, o, base, at, at_index);
    Acc a = identity();
    for (i64 j = many ? 0 : threadIdx.x; j < nest.splits; j += many ? 1 : 256) a = join(a, scratch[j * nest.kept + o]);
    if (!many) a = gather(a, threadIdx.x, 256);
    if (many || threadIdx.x == 0) finish(out, index, at, at_index, a, nest);
}
