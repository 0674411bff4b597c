// Attention of 16-bit tensors and its gradients without a matrix of scores: a block of WARPS warps has some rows of one side and walks
// over tiles of the other. Before this text: T (elements), D (columns, a multiple of 16), TILE (rows of a tile), BLOCKS (of a
// multiprocessor, at least), ROWS (blocks of 16 rows that a warp has, in `flash`), STAGES (tiles in flight, there).
// Maxima and sums are kept for each row as in "Online normalizer calculation for softmax" (Milakov and Gimelshein); gradients come
// from scores that are made again, as in "FlashAttention-2" (Dao), those of queries and of keys by a kernel each, so that the order
// of a sum never changes.

#define THREADS (32 * WARPS)
#define OWN (16 * WARPS)
#define PITCH (D + 8)   // elements of a row in shared memory, so that rows begin in different banks
#define LOG2_E 1.44269504088896340736

extern __shared__ __align__(16) char room[];

typedef Tiles<T> Tile;

// Starts copies of a tile of COUNT rows; rows behind the last are zeros.
template <int COUNT> FN void fetch(T* to, const T* from, i64 stride, i64 first, i64 rows) {
    const u32 pieces = D / 8, target = shared_address(to);
    const int left = int(rows - first < COUNT ? rows - first : COUNT);
    from += first * stride;
#define BRING(r, c, source) do { \
        const T* const at = int(r) < left ? (source) : from; \
        const int bytes = int(r) < left ? 16 : 0; \
        copy_16(target + ((r) * PITCH + (c)) * 2, at, bytes); \
    } while (0)
    if (THREADS % pieces == 0) {
        const u32 row = threadIdx.x / pieces, c = threadIdx.x % pieces * 8, step = THREADS / pieces;
        const T* const source = from + row * stride + c;
        const i64 jump = i64(step) * stride;
#pragma unroll
        for (u32 k = 0; k < (COUNT + step - 1) / step; k++) {
            const u32 r = row + k * step;
            if (COUNT % step == 0 || r < COUNT) BRING(r, c, source + k * jump);
        }
    } else {
#pragma unroll
        for (u32 k = 0; k < (COUNT * pieces + THREADS - 1) / THREADS; k++) {
            const u32 i = threadIdx.x + k * THREADS, r = i / pieces, c = i % pieces * 8;
            if (COUNT * pieces % THREADS == 0 || r < COUNT) BRING(r, c, from + r * stride + c);
        }
    }
#undef BRING
}
// The left side of products: 16 rows of a matrix in memory, from row `row` on, which is the lane's own.
FN void left(u32 (*a)[4], const T* from, i64 stride, i64 row, i64 rows) {
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int s = 0; s < D / 16; s++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const i64 r = row + e % 2 * 8;
            a[s][e] = r < rows ? *(const u32*)(from + r * stride + s * 16 + e / 2 * 8 + column) : 0u;
        }
    }
}

// Adds 16 columns of M left sides times as many of the rows of a tile.
template <int M> FN void by_rows(float (*s)[TILE / 8][4], const u32* const* a, const T* tile, int d) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < TILE / 8; n += 2) {
        u32 r[4];
        load_squares(r, shared_address(tile + (n * 8 + lane % 8 + lane / 16 * 8) * PITCH + d * 16 + lane / 8 % 2 * 8), false);
#pragma unroll
        for (int m = 0; m < M; m++) {
            Tile::multiply(s[m][n], a[m], r[0], r[1]);
            Tile::multiply(s[m][n + 1], a[m], r[2], r[3]);
        }
    }
}

// Adds weights times the rows of a tile.
template <int M> FN void by_columns(float (*o)[D / 8][4], float (*s)[TILE / 8][4], const T* tile) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int d = 0; d < TILE / 16; d++) {
        u32 w[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            w[m][0] = Tile::pair(s[m][2 * d][0], s[m][2 * d][1]), w[m][1] = Tile::pair(s[m][2 * d][2], s[m][2 * d][3]);
            w[m][2] = Tile::pair(s[m][2 * d + 1][0], s[m][2 * d + 1][1]), w[m][3] = Tile::pair(s[m][2 * d + 1][2], s[m][2 * d + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            u32 r[4];
            load_squares(r, shared_address(tile + (d * 16 + lane % 16) * PITCH + n * 8 + lane / 16 * 8), true);
#pragma unroll
            for (int m = 0; m < M; m++) {
                Tile::multiply(o[m][n], w[m], r[0], r[1]);
                Tile::multiply(o[m][n + 1], w[m], r[2], r[3]);
            }
        }
    }
}

// Writes 16 rows, `row` being the lane's own.
FN void store(T* to, i64 stride, i64 row, i64 rows, const float (*o)[4], float by0, float by1) {
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const i64 r = row + h * 8;
        const float by = h ? by1 : by0;
        if (r >= rows) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) *(u32*)(to + r * stride + n * 8 + column) = Tile::pair(o[n][2 * h] * by, o[n][2 * h + 1] * by);
    }
}

