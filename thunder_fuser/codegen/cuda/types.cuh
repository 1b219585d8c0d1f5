// Behind complex.cuh in every generated unit: storage types, conversions, vector access, barriers and shuffles.
//
// No #include: NVRTC takes this text alone, and the system's C++ compiler takes it behind runtime/host/cuda_on_host.h
// with -DTF_HOST. Only this file and math.cuh hold inline PTX; each such function has a host twin beside it.

#ifdef TF_HOST
#define TF_CONSTEXPR static constexpr
#else
#define TF_CONSTEXPR static constexpr __host__ __device__
// Shared memory is declared through these two, so that the host can give each block its own, freshly poisoned.
// A type with a comma in it needs a typedef first.
#define TF_SHARED(type, name, count) __shared__ type name[count]
#define TF_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

namespace tf {

// ---- storage types -------------------------------------------------------------------------------------------

struct half {
  unsigned short bits;
};

struct bfloat16 {
  unsigned short bits;
};

struct float8_e4m3 {  // "fn": finite, with one NaN a sign
  unsigned char bits;
};

struct float8_e5m2 {  // the upper byte of a half
  unsigned char bits;
};

// The bits of one type read as another of the same size.
template <class To, class From>
TF_FN To bitcast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bitcast keeps the size");
  union Bits {
    From from;
    To to;
  } bits;
  bits.from = from;
  return bits.to;
}

TF_FN float to_float(bfloat16 x) { return bitcast<float>((unsigned)x.bits << 16); }

#ifdef TF_HOST

TF_FN float to_float(half x) {
  const unsigned sign = (unsigned)(x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return bitcast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x400u) return bitcast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float subnormal = (float)magnitude * 5.9604644775390625e-8f;  // 2^-24
  return sign ? -subnormal : subnormal;
}

TF_FN half to_half(float x) {
  const unsigned bits = bitcast<unsigned>(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  unsigned result;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
    result = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // a normal half: drop 13 bits, ties to even
    result = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {  // a subnormal half: adding 0.5 leaves the 10 bits that count, rounded by the hardware
    result = bitcast<unsigned>(bitcast<float>(magnitude) + 0.5f) - 0x3f000000u;
  }
  half out;
  out.bits = (unsigned short)(sign | result);
  return out;
}

TF_FN bfloat16 to_bfloat16(float x) {
  const unsigned bits = bitcast<unsigned>(x);
  bfloat16 out;
  out.bits = (bits & 0x7fffffffu) > 0x7f800000u ? (unsigned short)0x7fffu
                                                : (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  return out;
}

#else

TF_FN float to_float(half x) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.bits));
  return out;
}

TF_FN half to_half(float x) {
  half out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
  return out;
}

TF_FN bfloat16 to_bfloat16(float x) {
  bfloat16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
  return out;
}

#endif

