// The elements that are not zero, in order. Before this text: T (what is asked), S (what is taken of each). A block has CHUNK
// elements: it counts them, learns from the counts of all where its own begin, and writes what it finds there.

#define CHUNK 2048

FN bool holds(const View& x, i64 i, i64 n) { return i < n && to<bool>(up(element<T>(x, i))); }

// How many of a block's threads before this one hold, and of all.
FN u32 rank(bool own, u32& all) {
    __shared__ u32 sums[8];
    const u32 mask = __ballot_sync(0xffffffff, own), warp = threadIdx.x / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[warp] = __popc(mask);
    __syncthreads();
    u32 before = __popc(mask & ((1u << (threadIdx.x % 32)) - 1));
    all = 0;
    for (u32 w = 0; w < 8; w++) {
        before += w < warp ? sums[w] : 0;
        all += sums[w];
    }
    return before;
}

KERNEL(count)(i64* counts, i64 n, View x) {
    u32 sum = 0;
    for (int k = 0; k < CHUNK; k += 256) sum += holds(x, i64(blockIdx.x) * CHUNK + k + threadIdx.x, n);
    sum = over_block<Add>(sum);
    if (threadIdx.x == 0) counts[blockIdx.x] = sum;
}

// Counts become the sums of those before them; the last is that of all.
KERNEL(offsets)(i64* counts, i64 n) {
    const i64 all = sums_before<16>(counts, n);
    if (threadIdx.x == 0) counts[n] = all;
}

#define FOUND(i, to) \
    i64 to_next = counts[blockIdx.x]; \
    for (int k = 0; k < CHUNK; k += 256) { \
        const i64 i = i64(blockIdx.x) * CHUNK + k + threadIdx.x; \
        const bool own = holds(x, i, n); \
        u32 all; \
        const i64 to = to_next + rank(own, all); \
        to_next += all;
#define END_FOUND }

struct Shape {
    i64 dims, size[8], row, column;
};

// Coordinates, the first `limit` of them: a row for each element.
KERNEL(places)(i64* out, const i64* counts, i64 n, i64 limit, View x, Shape s) {
    FOUND(i, to)
        if (own && to < limit) {
            i64 rest = i;
            for (int d = int(s.dims) - 1; d >= 0; d--) {
                const i64 next = rest / s.size[d];
                out[to * s.row + d * s.column] = rest - next * s.size[d];
                rest = next;
            }
        }
    END_FOUND
}

KERNEL(chosen)(S* out, const i64* counts, i64 n, i64 limit, View x, View values) {
    FOUND(i, to)
        if (own && to < limit) out[to] = element<S>(values, i);
    END_FOUND
}