// How many columns of tile `t`, from the lane's own on, the lane's two rows see.
FN void seen(int* bound, i64 keys, i64 causal, i64 row, int t) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const i64 last = causal && row + h * 8 + 1 < keys ? row + h * 8 + 1 : keys;
        bound[h] = int(last - i64(t) * TILE) - int(threadIdx.x % 4 * 2);
    }
}

#ifdef ROWS
struct Flash {
    i64 q[3], k[3], v[3], o[3], sums[3];   // elements from one sample, head and row to the next
    i64 heads, each, queries, keys, causal;
    double scale;
};

FN float across(float x, bool most) {
    for (int half = 1; half < 4; half *= 2) {
        const float other = __shfl_xor_sync(0xffffffff, x, half);
        x = most ? fmaxf(x, other) : x + other;
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash(T* out, float* sums, const T* query, const T* key, const T* value, const Flash f) {
    T* const keys = (T*)room;
    T* const values = keys + STAGES * TILE * PITCH;
    const i64 own = OWN * ROWS, blocks = (f.queries + own - 1) / own;
    const i64 block = blocks - 1 - blockIdx.x % blocks, pair = blockIdx.x / blocks, head = pair % f.heads, sample = pair / f.heads;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 row = block * own + warp * 16 * ROWS + lane / 4;
    const T* const k = key + sample * f.k[0] + head / f.each * f.k[1];
    const T* const v = value + sample * f.v[0] + head / f.each * f.v[1];

    const i64 reach = f.causal && (block + 1) * own < f.keys ? (block + 1) * own : f.keys;
    const int tiles = int((reach + TILE - 1) / TILE);
    for (int t = 0; t < STAGES - 1; t++) {
        if (t < tiles) {
            fetch<TILE>(keys + t * TILE * PITCH, k, f.k[2], i64(t) * TILE, f.keys);
            fetch<TILE>(values + t * TILE * PITCH, v, f.v[2], i64(t) * TILE, f.keys);
        }
        commit_copies();
    }
    u32 a[ROWS][D / 16][4];
    float o[ROWS][D / 8][4] = {}, top[ROWS][2], sum[ROWS][2] = {};
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        left(a[m], query + sample * f.q[0] + head * f.q[1], f.q[2], row + m * 16, f.queries);
        top[m][0] = top[m][1] = -INF_F;
    }
    const float scale = float(f.scale * LOG2_E);
    for (int t = 0; t < tiles; t++) {
        const int now = t % STAGES, next = t + STAGES - 1;
        wait_copies<STAGES - 2>();
        __syncthreads();
        if (next < tiles) {
            fetch<TILE>(keys + next % STAGES * TILE * PITCH, k, f.k[2], i64(next) * TILE, f.keys);
            fetch<TILE>(values + next % STAGES * TILE * PITCH, v, f.v[2], i64(next) * TILE, f.keys);
        }
        commit_copies();

        float s[ROWS][TILE / 8][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            const u32* side[ROWS];
#pragma unroll
            for (int m = 0; m < ROWS; m++) side[m] = a[m][d];
            by_rows<ROWS>(s, side, keys + now * TILE * PITCH, d);
        }
        if (i64(t + 1) * TILE > f.keys || (f.causal && i64(t + 1) * TILE > block * own + warp * 16 * ROWS)) {
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                int bound[2];
                seen(bound, f.keys, f.causal, row + m * 16, t);
#pragma unroll
                for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) s[m][n][e] = n * 8 + e % 2 < bound[e / 2] ? s[m][n][e] : -INF_F;
                }
            }
        }
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            float most[2] = {top[m][0], top[m][1]}, fade[2];
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) most[e / 2] = fmaxf(most[e / 2], s[m][n][e]);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                most[h] = across(most[h], true);
                const float from = most[h] == -INF_F ? 0.0f : most[h] * scale;
                fade[h] = power_of_two(top[m][h] * scale - from);
                top[m][h] = most[h];
                most[h] = from;
                sum[m][h] *= fade[h];
            }
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    s[m][n][e] = power_of_two(fmaf(s[m][n][e], scale, -most[e / 2]));
                    sum[m][e / 2] += s[m][n][e];
                }
            }
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) o[m][n][e] *= fade[e / 2];
            }
        }
        by_columns<ROWS>(o, s, values + now * TILE * PITCH);
    }
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
        float by[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const i64 r = row + m * 16 + h * 8;
            const float all = across(sum[m][h], false);
            by[h] = all == 0.0f ? 0.0f : 1.0f / all;
            if (sums && lane % 4 == 0 && r < f.queries) sums[sample * f.sums[0] + head * f.sums[1] + r * f.sums[2]] = top[m][h] * float(f.scale) + logf(all);
        }
        store(out + sample * f.o[0] + head * f.o[1], f.o[2], row + m * 16, f.queries, o[m], by[0], by[1]);
    }
}
#else
struct Back {
    i64 q[3], k[3], v[3], g[3], o[3], sums[3], dq[3], dk[3], dv[3];
    i64 heads, each, queries, keys, causal;
    double scale;
};

