// Lines in order, and their first few. Before this text: T (elements), K (keys: u32 or u64), DOWN (the largest first). A key has the
// order of its element; NaN is the largest, and zeros are equal. Elements of a line lie next to each other.

template <class X> FN K key_of(X x) {
    // Integers of up to 64 bits: the sign bit upside down.
    const K top = K(1) << (8 * sizeof(K) - 1);
    return X(-1) < X(0) ? K(K(i64(x)) ^ top) : K(x);
}
FN K key_of(bool x) { return K(x); }
FN K key_of(float x) {
    if (x != x) return ~K(0);
    const u32 b = __float_as_uint(x == 0.0f ? 0.0f : x);
    return K(b & 0x80000000u ? ~b : b | 0x80000000u);
}
#if WIDE
FN K key_of(double x) {
    if (x != x) return ~K(0);
    const u64 b = u64(__double_as_longlong(x == 0.0 ? 0.0 : x));
    return K(b >> 63 ? ~b : b | (u64(1) << 63));
}
#endif
FN K key(T x) {
    const K k = key_of(up(x));
    return DOWN ? K(~k) : k;
}

// What lies first: the smaller key, then the smaller position.
FN bool before(K a, u32 i, K b, u32 j) { return a < b || (a == b && i < j); }

#define CHUNK 2048

FN void exchange(K* keys, u32* at, u32 i, u32 j, bool up_) {
    if (before(keys[j], at[j], keys[i], at[i]) == up_) {
        const K k = keys[i];
        const u32 a = at[i];
        keys[i] = keys[j];
        at[i] = at[j];
        keys[j] = k;
        at[j] = a;
    }
}

// Keys and positions of all lines, each filled up to `padded` elements.
KERNEL(load)(K* keys, u32* at, const T* x, i64 total, i64 n, i64 padded) {
    EACH(i, total);
    const i64 line = i / padded, j = i - line * padded;
    keys[i] = j < n ? key(x[line * n + j]) : ~K(0);
    at[i] = j < n ? u32(j) : ~0u;
}

// A bitonic network within chunks, which hold a line or several.
KERNEL(within)(K* keys, u32* at, i64 padded, i64 chunk) {
    __shared__ K k[CHUNK];
    __shared__ u32 p[CHUNK];
    const i64 base = i64(blockIdx.x) * chunk;
    const u32 n = u32(chunk);
    for (u32 i = threadIdx.x; i < n; i += 256) {
        k[i] = keys[base + i];
        p[i] = at[base + i];
    }
    for (u32 size = 2; size <= u32(padded); size *= 2) {
        for (u32 half = size / 2; half > 0; half /= 2) {
            __syncthreads();
            for (u32 t = threadIdx.x; t < n / 2; t += 256) {
                const u32 i = t / half * half * 2 + t % half;
                exchange(k, p, i, i + half, ((base + i) % padded & size) == 0);
            }
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < n; i += 256) {
        keys[base + i] = k[i];
        at[base + i] = p[i];
    }
}

// Values and positions in the order of a line's first elements.
KERNEL(store)(T* values, i64* indices, const T* x, const u32* at, i64 total, i64 n, i64 padded) {
    EACH(i, total);
    const i64 line = i / n, j = i - line * n;
    const u32 p = at[line * padded + j];
    indices[i] = i64(p);
    values[i] = x[line * n + p];
}

// Longer lines are sorted by digits of 8 bits, the last first. A tile is what a block has of a line: each warp a run of it, in turns
// of 32 elements.
#define ITEMS (WIDE ? 8 : 16)
#define TILE (256 * ITEMS)
#define PLACE(r) (threadIdx.x / 32 * 32 * ITEMS + (r) * 32 + threadIdx.x % 32)
#define DIGIT(k) (u32((k) >> shift) & 255)

// Where elements of a tile go among those of their digit and warp, and in `counts` where those of a warp begin. How many there are
// of a thread's digit.
FN u32 ranked(const K* keys, int shift, u32* rank, u32 (*counts)[256]) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    for (u32 w = 0; w < 8; w++) counts[w][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        const u32 digit = DIGIT(keys[r]), alike = __match_any_sync(0xffffffff, digit), first = __ffs(alike) - 1;
        u32 old = 0;
        if (lane == first) {
            old = counts[warp][digit];
            counts[warp][digit] = old + __popc(alike);
        }
        __syncwarp();
        rank[r] = __shfl_sync(0xffffffff, old, first) + __popc(alike & ((1u << lane) - 1));
    }
    __syncthreads();
    u32 sum = 0;
    for (u32 w = 0; w < 8; w++) {
        const u32 own = counts[w][threadIdx.x];
        counts[w][threadIdx.x] = sum;
        sum += own;
    }
    return sum;
}

