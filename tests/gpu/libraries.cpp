// The functions of cuBLAS and cuFFT that torchlike calls, by their definitions: plain loops, in double precision.
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

extern "C" void* emulator_open();
extern "C" void emulator_close(void*);

namespace {
struct Open {
    void* held = emulator_open();
    ~Open() { emulator_close(held); }
};
typedef std::complex<double> Complex;

// cudaDataType_t.
enum Type { F32 = 0, F64 = 1, F16 = 2, C64 = 4, C128 = 5, BF16 = 14 };

Complex read(const void* p, int64_t i, Type t) {
    switch (t) {
    case F32: return ((const float*)p)[i];
    case F64: return ((const double*)p)[i];
    case F16: return double(((const _Float16*)p)[i]);
    case C64: return Complex(((const std::complex<float>*)p)[i]);
    case C128: return ((const Complex*)p)[i];
    case BF16: {
        const uint32_t bits = uint32_t(((const uint16_t*)p)[i]) << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    }
    return 0;
}

void write(void* p, int64_t i, Type t, Complex x) {
    switch (t) {
    case F32: ((float*)p)[i] = float(x.real()); break;
    case F64: ((double*)p)[i] = x.real(); break;
    case F16: ((_Float16*)p)[i] = _Float16(float(x.real())); break;
    case C64: ((std::complex<float>*)p)[i] = std::complex<float>(x); break;
    case C128: ((Complex*)p)[i] = x; break;
    case BF16: {
        const float f = float(x.real());
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t*)p)[i] = f != f ? 0x7fff : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    }
}

// Of cublasComputeType_t: sums in double precision, and single precision that may lose all but 10 bits.
enum Compute { DOUBLE = 70, TF32 = 77 };

Complex shortened(Complex x) {
    const auto part = [](double x) {
        const float f = float(x);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
        float y;
        memcpy(&y, &bits, sizeof y);
        return std::isfinite(f) ? double(y) : x;
    };
    return {part(x.real()), part(x.imag())};
}

// A matrix, columns first, as rows of numbers.
template <class V> std::vector<V> dense(const void* p, Type t, int compute, int64_t first, int rows, int columns, int lead, int op) {
    std::vector<V> all(size_t(rows) * columns);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            const Complex x = read(p, first + (op ? c + int64_t(r) * lead : r + int64_t(c) * lead), t);
            const Complex z = op == 2 ? conj(x) : x, y = compute == TF32 ? shortened(z) : z;
            if constexpr (std::is_same_v<V, double>)
                all[size_t(r) * columns + c] = y.real();
            else
                all[size_t(r) * columns + c] = y;
        }
    return all;
}

template <class V>
void product(int compute, int op_a, int op_b, int m, int n, int k, Complex alpha, const void* a, Type ta, int lead_a, int64_t at_a, const void* b, Type tb, int lead_b,
             int64_t at_b, Complex beta, void* c, Type tc, int lead_c, int64_t at_c) {
    const std::vector<V> left = dense<V>(a, ta, compute, at_a, m, k, lead_a, op_a), right = dense<V>(b, tb, compute, at_b, k, n, lead_b, op_b);
    std::vector<V> sums(static_cast<size_t>(n));
    for (int i = 0; i < m; i++) {
        std::fill(sums.begin(), sums.end(), V(0));
        for (int l = 0; l < k; l++)
            for (int j = 0; j < n; j++) sums[j] += left[size_t(i) * k + l] * right[size_t(l) * n + j];
        for (int j = 0; j < n; j++) {
            const int64_t at = at_c + i + int64_t(j) * lead_c;
            write(c, at, tc, alpha * Complex(sums[j]) + (beta == 0.0 ? Complex(0) : beta * read(c, at, tc)));
        }
    }
}

// Factors are in the type of the sums.
Complex factor(const void* p, Type t, int compute) {
    const bool is_double = compute == DOUBLE, complex = t == C64 || t == C128;
    if (is_double) return complex ? *(const Complex*)p : Complex(*(const double*)p);
    return complex ? Complex(*(const std::complex<float>*)p) : Complex(*(const float*)p);
}

struct Plan {
    std::vector<int64_t> lengths;
    int kind;
    int64_t batch;
};
std::map<int, Plan> plans;
int last = 0;

// By the primes of its length (Cooley and Tukey).
void transform(Complex* x, int64_t n, int64_t step, int way) {
    if (n < 2) return;
    int64_t p = 2;
    while (n % p) p++;
    const int64_t part = n / p;
    std::vector<Complex> pieces(static_cast<size_t>(n));
    for (int64_t r = 0; r < p; r++) {
        for (int64_t j = 0; j < part; j++) pieces[size_t(r * part + j)] = x[(j * p + r) * step];
        transform(&pieces[size_t(r * part)], part, 1, way);
    }
    for (int64_t k = 0; k < n; k++) {
        Complex sum = 0;
        for (int64_t r = 0; r < p; r++) sum += pieces[size_t(r * part + k % part)] * std::polar(1.0, way * 2 * M_PI * double(r * k % n) / double(n));
        x[k * step] = sum;
    }
}

