// Softmax of lines and its gradient. Before this text: T (elements), O (of the result), LOG. A line's elements lie `inner`
// apart; `lanes` neighbouring threads share a line.

typedef TV V;
struct Pair {
    V top, sum;
};

// The value of each line's lanes, joined; all of them get it.
template <class J> FN V over_lanes(V x, u32 lanes, J join) {
    for (u32 half = lanes < 32 ? lanes / 2 : 16; half > 0; half /= 2) x = join(x, __shfl_xor_sync(0xffffffff, x, half));
    if (lanes <= 32) return x;
    __shared__ V parts[8];
    const u32 warps = lanes / 32, warp = threadIdx.x / 32, first = warp / warps * warps;
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[warp] = x;
    __syncthreads();
    x = parts[first];
    for (u32 k = 1; k < warps; k++) x = join(x, parts[first + k]);
    return x;
}
struct Larger { FN V operator()(V a, V b) const { return a > b || a != a ? a : b; } };
struct Sum { FN V operator()(V a, V b) const { return a + b; } };

#define LINE \
    const u32 lanes = u32(width), lane = threadIdx.x % lanes; \
    const i64 line = i64(blockIdx.x) * (256 / lanes) + threadIdx.x / lanes; \
    const bool live = line < lines; \
    const i64 base = live ? line / inner * inner * n + line % inner : 0; \
    const i64 count = live ? n : 0

// The elements of a thread, which keeps them if lines are short enough (HELD), and reads them again each time otherwise.
#if HELD
#define FOR(u, j) _Pragma("unroll") for (int u = 0; u < HELD; u++) for (i64 j = lane + i64(u) * lanes, once = 1; once && j < count; once = 0)
#define KEEP(name) V name[HELD]
#define KEPT(name, u, value) name[u]
#define READ(name, u, value) name[u] = (value)
#else
#define FOR(u, j) for (i64 j = lane; j < count; j += lanes)
#define KEEP(name)
#define KEPT(name, u, value) (value)
#define READ(name, u, value) (void)0
#endif

KERNEL(forward)(O* out, const T* x, i64 lines, i64 n, i64 inner, i64 width) {
    LINE;
    V top = -V(INF_D), sum = 0;
    KEEP(held);
    FOR(u, j) {
        READ(held, u, up(x[base + j * inner]));
        top = Larger()(KEPT(held, u, up(x[base + j * inner])), top);
    }
    top = over_lanes(top, lanes, Larger());
    FOR(u, j) sum += exp(KEPT(held, u, up(x[base + j * inner])) - top);
    sum = over_lanes(sum, lanes, Sum());
#if LOG
    sum = log(sum);
#else
    sum = V(1) / sum;
#endif
    FOR(u, j) {
        const V v = KEPT(held, u, up(x[base + j * inner])) - top;
#if LOG
        out[base + j * inner] = make<O>(v - sum);
#else
        out[base + j * inner] = make<O>(exp(v) * sum);
#endif
    }
}

KERNEL(backward)(O* out, const T* g, const T* y, i64 lines, i64 n, i64 inner, i64 width) {
    LINE;
    V sum = 0;
    KEEP(gs);
    KEEP(ys);
    FOR(u, j) {
        READ(gs, u, up(g[base + j * inner]));
        READ(ys, u, up(y[base + j * inner]));
#if LOG
        sum += KEPT(gs, u, up(g[base + j * inner]));
#else
        sum += KEPT(gs, u, up(g[base + j * inner])) * KEPT(ys, u, up(y[base + j * inner]));
#endif
    }
    sum = over_lanes(sum, lanes, Sum());
    FOR(u, j) {
        const V own = KEPT(gs, u, up(g[base + j * inner])), result = KEPT(ys, u, up(y[base + j * inner]));
#if LOG
        out[base + j * inner] = make<O>(own - exp(result) * sum);
#else
        out[base + j * inner] = make<O>(result * (own - sum));
#endif
    }
}
