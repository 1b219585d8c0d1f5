// The fourth part of every generated unit: random numbers by Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). What number an element gets is said in ir/random.py; this is the same in CUDA.

namespace tf {

struct Words {
  unsigned x[4];
};

TF_FN unsigned mul_high(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }

// The four words of a counter, whose halves are a block's number and an offset.
TF_FN Words philox(unsigned long long block, unsigned long long offset, unsigned long long seed) {
  unsigned c0 = (unsigned)block, c1 = (unsigned)(block >> 32), c2 = (unsigned)offset, c3 = (unsigned)(offset >> 32);
  unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high0 = mul_high(0xD2511F53u, c0), high1 = mul_high(0xCD9E8D57u, c2);
    const unsigned low0 = 0xD2511F53u * c0, low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  Words words;
  words.x[0] = c0;
  words.x[1] = c1;
  words.x[2] = c2;
  words.x[3] = c3;
  return words;
}

// How many elements share a block of words, and the math type of a storage type's random numbers.
template <class T>
struct RandomOf {
  typedef float Math;
  static constexpr int per_block = 4;
};
template <>
struct RandomOf<double> {
  typedef double Math;
  static constexpr int per_block = 2;
};

// The block of words that the element at a position takes its own from.
template <class T>
TF_FN Words words_at(long long position, long long offset, long long seed) {
  return philox((unsigned long long)position / RandomOf<T>::per_block, (unsigned long long)offset, (unsigned long long)seed);
}

// The blocks of `lanes` elements from position `first` on; both are multiples of per_block.
template <class T, int lanes>
TF_FN Vec<Words, lanes / RandomOf<T>::per_block> draw(long long first, long long offset, long long seed) {
  constexpr int per_block = RandomOf<T>::per_block;
  Vec<Words, lanes / per_block> out;
#pragma unroll
  for (int block = 0; block < lanes / per_block; ++block) out.x[block] = words_at<T>(first + block * per_block, offset, seed);
  return out;
}

// Word number k, without an array that is indexed at run time.
TF_FN unsigned word(Words words, int k) { return k < 2 ? (k == 0 ? words.x[0] : words.x[1]) : (k == 2 ? words.x[2] : words.x[3]); }

TF_FN double fraction(unsigned high, unsigned low) {
  return (double)((long long)high << 21 | low >> 11) * 1.1102230246251565e-16;  // 2^-53
}

TF_FN float unit(float, Words words, int k) { return (float)(word(words, k) >> 8) * 5.9604644775390625e-8f; }  // 2^-24
TF_FN double unit(double, Words words, int k) { return fraction(word(words, 2 * k), word(words, 2 * k + 1)); }

// Uniform in [0, 1): what a dropout asks for. Only a narrow type rounds up to 1.
template <class T>
TF_FN T uniform(Words words, int k) {
  typedef typename RandomOf<T>::Math Math;
  const T value = convert<T>(unit(Math(), words, k));
  return sizeof(T) < sizeof(Math) && convert<Math>(value) >= Math(1) ? convert<T>(Math(0)) : value;
}

// Uniform in [low, high): number `k` of its block. What rounds to high is low.
template <class T>
TF_FN T uniform(Words words, int k, double low, double high) {
  typedef typename RandomOf<T>::Math Math;
  const Math from = (Math)low, to = (Math)high;
  const T value = convert<T>((Math)fused(unit(Math(), words, k), to - from, from));
  return convert<Math>(value) >= to ? convert<T>(from) : value;
}

// Cosine and sine of a part of a full turn, in [0, 1).
#ifdef TF_HOST
TF_FN float cos_turn(float x) { return tf::cos(x * 6.283185307f); }
TF_FN float sin_turn(float x) { return tf::sin(x * 6.283185307f); }
TF_FN double cos_turn(double x) { return tf::cos(x * 6.283185307179586); }
TF_FN double sin_turn(double x) { return tf::sin(x * 6.283185307179586); }
#else
TF_FN float cos_turn(float x) { return ::cospif(2.0f * x); }
TF_FN float sin_turn(float x) { return ::sinpif(2.0f * x); }
TF_FN double cos_turn(double x) { return ::cospi(2.0 * x); }
TF_FN double sin_turn(double x) { return ::sinpi(2.0 * x); }
#endif

// Normal by Box and Muller: number `k` of its block.
TF_FN float normal_of(float, Words words, int k) {
  const int pair = k & 2;
  const float a = (float)word(words, pair) * 2.3283064365386963e-10f + 1.1641532182693481e-10f;  // 2^-32, 2^-33
  const float turn = (float)word(words, pair + 1) * 2.3283064365386963e-10f;
  const float radius = tf::sqrt(-2.0f * tf::log(a));
  return radius * (k & 1 ? sin_turn(turn) : cos_turn(turn));
}
TF_FN double normal_of(double, Words words, int k) {
  const double a = fraction(words.x[0], words.x[1]) + 5.551115123125783e-17;  // 2^-54
  const double turn = fraction(words.x[2], words.x[3]);
  const double radius = tf::sqrt(-2.0 * tf::log(a));
  return radius * (k & 1 ? sin_turn(turn) : cos_turn(turn));
}
template <class T>
TF_FN T normal(Words words, int k, double mean, double deviation) {
  typedef typename RandomOf<T>::Math Math;
  return convert<T>((Math)(normal_of(Math(), words, k) * (Math)deviation + (Math)mean));
}

}  // namespace tf
