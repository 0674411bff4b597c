// Softmax of lines and its gradient. Before this text: T (elements), O (of the result), LOG, PACK (neighbouring elements that are
// read at once), HELD (packs of a line that a thread keeps; 0: it reads them again). A line's elements lie `inner` apart; `lanes`
// neighbouring threads share a line.

typedef TV V;

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
        EACH_OF(e) top = max_(held[u * PACK + e] = up(p.x[e]), top);
    }
    top = over_lanes<Most>(top, lanes);
    PACKS(u, j) EACH_OF(e) {
        const V apart = held[u * PACK + e] - top, raised = exp(apart);
        sum += raised;
        held[u * PACK + e] = LOG ? apart : raised;
    }
    sum = over_lanes<Add>(sum, lanes);
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
    sum = over_lanes<Add>(sum, lanes);
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
        EACH_OF(e) most = max_(V(up(p.x[e])), most);
        if (most == -V(INF_D)) continue;
        sum *= exp(top - most);
        EACH_OF(e) sum += exp(up(p.x[e]) - most);
        top = most;
    }
    const V own = top;
    top = over_lanes<Most>(top, lanes);
    sum = over_lanes<Add>(own == -V(INF_D) ? V(0) : sum * exp(own - top), lanes);
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
    sum = over_lanes<Add>(sum, lanes);
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
