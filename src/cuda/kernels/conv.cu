// Convolutions: windows as columns of a matrix, and kernels for groups that are too small for products. Before this text: T
// (elements). Tensors are row-major; `inputs` are the channels that windows are taken of, at `size`; there is a window for each
// position of `out`.

typedef TV V;

struct Geometry {
    i64 batch, inputs, outputs, groups;
    i64 size[3], out[3], window[3], stride[3], pad[3], dilation[3];
};

FN i64 volume(const i64* s) { return s[0] * s[1] * s[2]; }

// The element of a channel that place `k` of the window at position `p` sees; -1 outside.
FN i64 seen(const Geometry& g, i64 p, i64 k) {
    i64 at = 0, scale = 1;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        const u32 o = u32(p % g.out[d]), w = u32(k % g.window[d]);
        p /= g.out[d];
        k /= g.window[d];
        const i64 x = o * g.stride[d] - g.pad[d] + w * g.dilation[d];
        if (x < 0 || x >= g.size[d]) return -1;
        at += x * scale;
        scale *= g.size[d];
    }
    return at;
}

// The position whose window sees element `x` of a channel at place `k`; -1 if none does.
FN i64 seeing(const Geometry& g, i64 x, i64 k) {
    i64 at = 0, scale = 1;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        const i64 o = x % g.size[d] + g.pad[d] - k % g.window[d] * g.dilation[d];
        x /= g.size[d];
        k /= g.window[d];
        if (o < 0 || o % g.stride[d] != 0 || o / g.stride[d] >= g.out[d]) return -1;
        at += o / g.stride[d] * scale;
        scale *= g.out[d];
    }
    return at;
}

// Windows as columns: (image, channel and place, position), or (channel and place, image and position) if `whole`.
KERNEL(columns)(T* columns, const T* x, i64 images, i64 whole, Geometry g) {
    const i64 positions = volume(g.out), places = volume(g.window), size = volume(g.size);
    EACH(i, images * g.inputs * places * positions);
    i64 p, row, image;
    if (i < 0x7fffffff) {
        const u32 n = u32(i), q = n / u32(positions);
        p = n - q * u32(positions);
        if (whole) {
            image = q % u32(images);
            row = q / u32(images);
        } else {
            image = q / u32(g.inputs * places);
            row = q % u32(g.inputs * places);
        }
    } else {
        p = i % positions;
        row = i / positions;
        image = whole ? row % images : row / (g.inputs * places);
        row = whole ? row / images : row % (g.inputs * places);
    }
    const i64 c = row / places, at = seen(g, p, row - c * places);
    columns[i] = at < 0 ? T() : x[(image * g.inputs + c) * size + at];
}

// The sum of what columns hold for each element: (image, channel and place, position) to (image, channel, element).
KERNEL(back)(T* x, const V* columns, i64 images, Geometry g) {
    const i64 positions = volume(g.out), places = volume(g.window), size = volume(g.size);
    EACH(i, images * g.inputs * size);
    const i64 at = i % size, channel = i / size;
    V sum = 0;
    for (i64 k = 0; k < places; k++) {
        const i64 p = seeing(g, at, k);
        if (p >= 0) sum = sum + columns[(channel * places + k) * positions + p];
    }
    x[i] = make<T>(sum);
}

KERNEL(forward)(T* out, const T* x, const T* w, Geometry g) {
    const i64 positions = volume(g.out), places = volume(g.window), size = volume(g.size);
    EACH(i, g.batch * g.outputs * positions);
    const i64 p = i % positions, o = i / positions % g.outputs, image = i / positions / g.outputs;
    const i64 own = g.inputs / g.groups, first = o / (g.outputs / g.groups) * own;
    V sum = 0;
    for (i64 k = 0; k < places; k++) {
        const i64 at = seen(g, p, k);
        if (at < 0) continue;
        for (i64 c = 0; c < own; c++) {
            sum = sum + up(x[(image * g.inputs + first + c) * size + at]) * up(w[(o * own + c) * places + k]);
        }
    }
    out[i] = make<T>(sum);
}

// The other direction: what an element gets from all windows that see it.
KERNEL(backward)(T* x, const T* out, const T* w, Geometry g) {
    const i64 positions = volume(g.out), places = volume(g.window), size = volume(g.size);
    EACH(i, g.batch * g.inputs * size);
    const i64 at = i % size, c = i / size % g.inputs, image = i / size / g.inputs;
    const i64 own = g.inputs / g.groups, each = g.outputs / g.groups, first = c / own * each;
    V sum = 0;
    for (i64 k = 0; k < places; k++) {
        const i64 p = seeing(g, at, k);
        if (p < 0) continue;
        for (i64 o = first; o < first + each; o++) {
            sum = sum + up(out[(image * g.outputs + o) * positions + p]) * up(w[(o * own + c % own) * places + k]);
        }
    }
    x[i] = make<T>(sum);
}

// The gradient of a weight: a block adds up all positions of all images.
KERNEL(by_weight)(T* w, const T* out, const T* x, Geometry g) {
    const i64 positions = volume(g.out), places = volume(g.window), size = volume(g.size);
    const i64 i = blockIdx.x, own = g.inputs / g.groups;
    const i64 k = i % places, c = i / places % own, o = i / places / own;
    const i64 channel = o / (g.outputs / g.groups) * own + c;
    V sum = 0;
    for (i64 j = threadIdx.x; j < g.batch * positions; j += 256) {
        const i64 image = j / positions, p = j - image * positions, at = seen(g, p, k);
        if (at >= 0) sum = sum + up(out[(image * g.outputs + o) * positions + p]) * up(x[(image * g.inputs + channel) * size + at]);
    }
    sum = over_block<Add>(sum);
    if (threadIdx.x == 0) w[i] = make<T>(sum);
}
