// The last part of every generated unit: functions of complex numbers that the op table names.
//
// Branch cuts and signs of zero are C99's. Inverse functions are Kahan's, which stay exact near the cuts.

namespace tf {

template <class T>
struct Hypotenuse;
template <>
struct Hypotenuse<float> {
  TF_FN_MEMBER float of(float x, float y) { return TF_MATH(hypotf)(x, y); }
};
template <>
struct Hypotenuse<double> {
  TF_FN_MEMBER double of(double x, double y) { return TF_MATH(hypot)(x, y); }
};

template <class T>
TF_FN T copysign(T size, T sign) { return signbit(sign) ? -abs(size) : abs(size); }

template <class T>
TF_FN T real(Complex<T> z) { return z.re; }
template <class T>
TF_FN T imag(Complex<T> z) { return z.im; }
template <class T>
TF_FN Complex<T> conj(Complex<T> z) { return Complex<T>(z.re, -z.im); }
template <class T>
TF_FN Complex<T> make_complex(T re, T im) { return Complex<T>(re, im); }
template <class T>
TF_FN T abs(Complex<T> z) { return Hypotenuse<T>::of(z.re, z.im); }
template <class T>
TF_FN bool isnan(Complex<T> z) { return isnan(z.re) || isnan(z.im); }
template <class T>
TF_FN bool isfinite(Complex<T> z) { return isfinite(z.re) && isfinite(z.im); }
template <class T>
TF_FN bool isinf(Complex<T> z) { return isinf(z.re) || isinf(z.im); }

// i * z and -i * z.
template <class T>
TF_FN Complex<T> turn_left(Complex<T> z) { return Complex<T>(-z.im, z.re); }
template <class T>
TF_FN Complex<T> turn_right(Complex<T> z) { return Complex<T>(z.im, -z.re); }

// ---- exponential and logarithms ------------------------------------------------------------------------------

template <class T>
TF_FN Complex<T> exp(Complex<T> z) {
  const T size = exp(z.re);
  return z.im == 0 ? Complex<T>(size, z.im) : Complex<T>(size * cos(z.im), size * sin(z.im));
}
template <class T>
TF_FN Complex<T> exp2(Complex<T> z) {
  const T log_2 = T(0.69314718055994530942);
  return exp(Complex<T>(z.re * log_2, z.im * log_2));
}
template <class T>
TF_FN Complex<T> expm1(Complex<T> z) {
  const T half_sine = sin(z.im / 2);
  return Complex<T>(expm1(z.re) * cos(z.im) - 2 * half_sine * half_sine, exp(z.re) * sin(z.im));
}
// Near the unit circle the logarithm of the size is small: it comes from how far the square is from 1.
template <class T>
TF_FN Complex<T> log(Complex<T> z) {
  const T size = abs(z), re = abs(z.re), im = abs(z.im);
  const T more = re > im ? re : im, less = re > im ? im : re;
  const bool near_one = size > T(0.5) && size < T(2);
  return Complex<T>(near_one ? log1p((more - 1) * (more + 1) + less * less) / 2 : log(size), atan2(z.im, z.re));
}
template <class T>
TF_FN Complex<T> log1p(Complex<T> z) {
  const bool is_small = abs(z) < T(0.5);
  return is_small ? Complex<T>(log1p(z.re * (2 + z.re) + z.im * z.im) / 2, atan2(z.im, 1 + z.re)) : log(Complex<T>(1 + z.re, z.im));
}
template <class T>
TF_FN Complex<T> scaled_log(Complex<T> z, T scale) {
  const Complex<T> natural = log(z);
  return Complex<T>(natural.re * scale, natural.im * scale);
}
template <class T>
TF_FN Complex<T> log2(Complex<T> z) { return scaled_log(z, T(1.44269504088896340736)); }
template <class T>
TF_FN Complex<T> log10(Complex<T> z) { return scaled_log(z, T(0.43429448190325182765)); }

template <class T>
TF_FN Complex<T> sqrt(Complex<T> z) {
  if (z.re == 0 && z.im == 0) return Complex<T>(0, z.im);
  if (isinf(z.im)) return Complex<T>(infinity<T>(), z.im);
  if (isinf(z.re)) {
    const T rest = isnan(z.im) ? z.im : T(0);
    return z.re > 0 ? Complex<T>(z.re, isnan(z.im) ? z.im : copysign(T(0), z.im)) : Complex<T>(rest, copysign(infinity<T>(), z.im));
  }
  const T root = sqrt(abs(z.re) / 2 + abs(z) / 2);
  return z.re >= 0 ? Complex<T>(root, z.im / (2 * root)) : Complex<T>(abs(z.im) / (2 * root), copysign(root, z.im));
}
template <class T>
TF_FN Complex<T> rsqrt(Complex<T> z) { return 1 / sqrt(z); }
template <class T>
TF_FN Complex<T> pow(Complex<T> base, Complex<T> exponent) {
  if (exponent.re == 0 && exponent.im == 0) return Complex<T>(1);
  if (base.re == 0 && base.im == 0) return exponent.re > 0 ? Complex<T>(0) : Complex<T>(nan<T>(), nan<T>());
  return exp(exponent * log(base));
}

// ---- trigonometric and hyperbolic ----------------------------------------------------------------------------

template <class T>
TF_FN Complex<T> sinh(Complex<T> z) {
  return z.im == 0 ? Complex<T>(sinh(z.re), z.im) : Complex<T>(sinh(z.re) * cos(z.im), cosh(z.re) * sin(z.im));
}
template <class T>
TF_FN Complex<T> cosh(Complex<T> z) {
  const T across = sinh(z.re) * sin(z.im);
  return z.im == 0 ? Complex<T>(cosh(z.re), signbit(z.re) ? -z.im : z.im) : Complex<T>(cosh(z.re) * cos(z.im), across);
}
template <class T>
TF_FN Complex<T> tanh(Complex<T> z) {
  if (abs(z.re) > 22) return Complex<T>(copysign(T(1), z.re), 4 * sin(z.im) * cos(z.im) * exp(-2 * abs(z.re)));
  const T slope = tan(z.im), size = sinh(z.re), steep = 1 + slope * slope, below = 1 + steep * size * size;
  return Complex<T>(steep * sqrt(1 + size * size) * size / below, slope / below);
}
template <class T>
TF_FN Complex<T> sin(Complex<T> z) { return turn_right(sinh(turn_left(z))); }
template <class T>
TF_FN Complex<T> cos(Complex<T> z) { return cosh(turn_left(z)); }
template <class T>
TF_FN Complex<T> tan(Complex<T> z) { return turn_right(tanh(turn_left(z))); }

template <class T>
TF_FN Complex<T> asin(Complex<T> z) {
  const Complex<T> below = sqrt(Complex<T>(1 - z.re, -z.im)), above = sqrt(Complex<T>(1 + z.re, z.im));
  return Complex<T>(atan2(z.re, (below * above).re), asinh((conj(below) * above).im));
}
template <class T>
TF_FN Complex<T> acos(Complex<T> z) {
  const Complex<T> below = sqrt(Complex<T>(1 - z.re, -z.im)), above = sqrt(Complex<T>(1 + z.re, z.im));
  return Complex<T>(2 * atan2(below.re, above.re), asinh((conj(above) * below).im));
}
template <class T>
TF_FN Complex<T> acosh(Complex<T> z) {
  const Complex<T> below = sqrt(Complex<T>(z.re - 1, z.im)), above = sqrt(Complex<T>(z.re + 1, z.im));
  return Complex<T>(asinh((conj(below) * above).re), 2 * atan2(below.im, above.re));
}
template <class T>
TF_FN Complex<T> atanh(Complex<T> z) {
  const T size = abs(z.re), apart = 1 - size, square = z.im * z.im;
  return Complex<T>(copysign(log1p(4 * size / (apart * apart + square)) / 4, z.re), atan2(2 * z.im, apart * (1 + size) - square) / 2);
}
template <class T>
TF_FN Complex<T> asinh(Complex<T> z) { return turn_right(asin(turn_left(z))); }
template <class T>
TF_FN Complex<T> atan(Complex<T> z) { return turn_right(atanh(turn_left(z))); }

}  // namespace tf