// The sum of products of results and their gradients, for each of `rows` queries of all heads.
KERNEL(inner)(float* means, const T* grad, const T* out, i64 rows, const Back f) {
    const i64 row = i64(blockIdx.x) * 8 + threadIdx.x / 32;
    if (row >= rows) return;
    const i64 r = row % f.queries, pair = row / f.queries, head = pair % f.heads, sample = pair / f.heads;
    const T* const g = grad + sample * f.g[0] + head * f.g[1] + r * f.g[2];
    const T* const o = out + sample * f.o[0] + head * f.o[1] + r * f.o[2];
    float sum = 0;
    for (int c = threadIdx.x % 32 * 2; c < D; c += 64) {
        const Packed<T, 2> a = packed<2>(g + c), b = packed<2>(o + c);
        sum += up(a.x[0]) * up(b.x[0]) + up(a.x[1]) * up(b.x[1]);
    }
    for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffff, sum, half);
    if (threadIdx.x % 32 == 0) means[row] = sum;
}

// The gradient of OWN queries: what weights and gradients of weights say about each tile of keys.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) by_query(
    T* dq, const T* query, const T* key, const T* value, const T* grad, const float* sums, const float* means, const Back f) {
    T* const keys = (T*)room;
    T* const values = keys + 2 * TILE * PITCH;
    const i64 blocks = (f.queries + OWN - 1) / OWN;
    const i64 block = blocks - 1 - blockIdx.x % blocks, pair = blockIdx.x / blocks, head = pair % f.heads, sample = pair / f.heads;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 row = block * OWN + warp * 16 + lane / 4;
    const T* const k = key + sample * f.k[0] + head / f.each * f.k[1];
    const T* const v = value + sample * f.v[0] + head / f.each * f.v[1];
    const i64 reach = f.causal && (block + 1) * OWN < f.keys ? (block + 1) * OWN : f.keys;
    const int tiles = int((reach + TILE - 1) / TILE);
    fetch<TILE>(keys, k, f.k[2], 0, f.keys);
    fetch<TILE>(values, v, f.v[2], 0, f.keys);
    commit_copies();

    u32 q[D / 16][4], g[D / 16][4];
    left(q, query + sample * f.q[0] + head * f.q[1], f.q[2], row, f.queries);
    left(g, grad + sample * f.g[0] + head * f.g[1], f.g[2], row, f.queries);
    float out[1][D / 8][4] = {}, sum[2], mean[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const i64 r = row + h * 8;
        sum[h] = r < f.queries ? sums[sample * f.sums[0] + head * f.sums[1] + r * f.sums[2]] * float(LOG2_E) : INF_F;
        mean[h] = r < f.queries ? means[pair * f.queries + r] : 0.0f;
    }
    const float scale = float(f.scale * LOG2_E);
    for (int t = 0; t < tiles; t++) {
        const int now = t % 2, next = (t + 1) % 2;
        if (t + 1 < tiles) {
            fetch<TILE>(keys + next * TILE * PITCH, k, f.k[2], i64(t + 1) * TILE, f.keys);
            fetch<TILE>(values + next * TILE * PITCH, v, f.v[2], i64(t + 1) * TILE, f.keys);
        }
        commit_copies();
        wait_copies<1>();
        __syncthreads();
        float s[1][TILE / 8][4] = {}, p[1][TILE / 8][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            const u32* side[1] = {q[d]};
            by_rows<1>(s, side, keys + now * TILE * PITCH, d);
        }
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            const u32* side[1] = {g[d]};
            by_rows<1>(p, side, values + now * TILE * PITCH, d);
        }
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) s[0][n][e] = power_of_two(fmaf(s[0][n][e], scale, -sum[e / 2])) * (p[0][n][e] - mean[e / 2]);
        }
        if (i64(t + 1) * TILE > f.keys || (f.causal && i64(t + 1) * TILE > block * OWN + warp * 16)) {
            int bound[2];
            seen(bound, f.keys, f.causal, row, t);
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) s[0][n][e] = n * 8 + e % 2 < bound[e / 2] ? s[0][n][e] : 0.0f;
            }
        }
        by_columns<1>(out, s, keys + now * TILE * PITCH);
        __syncthreads();
    }
    store(dq + sample * f.dq[0] + head * f.dq[1], f.dq[2], row, f.queries, out[0], float(f.scale), float(f.scale));
}

