// The third part of every generated unit: what reading and writing at computed indices needs.

namespace tf {

// An index that must lie in [0, size): any other one stops the kernel with an error, before it reaches memory.
TF_FN long long checked(long long index, long long size) {
  if ((unsigned long long)index < (unsigned long long)size) return index;
#ifdef TF_HOST
  tf_host_fail(index, size);
#else
  asm volatile("trap;");
#endif
  return 0;
}

// ---- sums that threads make together -------------------------------------------------------------------------

#ifdef TF_HOST
template <class T>
TF_FN void scatter_add(T* p, T value) {
  if constexpr (T(0.5) != T(0)) *p += value;
  else *p = add(*p, value);
}
#else
TF_FN void scatter_add(float* p, float value) { atomicAdd(p, value); }
TF_FN void scatter_add(double* p, double value) { atomicAdd(p, value); }
TF_FN void scatter_add(int* p, int value) { atomicAdd(p, value); }
TF_FN void scatter_add(long long* p, long long value) { atomicAdd((unsigned long long*)p, (unsigned long long)value); }
// Narrow integers, by exchanging the word that they are in.
template <class T>
TF_FN void scatter_add(T* p, T value) {
  static_assert(sizeof(T) < 4, "wider types have instructions of their own");
  unsigned* const word = (unsigned*)((unsigned long long)p & ~3ull);
  const unsigned shift = 8u * (unsigned)((unsigned long long)p & 3ull), mask = ((1u << 8 * sizeof(T)) - 1u) << shift;
  unsigned old = *word, seen;
  do {
    seen = old;
    const unsigned sum = (seen >> shift) + (unsigned)value;
    old = atomicCAS(word, seen, (seen & ~mask) | ((sum << shift) & mask));
  } while (old != seen);
}
#endif

// N elements from p, W at a time as far as the card adds vectors; alignment as for a store.
template <int N, int W = N, class T>
TF_FN void scatter_add(T* p, Vec<T, N> value) {
#pragma unroll
  for (int i = 0; i < N; ++i) scatter_add(p + i, value.x[i]);
}
#if !defined(TF_HOST) && __CUDA_ARCH__ >= 900
template <int N, int W = N>
TF_FN void scatter_add(float* p, Vec<float, N> value) {
  if constexpr (N % 4 == 0 && W >= 4) {
#pragma unroll
    for (int i = 0; i < N; i += 4)
      asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                   ::"l"(p + i), "f"(value.x[i]), "f"(value.x[i + 1]), "f"(value.x[i + 2]), "f"(value.x[i + 3]) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) scatter_add(p + i, value.x[i]);
  }
}
#endif

}  // namespace tf
