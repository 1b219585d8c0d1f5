// Follows a generated unit in the same compilation and makes it callable: tf_host_launch runs a grid.
//
// TF_HOST_LAUNCH(kernel) is all that is put behind the unit; the parameter types are read off the kernel itself.

struct TfHostGrid {
  uint3 grid, block;
  unsigned cluster;  // blocks that run at once: 1, those of a cluster (along x), or of a cooperative launch all
  unsigned dynamic_shared;
  unsigned fibers;  // 0: plain loops
  unsigned long long seed;
  long long failed_index, failed_size;  // out: an index that was out of range, and the size that it was to be below
};

extern "C" int tf_host_run_cluster(unsigned blocks, uint3 block, unsigned static_shared, unsigned dynamic_shared,
                                   unsigned long long seed, void (*entry)(void*, unsigned, unsigned, unsigned char*,
                                   unsigned char*), void*);

// Visits 0 .. count-1 in an order that the seed decides: i -> (i * step + start) mod count, step coprime to count.
struct TfHostOrder {
  unsigned long long count, step, start;
  TfHostOrder(unsigned long long n, unsigned long long seed) : count(n), step(1), start(0) {
    const unsigned long long mixed = (seed + 1) * 0x9e3779b97f4a7c15ull;
    start = (mixed >> 20) % n;
    for (step = n > 2 ? (mixed >> 40) % n | 1 : 1;; ++step) {
      unsigned long long a = step, b = n;
      while (b) {
        const unsigned long long rest = a % b;
        a = b;
        b = rest;
      }
      if (a == 1) return;
    }
  }
  unsigned long long at(unsigned long long i) const {
    return (unsigned long long)(((unsigned __int128)i * step + start) % count);
  }
};

static inline uint3 tf_host_unravel(unsigned long long i, uint3 extent) {
  uint3 at;
  at.x = (unsigned)(i % extent.x);
  at.y = (unsigned)(i / extent.x % extent.y);
  at.z = (unsigned)(i / extent.x / extent.y);
  return at;
}

template <auto kernel, class... P>
struct TfHostCall {
  const TfHostGrid& grid;
  void** next;
  int status = 0;

  template <class T>
  T take() { return *static_cast<T*>(*next++); }

  // A braced list is evaluated from left to right, so the parameters are read in order.
  struct Run {
    Run(TfHostCall& call, P... parameters) { call.run(parameters...); }
  };

  void run(P... parameters) {
    tf_host_block_dim = grid.block;
    tf_host_grid_dim = grid.grid;
    tf_host_cluster = grid.cluster;
    const unsigned long long threads = 1ull * grid.block.x * grid.block.y * grid.block.z;
    const unsigned long long clusters = 1ull * grid.grid.x * grid.grid.y * grid.grid.z / grid.cluster;
    const TfHostOrder order(clusters, grid.seed);
    for (unsigned long long i = 0; i < clusters && status == 0; ++i) {
      const unsigned long long first = order.at(i) * grid.cluster;
      if (grid.fibers) {
        auto body = [&](unsigned block, unsigned thread, unsigned char* shared, unsigned char* dynamic) {
          tf_host_self = TfHostThread{tf_host_unravel(thread, grid.block), tf_host_unravel(first + block, grid.grid),
                                      shared, dynamic};
          kernel(parameters...);
        };
        typedef decltype(body) Body;
        auto entry = [](void* p, unsigned block, unsigned thread, unsigned char* shared, unsigned char* dynamic) {
          (*static_cast<Body*>(p))(block, thread, shared, dynamic);
        };
        status = tf_host_run_cluster(grid.cluster, grid.block, tf_host_reserved, grid.dynamic_shared, grid.seed + i, entry,
                                     &body);
      } else {
        const TfHostOrder lanes(threads, grid.seed + i);
        tf_host_self = TfHostThread{{0, 0, 0}, tf_host_unravel(first, grid.grid), nullptr, nullptr};
        for (unsigned long long t = 0; t < threads; ++t) {
          tf_host_self.thread = tf_host_unravel(lanes.at(t), grid.block);
          kernel(parameters...);
        }
      }
    }
  }
};

template <auto kernel, class... P>
static inline int tf_host_call(void (*)(P...), const TfHostGrid& grid, void** arguments) {
  TfHostCall<kernel, P...> call{grid, arguments};
  typename TfHostCall<kernel, P...>::Run{call, call.template take<P>()...};
  return call.status;
}

// tf_host_launch returns 0, one of fibers.cpp's reasons not to go on (runtime/host/backend.py has them in words), or -1
// for an index out of range.
#define TF_HOST_LAUNCH(kernel)                                                            \
  extern "C" __attribute__((visibility("default"))) int tf_host_launch(TfHostGrid* grid, void** arguments) { \
    tf_host_failed = 0;                                                                   \
    const int status = tf_host_call<kernel>(kernel, *grid, arguments);                    \
    if (!tf_host_failed) return status;                                                   \
    grid->failed_index = tf_host_failed_index;                                            \
    grid->failed_size = tf_host_failed_size;                                              \
    return -1;                                                                            \
  }
