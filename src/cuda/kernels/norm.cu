// Normalisations of rows, and their gradients. Before this text: T (elements), P (parameters and statistics of the caller's),
// CENTRED (a mean is subtracted), and for kernels of rows HELD and PACK (neighbours that are read at once). A row is `n` elements; element j of row r has the parameter (r % groups) * (n / size) + j / size.

typedef TV V;
#ifndef PACK
#define PACK 1
#define HELD 0
#endif

template <class X> FN X summed(X x, u32 lanes) { return over_lanes<Add>(x, lanes); }

#define ROW \
    const u32 lanes = u32(width), lane = threadIdx.x % lanes; \
    const i64 row = i64(blockIdx.x) * (256 / lanes) + threadIdx.x / lanes; \
    const bool live = row < rows; \
    const i64 base = live ? row * n : 0, count = live ? n : 0, from = row % groups * (n / size)
#define EACH_OF(e) _Pragma("unroll") for (int e = 0; e < PACK; e++)

// PACK neighbouring elements at once. A thread keeps what it has of a row that is short enough (HELD packs), and reads it again
// each time otherwise.
#if HELD
#define PACKS(u, j) _Pragma("unroll") for (int u = 0; u < HELD; u++) for (i64 j = (lane + i64(u) * lanes) * PACK, once = 1; once && j < count; once = 0)
#else
#define PACKS(u, j) for (i64 j = i64(lane) * PACK; j < count; j += i64(lanes) * PACK)
#endif

// The parameter of an element of a row; packs of elements that share parameters have one.
FN i64 shared_by(i64 j, i64 size) { return j < 0x7fffffff ? u32(j) / u32(size) : j / size; }
#define PARAMETERS(name, p, other) \
    V name[PACK]; \
    if (!(p)) { \
        EACH_OF(e) name[e] = V(other); \
    } else if (size == 1) { \
        EACH_OF(e) name[e] = to<V>(up((p)[from + j + e])); \
    } else { \
        const V one = to<V>(up((p)[from + shared_by(j, size)])); \
        EACH_OF(e) name[e] = one; \
    }

KERNEL(forward)(T* out, P* means, P* rstds, const T* x, const P* w, const P* b, i64 rows, i64 n, i64 groups, i64 size, i64 width, double eps) {
    ROW;
    V mean = 0, square = 0;
#if HELD
    V xs[HELD * PACK];
    PACKS(u, j) {
        const Packed<T, PACK> p = packed<PACK>(x + base + j);
        EACH_OF(e) mean += xs[u * PACK + e] = up(p.x[e]);
    }
    mean = CENTRED ? summed(mean, lanes) / V(n) : V(0);
    PACKS(u, j) EACH_OF(e) {
        const V d = xs[u * PACK + e] - mean;
        square += d * d;
    }
    square = summed(square, lanes);
#elif CENTRED
    Moments<V> all = {V(0), V(0), V(0)};
    PACKS(u, j) {
        const Packed<T, PACK> p = packed<PACK>(x + base + j);
        all = all + moments_of<PACK, V>(p.x);
    }
    all = summed(all, lanes);
    mean = all.mean;
    square = all.square;
#else
    PACKS(u, j) {
        const Packed<T, PACK> p = packed<PACK>(x + base + j);
        EACH_OF(e) square += V(up(p.x[e])) * up(p.x[e]);
    }
    square = summed(square, lanes);
#endif
    const V rstd = rsqrt(square / V(n) + V(eps));
    if (live && lane == 0) {
        if (means) means[row] = make<P>(mean);
        if (rstds) rstds[row] = make<P>(rstd);
    }
    PACKS(u, j) {
        PARAMETERS(ws, w, 1)
        PARAMETERS(bs, b, 0)
#if !HELD
        const Packed<T, PACK> p = packed<PACK>(x + base + j);
#endif
        Packed<T, PACK> made;
        EACH_OF(e) {
#if HELD
            const V own = xs[u * PACK + e];
#else
            const V own = up(p.x[e]);
#endif
            V y = (own - mean) * rstd;
            if (w) y = y * ws[e];
            if (b) y = y + bs[e];
            made.x[e] = make<T>(y);
        }
        packed<PACK>(out + base + j) = made;
    }
}

