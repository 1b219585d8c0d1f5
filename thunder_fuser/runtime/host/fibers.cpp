// Threads of a block as fibers: the waits that cuda_on_host.h declares, and the scheduler behind them.
//
// Built once and loaded before any kernel. One cluster (usually one block) runs at a time; its threads are resumed in
// an order drawn from the launch's seed, and its shared memory is filled with 0xff first (NaN in every float type, -1
// in every integer), so that a missing barrier or a read before a write shows in the result. Callers hold a lock: one
// launch at a time in a process.
//
// A fiber is started through makecontext and from then on switched by _setjmp/_longjmp, which make no system call.

#undef _FORTIFY_SOURCE
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

struct uint3 {
  unsigned x, y, z;
};
typedef void (*Entry)(void*, unsigned, unsigned, unsigned char*, unsigned char*);

namespace {

constexpr unsigned kStackBytes = 256 * 1024;   // reserved a fiber; touched pages only are paid for
constexpr unsigned kSharedBytes = 227 * 1024;  // what one block can have on sm_90, of either kind
constexpr unsigned kWarp = 32;
constexpr unsigned kFibers = 16384;            // each takes two of a process's 65530 memory mappings
enum Status { kDone = 0, kDeadlock = 1, kSharedOverflow = 2, kTooManyThreads = 3 };
enum State : unsigned char { kReady, kAtBlock, kAtCluster, kAtWarp, kExited };

struct Fiber {
  jmp_buf at;
  ucontext_t start;
  bool started = false;  // its loop is parked in `at`
  State state = kReady;
  unsigned index = 0, block = 0, thread = 0;
  unsigned mask = 0;  // lanes it waits for, at a warp barrier
  unsigned from = 0, votes = 0;
  unsigned long long offer = 0, received = 0;
};

jmp_buf scheduler;
std::vector<Fiber*> fibers;
std::vector<unsigned> ready;
std::vector<unsigned> alive, waiting;  // by block: threads that have not returned, threads at the block's barrier
unsigned threads_of_block, total_alive, total_waiting;
Fiber* running;
Entry entry;
void* entry_context;
Status status;
unsigned char* arena;  // per block: static shared memory, then dynamic
unsigned blocks_of_cluster, blocks_in_arena;
uint64_t random_state;

unsigned random_below(unsigned n) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (unsigned)((random_state >> 33) * (uint64_t)n >> 31);
}

unsigned char* shared_of(unsigned block) { return arena + (size_t)block * 2 * kSharedBytes; }
unsigned char* dynamic_of(unsigned block) { return shared_of(block) + kSharedBytes; }

void make_ready(Fiber* f) {
  f->state = kReady;
  ready.push_back(f->index);
}

void release_block(unsigned block) {
  if (waiting[block] == 0 || waiting[block] != alive[block]) return;
  waiting[block] = 0;
  for (unsigned t = 0; t < threads_of_block; ++t) {
    Fiber* f = fibers[block * threads_of_block + t];
    if (f->state == kAtBlock) make_ready(f);
  }
}

void release_cluster() {
  if (total_waiting == 0 || total_waiting != total_alive) return;
  total_waiting = 0;
  for (unsigned i = 0; i < blocks_of_cluster * threads_of_block; ++i)
    if (fibers[i]->state == kAtCluster) make_ready(fibers[i]);
}

// Back to the scheduler; returns when this fiber is picked again.
void park() {
  if (_setjmp(running->at) == 0) _longjmp(scheduler, 1);
}

Fiber* lane_of(const Fiber* f, unsigned lane) {
  const unsigned thread = (f->thread & ~(kWarp - 1)) + lane;
  return thread < threads_of_block ? fibers[f->block * threads_of_block + thread] : nullptr;
}

// A fiber's life: one thread of one launch after another.
void live() {
  for (;;) {
    Fiber* self = running;
    entry(entry_context, self->block, self->thread, shared_of(self->block), dynamic_of(self->block));
    self->state = kExited;
    --alive[self->block];
    --total_alive;
    release_block(self->block);
    release_cluster();
    park();
  }
}

void resume(Fiber* f) {
  running = f;
  if (_setjmp(scheduler)) return;
  if (f->started) _longjmp(f->at, 1);
  f->started = true;
  setcontext(&f->start);
}

void prepare(Fiber* f) {  // a fresh stack for a fiber that never ran, or that a deadlock left in the middle
  if (!f->start.uc_stack.ss_sp) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void* memory = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    mprotect(memory, page, PROT_NONE);  // an overflow faults instead of reaching the neighbour
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = (char*)memory + page;
    f->start.uc_stack.ss_size = kStackBytes;
  }
  f->start.uc_link = nullptr;
  makecontext(&f->start, live, 0);
}

