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

// Steps of a bitonic network within chunks: from runs of `from` / 2 to runs of `until`; `from` 0 is the end of a longer step.
KERNEL(within)(K* keys, u32* at, i64 padded, i64 chunk, i64 step) {
    __shared__ K k[CHUNK];
    __shared__ u32 p[CHUNK];
    const i64 base = i64(blockIdx.x) * chunk;
    const u32 n = u32(chunk);
    for (u32 i = threadIdx.x; i < n; i += 256) {
        k[i] = keys[base + i];
        p[i] = at[base + i];
    }
    for (i64 size = step ? step : 2; size <= (step ? step : chunk); size *= 2) {
        for (u32 half = u32(size / 2 < n ? size / 2 : n / 2); half > 0; half /= 2) {
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

// One step between elements `half` apart, in runs of `size`.
KERNEL(across)(K* keys, u32* at, i64 total, i64 padded, i64 size, i64 half) {
    EACH(t, total / 2);
    const i64 i = t / half * half * 2 + t % half, j = i + half;
    const bool up_ = (i % padded & size) == 0;
    const K a = keys[i], b = keys[j];
    const u32 p = at[i], q = at[j];
    if (before(b, q, a, p) == up_) {
        keys[i] = b;
        keys[j] = a;
        at[i] = q;
        at[j] = p;
    }
}

KERNEL(store)(T* values, i64* indices, const T* x, const u32* at, i64 total, i64 n, i64 padded) {
    EACH(i, total);
    const i64 line = i / n, j = i - line * n;
    const u32 p = at[line * padded + j];
    indices[i] = i64(p);
    values[i] = x[line * n + p];
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