KERNEL(by_input)(T* out, const T* g, const T* x, const V* means, const V* rstds, const V* w, i64 rows, i64 n, i64 groups, i64 size, i64 width) {
    ROW;
    const V mean = live && means ? means[row] : V(0), rstd = live ? rstds[row] : V(0);
    V plain = 0, turned = 0;
#if HELD
    V gs[HELD * PACK], xs[HELD * PACK];
#define GS gs[u * PACK + e]
#define XS xs[u * PACK + e]
#else
    V gs[PACK], xs[PACK];
#define GS gs[e]
#define XS xs[e]
#endif
#define BRING(j) \
    const Packed<T, PACK> p = packed<PACK>(g + base + j), q = packed<PACK>(x + base + j); \
    PARAMETERS(ws, w, 1) \
    EACH_OF(e) { \
        GS = up(p.x[e]) * ws[e]; \
        XS = (up(q.x[e]) - mean) * rstd; \
    }
    PACKS(u, j) {
        BRING(j)
        EACH_OF(e) {
            plain += GS;
            turned += GS * XS;
        }
    }
    plain = CENTRED ? summed(plain, lanes) / V(n) : V(0);
    turned = summed(turned, lanes) / V(n);
    PACKS(u, j) {
#if !HELD
        BRING(j)
#endif
        Packed<T, PACK> made;
        EACH_OF(e) made.x[e] = make<T>(rstd * (GS - plain - XS * turned));
        packed<PACK>(out + base + j) = made;
    }
}

// What parameters get, one sum of g and of g times the normalised element for each of `splits` parts of the rows: neighbouring
// threads have neighbouring columns. `size` is 1; statistics are of rows or of columns.
KERNEL(by_columns)(V* dw, V* db, const T* g, const T* x, const V* means, const V* rstds, i64 rows, i64 n, i64 chunk, i64 own_column) {
    const i64 blocks = (n + 31) / 32, split = blockIdx.x / blocks, j = blockIdx.x % blocks * 32 + threadIdx.x % 32;
    const i64 begin = split * chunk, end = begin + chunk < rows ? begin + chunk : rows;
    V a = 0, b = 0;
    if (j < n) {
        for (i64 row = begin + threadIdx.x / 32; row < end; row += 8) {
            const i64 stat = own_column ? j : row;
            const V own = up(g[row * n + j]), mean = means ? means[stat] : V(0);
            a += own * (up(x[row * n + j]) - mean) * rstds[stat];
            b += own;
        }
    }
    __shared__ V as[8][32], bs[8][32];
    as[threadIdx.x / 32][threadIdx.x % 32] = a;
    bs[threadIdx.x / 32][threadIdx.x % 32] = b;
    __syncthreads();
    if (threadIdx.x >= 32 || j >= n) return;
    for (int k = 1; k < 8; k++) {
        a += as[k][threadIdx.x];
        b += bs[k][threadIdx.x];
    }
    dw[split * n + j] = a;
    db[split * n + j] = b;
}

// The channel of an element of (rows, channels, size).
FN i64 channel_of(i64 i, i64 channels, i64 size) {
    if (i < 0x7fffffff) return size == 1 ? u32(i) % u32(channels) : u32(i) / u32(size) % u32(channels);
    return i / size % channels;
}

// Walks over a part of a channel: `at` is where its elements lie, `sample` which sample they belong to.
#define WALK(at) \
    for (i64 k = begin + threadIdx.x, sample = k / size, position = k - sample * size, at; k < end; k += 256, position += 256) \
        if (seek(position, sample, size), at = (sample * channels + c) * size + position, true)
FN void seek(i64& position, i64& sample, i64 size) {
    while (position >= size) {
        position -= size;
        sample++;
    }
}

