// Behind types.cuh in every generated unit: the functions that the op table names, with torch's meaning at every edge.
//
// Overloaded for float, double and the integer types; both operands of an op have one type. No #include: NVRTC knows
// its math functions by itself, and the host compiler (TF_HOST) has them as builtins.

#ifdef TF_HOST
#define TF_MATH(name) __builtin_##name
#define TF_INFINITY __builtin_inf()
#define TF_NAN __builtin_nan("")
#else
#define TF_MATH(name) ::name
#define TF_INFINITY __longlong_as_double(0x7ff0000000000000LL)
#define TF_NAN __longlong_as_double(0x7ff8000000000000LL)
#endif

namespace tf {

// ---- limits --------------------------------------------------------------------------------------------------

template <class T>
TF_FN T infinity() { return (T)TF_INFINITY; }
template <class T>
TF_FN T nan() { return (T)TF_NAN; }

// The least and the greatest value of a type: what a maximum and a minimum of nothing are.
template <class T>
TF_FN T lowest() {
  if constexpr (T(0.5) != T(0) && T(2) != T(1)) return -infinity<T>();
  else return T(-1) < T(0) ? (T)(1ULL << (8 * sizeof(T) - 1)) : T(0);
}
template <class T>
TF_FN T highest() {
  if constexpr (T(0.5) != T(0) && T(2) != T(1)) return infinity<T>();
  else return (T)~(long long)lowest<T>();
}

// ---- functions that the compilers have -----------------------------------------------------------------------

#define TF_UNARY(name, in_float, in_double)                      \
  TF_FN float name(float x) { return TF_MATH(in_float)(x); }     \
  TF_FN double name(double x) { return TF_MATH(in_double)(x); }
#define TF_BINARY(name, in_float, in_double)                                 \
  TF_FN float name(float x, float y) { return TF_MATH(in_float)(x, y); }     \
  TF_FN double name(double x, double y) { return TF_MATH(in_double)(x, y); }
TF_UNARY(abs, fabsf, fabs)
TF_UNARY(acos, acosf, acos)
TF_UNARY(acosh, acoshf, acosh)
TF_UNARY(asin, asinf, asin)
TF_UNARY(asinh, asinhf, asinh)
TF_UNARY(atan, atanf, atan)
TF_UNARY(atanh, atanhf, atanh)
TF_UNARY(ceil, ceilf, ceil)
TF_UNARY(cos, cosf, cos)
TF_UNARY(cosh, coshf, cosh)
TF_UNARY(erf, erff, erf)
TF_UNARY(erfc, erfcf, erfc)
TF_UNARY(exp, expf, exp)
TF_UNARY(exp2, exp2f, exp2)
TF_UNARY(expm1, expm1f, expm1)
TF_UNARY(floor, floorf, floor)
TF_UNARY(lgamma, lgammaf, lgamma)
TF_UNARY(log, logf, log)
TF_UNARY(log10, log10f, log10)
TF_UNARY(log1p, log1pf, log1p)
TF_UNARY(log2, log2f, log2)
TF_UNARY(round, rintf, rint)
TF_UNARY(sin, sinf, sin)
TF_UNARY(sinh, sinhf, sinh)
TF_UNARY(sqrt, sqrtf, sqrt)
TF_UNARY(tan, tanf, tan)
TF_UNARY(tanh, tanhf, tanh)
TF_UNARY(trunc, truncf, trunc)
TF_BINARY(atan2, atan2f, atan2)
TF_BINARY(fmod, fmodf, fmod)
TF_BINARY(nextafter, nextafterf, nextafter)
TF_BINARY(pow, powf, pow)

#ifdef TF_HOST

TF_FN float rsqrt(float x) { return 1.0f / sqrt(x); }
TF_FN double rsqrt(double x) { return 1.0 / sqrt(x); }
TF_FN bool signbit(float x) { return __builtin_signbit(x) != 0; }
TF_FN bool signbit(double x) { return __builtin_signbit(x) != 0; }

// One step of Halley's method towards erf(y) = x; `excess` is how far erf(y) is too great.
TF_FN double erfinv_step(double y, double excess) {
  return y - excess / (1.1283791670955126 * exp(-y * y) + y * excess);
}
// Where erfc is p, 0 < p <= 0.5; the first guess is an expansion of the logarithm (Winitzki).
TF_FN double erfinv_tail(double p) {
  const double log_term = log(p * (2.0 - p)), half_sum = 4.330746750799873 + 0.5 * log_term;
  double y = sqrt(sqrt(half_sum * half_sum - log_term / 0.147) - half_sum);
  for (int i = 0; i < 3; ++i) y = erfinv_step(y, p - erfc(y));
  return y;
}
TF_FN double erfinv(double x) {
  const double size = abs(x);
  if (!(size < 1.0)) return size == 1.0 ? x * infinity<double>() : nan<double>();
  if (size > 0.5) return x < 0.0 ? -erfinv_tail(1.0 - size) : erfinv_tail(1.0 - size);
  double y = 0.8862269254527580 * x;
  for (int i = 0; i < 3; ++i) y = erfinv_step(y, erf(y) - x);
  return y;
}
TF_FN double erfcinv(double x) {
  if (x >= 0.5) return x > 1.5 && x < 2.0 ? -erfinv_tail(2.0 - x) : erfinv(1.0 - x);
  return x > 0.0 ? erfinv_tail(x) : x == 0.0 ? infinity<double>() : nan<double>();
}
TF_FN float erfinv(float x) { return (float)erfinv((double)x); }
TF_FN float erfcinv(float x) { return (float)erfcinv((double)x); }

#else

TF_UNARY(rsqrt, rsqrtf, rsqrt)
TF_UNARY(erfinv, erfinvf, erfinv)
TF_UNARY(erfcinv, erfcinvf, erfcinv)
TF_FN bool signbit(float x) { return __float_as_int(x) < 0; }
TF_FN bool signbit(double x) { return __double_as_longlong(x) < 0; }

#endif

// ---- any type ------------------------------------------------------------------------------------------------

template <class T>
TF_FN bool isnan(T x) { return x != x; }
template <class T>
TF_FN bool isfinite(T x) { return x - x == T(0); }
template <class T>
TF_FN bool isinf(T x) { return abs(x) == infinity<T>(); }
template <class T>
TF_FN bool isneginf(T x) { return x == -infinity<T>(); }
template <class T>
TF_FN bool isposinf(T x) { return x == infinity<T>(); }
template <class T>
TF_FN T sign(T x) { return T((x > T(0)) - (x < T(0))); }
template <class T>
TF_FN bool signbit(T x) { return x < T(0); }
template <class T>
TF_FN T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }
template <class T>
TF_FN T silu(T x) { return x / (T(1) + exp(-x)); }
template <class T>
TF_FN T frac(T x) { return x - trunc(x); }

