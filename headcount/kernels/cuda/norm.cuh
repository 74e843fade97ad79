// Layer norms of a warp's rows, and back.
#pragma once
#include "warp.cuh"

// Sums over the eight lanes that have the same columns, 2t + i of tile j the number 2 j + i, added to those at `sums`:
// lanes share out the numbers as they add, each step half of them, so that all lanes have some at the end.
template <int N>
DEVICE void add_by_eight(float (&x)[N], float* sums) {
  constexpr int LEFT = N % 8 ? N : N / 8;  // to a lane at the end; numbers that do not share out stay with four lanes
  int lane = thread() % 32, first = 0;
  if constexpr (N % 8 == 0) {
#pragma unroll
    for (int half = N / 2, other = 4; other < 32; half /= 2, other *= 2) {
      bool upper = lane & other;
      first += upper ? half : 0;
#pragma unroll
      for (int n = 0; n < N / 2; ++n)
        if (n < half) {
          float sent = upper ? x[n] : x[n + half], kept = upper ? x[n + half] : x[n];
          x[n] = kept + from_lane(sent, other);
        }
    }
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int other = 4; other < 32; other *= 2) x[n] += from_lane(x[n], other);
  }
#pragma unroll
  for (int n = 0; n < LEFT; ++n)
    if (N % 8 == 0 || lane < 4) sums[(first + n) / 2 * 8 + lane % 4 * 2 + (first + n) % 2] += x[n];
}

// A layer norm of a warp's 16 rows: mean 0 and variance 1 over the WIDTH coordinates that exist, then weight and bias.
struct Norm {
  const float *weight, *bias;  // in shared memory, in the order of states
  template <int WIDTH, int TILES>
  DEVICE void unit(float (&x)[TILES][4], float (&rate)[2]) const {
    int t = thread() % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = 0.0f, square = 0.0f;
#pragma unroll
      for (int j = 0; j < TILES; ++j) sum += x[j][2 * half] + x[j][2 * half + 1];
      sum = sum_of_four(sum) / WIDTH;
#pragma unroll
      for (int j = 0; j < TILES; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float centred = place(8 * j + 2 * t + i) < WIDTH ? x[j][2 * half + i] - sum : 0.0f;
          x[j][2 * half + i] = centred, square += centred * centred;
        }
      rate[half] = inverse_root(sum_of_four(square) / WIDTH + EPS);
#pragma unroll
      for (int j = 0; j < TILES; ++j) x[j][2 * half] *= rate[half], x[j][2 * half + 1] *= rate[half];
    }
  }
  template <int TILES>
  DEVICE void scale(float (&x)[TILES][4]) const {
    int t = thread() % 4;
#pragma unroll
    for (int j = 0; j < TILES; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[j][i] = x[j][i] * weight[8 * j + 2 * t + i % 2] + bias[8 * j + 2 * t + i % 2];
  }
  // From the slopes of what the norm gives to those of what it takes; the rows' part of its own gradient into `sums`.
  template <int WIDTH, int TILES>
  DEVICE void back(float (&slope)[TILES][4], const float (&unit)[TILES][4], const float (&rate)[2], float* sums) const {
    int t = thread() % 4;
    float scaled[2 * TILES], moved[2 * TILES];
#pragma unroll
    for (int n = 0; n < 2 * TILES; ++n) {
      int j = n / 2, i = n % 2;
      scaled[n] = slope[j][i] * unit[j][i] + slope[j][2 + i] * unit[j][2 + i];
      moved[n] = slope[j][i] + slope[j][2 + i];
    }
    add_by_eight(scaled, sums), add_by_eight(moved, sums + 8 * TILES);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float level = 0.0f, along = 0.0f;
#pragma unroll
      for (int j = 0; j < TILES; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float inner = slope[j][2 * half + i] * weight[8 * j + 2 * t + i];
          slope[j][2 * half + i] = inner, level += inner, along += inner * unit[j][2 * half + i];
        }
      level = sum_of_four(level) / WIDTH, along = sum_of_four(along) / WIDTH;
#pragma unroll
      for (int j = 0; j < TILES; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float(&one) = slope[j][2 * half + i];
          one = (one - level - unit[j][2 * half + i] * along) * rate[half];
        }
    }
  }
};
// Weight and bias into shared memory, and the warps' sums of their gradient from it.
DEVICE void stage_norm(float* to, const float* weight, const float* bias, int width, int wide, int threads) {
  for (int i = thread(); i < wide; i += threads) {
    bool real = place(i) < width;
    to[i] = real ? weight[place(i)] : 0.0f, to[wide + i] = real ? bias[place(i)] : 0.0f;
  }
}
DEVICE void keep_norm(const float* sums, int warps, float* weight, float* bias, int width, int wide, int threads) {
  for (int i = thread(); i < wide; i += threads) {
    float scaled = 0.0f, moved = 0.0f;
    for (int w = 0; w < warps; ++w) scaled += sums[2 * w * wide + i], moved += sums[(2 * w + 1) * wide + i];
    if (place(i) < width) weight[place(i)] = scaled, bias[place(i)] = moved;
  }
}