// The same where a channel has `size` neighbouring elements in each of `batch` samples: a block for each channel and part.
// Statistics are of channels (`per` 0) or of groups of `per` channels.
KERNEL(by_channels)(V* dw, V* db, const T* g, const T* x, const V* means, const V* rstds, i64 batch, i64 channels, i64 size, i64 per, i64 chunk) {
    const i64 c = blockIdx.x % channels, split = blockIdx.x / channels;
    const i64 total = batch * size, begin = split * chunk, end = begin + chunk < total ? begin + chunk : total;
    V a = 0, b = 0;
    WALK(at) {
        const i64 stat = per ? sample * (channels / per) + c / per : c;
        const V own = up(g[at]);
        a += own * (up(x[at]) - (means ? means[stat] : V(0))) * rstds[stat];
        b += own;
    }
    a = summed(a, 256);
    b = summed(b, 256);
    if (threadIdx.x == 0) {
        dw[split * channels + c] = a;
        db[split * channels + c] = b;
    }
}

// The gradient of batch_norm by its input: `sums` of g and of g times the normalised element over the batch, if the statistics
// are the batch's own.
KERNEL(by_batch)(T* out, const T* g, const T* x, const V* means, const V* rstds, const V* w, const V* dw, const V* db, i64 n, i64 channels, i64 size) {
    EACH(i, n);
    const i64 c = channel_of(i, channels, size);
    const V rstd = rstds[c];
    V own = up(g[i]);
    if (dw) {
        const V count = V(n / channels);
        own -= db[c] / count + (up(x[i]) - means[c]) * rstd * (dw[c] / count);
    }
    out[i] = make<T>(own * rstd * (w ? w[c] : V(1)));
}

// Mean and sum of squared deviations of a part of each channel.
KERNEL(moments)(V* means, V* squares, const T* x, i64 batch, i64 channels, i64 size, i64 chunk) {
    const i64 c = blockIdx.x % channels, split = blockIdx.x / channels;
    const i64 total = batch * size, begin = split * chunk, end = begin + chunk < total ? begin + chunk : total;
    V sum = 0, square = 0;
    WALK(at) sum += up(x[at]);
    const V mean = summed(sum, 256) / V(end - begin);
    WALK(at) {
        const V d = up(x[at]) - mean;
        square += d * d;
    }
    square = summed(square, 256);
    if (threadIdx.x == 0) {
        means[split * channels + c] = mean;
        squares[split * channels + c] = square;
    }
}

// Parts of each channel joined: mean, inverse deviation and unbiased variance.
KERNEL(join)(P* mean, P* rstd, P* var, const V* means, const V* squares, i64 channels, i64 total, i64 chunk, double eps) {
    EACH(c, channels);
    V count = 0, m = 0, s = 0;
    for (i64 split = 0; split * chunk < total; split++) {
        const V more = V((split + 1) * chunk < total ? chunk : total - split * chunk);
        const V delta = means[split * channels + c] - m, sum = count + more;
        m += delta * more / sum;
        s += squares[split * channels + c] + delta * delta * count * more / sum;
        count = sum;
    }
    mean[c] = make<P>(m);
    rstd[c] = make<P>(V(1) / sqrt(s / count + V(eps)));
    var[c] = make<P>(s / (count - V(1)));
}

KERNEL(inverse)(V* out, const V* var, i64 n, double eps) {
    EACH(i, n);
    out[i] = V(1) / sqrt(var[i] + V(eps));
}

// Normalised by the statistics of channels: inverse deviations, or variances.
KERNEL(apply)(T* out, const T* x, const V* means, const V* spreads, const V* w, const V* b, i64 n, i64 channels, i64 size, i64 variances, double eps) {
    EACH(i, n);
    const i64 c = channel_of(i, channels, size);
    V y = (up(x[i]) - means[c]) * (variances ? V(1) / sqrt(spreads[c] + V(eps)) : spreads[c]);
    if (w) y *= w[c];
    if (b) y += b[c];
    out[i] = make<T>(y);
}
