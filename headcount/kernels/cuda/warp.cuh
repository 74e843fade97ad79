// What one warp does at once: products of 16 by 8 tiles on the tensor cores, matrices from shared memory, rows of
// states.
//
// A tile of sums is four numbers of each of 32 lanes: rows g and g + 8 (g = lane / 4), columns 2t and 2t + 1
// (t = lane % 4). Rounded to float16 and packed in pairs, two neighbouring tiles are the left factor of another
// product, so that what one product gives goes into the next without leaving the registers.
#pragma once

#ifdef EMULATED
#include "emulated.h"
#else
typedef unsigned int u32;
typedef unsigned short f16;
#define DEVICE __device__ __forceinline__
#define EITHER __host__ __device__
#define KERNEL(warps) extern "C" __global__ void __launch_bounds__(32 * (warps), 1)
#define EMULATE(kernel)
#define SHARED extern __shared__ __align__(16) unsigned char shared_bytes[]

DEVICE u32 pack(float low, float high) {
  u32 out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
DEVICE float unpack(u32 pair, int high) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"((f16)(high ? pair >> 16 : pair & 0xffff)));
  return out;
}
DEVICE float exp2_of(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
DEVICE float inverse_of(float x) {  // to one unit in the last place; an exact division would branch
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
DEVICE float inverse_root(float x) {
  float out;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
DEVICE float log2_of(float x) {
  float out;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
DEVICE void multiply16(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply8(float (&sum)[4], u32 a0, u32 a1, u32 b0) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(b0));
}
// Four matrices of 8 by 8, lane n naming row n % 8 of matrix n / 8; turned: each one transposed.
DEVICE void fetch4(u32 (&out)[4], const f16* at) {
  u32 place = (u32)__cvta_generic_to_shared(at);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(place) : "memory");
}
DEVICE void fetch4_turned(u32 (&out)[4], const f16* at) {
  u32 place = (u32)__cvta_generic_to_shared(at);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(place) : "memory");
}
DEVICE void store_four(float* to, float a, float b, float c, float d) {  // the compiler would store them one by one
  asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
// A four from device memory into shared memory, or zeros where it is not `real`: on its way until `arrived`.
DEVICE void send_four(float* to, const float* from, bool real) {
  u32 place = (u32)__cvta_generic_to_shared(to), bytes = real ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(bytes) : "memory");
}
DEVICE void arrived() { asm volatile("cp.async.wait_all;" ::: "memory"); }
DEVICE void expect_line(const float* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
DEVICE float from_lane(float x, int other) { return __shfl_xor_sync(0xffffffffu, x, other); }
DEVICE void meet() { __syncthreads(); }
DEVICE void meet_warp() { __syncwarp(); }
DEVICE int thread() { return threadIdx.x; }
DEVICE int program(int axis) { return axis ? blockIdx.y : blockIdx.x; }
DEVICE int programs(int axis) { return axis ? gridDim.y : gridDim.x; }
#endif

constexpr float LOG2E = 1.4426950408889634f;
constexpr float NEVER = -1e30f;  // finite: a row that hears nobody must not become NaN
constexpr float EPS = 1e-5f;      // of layer norms
constexpr float HIGH = 16.0f;    // slopes are scaled to this size: float16 holds none that are much smaller

EITHER constexpr int padded(int count, int to) { return (count + to - 1) / to * to; }

DEVICE float larger(float a, float b) { return fmaxf(a, b); }
DEVICE float size_of(float x) { return fabsf(x); }

// Of the four lanes that have a row, and of a whole warp.
DEVICE float sum_of_four(float x) {
  x += from_lane(x, 1);
  return x + from_lane(x, 2);
}
DEVICE float largest_of_four(float x) {
  x = larger(x, from_lane(x, 1));
  return larger(x, from_lane(x, 2));
}
DEVICE float largest_of_warp(float x) {
#pragma unroll
  for (int other = 16; other; other /= 2) x = larger(x, from_lane(x, other));
  return x;
}

// The right factor of 16 rows k by two tiles of 8 columns n, from a matrix stored by rows n (`by_columns`) or by rows
// k.
DEVICE void right_by_columns(u32 (&b)[4], const f16* matrix, int stride, int n, int k) {
  int lane = thread() % 32, part = lane / 8;
  fetch4(b, matrix + (n + part / 2 * 8 + lane % 8) * stride + k + part % 2 * 8);
}
DEVICE void right_by_rows(u32 (&b)[4], const f16* matrix, int stride, int k, int n) {
  int lane = thread() % 32, part = lane / 8;
  fetch4_turned(b, matrix + (k + part % 2 * 8 + lane % 8) * stride + n + part / 2 * 8);
}
// The left factor of 16 rows m by 16 columns k, from a matrix stored by rows m, or (turned) by rows k.
DEVICE void left_from(u32 (&a)[4], const f16* matrix, int stride, int m, int k) {
  int lane = thread() % 32, part = lane / 8;
  fetch4(a, matrix + (m + part % 2 * 8 + lane % 8) * stride + k + part / 2 * 8);
}
DEVICE void left_turned(u32 (&a)[4], const f16* matrix, int stride, int k, int m) {
  int lane = thread() % 32, part = lane / 8;
  fetch4_turned(a, matrix + (k + part / 2 * 8 + lane % 8) * stride + m + part % 2 * 8);
}

// Sums as the left factor of the next product.
template <int TILES>
DEVICE void as_left(u32 (&a)[TILES / 2][4], const float (&sum)[TILES][4], float scale = 1.0f) {
#pragma unroll
  for (int k = 0; k < TILES / 2; ++k)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      a[k][2 * half] = pack(sum[2 * k + half][0] * scale, sum[2 * k + half][1] * scale);
      a[k][2 * half + 1] = pack(sum[2 * k + half][2] * scale, sum[2 * k + half][3] * scale);
    }
}
// What rounding to float16 left out.
template <int TILES>
DEVICE void left_out(u32 (&rest)[TILES / 2][4], const float (&sum)[TILES][4], const u32 (&a)[TILES / 2][4]) {
#pragma unroll
  for (int k = 0; k < TILES / 2; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&from)[4] = sum[2 * k + i / 2];
      rest[k][i] = pack(from[i % 2 * 2] - unpack(a[k][i], 0), from[i % 2 * 2 + 1] - unpack(a[k][i], 1));
    }
}