void reset(unsigned count) {
  while (fibers.size() < count) {
    Fiber* f = new Fiber;
    memset(&f->start, 0, sizeof f->start);
    f->index = (unsigned)fibers.size();
    fibers.push_back(f);
    prepare(f);
  }
  ready.clear();
  for (unsigned i = 0; i < count; ++i) {
    Fiber* f = fibers[i];
    f->block = i / threads_of_block;
    f->thread = i % threads_of_block;
    f->mask = 0;
    f->from = 0;
    make_ready(f);
  }
}

}  // namespace

extern "C" {

int tf_host_run_cluster(unsigned blocks, uint3 block, unsigned static_shared, unsigned dynamic_shared,
                        unsigned long long seed, Entry body, void* context) {
  if (dynamic_shared > kSharedBytes) return kSharedOverflow;
  threads_of_block = block.x * block.y * block.z;
  if ((unsigned long long)blocks * threads_of_block > kFibers) return kTooManyThreads;
  if (blocks > blocks_in_arena) {
    free(arena);
    blocks_in_arena = blocks;
    arena = (unsigned char*)aligned_alloc(1024, (size_t)blocks * 2 * kSharedBytes);
    if (!arena) abort();
  }
  blocks_of_cluster = blocks;
  for (unsigned b = 0; b < blocks; ++b) {
    memset(shared_of(b), 0xff, static_shared);
    memset(dynamic_of(b), 0xff, dynamic_shared);
  }
  entry = body;
  entry_context = context;
  status = kDone;
  random_state = seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull | 1;
  alive.assign(blocks, threads_of_block);
  waiting.assign(blocks, 0);
  total_alive = blocks * threads_of_block;
  total_waiting = 0;
  reset(total_alive);
  while (!ready.empty() && status == kDone) {
    const unsigned pick = random_below((unsigned)ready.size());
    Fiber* f = fibers[ready[pick]];
    ready[pick] = ready.back();
    ready.pop_back();
    resume(f);
  }
  if (status == kDone && total_alive) status = kDeadlock;
  if (status != kDone) {
    for (unsigned i = 0; i < blocks * threads_of_block; ++i) {
      if (!fibers[i]->started || fibers[i]->state == kExited) continue;
      fibers[i]->started = false;
      prepare(fibers[i]);
    }
  }
  return status;
}

void tf_host_block_barrier() {
  running->state = kAtBlock;
  ++waiting[running->block];
  release_block(running->block);
  park();
}

void tf_host_cluster_barrier() {
  running->state = kAtCluster;
  ++total_waiting;
  release_cluster();
  park();
}

// The lane that completes the barrier also hands each lane what it asked for, so nobody can overwrite an offer that a
// slower lane has yet to read. A lane of the mask that has returned never arrives: a deadlock, and an error.
void tf_host_warp_barrier(unsigned mask) {
  Fiber* self = running;
  self->state = kAtWarp;
  self->mask = mask;
  Fiber* lanes[kWarp];
  unsigned votes = 0;
  bool complete = true;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    Fiber* f = lanes[lane] = mask >> lane & 1 ? lane_of(self, lane) : nullptr;
    if (f && (f->state != kAtWarp || f->mask != mask)) complete = false;
    if (f && f->offer) votes |= 1u << lane;
  }
  if (complete) {
    for (Fiber* f : lanes) {
      if (!f) continue;
      f->received = lanes[f->from] ? lanes[f->from]->offer : ~0ull;  // poison from a lane that takes no part
      f->votes = votes;
      make_ready(f);
    }
  }
  park();
}

unsigned long long tf_host_exchange(unsigned mask, unsigned long long value, int from) {
  running->offer = value;
  running->from = (unsigned)from & (kWarp - 1);
  tf_host_warp_barrier(mask);
  return running->received;
}

unsigned tf_host_vote(unsigned mask, int yes) {
  running->offer = yes != 0;
  tf_host_warp_barrier(mask);
  return running->votes;
}

// Called once for each declaration of shared memory; `taken` counts the bytes of one kernel.
unsigned tf_host_reserve(unsigned* taken, unsigned long bytes, unsigned long align) {
  const unsigned at = (unsigned)((*taken + align - 1) / align * align);
  if (at + bytes > kSharedBytes) {
    status = kSharedOverflow;
    park();
  }
  for (unsigned b = 0; b < blocks_of_cluster && bytes; ++b) memset(shared_of(b) + at, 0xff, bytes);
  if (bytes) *taken = (unsigned)(at + bytes);
  return at;
}

unsigned char* tf_host_peer(unsigned char* p, unsigned rank) {
  return p - shared_of(running->block) + shared_of(rank);
}

}  // extern "C"