// 8-bit floats round to nearest, ties to even, and never saturate: what is too large for e4m3 is NaN, for e5m2 infinity.
TF_FN float to_float(float8_e5m2 x) {
  half wide;
  wide.bits = (unsigned short)(x.bits << 8);
  return to_float(wide);
}
TF_FN float to_float(float8_e4m3 x) {
  const unsigned sign = (unsigned)(x.bits & 0x80u) << 24, magnitude = x.bits & 0x7fu;
  if (magnitude == 0x7fu) return bitcast<float>(sign | 0x7fc00000u);
  if (magnitude >= 8u) return bitcast<float>(sign | ((magnitude << 20) + (120u << 23)));
  const float subnormal = (float)magnitude * 0.001953125f;  // 2^-9
  return sign ? -subnormal : subnormal;
}
TF_FN float8_e4m3 to_float8_e4m3(float x) {
  const unsigned bits = bitcast<unsigned>(x), magnitude = bits & 0x7fffffffu;
  unsigned result;
  if (magnitude >= 0x43f00000u) {  // 480 and more, and NaN; between 464 and that, rounding gives NaN
    result = 0x7fu;
  } else if (magnitude >= 0x3c800000u) {  // normal: drop 20 bits
    result = (magnitude - (120u << 23) + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  } else {  // subnormal: adding 2^14 leaves the bits that count, rounded by the hardware
    result = bitcast<unsigned>(bitcast<float>(magnitude) + 16384.0f) - 0x46800000u;
  }
  float8_e4m3 out;
  out.bits = (unsigned char)((bits >> 24 & 0x80u) | result);
  return out;
}
TF_FN float8_e5m2 to_float8_e5m2(float x) {
  const unsigned bits = bitcast<unsigned>(x), magnitude = bits & 0x7fffffffu;
  unsigned result;
  if (magnitude >= 0x47800000u) {  // 65536 and more, infinity, NaN; between 61440 and that, rounding gives infinity
    result = magnitude > 0x7f800000u ? 0x7fu : 0x7cu;
  } else if (magnitude >= 0x38800000u) {  // normal: drop 21 bits
    result = (magnitude - (112u << 23) + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21;
  } else {
    result = bitcast<unsigned>(bitcast<float>(magnitude) + 128.0f) - 0x43000000u;
  }
  float8_e5m2 out;
  out.bits = (unsigned char)((bits >> 24 & 0x80u) | result);
  return out;
}

// ---- conversions ---------------------------------------------------------------------------------------------

template <class A, class B>
struct Same {
  static constexpr bool value = false;
};
template <class A>
struct Same<A, A> {
  static constexpr bool value = true;
};
template <class T>
struct IsComplex {
  static constexpr bool value = false;
};
template <class T>
struct IsComplex<Complex<T>> {
  static constexpr bool value = true;
  typedef T part;
};
// Floats of 16 and 8 bits: computed in float, `magnitude` are all bits but the sign.
template <class T>
struct Narrow {
  static constexpr bool value = false;
};
#define TF_NARROW(type, mask)                                      \
  template <>                                                      \
  struct Narrow<type> {                                            \
    static constexpr bool value = true;                            \
    static constexpr unsigned magnitude = mask;                    \
    TF_FN_MEMBER type round(float x) { return to_##type(x); }      \
  };
TF_NARROW(half, 0x7fffu)
TF_NARROW(bfloat16, 0x7fffu)
TF_NARROW(float8_e4m3, 0x7fu)
TF_NARROW(float8_e5m2, 0x7fu)
#undef TF_NARROW

// convert<To>(from): what torch's `.to` does. Floats truncate to integers, anything but zero is true, a complex number
// loses its imaginary part, and floats of 16 and 8 bits go through float, from double and int64 too (torch rounds twice there).
template <class To, class From>
TF_FN To convert(From x) {
  if constexpr (Same<To, From>::value) {
    return x;
  } else if constexpr (IsComplex<To>::value) {
    typedef typename IsComplex<To>::part Part;
    if constexpr (IsComplex<From>::value) return To((Part)x.re, (Part)x.im);
    else return To(convert<Part>(x));
  } else if constexpr (IsComplex<From>::value) {
    if constexpr (Same<To, bool>::value) return truth(x);
    else return convert<To>(x.re);
  } else if constexpr (Narrow<From>::value) {
    if constexpr (Same<To, bool>::value) return (x.bits & Narrow<From>::magnitude) != 0;
    else return convert<To>(to_float(x));
  } else if constexpr (Narrow<To>::value) {
    return Narrow<To>::round((float)x);
  } else if constexpr (Same<To, bool>::value) {
    return x != From(0);
  } else if constexpr (sizeof(To) < 4 && (Same<From, float>::value || Same<From, double>::value)) {
    // Torch takes floats to unsigned char through int64, so that -1.0 is 255; the narrow signed types wrap likewise.
    return (To)(long long)x;
  } else {
    return (To)x;
  }
}

// ---- vectors -------------------------------------------------------------------------------------------------

// The widest access, in bytes and at most 16, that divides `bytes`.
TF_CONSTEXPR int access_bytes(int bytes) { return (bytes & -bytes) < 16 ? (bytes & -bytes) : 16; }

template <class T, int N>
struct alignas(access_bytes(N * (int)sizeof(T))) Vec {
  T x[N];
};

template <int bytes>
struct Raw;
template <>
struct Raw<1> {
  typedef unsigned char type;
};
template <>
struct Raw<2> {
  typedef unsigned short type;
};
template <>
struct Raw<4> {
  typedef unsigned type;
};
template <>
struct Raw<8> {
  typedef uint2 type;
};
template <>
struct Raw<16> {
  typedef uint4 type;
};

// Ways to reach memory. Coherent: `Plain`, `Coherent` (streaming). Only for memory that no thread of the kernel writes:
// `Keep` (cached, for what is read again) and `Once` (not kept in L1).
#ifdef TF_HOST
struct Plain {
  template <class R>
  TF_FN_MEMBER R load(const R* p) { return *p; }
  template <class R>
  TF_FN_MEMBER void store(R* p, R value) { *p = value; }
};
typedef Plain Keep;
typedef Plain Once;
typedef Plain Coherent;
#else
struct Plain {
  template <class R>
  TF_FN_MEMBER R load(const R* p) { return *p; }
  template <class R>
  TF_FN_MEMBER void store(R* p, R value) { *p = value; }
};
struct Keep {
  template <class R>
  TF_FN_MEMBER R load(const R* p) { return __ldg(p); }
};
struct Coherent {
  template <class R>
  TF_FN_MEMBER R load(const R* p) { return __ldcs(p); }
  template <class R>
  TF_FN_MEMBER void store(R* p, R value) { __stcs(p, value); }
};
struct Once {
  TF_FN_MEMBER unsigned char load(const unsigned char* p) {
    unsigned short out;
    asm("ld.global.nc.L1::no_allocate.u8 %0, [%1];" : "=h"(out) : "l"(p));
    return (unsigned char)out;
  }
  TF_FN_MEMBER unsigned short load(const unsigned short* p) {
    unsigned short out;
    asm("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(out) : "l"(p));
    return out;
  }
  TF_FN_MEMBER unsigned load(const unsigned* p) {
    unsigned out;
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(out) : "l"(p));
    return out;
  }
  TF_FN_MEMBER uint2 load(const uint2* p) {
    uint2 out;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(out.x), "=r"(out.y) : "l"(p));
    return out;
  }
  TF_FN_MEMBER uint4 load(const uint4* p) {
    uint4 out;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
        : "l"(p));
    return out;
  }
};
#endif

// N elements as accesses of W elements each, of 16 bytes at most.
template <class T, int N, int W>
union Pieces {
  static constexpr int bytes = access_bytes(W * (int)sizeof(T));
  static constexpr int count = N * (int)sizeof(T) / bytes;
  typedef typename Raw<bytes>::type Piece;
  Piece piece[count];
  Vec<T, N> vec;
};

template <class Way, int N, int W, class T>
TF_FN Vec<T, N> load_by(const T* p) {
  Pieces<T, N, W> pieces;
  const typename Pieces<T, N, W>::Piece* from = reinterpret_cast<const typename Pieces<T, N, W>::Piece*>(p);
#pragma unroll
  for (int i = 0; i < Pieces<T, N, W>::count; ++i) pieces.piece[i] = Way::load(from + i);
  return pieces.vec;
}

template <class Way, int N, int W, class T>
TF_FN void store_by(T* p, Vec<T, N> value) {
  Pieces<T, N, W> pieces;
  pieces.vec = value;
  typename Pieces<T, N, W>::Piece* to = reinterpret_cast<typename Pieces<T, N, W>::Piece*>(p);
#pragma unroll
  for (int i = 0; i < Pieces<T, N, W>::count; ++i) Way::store(to + i, pieces.piece[i]);
}

// N elements from p, W at a time (all of them unless said); p must be aligned to min(16, the lowest set bit of
// W * sizeof(T)) bytes.
template <int N, int W = N, class T>
TF_FN Vec<T, N> load(const T* p) { return load_by<Plain, N, W>(p); }
template <int N, int W = N, class T>
TF_FN Vec<T, N> load_keep(const T* p) { return load_by<Keep, N, W>(p); }
template <int N, int W = N, class T>
TF_FN Vec<T, N> load_stream(const T* p) { return load_by<Once, N, W>(p); }
template <int N, int W = N, class T>
TF_FN Vec<T, N> load_stream_coherent(const T* p) { return load_by<Coherent, N, W>(p); }
template <int N, int W = N, class T>
TF_FN void store(T* p, Vec<T, N> value) { store_by<Plain, N, W>(p, value); }
template <int N, int W = N, class T>
TF_FN void store_stream(T* p, Vec<T, N> value) { store_by<Coherent, N, W>(p, value); }

// Copies from global into shared memory that are under way while the thread works on: `fetch` of `bytes` in pieces of 4, 8
// or 16, to which both addresses are aligned; `fetch_end` closes a batch, and `fetch_wait<n>` returns when all batches of
// this thread but the last n have arrived.
#ifdef TF_HOST
template <int bytes, int piece>
TF_FN void fetch(unsigned char* to, const void* from) {
  for (int i = 0; i < bytes; ++i) to[i] = ((const unsigned char*)from)[i];
}
TF_FN void fetch_end() {}
template <int n>
TF_FN void fetch_wait() {}
#else
template <int bytes, int piece>
TF_FN void fetch(unsigned char* to, const void* from) {
  unsigned shared;
  asm("{\n.reg .u64 t;\ncvta.to.shared.u64 t, %1;\ncvt.u32.u64 %0, t;\n}" : "=r"(shared) : "l"(to));
#pragma unroll
  for (int i = 0; i < bytes; i += piece) {
    if (piece == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared + i), "l"((const unsigned char*)from + i) : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared + i), "l"((const unsigned char*)from + i), "n"(piece) : "memory");
    }
  }
}
TF_FN void fetch_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n>
TF_FN void fetch_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); }
#endif

