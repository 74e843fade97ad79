// Sequences of LONGEST tokens of EMBED coordinates: softmax over tokens, and what the class token hears of a sample.
//
// The class token asks by directions: head h hears sum_t softmax_t(<u_h, x_t>) x_t. One warp has all questions of a
// sample, heads as rows and tokens as columns, so that a softmax stays within four lanes.
#pragma once
#include "norm.cuh"
#include "staging.cuh"

constexpr int EMBEDDED = padded(EMBED, 16), ES = EMBEDDED + 8;    // states, and the stride of their rows
constexpr int TOKENS = padded(LONGEST, 16), TS = TOKENS + 8;      // tokens, and the stride of rows of weights
constexpr int NE = EMBEDDED / 8, NT = TOKENS / 8;                 // tiles of eight columns
constexpr bool WHOLE = !RAGGED && LONGEST == TOKENS;

// p = exp(s - max) of rows over the tokens below `length`, with EARLIER not over those after `row` (and `row` + 8); the
// largest (times log2 e) and the sum of each of two rows.
template <int HALVES = 2, bool EARLIER = false>
DEVICE void weigh(float (&s)[NT][4], int length, float (&top)[2], float (&total)[2], int row = 0) {
  int t = thread() % 4;
  if (!WHOLE || EARLIER) {
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int token = 8 * j + 2 * t + i % 2;
        if (token >= length || (EARLIER && token > row + i / 2 * 8)) s[j][i] = NEVER;
      }
  }
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
    float high = NEVER, sum = 0.0f;
#pragma unroll
    for (int j = 0; j < NT; ++j) high = larger(high, larger(s[j][2 * half], s[j][2 * half + 1]));
    high = largest_of_four(high) * LOG2E;
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) sum += s[j][i] = exp2_of(s[j][i] * LOG2E - high);
    top[half] = high, total[half] = sum_of_four(sum);
  }
}

constexpr int ASKING = HEADS <= 8 ? 1 : 2;  // halves of a tile's rows that are questions

// The weights of a sample's questions over its tokens (rows of `xs`), and the directions as left factors.
DEVICE void ask(float (&p)[NT][4], u32 (&u)[NE / 2][4], const float* directions, const f16* xs, int length) {
  float asked[NE][4], top[2], total[2];
  load_rows<EMBED>(asked, directions, thread() % 32 / 4, HEADS);
  as_left(u, asked);
  zero(p);
  times_columns(p, u, xs, ES);
  weigh<ASKING>(p, length, top, total);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float over = half < ASKING ? inverse_of(total[half < ASKING ? half : 0]) : 0.0f;
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) p[j][i] = half < ASKING ? p[j][i] * over : 0.0f;
  }
}

DEVICE void hear(const float* directions, const f16* xs, int length, float* heard) {
  float p[NT][4], sum[NE][4];
  u32 u[NE / 2][4], weights[NT / 2][4];
  ask(p, u, directions, xs, length);
  as_left(weights, p);
  zero(sum);
  times_rows(sum, weights, xs, ES);
  store_rows<EMBED>(sum, heard, thread() % 32 / 4, HEADS);
}

struct Answers {  // what the way back to the tokens needs of a sample's questions, in shared memory
  f16 *weights, *slopes, *heard, *asked;  // p and ds by heads over tokens; dL/dheard and the directions
  float* size;
  DEVICE Answers(f16* memory) {
    weights = memory, slopes = weights + 16 * TS, heard = slopes + 16 * TS, asked = heard + 16 * ES;
    size = (float*)(asked + 16 * ES);
  }
};
constexpr int ANSWERS = 2 * 16 * TS + 2 * 16 * ES + 8;  // numbers of float16

// From g = dL/dheard: dp = <g, x_t>, ds = p (dp - sum p dp), du = sum_t ds_t x_t, which is written.
DEVICE void hear_back(const float* directions, const float* d_heard, const f16* xs, int length, float* d_directions,
                      Answers kept) {
  int g = thread() % 32 / 4;
  float p[NT][4], dp[NT][4], sum[NE][4];
  u32 u[NE / 2][4], risen[NE / 2][4], left[NT / 2][4];
  ask(p, u, directions, xs, length);
  load_rows<EMBED>(sum, d_heard, g, HEADS);
  float size = larger(largest_of_warp(largest_of(sum)), 1e-30f) / HIGH;
  as_left(risen, sum, inverse_of(size));
  zero(dp);
  times_columns(dp, risen, xs, ES);
#pragma unroll
  for (int half = 0; half < ASKING; ++half) {
    float same = 0.0f;
#pragma unroll
    for (int j = 0; j < NT; ++j) same += p[j][2 * half] * dp[j][2 * half] + p[j][2 * half + 1] * dp[j][2 * half + 1];
    same = sum_of_four(same);
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) dp[j][i] = p[j][i] * (dp[j][i] - same);
  }
  as_left(left, p);
  keep(left, kept.weights, TS, 0);
  as_left(left, dp);
  keep(left, kept.slopes, TS, 0);
  keep(risen, kept.heard, ES, 0);
  keep(u, kept.asked, ES, 0);
  *kept.size = size;
  zero(sum);
  times_rows(sum, left, xs, ES);
#pragma unroll
  for (int j = 0; j < NE; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[j][i] *= size;
  store_rows<EMBED>(sum, d_directions, g, HEADS);
}

// dx_t += sum_h p_t,h g_h + ds_t,h u_h for 16 tokens.
DEVICE void heard_by(float (&dx)[NE][4], int strip, Answers kept) {
  float sum[NE][4], size = *kept.size;
  u32 left[1][4];
  zero(sum);
  left_turned(left[0], kept.weights, TS, 0, 16 * strip);
  times_rows(sum, left, kept.heard, ES);
  left_turned(left[0], kept.slopes, TS, 0, 16 * strip);
  times_rows(sum, left, kept.asked, ES);
#pragma unroll
  for (int j = 0; j < NE; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) dx[j][i] += sum[j][i] * size;
}