// From the nearer end, so that lerp(a, b, 1) is b.
template <class T>
TF_FN T lerp(T start, T end, T weight) {
  return abs(weight) < T(0.5) ? start + weight * (end - start) : end - (end - start) * (T(1) - weight);
}

// A NaN on either side wins, and +0 is greater than -0.
template <class T>
TF_FN T maximum(T a, T b) { return a > b ? a : b; }
template <class T>
TF_FN T minimum(T a, T b) { return a < b ? a : b; }
#define TF_PICK(name, order, of_equal, T) \
  TF_FN T name(T a, T b) { return a == b ? (signbit(a) == of_equal ? a : b) : a order b || a != a ? a : b; }
#if !defined(TF_HOST) && __CUDA_ARCH__ >= 800
TF_FN float maximum(float a, float b) {
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
}
TF_FN float minimum(float a, float b) {
  float out;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
}
#else
TF_PICK(maximum, >, false, float)
TF_PICK(minimum, <, true, float)
#endif
TF_PICK(maximum, >, false, double)
TF_PICK(minimum, <, true, double)

template <class T>
TF_FN T relu(T x) { return maximum(x, T(0)); }

// The result has the sign of the divisor.
#define TF_REMAINDER(T)                                                      \
  TF_FN T remainder(T a, T b) {                                              \
    const T rest = fmod(a, b);                                               \
    return rest != T(0) && (rest < T(0)) != (b < T(0)) ? rest + b : rest;    \
  }
TF_REMAINDER(float)
TF_REMAINDER(double)

// ---- integers ------------------------------------------------------------------------------------------------

// They wrap around: signed overflow is undefined in C++, so sums and products are formed from unsigned numbers.
typedef unsigned long long Bits;