// The gradients of OWN keys and values, by all queries that see them.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) by_key(
    T* dk, T* dv, const T* query, const T* key, const T* value, const T* grad, const float* sums, const float* means, const Back f) {
    T* const queries = (T*)room;
    T* const grads = queries + 2 * TILE * PITCH;
    float* const notes = (float*)(grads + 2 * TILE * PITCH);   // of each stage: sums, then means
    T* const sides = (T*)(notes + 4 * TILE);                   // keys and values, for whose left sides registers have no room
    const i64 blocks = (f.keys + OWN - 1) / OWN, shared = f.heads / f.each;
    const i64 block = blockIdx.x % blocks, pair = blockIdx.x / blocks, head = pair % shared, sample = pair / shared;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = lane % 4 * 2;
    const i64 row = block * OWN + warp * 16 + lane / 4;
    const T* const k = key + sample * f.k[0] + head * f.k[1];
    const T* const v = value + sample * f.v[0] + head * f.v[1];
    const i64 from = f.causal ? block * OWN / TILE : 0, to_ = (f.queries + TILE - 1) / TILE;
    const i64 each = to_ > from ? to_ - from : 0, steps = each * f.each;
#define BRING(step, stage) do { \
        const i64 own = head * f.each + (step) / each, first = (from + (step) % each) * TILE; \
        fetch<TILE>(queries + (stage) * TILE * PITCH, query + sample * f.q[0] + own * f.q[1], f.q[2], first, f.queries); \
        fetch<TILE>(grads + (stage) * TILE * PITCH, grad + sample * f.g[0] + own * f.g[1], f.g[2], first, f.queries); \
        for (int j = threadIdx.x; j < TILE; j += THREADS) { \
            const i64 r = first + j, at = sample * f.sums[0] + own * f.sums[1] + r * f.sums[2]; \
            notes[(stage) * 2 * TILE + j] = r < f.queries ? sums[at] * float(LOG2_E) : INF_F; \
            notes[(stage) * 2 * TILE + TILE + j] = r < f.queries ? means[(sample * f.heads + own) * f.queries + r] : 0.0f; \
        } \
    } while (0)
    if (steps > 0) {
        fetch<OWN>(sides, k, f.k[2], block * OWN, f.keys);
        fetch<OWN>(sides + OWN * PITCH, v, f.v[2], block * OWN, f.keys);
        BRING(0, 0);
    }
    commit_copies();
    float by_k[1][D / 8][4] = {}, by_v[1][D / 8][4] = {};
    const float scale = float(f.scale * LOG2_E);
    for (i64 step = 0; step < steps; step++) {
        const int now = int(step % 2);
        if (step + 1 < steps) BRING(step + 1, 1 - now);
        commit_copies();
        wait_copies<1>();
        __syncthreads();
        const float* const sum = notes + now * 2 * TILE;
        float s[1][TILE / 8][4] = {}, p[1][TILE / 8][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            u32 a[4], b[4];
            const T* const at = sides + (warp * 16 + lane % 16) * PITCH + d * 16 + lane / 16 * 8;
            load_squares(a, shared_address(at), false);
            load_squares(b, shared_address(at + OWN * PITCH), false);
            const u32 *one[1] = {a}, *two[1] = {b};
            by_rows<1>(s, one, queries + now * TILE * PITCH, d);
            by_rows<1>(p, two, grads + now * TILE * PITCH, d);
        }
        const i64 first = (from + step % each) * TILE;
        // Earlier queries than the lane's keys do not see them.
        if (f.causal && first < block * OWN + warp * 16 + 16) {
            const int early = int(row - first) - column;
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) s[0][n][e] = n * 8 + e % 2 < early + e / 2 * 8 ? -INF_F : s[0][n][e];
            }
        }
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int c = n * 8 + column + e % 2;
                s[0][n][e] = power_of_two(fmaf(s[0][n][e], scale, -sum[c]));
                p[0][n][e] = s[0][n][e] * (p[0][n][e] - sum[TILE + c]);
            }
        }
        by_columns<1>(by_v, s, grads + now * TILE * PITCH);
        by_columns<1>(by_k, p, queries + now * TILE * PITCH);
        __syncthreads();
    }
    store(dk + sample * f.dk[0] + head * f.dk[1], f.dk[2], row, f.keys, by_k[0], float(f.scale), float(f.scale));
    store(dv + sample * f.dv[0] + head * f.dv[1], f.dv[2], row, f.keys, by_v[0], 1.0f, 1.0f);
}
#endif
