// Warps without a device: every thread of a program is a fiber, and what a warp does at once waits for all its lanes.
// Slow, and exact up to the order of sums: for tests.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

typedef uint32_t u32;
typedef uint16_t f16;
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
#define DEVICE inline
#define EITHER inline
#define KERNEL(warps) static void
#define EMULATE(kernel) \
  extern "C" int run_##kernel(int x, int y, int bytes, void** given) { \
    return emulated::launch(kernel, x, y, 32 * WARPS, bytes, given); \
  }
#define SHARED unsigned char* shared_bytes = emulated::memory.data()

namespace emulated {
struct Lane { ucontext_t context; std::vector<char> stack; bool done = false; };
struct Warp { u32 given[2][32][12]; long arrived = 0; };
inline std::vector<Lane> lanes;
inline std::vector<Warp> warps;
inline std::vector<long> turns;     // of every thread: collective steps of its warp so far
inline std::vector<long> met;       // and meetings of all
inline long meetings = 0;
inline int now = 0, at[2], of[2];
inline ucontext_t home;
inline std::vector<unsigned char> memory;
inline std::function<void()> work;

inline void wait() { swapcontext(&lanes[now].context, &home); }
inline u32 (*give(const u32* mine, int count))[12] {
  Warp& warp = warps[now / 32];
  long turn = turns[now]++;
  memcpy(warp.given[turn % 2][now % 32], mine, 4 * count);
  ++warp.arrived;
  while (warp.arrived < 32 * (turn + 1)) wait();
  return warp.given[turn % 2];
}
inline void enter() { work(); lanes[now].done = true; swapcontext(&lanes[now].context, &home); }

template <class... A, size_t... I>
void apply(void (*kernel)(A...), void** given, std::index_sequence<I...>) { kernel(*(A*)given[I]...); }

constexpr int BEYOND = 1 << 16;  // bytes after a program's own, which it must leave alone

// Whether every program kept to its bytes of shared memory.
template <class... A>
bool launch(void (*kernel)(A...), int x, int y, int threads, int bytes, void** given) {
  bool within = true;
  for (at[0] = 0; at[0] < x; ++at[0])
    for (at[1] = 0; at[1] < y; ++at[1]) {
      of[0] = x, of[1] = y;
      memory.assign(bytes + BEYOND, 0xff);  // NaN: what is read must have been written
      lanes.assign(threads, Lane());
      warps.assign(threads / 32, Warp());
      turns.assign(threads, 0), met.assign(threads, 0), meetings = 0;
      work = [&] { apply(kernel, given, std::index_sequence_for<A...>()); };
      for (int n = 0; n < threads; ++n) {
        Lane& lane = lanes[n];
        lane.stack.resize(1 << 17);
        getcontext(&lane.context);
        lane.context.uc_stack = {lane.stack.data(), 0, lane.stack.size()};
        lane.context.uc_link = nullptr;
        makecontext(&lane.context, (void (*)())enter, 0);
      }
      for (bool any = true; any;) {
        any = false;
        for (now = 0; now < threads; ++now)
          if (!lanes[now].done) any = true, swapcontext(&home, &lanes[now].context);
      }
      for (int i = 0; i < BEYOND; ++i) within &= memory[bytes + i] == 0xff;
    }
  return within;
}

inline float of_half(f16 h) { _Float16 x; memcpy(&x, &h, 2); return (float)x; }
inline f16 to_half(float x) { _Float16 y = (_Float16)x; f16 h; memcpy(&h, &y, 2); return h; }
inline u32 bits(float x) { u32 b; memcpy(&b, &x, 4); return b; }
inline float number(u32 b) { float x; memcpy(&x, &b, 4); return x; }
inline float half_of(u32 pair, int high) { return of_half((f16)(high ? pair >> 16 : pair & 0xffff)); }
}  // namespace emulated

inline u32 pack(float low, float high) { return emulated::to_half(low) | (u32)emulated::to_half(high) << 16; }
inline float unpack(u32 pair, int high) { return emulated::half_of(pair, high); }
inline float exp2_of(float x) { return exp2f(x); }
inline float inverse_of(float x) { return 1.0f / x; }
inline float inverse_root(float x) { return 1.0f / sqrtf(x); }
inline float log2_of(float x) { return log2f(x); }
inline int thread() { return emulated::now; }
inline int program(int axis) { return emulated::at[axis]; }
inline int programs(int axis) { return emulated::of[axis]; }
inline void meet() {
  using namespace emulated;
  long turn = met[now]++;
  ++meetings;
  while (meetings < (long)lanes.size() * (turn + 1)) wait();
}
inline void store_four(float* to, float a, float b, float c, float d) { to[0] = a, to[1] = b, to[2] = c, to[3] = d; }
inline void send_four(float* to, const float* from, bool real) {
  for (int i = 0; i < 4; ++i) to[i] = real ? from[i] : 0.0f;
}
inline void arrived() {}
inline void expect_line(const float*) {}
inline void meet_warp() { u32 none = 0; emulated::give(&none, 1); }
inline float from_lane(float x, int other) {
  u32 mine = emulated::bits(x);
  return emulated::number(emulated::give(&mine, 1)[(thread() % 32) ^ other][0]);
}
// Depth 8 or 16: lane 4g + t holds rows g, g + 8 and columns 2t, 2t + 1 (and 2t + 8, 2t + 9) of the left factor.
inline void multiply(float (&sum)[4], const u32* a, int pairs, const u32* b) {
  u32 mine[12];
  memcpy(mine, a, 8 * pairs), memcpy(mine + 4, b, 4 * pairs);
  auto given = emulated::give(mine, 6);
  int g = thread() % 32 / 4, t = thread() % 4;
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 8 * pairs; ++k) {
      float left = emulated::half_of(given[4 * g + k % 8 / 2][i / 2 + k / 8 * 2], k % 2);
      float right = emulated::half_of(given[4 * (2 * t + i % 2) + k % 8 / 2][4 + k / 8], k % 2);
      sum[i] += left * right;
    }
}
inline void multiply16(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  u32 b[2] = {b0, b1};
  multiply(sum, a, 2, b);
}
inline void multiply8(float (&sum)[4], u32 a0, u32 a1, u32 b0) {
  u32 a[2] = {a0, a1};
  multiply(sum, a, 1, &b0);
}
inline void fetch(u32 (&out)[4], const f16* at, bool turned) {
  u32 mine[2];
  memcpy(mine, &at, 8);
  auto given = emulated::give(mine, 2);
  for (int m = 0; m < 4; ++m) {
    f16 two[2];
    for (int k = 0; k < 2; ++k) {
      int row = thread() % 32 / 4, column = thread() % 4 * 2 + k;
      if (turned) std::swap(row, column);
      const f16* from;
      memcpy(&from, given[8 * m + row], 8);
      two[k] = from[column];
    }
    out[m] = two[0] | (u32)two[1] << 16;
  }
}
inline void fetch4(u32 (&out)[4], const f16* at) { fetch(out, at, false); }
inline void fetch4_turned(u32 (&out)[4], const f16* at) { fetch(out, at, true); }
