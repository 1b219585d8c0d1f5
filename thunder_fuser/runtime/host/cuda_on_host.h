// Stands in for CUDA when the system's C++ compiler takes a generated unit: g++ -x c++ -include cuda_on_host.h -DTF_HOST.
//
// No #include here either (the C++ library's headers would triple the time of a compilation). Threads of a block are
// fibers of fibers.cpp; a kernel that never meets a barrier, a shuffle or shared memory refers to none of the
// functions marked "fibers" below, and runtime/host/backend.py then runs it as plain loops.

#pragma once

typedef __SIZE_TYPE__ size_t;
typedef __UINTPTR_TYPE__ uintptr_t;

// ---- declarations --------------------------------------------------------------------------------------------

#define __host__
#define __device__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __cluster_dims__(...)
// `inline` keeps an entry out of the object file unless the footer calls it; noinline keeps it one function.
#define __global__ inline __attribute__((noinline))

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct uint3 {
  unsigned x, y, z;
};
typedef uint3 dim3;

// ---- what the footer and the fibers share ----------------------------------------------------------------------

// Everything that differs between threads. A fiber puts its own back when it goes on after a wait.
struct TfHostThread {
  uint3 thread;
  uint3 block;
  unsigned char* shared;  // this block's static shared memory
  unsigned char* dynamic;  // and its dynamic one
};
static TfHostThread tf_host_self;
static uint3 tf_host_block_dim, tf_host_grid_dim;
static unsigned tf_host_cluster;   // blocks that run at once
static int tf_host_failed;         // whether a thread of this launch met an index out of its range
static long long tf_host_failed_index, tf_host_failed_size;
static unsigned tf_host_reserved;  // bytes of static shared memory that the kernel has declared so far

#define threadIdx (tf_host_self.thread)
#define blockIdx (tf_host_self.block)
#define blockDim (tf_host_block_dim)
#define gridDim (tf_host_grid_dim)
static const int warpSize = 32;

// A thread that meets an index out of range goes on with index 0; the launch reports the first one.
static inline void tf_host_fail(long long index, long long size) {
  if (tf_host_failed) return;
  tf_host_failed = 1;
  tf_host_failed_index = index;
  tf_host_failed_size = size;
}

extern "C" {
void tf_host_block_barrier();                                                       // fibers
void tf_host_cluster_barrier();                                                     // fibers
void tf_host_warp_barrier(unsigned mask);                                           // fibers
unsigned long long tf_host_exchange(unsigned mask, unsigned long long v, int from); // fibers
unsigned tf_host_vote(unsigned mask, int yes);                                      // fibers
unsigned tf_host_reserve(unsigned* taken, unsigned long bytes, unsigned long align); // fibers
unsigned char* tf_host_peer(unsigned char* p, unsigned rank);                       // fibers
}

#define TF_HOST_WAITS(call)                   \
  const TfHostThread tf_saved = tf_host_self; \
  call;                                       \
  tf_host_self = tf_saved

// ---- shared memory -------------------------------------------------------------------------------------------

// Each declaration has one offset; each block has its own memory, poisoned before the block runs.
#define TF_SHARED(type, name, count)                                                             \
  static const unsigned tf_at_##name = tf_host_reserve(&tf_host_reserved, sizeof(type) * (count), alignof(type)); \
  type(&name)[count] = *reinterpret_cast<type(*)[count]>(tf_host_self.shared + tf_at_##name)
#define TF_DYNAMIC_SHARED(name)                      \
  (void)tf_host_reserve(&tf_host_reserved, 0, 1); /* asks for fibers */ \
  unsigned char* const name = tf_host_self.dynamic
#define __shared__ static_assert(false, "declare shared memory with TF_SHARED or TF_DYNAMIC_SHARED");

// ---- barriers and shuffles -----------------------------------------------------------------------------------

static inline void __syncthreads() { TF_HOST_WAITS(tf_host_block_barrier()); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { TF_HOST_WAITS(tf_host_warp_barrier(mask)); }

static inline unsigned tf_host_lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31u;
}

// `from` is the lane to read; a lane outside the segment of `width` gets its own value back.
template <class T>
static inline T tf_host_shuffle(unsigned mask, T value, int from, bool inside) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  TF_HOST_WAITS(bits = tf_host_exchange(mask, bits, inside ? from : (int)tf_host_lane()));
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  const int first = (int)tf_host_lane() & ~(width - 1);
  return tf_host_shuffle(mask, value, first + (lane & (width - 1)), true);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int me = (int)tf_host_lane(), from = me ^ lanes;
  return tf_host_shuffle(mask, value, from, (from & ~(width - 1)) <= (me & ~(width - 1)));
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32) {
  const int me = (int)tf_host_lane(), from = me + (int)lanes;
  return tf_host_shuffle(mask, value, from, from < (me & ~(width - 1)) + width);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32) {
  const int me = (int)tf_host_lane(), from = me - (int)lanes;
  return tf_host_shuffle(mask, value, from, from >= (me & ~(width - 1)));
}
static inline unsigned __ballot_sync(unsigned mask, int yes) {
  unsigned votes;
  TF_HOST_WAITS(votes = tf_host_vote(mask, yes));
  return votes;
}
static inline int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
static inline int __all_sync(unsigned mask, int yes) { return __ballot_sync(mask, !yes) == 0; }

// ---- atomics: fibers change only at waits, so a plain read and write cannot be cut in two ------------------------

template <class T>
static inline T atomicAdd(T* p, T value) {
  const T old = *p;
  *p = old + value;
  return old;
}
template <class T>
static inline T atomicMax(T* p, T value) {
  const T old = *p;
  if (value > old) *p = value;
  return old;
}
template <class T>
static inline T atomicMin(T* p, T value) {
  const T old = *p;
  if (value < old) *p = value;
  return old;
}
template <class T>
static inline T atomicExch(T* p, T value) {
  const T old = *p;
  *p = value;
  return old;
}
template <class T>
static inline T atomicCAS(T* p, T expected, T value) {
  const T old = *p;
  if (old == expected) *p = value;
  return old;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