// Brings a tile into the order of a digit; `starts` is where the elements of each begin.
FN void arrange(K* keys, u32* at, const K* own, const u32* place, int shift, u32 (*counts)[256], u32* starts) {
    u32 rank[ITEMS];
    const u32 many = ranked(own, shift, rank, counts);
    starts[threadIdx.x] = before_all(many);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        const u32 digit = DIGIT(own[r]), to = starts[digit] + counts[threadIdx.x / 32][digit] + rank[r];
        keys[to] = own[r];
        at[to] = place[r];
    }
    __syncthreads();
}

// A line that is one tile.
KERNEL(line)(T* values, i64* indices, const T* x, i64 n, i64 lowest) {
    __shared__ u32 counts[8][256], starts[256];
    __shared__ K keys[TILE];
    __shared__ u32 at[TILE];
    const i64 base = i64(blockIdx.x) * n;
    K own[ITEMS];
    u32 place[ITEMS];
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        place[r] = PLACE(r);
        own[r] = place[r] < n ? key(x[base + place[r]]) : ~K(0);
    }
    for (int shift = int(lowest); shift < 8 * int(sizeof(K)); shift += 8) {
        arrange(keys, at, own, place, shift, counts, starts);
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            own[r] = keys[PLACE(r)];
            place[r] = at[PLACE(r)];
        }
    }
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        const i64 to = PLACE(r);
        if (to < n) {
            indices[base + to] = i64(place[r]);
            values[base + to] = x[base + place[r]];
        }
    }
}

// How many elements of each digit a tile has: (line, digit, tile).
KERNEL(digits)(u32* counts, const K* keys, i64 n, i64 tiles, i64 shift) {
    __shared__ u32 found[8][256];
    for (u32 w = 0; w < 8; w++) found[w][threadIdx.x] = 0;
    __syncthreads();
    const i64 line = blockIdx.x / tiles, tile = blockIdx.x - line * tiles;
    for (int r = 0; r < ITEMS; r++) {
        const i64 i = tile * TILE + PLACE(r);
        if (i < n) atomicAdd(&found[threadIdx.x / 32][DIGIT(keys[line * n + i])], 1u);
    }
    __syncthreads();
    u32 sum = 0;
    for (u32 w = 0; w < 8; w++) sum += found[w][threadIdx.x];
    counts[(line * 256 + threadIdx.x) * tiles + tile] = sum;
}

// Counts of a digit become the sums of those before them; `sums` is what there is of it in the line.
KERNEL(starts)(u32* counts, u32* sums, i64 tiles) {
    const u32 all = sums_before<4>(counts + i64(blockIdx.x) * tiles, tiles);
    if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

// Brings the elements of each tile to where those of their digit go, neighbours together.
KERNEL(move)(K* keys_out, u32* at_out, const K* keys_in, const u32* at_in, const u32* counts, const u32* sums, i64 n, i64 tiles, i64 shift) {
    __shared__ u32 found[8][256], starts[256], targets[256];
    __shared__ K keys[TILE];
    __shared__ u32 at[TILE];
    const i64 line = blockIdx.x / tiles, tile = blockIdx.x - line * tiles, base = line * n, left = n - tile * TILE;
    K own[ITEMS];
    u32 place[ITEMS];
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        const i64 i = tile * TILE + PLACE(r);
        own[r] = i < n ? keys_in[base + i] : ~K(0);
        place[r] = i < n ? at_in[base + i] : 0;
    }
    const u32 first = before_all(sums[line * 256 + threadIdx.x]);
    arrange(keys, at, own, place, int(shift), found, starts);
    targets[threadIdx.x] = first + counts[(line * 256 + threadIdx.x) * tiles + tile] - starts[threadIdx.x];
    __syncthreads();
    for (u32 i = threadIdx.x; i < TILE && i < left; i += 256) {
        const K k = keys[i];
        const i64 to = base + targets[DIGIT(k)] + i;
        keys_out[to] = k;
        at_out[to] = at[i];
    }
}

