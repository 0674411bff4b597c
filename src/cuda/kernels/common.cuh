// Conversions of elements and the functions that pointwise expressions use.

struct __align__(4) ch { f16 re, im; };

template <class R> struct __align__(2 * sizeof(R)) cx {
    R re, im;
    cx() = default;
    FN cx(R r, R i = R(0)) : re(r), im(i) {}
};
typedef cx<float> cf;
typedef cx<double> cd;

// Storage types and the types they are computed in.
template <class S> struct Up { typedef S type; };
template <> struct Up<f16> { typedef float type; };
template <> struct Up<bf16> { typedef float type; };
template <> struct Up<ch> { typedef cf type; };

template <class S> FN S up(S x) { return x; }
FN float up(f16 x) { return single_of(x); }
FN float up(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
FN cf up(ch x) { return cf(up(x.re), up(x.im)); }

template <class S> struct Down {
    static FN S of(S x) { return x; }
};
template <> struct Down<f16> {
    static FN f16 of(float x) {
        f16 y;
        round_to(y, x);
        return y;
    }
};
template <> struct Down<bf16> {
    static FN bf16 of(float x) {
        bf16 y;
        round_to(y, x);
        return y;
    }
};
template <> struct Down<ch> {
    static FN ch of(cf x) {
        ch y;
        y.re = Down<f16>::of(x.re);
        y.im = Down<f16>::of(x.im);
        return y;
    }
};

template <class To> struct Conv {
    template <class F> static FN To of(F x) { return (To)x; }
    template <class Q> static FN To of(cx<Q> x) { return Conv<To>::of(x.re); }
};
template <> struct Conv<bool> {
    template <class F> static FN bool of(F x) { return x != F(0); }
    template <class Q> static FN bool of(cx<Q> x) { return x.re != Q(0) || x.im != Q(0); }
};
// Floats become small integers by way of 64 bits, as on the host.
#define SMALL(To) \
    template <> struct Conv<To> { \
        template <class F> static FN To of(F x) { return (To)x; } \
        static FN To of(float x) { return (To)(i64)x; } \
        static FN To of(double x) { return (To)(i64)x; } \
        template <class Q> static FN To of(cx<Q> x) { return (To)(i64)x.re; } \
    };
SMALL(i8) SMALL(u8) SMALL(i16) SMALL(u16) SMALL(u32)
template <class R> struct Conv<cx<R> > {
    template <class F> static FN cx<R> of(F x) { return cx<R>((R)x, R(0)); }
    template <class Q> static FN cx<R> of(cx<Q> x) { return cx<R>((R)x.re, (R)x.im); }
};
template <class To, class F> FN To to(F x) { return Conv<To>::of(x); }

// Numbers of a call: three of the operator, then one an operand that is no tensor.
struct Numbers {
    double f[6];
    i64 i[6];
    double re[6];
    double im[6];
};
template <class T> struct Number {
    static FN T of(const Numbers& n, int k) { return (T)n.i[k]; }
};
template <> struct Number<bool> {
    static FN bool of(const Numbers& n, int k) { return n.i[k] != 0; }
};
template <> struct Number<float> {
    static FN float of(const Numbers& n, int k) { return (float)n.f[k]; }
};
template <> struct Number<double> {
    static FN double of(const Numbers& n, int k) { return n.f[k]; }
};
template <class R> struct Number<cx<R> > {
    static FN cx<R> of(const Numbers& n, int k) { return cx<R>((R)n.re[k], (R)n.im[k]); }
};

#define INF_F __int_as_float(0x7f800000)
#define INF_D __longlong_as_double(0x7ff0000000000000ll)

// Complex arithmetic.
#define CX template <class R> FN
CX cx<R> operator+(cx<R> a, cx<R> b) { return cx<R>(a.re + b.re, a.im + b.im); }
CX cx<R> operator-(cx<R> a, cx<R> b) { return cx<R>(a.re - b.re, a.im - b.im); }
CX cx<R> operator-(cx<R> a) { return cx<R>(-a.re, -a.im); }
CX cx<R> operator*(cx<R> a, cx<R> b) { return cx<R>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); }
CX cx<R> operator*(cx<R> a, R b) { return cx<R>(a.re * b, a.im * b); }
CX cx<R> operator/(cx<R> a, R b) { return cx<R>(a.re / b, a.im / b); }
CX cx<R> operator/(cx<R> a, cx<R> b) {
    if (fabs(b.re) >= fabs(b.im)) {
        if (b.re == R(0) && b.im == R(0)) return cx<R>(a.re / fabs(b.re), a.im / fabs(b.im));
        R r = b.im / b.re, d = b.re + b.im * r;
        return cx<R>((a.re + a.im * r) / d, (a.im - a.re * r) / d);
    }
    R r = b.re / b.im, d = b.re * r + b.im;
    return cx<R>((a.re * r + a.im) / d, (a.im * r - a.re) / d);
}
CX bool operator==(cx<R> a, cx<R> b) { return a.re == b.re && a.im == b.im; }
CX bool operator!=(cx<R> a, cx<R> b) { return !(a == b); }
CX cx<R> conj_(cx<R> a) { return cx<R>(a.re, -a.im); }
template <class T> FN T conj_(T a) { return a; }
CX cx<R> turn(cx<R> a) { return cx<R>(-a.im, a.re); }   // times i
CX cx<R> back(cx<R> a) { return cx<R>(a.im, -a.re); }   // times -i
CX R abs_(cx<R> a) { return hypot(a.re, a.im); }
CX cx<R> exp(cx<R> a) {
    R s, c, e = exp(a.re);
    if (a.im == R(0)) return cx<R>(e, a.im);
    sincos(a.im, &s, &c);
    return cx<R>(e * c, e * s);
}
CX cx<R> log(cx<R> a) { return cx<R>(log(hypot(a.re, a.im)), atan2(a.im, a.re)); }
CX cx<R> sqrt(cx<R> a) {
    if (a.re == R(0) && a.im == R(0)) return cx<R>(R(0), a.im);
    R t = sqrt((fabs(a.re) + hypot(a.re, a.im)) * R(0.5));
    if (a.re >= R(0)) return cx<R>(t, a.im / (R(2) * t));
    return cx<R>(fabs(a.im) / (R(2) * t), copysign(t, a.im));
}
CX cx<R> rsqrt(cx<R> a) { return cx<R>(R(1)) / sqrt(a); }
CX cx<R> exp2(cx<R> a) { return exp(a * R(0.693147180559945309417)); }
CX cx<R> expm1(cx<R> a) {
    R s, c, h = sin(a.im * R(0.5)), e = expm1(a.re);
    sincos(a.im, &s, &c);
    return cx<R>(e * c - R(2) * h * h, (e + R(1)) * s);
}
CX cx<R> log2(cx<R> a) { return log(a) * R(1.44269504088896340736); }
CX cx<R> log10(cx<R> a) { return log(a) * R(0.434294481903251827651); }
CX cx<R> log1p(cx<R> a) {
    R x = a.re + R(1);
    if (fabs(a.re) < R(0.5) && fabs(a.im) < R(0.5)) {
        return cx<R>(R(0.5) * log1p(a.re * (R(2) + a.re) + a.im * a.im), atan2(a.im, x));
    }
    return log(cx<R>(x, a.im));
}
CX cx<R> sinh(cx<R> a) {
    R s, c;
    sincos(a.im, &s, &c);
    return cx<R>(sinh(a.re) * c, cosh(a.re) * s);
}
CX cx<R> cosh(cx<R> a) {
    R s, c;
    sincos(a.im, &s, &c);
    return cx<R>(cosh(a.re) * c, sinh(a.re) * s);
}
CX cx<R> tanh(cx<R> a) {
    if (fabs(a.re) > R(20)) return cx<R>(copysign(R(1), a.re), copysign(R(0), sin(R(2) * a.im)));
    R s, c, d;
    sincos(R(2) * a.im, &s, &c);
    d = cosh(R(2) * a.re) + c;
    return cx<R>(sinh(R(2) * a.re) / d, s / d);
}
CX R angle_(cx<R> a) { return isnan_(a) ? a.re + a.im : atan2(a.im, a.re); }
CX cx<R> sin(cx<R> a) { return back(sinh(turn(a))); }
CX cx<R> sinc_(cx<R> a) {
    const cx<R> p = a * R(3.14159265358979323846);
    return a.re == R(0) && a.im == R(0) ? cx<R>(R(1)) : sin(p) / p;
}
CX cx<R> cos(cx<R> a) { return cosh(turn(a)); }
CX cx<R> tan(cx<R> a) { return back(tanh(turn(a))); }
CX cx<R> asinh(cx<R> a) {
    cx<R> p = sqrt(cx<R>(R(1) - a.im, a.re)), q = sqrt(cx<R>(R(1) + a.im, -a.re));
    return cx<R>(asinh(p.im * q.re - q.im * p.re), atan2(a.im, p.re * q.re - p.im * q.im));
}
CX cx<R> asin(cx<R> a) { return back(asinh(turn(a))); }
CX cx<R> acos(cx<R> a) {
    cx<R> p = sqrt(cx<R>(R(1) - a.re, -a.im)), q = sqrt(cx<R>(R(1) + a.re, a.im));
    return cx<R>(R(2) * atan2(p.re, q.re), asinh(q.re * p.im - q.im * p.re));
}
CX cx<R> acosh(cx<R> a) {
    cx<R> p = sqrt(cx<R>(a.re - R(1), a.im)), q = sqrt(cx<R>(a.re + R(1), a.im));
    return cx<R>(asinh(p.re * q.re + p.im * q.im), R(2) * atan2(p.im, q.re));
}
CX cx<R> atanh(cx<R> a) { return (log1p(a) - log1p(-a)) * R(0.5); }
CX cx<R> atan(cx<R> a) { return back(atanh(turn(a))); }