template <class T>
TF_FN T neg(T x) { return (T)(0 - (Bits)x); }
template <class T>
TF_FN T add(T a, T b) { return (T)((Bits)a + (Bits)b); }
template <class T>
TF_FN T sub(T a, T b) { return (T)((Bits)a - (Bits)b); }
template <class T>
TF_FN T mul(T a, T b) { return (T)((Bits)a * (Bits)b); }
template <class T>
TF_FN T abs(T x) { return x < T(0) ? neg(x) : x; }
TF_FN bool bitwise_not(bool x) { return !x; }
template <class T>
TF_FN T bitwise_not(T x) { return (T)~x; }

// A shift by less than nothing or more than all bits gives what shifting all of them out gives.
template <class T>
TF_FN T bitwise_left_shift(T x, T by) { return by < T(0) || by >= T(8 * sizeof(T)) ? T(0) : (T)((Bits)x << by); }
template <class T>
TF_FN T bitwise_right_shift(T x, T by) {
  return by < T(0) || by >= T(8 * sizeof(T)) ? (x < T(0) ? T(-1) : T(0)) : (T)(x >> by);
}

// Truncates; by zero it is -1 with a rest of the dividend, as the card has it, and never a fault on the host.
template <class T>
TF_FN T div(T a, T b) { return b == T(0) ? T(-1) : T(-1) < T(0) && b == T(-1) ? neg(a) : (T)(a / b); }
template <class T>
TF_FN T fmod(T a, T b) { return b == T(0) ? a : T(-1) < T(0) && b == T(-1) ? T(0) : (T)(a % b); }
template <class T>
TF_FN T remainder(T a, T b) {
  const T rest = fmod(a, b);
  return rest != T(0) && (rest < T(0)) != (b < T(0)) ? (T)(rest + b) : rest;
}

template <class T>
TF_FN T pow(T base, T exponent) {
  if (exponent < T(0)) return base == T(1) ? T(1) : base == T(-1) ? (exponent & 1 ? T(-1) : T(1)) : T(0);
  Bits power = 1, square = (Bits)base;
  for (Bits rest = (Bits)exponent; rest; rest >>= 1) {
    if (rest & 1) power *= square;
    square *= square;
  }
  return (T)power;
}

template <class T>
TF_FN T gcd(T a, T b) {
  Bits x = a < T(0) ? 0 - (Bits)a : (Bits)a, y = b < T(0) ? 0 - (Bits)b : (Bits)b;
  while (x) {
    const Bits rest = y % x;
    y = x;
    x = rest;
  }
  return (T)y;
}

// x * y + z, rounded once, whatever the options say about contraction.
#ifdef TF_HOST
TF_FN float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
TF_FN double fused(double x, double y, double z) { return __builtin_fma(x, y, z); }
#else
TF_FN float fused(float x, float y, float z) { return __fmaf_rn(x, y, z); }
TF_FN double fused(double x, double y, double z) { return __fma_rn(x, y, z); }
#endif

// Division of many floats by one: its reciprocal once, scaled so that it is neither zero nor infinite while the divisor
// is not. `rounded` is the quotient rounded as division rounds it (one step of refinement, Markstein 1990, as in the
// hardware's own sequence; the last bit of a subnormal quotient may differ), `near` is within two units in the last
// place, for results that are rounded to 16 bits anyway.
struct Divisor {
  float value, reciprocal, scale;
};
TF_FN Divisor divisor(float value) {
  const float magnitude = value < 0 ? -value : value;
  Divisor d;
  d.value = value;
  d.scale = magnitude < 5.421010862427522e-20f ? 1.8446744073709552e19f        // 2^-64, 2^64
            : magnitude > 1.8446744073709552e19f ? 5.421010862427522e-20f : 1.0f;
  d.reciprocal = 1.0f / (value * d.scale);
  return d;
}
TF_FN float near(float x, Divisor d) { return x * d.reciprocal * d.scale; }
TF_FN float rounded(float x, Divisor d) {
  const float q = x * d.reciprocal * d.scale;
  const float rest = fused(-q, d.value, x);
  const float better = fused(rest, d.reciprocal * d.scale, q);
  return q - q == 0.0f && better - better == 0.0f ? better : q;
}

}  // namespace tf