template <int N>
DEVICE void zero(float (&sum)[N][4]) {
#pragma unroll
  for (int j = 0; j < N; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[j][i] = 0.0f;
}

// sum += a b for a matrix b stored by its columns (rows n, contiguous in k) or by its rows.
template <int K, int N>
DEVICE void times_columns(float (&sum)[N][4], const u32 (&a)[K][4], const f16* matrix, int stride, int n = 0) {
#pragma unroll
  for (int j = 0; j < N; j += 2)
#pragma unroll
    for (int k = 0; k < K; ++k) {
      u32 b[4];
      right_by_columns(b, matrix, stride, n + 8 * j, 16 * k);
      multiply16(sum[j], a[k], b[0], b[1]);
      multiply16(sum[j + 1], a[k], b[2], b[3]);
    }
}
template <int K, int N>
DEVICE void times_rows(float (&sum)[N][4], const u32 (&a)[K][4], const f16* matrix, int stride, int k0 = 0, int n = 0) {
#pragma unroll
  for (int j = 0; j < N; j += 2)
#pragma unroll
    for (int k = 0; k < K; ++k) {
      u32 b[4];
      right_by_rows(b, matrix, stride, k0 + 16 * k, n + 8 * j);
      multiply16(sum[j], a[k], b[0], b[1]);
      multiply16(sum[j + 1], a[k], b[2], b[3]);
    }
}

// Where coordinate n of a state lies in device memory: of every sixteen, a lane has four neighbours, which it reads and
// writes at once. Every matrix in shared memory that meets states has its coordinates in the same order.
EITHER constexpr int place(int n) { return n / 16 * 16 + n % 8 / 2 * 4 + n % 16 / 8 * 2 + n % 2; }
// And which coordinate lies at place n.
EITHER constexpr u32 placed(u32 n) { return n / 16 * 16 + n % 4 / 2 * 8 + n % 16 / 4 * 2 + n % 2; }

// Two rows of WIDTH numbers in device memory, nothing where one does not exist.
template <int WIDTH, int TILES>
DEVICE void load_two(float (&x)[TILES][4], const float* first, const float* second) {
#pragma unroll
  for (int j = 0; j < TILES; j += 2)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* row = half ? second : first;
      int column = 8 * j + thread() % 4 * 4;
      float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if constexpr (WIDTH % 4 == 0) {
        if (row && column < WIDTH) four = *(const float4*)(row + column);
      } else if (row) {
        if (column < WIDTH) four.x = row[column];
        if (column + 1 < WIDTH) four.y = row[column + 1];
        if (column + 2 < WIDTH) four.z = row[column + 2];
        if (column + 3 < WIDTH) four.w = row[column + 3];
      }
      x[j][2 * half] = four.x, x[j][2 * half + 1] = four.y;
      x[j + 1][2 * half] = four.z, x[j + 1][2 * half + 1] = four.w;
    }
}
// Rows g and g + 8 of a strip of states (row, WIDTH): those below `rows` exist.
template <int WIDTH, int TILES>
DEVICE void load_rows(float (&x)[TILES][4], const float* from, int row, int rows) {
  const float* first = from + (long long)row * WIDTH;
  load_two<WIDTH>(x, row < rows ? first : nullptr, row + 8 < rows ? first + 8 * WIDTH : nullptr);
}
template <int WIDTH, int TILES>
DEVICE void store_rows(const float (&x)[TILES][4], float* to, int row, int rows) {
#pragma unroll
  for (int j = 0; j < TILES; j += 2)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int at = row + 8 * half, column = 8 * j + thread() % 4 * 4;
      if (at >= rows) continue;
      float* place = to + (long long)at * WIDTH + column;
      const float four[4] = {x[j][2 * half], x[j][2 * half + 1], x[j + 1][2 * half], x[j + 1][2 * half + 1]};
      if constexpr (WIDTH % 4 == 0) {
        if (column < WIDTH) store_four(place, four[0], four[1], four[2], four[3]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (column + i < WIDTH) place[i] = four[i];
      }
    }
}
// Ask for what will be read soon.
template <int COUNT>
DEVICE void expect(const float* from, long long numbers) {
  for (long long i = 32LL * thread(); i < numbers; i += 32LL * COUNT) expect_line(from + i);
}

// Left factors into rows of a matrix in shared memory.
template <int K>
DEVICE void keep(const u32 (&a)[K][4], f16* matrix, int stride, int row) {
  int lane = thread() % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *(u32*)(matrix + (row + g + i % 2 * 8) * stride + 16 * k + i / 2 * 8 + 2 * t) = a[k][i];
}

// The largest of all threads' numbers; everyone must have met before the next call's scratch is written.
template <int COUNT>
DEVICE float largest(float x, float* scratch) {
  x = largest_of_warp(x);
  if (thread() % 32 == 0) scratch[thread() / 32] = x;
  meet();
  float out = scratch[0];
#pragma unroll
  for (int w = 1; w < COUNT; ++w) out = larger(out, scratch[w]);
  return out;
}
template <int TILES>
DEVICE float largest_of(const float (&x)[TILES][4]) {
  float out = 0.0f;
#pragma unroll
  for (int j = 0; j < TILES; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) out = larger(out, size_of(x[j][i]));
  return out;
}
