// Complex numbers: the type and its operators. The first part of every generated unit, since conversions need it.
//
// No #include: NVRTC runs without include paths. Functions of complex numbers are in complex_math.cuh.

#ifdef TF_HOST
#define TF_FN static inline __attribute__((unused))
#define TF_FN_MEMBER static inline
#define TF_CONSTRUCTOR constexpr
#else
#define TF_FN static __device__ __forceinline__
#define TF_FN_MEMBER static __device__ __forceinline__
#define TF_CONSTRUCTOR constexpr __host__ __device__
#endif

namespace tf {

// Laid out as torch's: the real part first, aligned to the pair.
template <class T>
struct alignas(2 * sizeof(T)) Complex {
  T re, im;
  Complex() = default;
  TF_CONSTRUCTOR Complex(T real, T imaginary = T(0)) : re(real), im(imaginary) {}
};
typedef Complex<float> complex64;
typedef Complex<double> complex128;

template <class T>
TF_FN Complex<T> operator-(Complex<T> a) { return Complex<T>(-a.re, -a.im); }
template <class T>
TF_FN Complex<T> operator+(Complex<T> a, Complex<T> b) { return Complex<T>(a.re + b.re, a.im + b.im); }
template <class T>
TF_FN Complex<T> operator-(Complex<T> a, Complex<T> b) { return Complex<T>(a.re - b.re, a.im - b.im); }
template <class T>
TF_FN Complex<T> operator*(Complex<T> a, Complex<T> b) { return Complex<T>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); }

// Smith's division: scaled by the greater part of the divisor, so that nothing overflows on the way.
template <class T>
TF_FN Complex<T> operator/(Complex<T> a, Complex<T> b) {
  const T re_size = b.re < 0 ? -b.re : b.re, im_size = b.im < 0 ? -b.im : b.im;
  if (re_size >= im_size) {
    if (re_size == 0 && im_size == 0) return Complex<T>(a.re / re_size, a.im / im_size);
    const T ratio = b.im / b.re, scale = 1 / (b.re + b.im * ratio);
    return Complex<T>((a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale);
  }
  const T ratio = b.re / b.im, scale = 1 / (b.re * ratio + b.im);
  return Complex<T>((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale);
}
template <class T>
TF_FN Complex<T> operator/(int a, Complex<T> b) { return Complex<T>(T(a)) / b; }

template <class T>
TF_FN bool operator==(Complex<T> a, Complex<T> b) { return a.re == b.re && a.im == b.im; }
template <class T>
TF_FN bool operator!=(Complex<T> a, Complex<T> b) { return a.re != b.re || a.im != b.im; }
template <class T>
TF_FN bool truth(Complex<T> a) { return a.re != 0 || a.im != 0; }
template <class T>
TF_FN bool operator!(Complex<T> a) { return !truth(a); }
template <class T>
TF_FN bool operator&&(Complex<T> a, Complex<T> b) { return truth(a) & truth(b); }
template <class T>
TF_FN bool operator||(Complex<T> a, Complex<T> b) { return truth(a) | truth(b); }

}  // namespace tf
