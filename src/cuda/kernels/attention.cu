// Weights of an attention from scores, and gradients of scores. Before this text: T (of the weights), M (of the mask), MASK (0: none,
// 1: truth values, 2: numbers to add). Rows are queries; row r is query r % queries of its head.

typedef float S;
#if WIDE
#define S double
#endif

FN S reduced(S x, bool most) {
    __shared__ S parts[8];
    for (u32 half = 16; half > 0; half /= 2) {
        const S other = __shfl_xor_sync(0xffffffff, x, half);
        x = most ? (other > x ? other : x) : x + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
    for (u32 k = 1; k < blockDim.x / 32; k++) x = most ? (parts[k] > x ? parts[k] : x) : x + parts[k];
    return x;
}

FN S seen(const View& mask, i64 i, S score) {
#if MASK == 1
    return element<M>(mask, i) ? score : -S(INF_D);
#elif MASK == 2
    return score + S(up(element<M>(mask, i)));
#else
    return score;
#endif
}

// What a query sees of so many keys.
FN i64 reach(i64 row, i64 queries, i64 keys, i64 causal) {
    const i64 before = row % queries + 1;
    return causal && before < keys ? before : keys;
}

KERNEL(weigh)(T* weights, S* sums, const S* scores, View mask, i64 first, i64 queries, i64 keys, i64 causal, double scale) {
    const i64 row = blockIdx.x, base = row * keys, at = (first + row) * keys, n = reach(first + row, queries, keys, causal);
    S top = -S(INF_D), sum = 0;
    for (i64 j = threadIdx.x; j < n; j += 256) {
        const S v = seen(mask, at + j, scores[base + j] * S(scale));
        top = v > top || v != v ? v : top;
    }
    top = reduced(top, true);
    if (top == -S(INF_D)) top = 0;
    for (i64 j = threadIdx.x; j < n; j += 256) sum += exp(seen(mask, at + j, scores[base + j] * S(scale)) - top);
    sum = reduced(sum, false);
    const S by = sum == S(0) ? S(0) : S(1) / sum;
    for (i64 j = threadIdx.x; j < keys; j += 256) {
        weights[base + j] = make<T>(j < n ? exp(seen(mask, at + j, scores[base + j] * S(scale)) - top) * by : S(0));
    }
    if (sums && threadIdx.x == 0) sums[first + row] = log(sum) + top;
}

// Weights again from the logarithms of their sums; `grads` are those of the weights, and `means` the sums of both.
KERNEL(unweigh)(T* weights, T* by_score, const S* scores, const S* grads, const S* sums, const S* means, View mask, i64 first, i64 queries, i64 keys, i64 causal, double scale) {
    const i64 row = blockIdx.x, base = row * keys, at = (first + row) * keys, n = reach(first + row, queries, keys, causal);
    const S sum = sums[first + row], mean = means[first + row];
    for (i64 j = threadIdx.x; j < keys; j += 256) {
        const S score = j < n ? seen(mask, at + j, scores[base + j] * S(scale)) : -S(INF_D);
        const S weight = score == -S(INF_D) ? S(0) : exp(score - sum);
        weights[base + j] = make<T>(weight);
        by_score[base + j] = make<T>(weight * (grads[base + j] - mean) * S(scale));
    }
}

// The sum of products of two rows, a warp for each.
KERNEL(rows)(S* out, const T* a, const T* b, i64 count, i64 n) {
    const i64 row = i64(blockIdx.x) * 8 + threadIdx.x / 32;
    if (row >= count) return;
    S sum = 0;
    for (i64 j = threadIdx.x % 32; j < n; j += 32) sum += S(up(a[row * n + j])) * S(up(b[row * n + j]));
    for (u32 half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffff, sum, half);
    if (threadIdx.x % 32 == 0) out[row] = sum;
}