// Elementwise conversion of a vector; float pairs go to 16-bit floats by one instruction.
#ifndef TF_HOST
TF_FN unsigned pack_half(float low, float high) {
  unsigned out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
TF_FN unsigned pack_bfloat16(float low, float high) {
  unsigned out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
#endif
template <class To, class From, int N>
struct ConvertVec {
  TF_FN_MEMBER Vec<To, N> of(Vec<From, N> v) {
    Vec<To, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.x[i] = convert<To>(v.x[i]);
    return out;
  }
};
#ifndef TF_HOST
#define TF_PACK(type, pack)                                                                            \
  template <int N>                                                                                     \
  struct ConvertVec<type, float, N> {                                                                  \
    TF_FN_MEMBER Vec<type, N> of(Vec<float, N> v) {                                                    \
      Vec<type, N> out;                                                                                \
      _Pragma("unroll") for (int i = 0; i + 1 < N; i += 2) {                                           \
        const unsigned both = pack(v.x[i], v.x[i + 1]);                                                \
        out.x[i].bits = (unsigned short)both;                                                          \
        out.x[i + 1].bits = (unsigned short)(both >> 16);                                              \
      }                                                                                                \
      if (N % 2) out.x[N - 1] = convert<type>(v.x[N - 1]);                                                                               \
      return out;                                                                                      \
    }                                                                                                  \
  };
TF_PACK(half, pack_half)
TF_PACK(bfloat16, pack_bfloat16)
#undef TF_PACK
#endif
template <class To, class From, int N>
TF_FN Vec<To, N> convert(Vec<From, N> v) {
  return ConvertVec<To, From, N>::of(v);
}

// ---- barriers, shuffles, atomics -----------------------------------------------------------------------------

TF_FN void sync() { __syncthreads(); }
TF_FN void warp_sync() { __syncwarp(0xffffffffu); }

// Shuffles move any type of up to 16 bytes between the 32 lanes of a whole warp.
template <int bytes>
struct Lane;
template <>
struct Lane<1> {
  typedef unsigned char bits;
  typedef unsigned moved;
};
template <>
struct Lane<2> {
  typedef unsigned short bits;
  typedef unsigned moved;
};
template <>
struct Lane<4> {
  typedef unsigned bits;
  typedef unsigned moved;
};
template <>
struct Lane<8> {
  typedef unsigned long long bits;
  typedef unsigned long long moved;
};
#define TF_SHUFFLE(name, intrinsic, argument)                                                   \
  template <class T>                                                                            \
  TF_FN T name(T value, argument) {                                                             \
    if constexpr (sizeof(T) == 16) { /* a complex128, part by part */                           \
      return T(name(value.re, lanes), name(value.im, lanes));                                   \
    } else {                                                                                    \
    typedef typename Lane<sizeof(T)>::bits Bits;                                                \
    typedef typename Lane<sizeof(T)>::moved Moved;                                              \
    return bitcast<T>((Bits)intrinsic(0xffffffffu, (Moved)bitcast<Bits>(value), lanes, 32));    \
    }                                                                                           \
  }
TF_SHUFFLE(shuffle, __shfl_sync, int lanes)
TF_SHUFFLE(shuffle_xor, __shfl_xor_sync, int lanes)
TF_SHUFFLE(shuffle_down, __shfl_down_sync, unsigned lanes)
TF_SHUFFLE(shuffle_up, __shfl_up_sync, unsigned lanes)
#undef TF_SHUFFLE
TF_FN unsigned ballot(bool yes) { return __ballot_sync(0xffffffffu, yes); }

template <class T>
TF_FN T atomic_add(T* p, T value) { return atomicAdd(p, value); }
TF_FN long long atomic_add(long long* p, long long value) {
  return (long long)atomicAdd((unsigned long long*)p, (unsigned long long)value);
}
TF_FN void fence() { __threadfence(); }

// Clusters (sm_90 and up; blocks of a cluster follow each other along x): rank, barrier (whole, or in two halves with
// work between them), and another block's view of a shared address.
// grid_sync is a barrier of all blocks of a cooperative launch; `counter` is 0 before its first use and serves for ever.
// Waiting in a loop of one's own is not possible: on the host a thread gives way at barriers and shuffles only.
#ifdef TF_HOST
TF_FN void grid_sync(unsigned*) { TF_HOST_WAITS(tf_host_cluster_barrier()); }
TF_FN unsigned cluster_rank() { return blockIdx.x % tf_host_cluster; }
TF_FN void cluster_sync() { TF_HOST_WAITS(tf_host_cluster_barrier()); }
TF_FN void cluster_arrive() {}
TF_FN void cluster_wait() { cluster_sync(); }
template <class T>
TF_FN T* cluster_peer(T* p, unsigned rank) { return (T*)tf_host_peer((unsigned char*)p, rank); }
#else
TF_FN void grid_sync(unsigned* counter) {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    // Each round adds 2^31 in all, so that the top bit flips when the last block has come.
    const bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    __threadfence();
    const unsigned before = atomicAdd(counter, first ? 0x80000000u - (blocks - 1) : 1u);
    while (((before ^ *(volatile unsigned*)counter) & 0x80000000u) == 0) {
    }
    __threadfence();
  }
  __syncthreads();
}
TF_FN unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
TF_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
TF_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
TF_FN void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
template <class T>
TF_FN T* cluster_peer(T* p, unsigned rank) {
  T* out;
  asm("mapa.u64 %0, %1, %2;" : "=l"(out) : "l"(p), "r"(rank));
  return out;
}
#endif

}  // namespace tf
