// A fold over dimensions in one or two launches. Before this text: IN, OUT (storage types), V (what is folded), and
// IDENTITY, LOAD(x), JOIN(a, b), FINISH(a) (expressions); ARG is 1 where positions are wanted, MOMENTS where variances and means are.
// `lanes` threads share one result; `splits` blocks share one if results are few and folds are long.

struct Nest {
    i64 kept, folded;            // numbers of results and of elements in each
    i64 kept_dims, folded_dims;
    i64 kept_shape[8], kept_in[8], kept_out[8], kept_index[8];
    i64 folded_shape[8], folded_in[8];
    i64 lanes, splits, chunk;
    double p, post;
};

#if MOMENTS
// Count, mean and squared deviations, joined as Chan, Golub and LeVeque do.
struct Acc {
    V n, mean, square;
};
FN Acc identity() {
    Acc a;
    a.n = a.mean = a.square = V(0);
    return a;
}
FN Acc join(Acc a, Acc b) {
    const V n = a.n + b.n;
    if (n == V(0)) return a;
    const V part = b.n / n, delta = b.mean - a.mean;
    a.mean += delta * part;
    a.square += b.square + delta * delta * a.n * part;
    a.n = n;
    return a;
}
FN Acc load(IN x) {
    Acc a;
    a.n = V(1);
    a.mean = to<V>(up(x));
    a.square = V(0);
    return a;
}
#define TAKE(x, j) load(x)
#elif ARG
struct Acc {
    V v;
    i64 i;
};
#define TAKE(x, j) load(x, j)
FN Acc identity() {
    Acc a;
    a.v = IDENTITY;
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
FN Acc load(IN x, i64 j) {
    Acc a;
    a.v = to<V>(up(x));
    a.i = j;
    return a;
}
#else
typedef V Acc;
FN Acc identity() { return IDENTITY; }
FN Acc join(Acc a, Acc b) { return JOIN(a, b); }
FN Acc load_with(IN s, double p) {
    const Up<IN>::type x = up(s);
    (void)p;
    return LOAD(x);
}
#define TAKE(x, j) load_with(x, nest.p)
#endif

FN void finish(OUT* out, i64* index, i64 at, i64 at_index, Acc a, const Nest& nest) {
#if MOMENTS
    // `p` is what the count is corrected by, and `post` whether the root is wanted; the mean goes where positions go otherwise.
    const V left = a.n - V(nest.p), var = a.square / (left > V(0) ? left : V(0));
    out[at] = Down<OUT>::of(to<Up<OUT>::type>(nest.post != 0 ? sqrt(var) : var));
    if (index) ((OUT*)index)[at_index] = Down<OUT>::of(to<Up<OUT>::type>(a.n == V(0) ? V(INF_D) - V(INF_D) : a.mean));
#elif ARG
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

extern "C" __global__ void __launch_bounds__(256) first(const IN* __restrict__ in, Acc* scratch, OUT* out, i64* index, const Nest nest) {
    const unsigned lanes = unsigned(nest.lanes), lane = threadIdx.x % lanes;
    const i64 o = i64(blockIdx.x) * (256 / lanes) + threadIdx.x / lanes;
    const i64 begin = i64(blockIdx.y) * nest.chunk;
    const i64 end = begin + nest.chunk < nest.folded ? begin + nest.chunk : nest.folded;
    i64 base = 0, at = 0, at_index = 0;
    place(nest, o, base, at, at_index);
    Acc a = identity();
    if (o < nest.kept) {
        const IN* const from = in + base;
        if (nest.folded_dims <= 1) {
            const i64 step = nest.folded_in[0];
#pragma unroll 8
            for (i64 j = begin + lane; j < end; j += lanes) a = join(a, TAKE(from[j * step], j));
        } else {
#pragma unroll 4
            for (i64 j = begin + lane; j < end; j += lanes) a = join(a, TAKE(from[inside(nest, j)], j));
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

extern "C" __global__ void __launch_bounds__(256) second(const Acc* __restrict__ scratch, OUT* out, i64* index, const Nest nest) {
    const i64 o = blockIdx.x;
    i64 base = 0, at = 0, at_index = 0;
    place(nest, o, base, at, at_index);
    Acc a = identity();
    for (i64 j = threadIdx.x; j < nest.splits; j += 256) a = join(a, scratch[j * nest.kept + o]);
    a = gather(a, threadIdx.x, 256);
    if (threadIdx.x == 0) finish(out, index, at, at_index, a, nest);
}