// What expressions of the table call beyond the device's own mathematics.
FN float abs_(float a) { return fabsf(a); }
FN double abs_(double a) { return fabs(a); }
template <class T> FN T abs_(T a) { return a < T(0) ? T(-a) : a; }

#define WHOLE(name, real) \
    FN float name(float a) { return real##f(a); } \
    FN double name(double a) { return real(a); } \
    template <class T> FN T name(T a) { return a; }
WHOLE(ceil_, ceil) WHOLE(floor_, floor) WHOLE(trunc_, trunc) WHOLE(round_, rint)

template <class T> FN bool isnan_(T a) { return a != a; }
template <class T> FN bool isinf_(T) { return false; }
FN bool isinf_(float a) { return fabsf(a) == INF_F; }
FN bool isinf_(double a) { return fabs(a) == INF_D; }
CX bool isinf_(cx<R> a) { return isinf_(a.re) || isinf_(a.im); }
template <class T> FN bool isfinite_(T a) { return !isinf_(a) && !isnan_(a); }
CX bool isfinite_(cx<R> a) { return isfinite_(a.re) && isfinite_(a.im); }
template <class T> FN bool isposinf_(T a) { return isinf_(a) && a > T(0); }
template <class T> FN bool isneginf_(T a) { return isinf_(a) && a < T(0); }
template <class T> FN bool signbit_(T a) { return a < T(0); }
FN bool signbit_(float a) { return __float_as_int(a) < 0; }
FN bool signbit_(double a) { return __double_as_longlong(a) < 0; }

template <class T> FN bool isreal_(T) { return true; }
CX bool isreal_(cx<R> a) { return a.im == R(0); }
template <class T> FN T nan_to_num_(T a, T nan, T most, T least) { return isnan_(a) ? nan : !isinf_(a) ? a : a > T(0) ? most : least; }
CX cx<R> nan_to_num_(cx<R> a, cx<R> nan, cx<R> most, cx<R> least) {
    return cx<R>(nan_to_num_(a.re, nan.re, most.re, least.re), nan_to_num_(a.im, nan.re, most.re, least.re));
}
// The next number of a type that has `cut` bits fewer than a float (16: bf16, 13: f16).
FN double nextafter_(double a, double b, double) { return nextafter(a, b); }
FN float nextafter_(float a, float b, double cut) {
    if (cut == 0.0) return nextafterf(a, b);
    if (a != a || b != b) return a + b;
    if (a == b) return b;
    bool half = cut == 13.0;
    float spacing = 5.9604645e-8f;
    if (a == 0.0f) return copysignf(half ? spacing : __int_as_float(1 << 16), b);
    bool away = (b > a) == (a > 0.0f);
    float size = fabsf(a);
    if (half && size == INF_F) return copysignf(65504.0f, a);
    if (half && (size < 6.1035156e-5f || (size == 6.1035156e-5f && !away))) {
        return copysignf(size + (away ? spacing : -spacing), a);
    }
    int step = 1 << (int)cut;
    return __int_as_float(__float_as_int(a) + (away ? step : -step));
}

FN float sinc_(float a) { return a == 0.0f ? 1.0f : sinpif(a) / (3.14159274f * a); }
FN double sinc_(double a) { return a == 0.0 ? 1.0 : sinpi(a) / (3.14159265358979323846 * a); }
template <class T> FN double sinc_(T a) { return sinc_((double)a); }
template <class T> FN T angle_(T a) { return a != a ? a : a < T(0) ? T(3.14159265358979323846) : T(0); }

template <class T> FN T sgn_(T a) { return T((a > T(0)) - (a < T(0))); }
CX cx<R> sgn_(cx<R> a) { return a.re == R(0) && a.im == R(0) ? a * R(0) : a / abs_(a); }

FN bool bitnot_(bool a) { return !a; }
template <class T> FN T bitnot_(T a) { return T(~a); }
template <class T> FN T shl_(T a, T b) { return b < T(0) || b >= T(8 * sizeof(T)) ? T(0) : T(a << b); }
template <class T> FN T shr_(T a, T b) { return b < T(0) || b >= T(8 * sizeof(T)) ? (a < T(0) ? T(-1) : T(0)) : T(a >> b); }

template <class T> FN T trunc_div(T a, T b) { return b == T(0) ? T(0) : T(a / b); }
FN float trunc_div(float a, float b) { return truncf(a / b); }
FN double trunc_div(double a, double b) { return trunc(a / b); }
template <class T> FN T floor_div(T a, T b) {
    if (b == T(0)) return T(0);
    T q = T(a / b);
    return a % b != 0 && (a < T(0)) != (b < T(0)) ? T(q - 1) : q;
}
template <class R> FN R floor_real(R a, R b) {
    if (b == R(0)) return a / b;
    R m = fmod(a, b), d = (a - m) / b;
    if (m != R(0) && (b < R(0)) != (m < R(0))) d -= R(1);
    if (d == R(0)) return copysign(R(0), a / b);
    R f = floor(d);
    return d - f > R(0.5) ? f + R(1) : f;
}
FN float floor_div(float a, float b) { return floor_real(a, b); }
FN double floor_div(double a, double b) { return floor_real(a, b); }
template <class T> FN T py_mod(T a, T b) {
    if (b == T(0)) return T(0);
    T r = T(a % b);
    return r != T(0) && (r < T(0)) != (b < T(0)) ? T(r + b) : r;
}
template <class R> FN R mod_real(R a, R b) {
    R m = fmod(a, b);
    return m != R(0) && (b < R(0)) != (m < R(0)) ? m + b : m;
}
FN float py_mod(float a, float b) { return mod_real(a, b); }
FN double py_mod(double a, double b) { return mod_real(a, b); }
template <class T> FN T c_mod(T a, T b) { return b == T(0) ? T(0) : T(a % b); }
FN float c_mod(float a, float b) { return fmodf(a, b); }
FN double c_mod(double a, double b) { return fmod(a, b); }

template <class T> FN T pow_(T a, T b) {
    i64 base = (i64)a, e = (i64)b, r = 1;
    if (base == 1) return T(1);
    if (base == -1) return e % 2 == 0 ? T(1) : T(-1);
    if (e < 0) return T(0);
    for (; e > 0; e >>= 1) {
        if (e & 1) r *= base;
        base *= base;
    }
    return T(r);
}
FN float pow_(float a, float b) { return powf(a, b); }
FN double pow_(double a, double b) { return pow(a, b); }
CX cx<R> pow_(cx<R> a, cx<R> b) {
    if (b.re == R(0) && b.im == R(0)) return cx<R>(R(1));
    if (a.re == R(0) && a.im == R(0)) return cx<R>(R(0));
    return exp(b * log(a));
}

template <class T> FN T max_(T a, T b) { return a != a ? a : b != b ? b : a > b ? a : b; }
template <class T> FN T min_(T a, T b) { return a != a ? a : b != b ? b : a < b ? a : b; }
template <class T> FN T fmax_(T a, T b) { return a != a ? b : b != b ? a : a > b ? a : b; }
template <class T> FN T fmin_(T a, T b) { return a != a ? b : b != b ? a : a < b ? a : b; }

template <class T> FN T clamp_(T a, T low, T high) { return a != a ? a : low != low ? low : high != high ? high : min_(max_(a, low), high); }
template <class T> FN T lerp_(T a, T b, T w) { return abs_(w) < 0.5 ? a + w * (b - a) : b - (b - a) * (T(1) - w); }
template <class T> FN T xlogy_(T a, T b) { return b != b ? b : a == T(0) ? T(0) : a * log(b); }
template <class T> FN T xlog1py_(T a, T b) { return b != b ? b : a == T(0) ? T(0) : a * log1p(b); }
template <class T> FN T logaddexp_(T a, T b) { return a == b ? a + T(0.693147180559945309417) : fmax_(a, b) + log1p(exp(-abs_(a - b))); }
CX cx<R> logaddexp_(cx<R> a, cx<R> b) {
    if (isnan_(a) || isnan_(b)) return a + b;
    const cx<R> top = a.re >= b.re ? a : b, low = a.re >= b.re ? b : a;
    if (isinf_(top.re) && (top.re < R(0) || a.re != b.re)) return top;
    return top + log1p(exp(low - top));
}
template <class T> FN T logaddexp2_(T a, T b) { return a == b ? a + T(1) : fmax_(a, b) + log1p(exp2(-abs_(a - b))) * T(1.44269504088896340736); }
template <class T> FN T gcd_(T a, T b) {
    u64 x = a < T(0) ? u64(0) - u64(i64(a)) : u64(a), y = b < T(0) ? u64(0) - u64(i64(b)) : u64(b);
    while (y) {
        u64 t = x % y;
        x = y;
        y = t;
    }
    return T(i64(x));
}
template <class T> FN T lcm_(T a, T b) {
    i64 g = i64(gcd_(a, b));
    if (g == 0) return T(0);
    i64 l = i64(a) / g * i64(b);
    return T(l < 0 ? -l : l);
}
// Recurrence up to 6, then the asymptotic series; reflection below 0.
FN double digamma_(double x) {
    if (x == 0.0) return copysign(INF_D, -x);
    double r = 0.0;
    if (x < 0.0) {
        if (x == floor(x)) return INF_D - INF_D;
        r = -3.14159265358979323846 / tan(3.14159265358979323846 * (x - floor(x)));
        x = 1.0 - x;
    }
    while (x < 10.0) {
        r -= 1.0 / x;
        x += 1.0;
    }
    double i = 1.0 / (x * x);
    double s = i * (1.0 / 12 - i * (1.0 / 120 - i * (1.0 / 252 - i * (1.0 / 240 - i * (1.0 / 132 - i * (691.0 / 32760 - i / 12))))));
    return r + log(x) - 0.5 / x - s;
}
FN float digamma_(float x) { return (float)digamma_((double)x); }
template <class T> FN T sigmoid_(T a) { return T(1) / (T(1) + exp(-a)); }
template <class T> FN T gelu_tanh_backward_(T g, T x) {
    T k = T(0.79788456080286535588), t = tanh(k * (x + T(0.044715) * x * x * x));
    return g * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * k * (T(1) + T(3 * 0.044715) * x * x));
}
template <class T> FN T silu_backward_(T g, T x) {
    T s = sigmoid_(x);
    return g * s * (T(1) + x * (T(1) - s));
}
template <class T> FN T mish_backward_(T g, T x) {
    T t = tanh(log1p(exp(x)));
    return g * (t + x * sigmoid_(x) * (T(1) - t * t));
}
template <class T> FN T clamp6_(T a) { return a < T(0) ? T(0) : a > T(6) ? T(6) : a; }
template <class T> FN T floor100_(T a) { return a < T(-100) ? T(-100) : a; }

// The least and greatest values, where folds for extremes start.
template <class T> FN T least() { return T(T(-1) < T(0) ? T(u64(1) << (8 * sizeof(T) - 1)) : T(0)); }
template <> FN bool least<bool>() { return false; }
template <> FN float least<float>() { return -INF_F; }
template <> FN double least<double>() { return -INF_D; }
template <class T> FN T most() { return T(~least<T>()); }
template <> FN bool most<bool>() { return true; }
template <> FN float most<float>() { return INF_F; }
template <> FN double most<double>() { return INF_D; }
template <class T> FN T sq_(T a) { return a * a; }
CX R sq_(cx<R> a) { return a.re * a.re + a.im * a.im; }