// The first `k` of each line: a block finds the last key that belongs to them digit by digit, collects, and sorts what it has.
KERNEL(first)(T* values, i64* indices, const T* x, i64 n, i64 k) {
    __shared__ u32 counts[256];
    __shared__ u32 found[2];
    __shared__ K keys[CHUNK];
    __shared__ u32 at[CHUNK];
    __shared__ u32 sums[256];
    const T* const line = x + i64(blockIdx.x) * n;
    K prefix = 0;
    u32 left = u32(k);
    for (int shift = 8 * sizeof(K) - 8; shift >= 0; shift -= 8) {
        counts[threadIdx.x] = 0;
        __syncthreads();
        for (i64 j = threadIdx.x; j < n; j += 256) {
            const K v = key(line[j]);
            if (shift == 8 * int(sizeof(K)) - 8 || (v >> (shift + 8)) == prefix) atomicAdd(&counts[u32(v >> shift) & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 digit = 0, before_ = 0;
            while (digit < 255 && before_ + counts[digit] < left) before_ += counts[digit++];
            found[0] = digit;
            found[1] = before_;
        }
        __syncthreads();
        prefix = (shift == 8 * int(sizeof(K)) - 8 ? K(0) : K(prefix << 8)) | K(found[0]);
        left -= found[1];
        __syncthreads();
    }
    // Smaller keys all belong to them, and of the equal ones the first `left`.
    u32 size = 1;
    while (size < u32(k)) size *= 2;
    for (u32 i = threadIdx.x; i < size; i += 256) {
        keys[i] = ~K(0);
        at[i] = ~0u;
    }
    if (threadIdx.x == 0) {
        found[0] = 0;
        found[1] = u32(k) - left;
    }
    __syncthreads();
    for (i64 start = 0; start < n; start += 256) {
        const i64 j = start + threadIdx.x;
        const K v = j < n ? key(line[j]) : ~K(0);
        const bool smaller = j < n && v < prefix, equal = j < n && v == prefix;
        if (smaller) {
            const u32 to = atomicAdd(&found[0], 1u);
            keys[to] = v;
            at[to] = u32(j);
        }
        const u32 mask = __ballot_sync(0xffffffff, equal);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = __popc(mask);
        __syncthreads();
        u32 rank = __popc(mask & ((1u << (threadIdx.x % 32)) - 1)), all = 0;
        for (u32 w = 0; w < 8; w++) {
            if (w < threadIdx.x / 32) rank += sums[w];
            all += sums[w];
        }
        const u32 to = found[1] + rank;
        if (equal && to < u32(k)) {
            keys[to] = v;
            at[to] = u32(j);
        }
        __syncthreads();
        if (threadIdx.x == 0) found[1] += all;
        __syncthreads();
    }
    for (u32 run = 2; run <= size; run *= 2)
        for (u32 half = run / 2; half > 0; half /= 2) {
            __syncthreads();
            for (u32 t = threadIdx.x; t < size / 2; t += 256) {
                const u32 i = t / half * half * 2 + t % half;
                exchange(keys, at, i, i + half, (i & run) == 0);
            }
        }
    __syncthreads();
    for (u32 i = threadIdx.x; i < u32(k); i += 256) {
        indices[i64(blockIdx.x) * k + i] = i64(at[i]);
        values[i64(blockIdx.x) * k + i] = line[at[i]];
    }
}
