// Attention of 16-bit tensors without a matrix of scores: a block of four warps has 64 queries and walks over the keys. Before this
// text: T (elements), D (columns, a multiple of 16), MMA (bf16 or f16 as PTX calls them), STAGES (tiles of keys in flight).
// Maxima and sums are kept for each row as in "Online normalizer calculation for softmax" (Milakov and Gimelshein).

#define TILE 64
#define PITCH (D + 8)   // elements of a row in shared memory, so that rows begin in different banks
#define WORDS(x) #x
#define NAMED(x) WORDS(x)

struct Flash {
    i64 q[3], k[3], v[3], o[3];   // elements from one sample, head and row to the next
    i64 heads, each, queries, keys, causal;
    double scale;
};

FN u32 pack(float low, float high) {
    u32 r;
    asm("cvt.rn." NAMED(MMA) "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

FN void multiply(float* c, const u32* a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAMED(MMA) "." NAMED(MMA) ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Starts copies of a tile of rows; rows behind the last are zeros.
FN void fetch(T* to, const T* from, i64 stride, i64 first, i64 rows) {
    for (int i = threadIdx.x; i < TILE * D / 8; i += 128) {
        const int r = i / (D / 8), c = i % (D / 8) * 8;
        const bool there = first + r < rows;
        const T* const source = from + (there ? first + r : 0) * stride + c;
        const u32 target = u32(__cvta_generic_to_shared(to + r * PITCH + c));
        const int bytes = there ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(bytes) : "memory");
    }
}

FN float across(float x, bool most) {
    for (int half = 1; half < 4; half *= 2) {
        const float other = __shfl_xor_sync(0xffffffff, x, half);
        x = most ? fmaxf(x, other) : x + other;
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(128) flash(T* out, float* sums, const T* query, const T* key, const T* value, const Flash f) {
    __shared__ __align__(16) T keys[STAGES][TILE * PITCH];
    __shared__ __align__(16) T values[STAGES][TILE * PITCH];
    const i64 blocks = (f.queries + TILE - 1) / TILE;
    const i64 block = blocks - 1 - blockIdx.x % blocks, pair = blockIdx.x / blocks, head = pair % f.heads, sample = pair / f.heads;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = lane % 4 * 2;
    const i64 row = block * TILE + warp * 16 + lane / 4;
    const T* const q = query + sample * f.q[0] + head * f.q[1];
    const T* const k = key + sample * f.k[0] + head / f.each * f.k[1];
    const T* const v = value + sample * f.v[0] + head / f.each * f.v[1];

    u32 a[D / 16][4];
#pragma unroll
    for (int s = 0; s < D / 16; s++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const i64 r = row + e % 2 * 8;
            a[s][e] = r < f.queries ? *(const u32*)(q + r * f.q[2] + s * 16 + e / 2 * 8 + column) : 0u;
        }
    }
    float o[D / 8][4] = {};
    float top[2] = {-INF_F, -INF_F}, sum[2] = {0.0f, 0.0f};
    const float scale = float(f.scale * 1.44269504088896340736);
    const i64 reach = f.causal && (block + 1) * TILE < f.keys ? (block + 1) * TILE : f.keys;
    const int tiles = int((reach + TILE - 1) / TILE);

    fetch(keys[0], k, f.k[2], 0, f.keys);
    fetch(values[0], v, f.v[2], 0, f.keys);
    asm volatile("cp.async.commit_group;" ::: "memory");
    for (int t = 0; t < tiles; t++) {
        const int now = t % STAGES;
        if (STAGES == 2) {
            if (t + 1 < tiles) {
                fetch(keys[(t + 1) % STAGES], k, f.k[2], i64(t + 1) * TILE, f.keys);
                fetch(values[(t + 1) % STAGES], v, f.v[2], i64(t + 1) * TILE, f.keys);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();

        float s[TILE / 8][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
#pragma unroll
            for (int n = 0; n < TILE / 8; n++) {
                const T* const b = keys[now] + (n * 8 + lane / 4) * PITCH + d * 16 + column;
                multiply(s[n], a[d], *(const u32*)b, *(const u32*)(b + 8));
            }
        }
        const bool edge = i64(t + 1) * TILE > f.keys || (f.causal && i64(t + 1) * TILE > block * TILE);
        float most[2] = {top[0], top[1]};
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const i64 c = i64(t) * TILE + n * 8 + column + e % 2;
                const bool hidden = edge && (c >= f.keys || (f.causal && c > row + e / 2 * 8));
                s[n][e] = hidden ? -INF_F : s[n][e] * scale;
                most[e / 2] = fmaxf(most[e / 2], s[n][e]);
            }
        }
        float fade[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            most[h] = across(most[h], true);
            const float from = most[h] == -INF_F ? 0.0f : most[h];
            fade[h] = exp2f(top[h] - from);
            top[h] = most[h];
            most[h] = from;
            sum[h] *= fade[h];
        }
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[n][e] = exp2f(s[n][e] - most[e / 2]);
                sum[e / 2] += s[n][e];
            }
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) o[n][e] *= fade[e / 2];
        }
#pragma unroll
        for (int d = 0; d < TILE / 16; d++) {
            const u32 w[4] = {pack(s[2 * d][0], s[2 * d][1]), pack(s[2 * d][2], s[2 * d][3]),
                              pack(s[2 * d + 1][0], s[2 * d + 1][1]), pack(s[2 * d + 1][2], s[2 * d + 1][3])};
#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
                const T* const b = values[now] + (d * 16 + lane % 16) * PITCH + n * 8 + lane / 16 * 8;
                const u32 at = u32(__cvta_generic_to_shared(b));
                u32 r[4];
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
                multiply(o[n], w, r[0], r[1]);
                multiply(o[n + 1], w, r[2], r[3]);
            }
        }
        __syncthreads();
        if (STAGES == 1 && t + 1 < tiles) {
            fetch(keys[0], k, f.k[2], i64(t + 1) * TILE, f.keys);
            fetch(values[0], v, f.v[2], i64(t + 1) * TILE, f.keys);
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const i64 r = row + h * 8;
        const float all = across(sum[h], false), by = all == 0.0f ? 0.0f : 1.0f / all;
        if (r >= f.queries) continue;
        if (sums && lane % 4 == 0) sums[pair * f.queries + r] = top[h] * 0.693147180559945309417f + logf(all);
        T* const to = out + sample * f.o[0] + head * f.o[1] + r * f.o[2];
#pragma unroll
        for (int n = 0; n < D / 8; n++) *(u32*)(to + n * 8 + column) = pack(o[n][2 * h] * by, o[n][2 * h + 1] * by);
    }
}
