// Softmax of lines and its gradient. Before this text: T (elements), O (of the result), LOG, PACK (neighbouring elements that are
// read at once), HELD (packs of a line that a thread keeps; 0: it reads them again). A line's elements lie `inner` apart; `lanes`
// neighbouring threads share a line.

typedef TV V;

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
#define EACH_OF(e) _Pragma("unroll") for (int e = 0; e < PACK; e++)

#if HELD
#define PACKS(u, j) _Pragma("unroll") for (int u = 0; u < HELD; u++) for (i64 j = (lane + i64(u) * lanes) * PACK, once = 1; once && j < count; once = 0)

KERNEL(forward)(O* out, const T* x, i64 lines, i64 n, i64 inner, i64 width) {
    LINE;
    V top = -V(INF_D), sum = 0, held[HELD * PACK];
    PACKS(u, j) {
        const Packed<T, PACK> p = packed<PACK>(x + base + j * inner);
        EACH_OF(e) top = Larger()(held[u * PACK + e] = up(p.x[e]), top);
    }
    top = over_lanes(top, lanes, Larger());
    PACKS(u, j) EACH_OF(e) {
        const V apart = held[u * PACK + e] - top, raised = exp(apart);
        sum += raised;
        held[u * PACK + e] = LOG ? apart : raised;
    }
    sum = over_lanes(sum, lanes, Sum());
    sum = LOG ? log(sum) : V(1) / sum;
    PACKS(u, j) {
        Packed<O, PACK> p;
        EACH_OF(e) p.x[e] = make<O>(LOG ? held[u * PACK + e] - sum : held[u * PACK + e] * sum);
        packed<PACK>(out + base + j * inner) = p;
    }
}

KERNEL(backward)(O* out, const T* g, const T* y, i64 lines, i64 n, i64 inner, i64 width) {
    LINE;
    V sum = 0, gs[HELD * PACK], ys[HELD * PACK];
    PACKS(u, j) {
        const Packed<T, PACK> p = packed<PACK>(g + base + j * inner), q = packed<PACK>(y + base + j * inner);
        EACH_OF(e) {
            gs[u * PACK + e] = up(p.x[e]);
            ys[u * PACK + e] = up(q.x[e]);
            sum += LOG ? gs[u * PACK + e] : gs[u * PACK + e] * ys[u * PACK + e];
        }
    }
    sum = over_lanes(sum, lanes, Sum());
    PACKS(u, j) {
        Packed<O, PACK> p;
        EACH_OF(e) {
            const V own = gs[u * PACK + e], result = ys[u * PACK + e];
            p.x[e] = make<O>(LOG ? own - exp(result) * sum : result * (own - sum));
        }
        packed<PACK>(out + base + j * inner) = p;
    }
}
#else
#define PACKS(j) for (i64 j = i64(lane) * PACK; j < count; j += i64(lanes) * PACK)

// One pass for both the maximum and the sum: what was added so far fades when a larger element comes.
KERNEL(forward)(O* out, const T* x, i64 lines, i64 n, i64 inner, i64 width) {
    LINE;
    V top = -V(INF_D), sum = 0;
    PACKS(j) {
        const Packed<T, PACK> p = packed<PACK>(x + base + j * inner);
        V most = top;
        EACH_OF(e) most = Larger()(up(p.x[e]), most);
        if (most == -V(INF_D)) continue;
        sum *= exp(top - most);
        EACH_OF(e) sum += exp(up(p.x[e]) - most);
        top = most;
    }
    const V own = top;
    top = over_lanes(top, lanes, Larger());
    sum = over_lanes(own == -V(INF_D) ? V(0) : sum * exp(own - top), lanes, Sum());
    // A line of nothing but negative infinities, or with a positive one, has no softmax.
    if (top == -V(INF_D)) sum = top - top;
    sum = LOG ? log(sum) : V(1) / sum;
    PACKS(j) {
        const Packed<T, PACK> p = packed<PACK>(x + base + j * inner);
        Packed<O, PACK> made;
        EACH_OF(e) {
            const V v = up(p.x[e]) - top;
            made.x[e] = make<O>(LOG ? v - sum : exp(v) * sum);
        }
        packed<PACK>(out + base + j * inner) = made;
    }
}

KERNEL(backward)(O* out, const T* g, const T* y, i64 lines, i64 n, i64 inner, i64 width) {
    LINE;
    V sum = 0;
    PACKS(j) {
        const Packed<T, PACK> p = packed<PACK>(g + base + j * inner), q = packed<PACK>(y + base + j * inner);
        EACH_OF(e) sum += LOG ? V(up(p.x[e])) : V(up(p.x[e])) * up(q.x[e]);
    }
    sum = over_lanes(sum, lanes, Sum());
    PACKS(j) {
        const Packed<T, PACK> p = packed<PACK>(g + base + j * inner), q = packed<PACK>(y + base + j * inner);
        Packed<O, PACK> made;
        EACH_OF(e) {
            const V own = up(p.x[e]), result = up(q.x[e]);
            made.x[e] = make<O>(LOG ? own - exp(result) * sum : result * (own - sum));
        }
        packed<PACK>(out + base + j * inner) = made;
    }
}
#endif