void all_but_last(Complex* x, const std::vector<int64_t>& lengths, int64_t lines, int way) {
    int64_t inner = lines;
    for (size_t d = lengths.size() - 1; d-- > 0;) {
        const int64_t n = lengths[d];
        int64_t outer = 1;
        for (size_t e = 0; e < d; e++) outer *= lengths[e];
        for (int64_t o = 0; o < outer; o++)
            for (int64_t i = 0; i < inner; i++) transform(x + o * n * inner + i, n, inner, way);
        inner *= n;
    }
}

// Kinds of cufftType: what is read, what is written, and which way.
int execute(int handle, const void* from, void* to, Type in, Type out, int way) {
    Open open;
    const Plan& p = plans.at(handle);
    const int64_t n = p.lengths.back(), half = n / 2 + 1;
    const bool real_in = in == F32 || in == F64, real_out = out == F32 || out == F64;
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < p.lengths.size(); d++) rows *= p.lengths[d];
    const int64_t stored_in = real_in || !real_out ? n : half, stored_out = real_in ? half : n;
    std::vector<Complex> x(size_t(rows * n));
    for (int64_t b = 0; b < p.batch; b++) {
        const int64_t width = real_out ? half : n;   // of a line before its own transform
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < width; j++) x[size_t(r * width + j)] = read(from, (b * rows + r) * stored_in + j, in);
        if (!real_out)
            for (int64_t r = 0; r < rows; r++) transform(&x[size_t(r * n)], n, 1, way);
        all_but_last(x.data(), p.lengths, width, way);
        for (int64_t r = 0; r < rows; r++) {
            std::vector<Complex> line(x.begin() + r * width, x.begin() + (r + 1) * width);
            if (real_out) {
                line.resize(size_t(n));
                for (int64_t j = half; j < n; j++) line[size_t(j)] = conj(line[size_t(n - j)]);
                line[0] = line[0].real();
                if (n % 2 == 0) line[size_t(n / 2)] = line[size_t(n / 2)].real();
                transform(line.data(), n, 1, way);
            }
            for (int64_t j = 0; j < stored_out; j++) write(to, (b * rows + r) * stored_out + j, out, line[size_t(j)]);
        }
    }
    return 0;
}
}   // namespace

extern "C" {
int cublasCreate_v2(void** handle) { return *handle = (void*)1, 0; }
int cublasSetStream_v2(void*, void*) { return 0; }
int cublasGemmStridedBatchedEx(void*, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, Type ta, int lead_a, long long step_a,
                               const void* b, Type tb, int lead_b, long long step_b, const void* beta, void* c, Type tc, int lead_c, long long step_c,
                               int batch, int compute, int) {
    // CUBLAS_STATUS_INVALID_VALUE.
    if (lead_a < (op_a ? k : m) || lead_b < (op_b ? n : k) || lead_c < m) return 7;
    Open open;
    const auto f = tc == C64 || tc == C128 ? product<Complex> : product<double>;
    for (int e = 0; e < batch; e++)
        f(compute, op_a, op_b, m, n, k, factor(alpha, tc, compute), a, ta, lead_a, e * step_a, b, tb, lead_b, e * step_b, factor(beta, tc, compute), c, tc, lead_c,
          e * step_c);
    return 0;
}
int cublasGemmEx(void* h, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, Type ta, int lead_a, const void* b, Type tb, int lead_b,
                 const void* beta, void* c, Type tc, int lead_c, int compute, int algorithm) {
    return cublasGemmStridedBatchedEx(h, op_a, op_b, m, n, k, alpha, a, ta, lead_a, 0, b, tb, lead_b, 0, beta, c, tc, lead_c, 0, 1, compute, algorithm);
}

int cufftCreate(int* handle) { return *handle = ++last, plans[last], 0; }
int cufftDestroy(int handle) { return plans.erase(handle), 0; }
int cufftSetAutoAllocation(int, int) { return 0; }
int cufftSetStream(int, void*) { return 0; }
int cufftSetWorkArea(int, void*) { return 0; }
int cufftMakePlanMany64(int handle, int rank, long long* lengths, long long*, long long, long long, long long*, long long, long long, int kind, long long batch,
                        size_t* room) {
    plans[handle] = {{lengths, lengths + rank}, kind, batch};
    return *room = 0, 0;
}
int cufftExecC2C(int h, void* from, void* to, int way) { return execute(h, from, to, C64, C64, way); }
int cufftExecZ2Z(int h, void* from, void* to, int way) { return execute(h, from, to, C128, C128, way); }
int cufftExecR2C(int h, void* from, void* to) { return execute(h, from, to, F32, C64, -1); }
int cufftExecD2Z(int h, void* from, void* to) { return execute(h, from, to, F64, C128, -1); }
int cufftExecC2R(int h, void* from, void* to) { return execute(h, from, to, C64, F32, 1); }
int cufftExecZ2D(int h, void* from, void* to) { return execute(h, from, to, C128, F64, 1); }
}
