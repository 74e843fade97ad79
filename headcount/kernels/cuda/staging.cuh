// Between device memory and a program: matrices into shared memory, gradients back, rows of states sent for beforehand.
#pragma once
#include "warp.cuh"

// A member's matrix of `height` by `width` numbers, `step` apart from row to row, rounded into shared memory; rows or
// columns that are coordinates of states are put in their order.
enum Order { ROWS_OF_STATES, COLUMNS_OF_STATES };
DEVICE void stage(f16* to, int tall, int stride, const float* from, int height, int width, int step, Order order,
                  float scale, int threads, bool rest = false) {
  for (int i = thread(); i < tall * (stride / 2); i += threads) {
    int row = i / (stride / 2), column = i % (stride / 2) * 2;
    int there = order == ROWS_OF_STATES ? place(row) : row, first = order == ROWS_OF_STATES ? column : place(column);
    const float* at = from + (long long)there * step + first;
    float low = there < height && first < width ? at[0] * scale : 0.0f;
    float high = there < height && first + 1 < width ? at[1] * scale : 0.0f;
    u32 both = pack(low, high);
    *(u32*)(to + row * stride + column) = rest ? pack(low - unpack(both, 0), high - unpack(both, 1)) : both;
  }
}

// Whether fours of numbers can be read at once: here, and after every so many.
DEVICE bool by_fours(const float* from, int step) { return (unsigned long long)from % 16 == 0 && step % 4 == 0; }

// One of a thread's two rows of sums, scaled, into a row in device memory; or into a column, `step` from row to row.
template <int WIDTH, int TILES>
DEVICE void keep_row(const float (&sum)[TILES][4], int half, float* to, float by) {
  int t = thread() % 4;
  bool fours = by_fours(to, WIDTH);
#pragma unroll
  for (int j = 0; j < TILES; j += 2) {
    int column = 8 * j + 4 * t;
    const float four[4] = {sum[j][2 * half] * by, sum[j][2 * half + 1] * by, sum[j + 1][2 * half] * by,
                           sum[j + 1][2 * half + 1] * by};
    if (fours && column < WIDTH)
      store_four(to + column, four[0], four[1], four[2], four[3]);
    else
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (column + i < WIDTH) to[column + i] = four[i];
  }
}
template <int HEIGHT, int TILES>
DEVICE void keep_column(const float (&sum)[TILES][4], int half, float* to, int step, float by) {
#pragma unroll
  for (int j = 0; j < TILES; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int row = place(8 * j + 2 * (thread() % 4) + i);
      if (row < HEIGHT) to[(long long)row * step] = sum[j][2 * half + i] * by;
    }
}

// COUNT fours shared out over threads: all are on their way at once, then `each(use)` has its own, `use(n, four)`.
template <int COUNT, int THREADS>
struct Fours {
  static constexpr int OWN = (COUNT + THREADS - 1) / THREADS;
  float4 four[OWN];
  DEVICE static bool real(int i) { return COUNT % THREADS == 0 || thread() + i * THREADS < COUNT; }
  template <class At>
  DEVICE void load(At at, int begin = 0) {
#pragma unroll
    for (int i = 0; i < OWN; ++i)
      if (real(i)) four[i] = *(const float4*)at(begin + thread() + i * THREADS);
  }
  template <class Use>
  DEVICE void each(Use use, int begin = 0) const {
#pragma unroll
    for (int i = 0; i < OWN; ++i)
      if (real(i)) use(begin + thread() + i * THREADS, four[i]);
  }
};
// The same for more of them than a thread can hold, sixteen at a time.
template <int COUNT, int THREADS, class At, class Use>
DEVICE void every_four(At at, Use use) {
  constexpr int AT_ONCE = 16 * THREADS;
  for (int begin = 0; begin + AT_ONCE <= COUNT; begin += AT_ONCE) {
    Fours<AT_ONCE, THREADS> some;
    some.load(at, begin), some.each(use, begin);
  }
  if constexpr (COUNT % AT_ONCE != 0) {
    Fours<COUNT % AT_ONCE, THREADS> others;
    others.load(at, COUNT - COUNT % AT_ONCE), others.each(use, COUNT - COUNT % AT_ONCE);
  }
}

// A four of a matrix WIDE numbers wide into shared memory, as `stage` puts it, and what rounding left out into `rest`.
template <int WIDE>
DEVICE void stage_four(f16* to, int stride, u32 n, float4 four, Order order, float scale, f16* rest = nullptr) {
  bool rows = order == ROWS_OF_STATES;
  u32 row = n / (WIDE / 4), column = n % (WIDE / 4) * 4, far = rows ? 2 : 8;
  u32 there = (rows ? placed(row) : row) * stride + (rows ? column : placed(column));
  float x = four.x * scale, y = four.y * scale, z = four.z * scale, w = four.w * scale;
  u32 low = pack(x, y), high = pack(z, w);
  *(u32*)(to + there) = low, *(u32*)(to + there + far) = high;
  if (!rest) return;
  *(u32*)(rest + there) = pack(x - unpack(low, 0), y - unpack(low, 1));
  *(u32*)(rest + there + far) = pack(z - unpack(high, 0), w - unpack(high, 1));
}

// Rows of states on their way: every thread sends for the fours of a tile that it will read itself.
template <int WIDTH, int TILES, int THREADS>
struct Post {
  float* mine;
  DEVICE explicit Post(void* memory) : mine((float*)memory + 4 * thread()) {}
  DEVICE float* four(int j, int half) const { return mine + (j + half) * 4 * THREADS; }
  DEVICE void send(const float* from, int row, int rows) const {
    const float* first = from + (long long)row * WIDTH + thread() % 4 * 4;
#pragma unroll
    for (int j = 0; j < TILES; j += 2) {
      send_four(four(j, 0), row < rows ? first + 8 * j : from, row < rows);
      send_four(four(j, 1), row + 8 < rows ? first + 8 * j + 8 * WIDTH : from, row + 8 < rows);
    }
  }
  template <int N>
  DEVICE void read(float (&x)[N][4]) const {
#pragma unroll
    for (int j = 0; j < N; j += 2)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float4 one = *(const float4*)four(j, half);
        x[j][2 * half] = one.x, x[j][2 * half + 1] = one.y;
        x[j + 1][2 * half] = one.z, x[j + 1][2 * half + 1] = one.w;
      }
  }
  template <int N>
  DEVICE void write(const float (&x)[N][4]) const {
#pragma unroll
    for (int j = 0; j < N; j += 2)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *(float4*)four(j, half) =
            make_float4(x[j][2 * half], x[j][2 * half + 1], x[j + 1][2 * half], x[j + 1][2 * half + 1]);
  }
};
