// A feed-forward of INPUTS, HIDDEN and OUTPUTS in shared memory, GROUP hidden units of it at a time.
#pragma once
#include "norm.cuh"
#include "staging.cuh"

#ifndef NORM
#define NORM 0
#endif
#ifndef GELU
#define GELU 0
#endif
#ifndef GROUP
#define GROUP HIDDEN
#endif
constexpr int IN = padded(INPUTS, 16), OUT = padded(OUTPUTS, 16), UNITS = padded(GROUP, 16), ROWS = 16 * WARPS;
constexpr int IS = IN + 8, OS = OUT + 8, US = UNITS + 8;  // strides of rows in shared memory
constexpr int NI = IN / 8, NO = OUT / 8, NU = UNITS / 8, MOST = NI > NO ? NI : NO;

struct Layer {  // a member's matrices in shared memory: W1 by units and what rounding left out, W2 by outputs, biases
  f16 *inner, *rest, *outer;
  float *bias, *shift;
  DEVICE Layer(void* memory) {
    inner = (f16*)memory, rest = inner + UNITS * IS, outer = GELU ? rest : rest + UNITS * IS;
    bias = (float*)(outer + OUT * US), shift = bias + UNITS;
  }
  DEVICE float* scaling() const { return shift + OUT; }
  DEVICE Norm norm() const { return {scaling(), scaling() + IN}; }
  DEVICE void* end() const { return scaling() + NORM * 2 * IN; }
};

constexpr bool EVEN = INPUTS == IN && OUTPUTS == OUT && GROUP == UNITS && HIDDEN % GROUP == 0;  // nothing is padded

// A group of hidden units: where its part of W1, its biases and its part of W2 begin.
struct Group {
  const float *inner, *bias, *outer, *shift;
  int here;
  DEVICE Group(const float* theta, int at_inner, int at_bias, int at_outer, int at_shift, int first) {
    inner = theta + at_inner + (long long)first * INPUTS, bias = theta + at_bias + first;
    outer = theta + at_outer + first, shift = theta + at_shift;
    here = HIDDEN - first < GROUP ? HIDDEN - first : GROUP;
  }
  DEVICE bool by_fours() const { return EVEN && ::by_fours(inner, INPUTS) && ::by_fours(outer, HIDDEN); }
  DEVICE const float* inner_four(u32 n) const { return inner + 4 * n; }
  DEVICE const float* outer_four(u32 n) const { return outer + n / (UNITS / 4) * HIDDEN + n % (UNITS / 4) * 4; }
};
constexpr int INNER = UNITS * IN / 4, OUTER = OUT * UNITS / 4;  // fours of a group's part of W1 and of W2

DEVICE void stage_biases(const Layer& layer, const Group& group) {
  for (int i = thread(); i < UNITS; i += 32 * WARPS) layer.bias[i] = i < group.here ? group.bias[i] : 0.0f;
  for (int i = thread(); i < OUT; i += 32 * WARPS) layer.shift[i] = place(i) < OUTPUTS ? group.shift[place(i)] : 0.0f;
}
DEVICE void stage_inner(const Layer& layer, u32 n, float4 four) {
  stage_four<IN>(layer.inner, IS, n, four, COLUMNS_OF_STATES, 1.0f, GELU ? nullptr : layer.rest);
}
DEVICE void stage_outer(const Layer& layer, u32 n, float4 four, float scale) {
  stage_four<UNITS>(layer.outer, US, n, four, ROWS_OF_STATES, scale);
}
DEVICE void stage_one_by_one(const Layer& layer, const Group& group, float scale) {
  stage(layer.inner, UNITS, IS, group.inner, group.here, INPUTS, INPUTS, COLUMNS_OF_STATES, 1.0f, 32 * WARPS);
  if (!GELU)
    stage(layer.rest, UNITS, IS, group.inner, group.here, INPUTS, INPUTS, COLUMNS_OF_STATES, 1.0f, 32 * WARPS, true);
  stage(layer.outer, OUT, US, group.outer, OUTPUTS, group.here, HIDDEN, ROWS_OF_STATES, scale, 32 * WARPS);
}

DEVICE void stage_layer(const Layer& layer, const Group& group) {
  stage_biases(layer, group);
  if (!group.by_fours()) {
    stage_one_by_one(layer, group, 1.0f);
    return;
  }
  every_four<INNER + OUTER, 32 * WARPS>(
      [=](u32 n) { return n < INNER ? group.inner_four(n) : group.outer_four(n - INNER); },
      [=](u32 n, float4 four) {
        if (n < INNER)
          stage_inner(layer, n, four);
        else
          stage_outer(layer, n - INNER, four, 1.0f);
      });
}

// The same with W2 divided by its largest weight, which is returned: small weights keep their digits in float16.
DEVICE float stage_scaled(const Layer& layer, const Group& group, float* scratch) {
  float large = 1e-30f;
  stage_biases(layer, group);
  if (!group.by_fours()) {
    for (int i = thread(); i < OUTPUTS * UNITS; i += 32 * WARPS)
      if (i % UNITS < group.here) large = larger(large, size_of(group.outer[i / UNITS * HIDDEN + i % UNITS]));
    large = largest<WARPS>(large, scratch);
    stage_one_by_one(layer, group, inverse_of(large));
    return large;
  }
  Fours<INNER, 32 * WARPS> inner;
  Fours<OUTER, 32 * WARPS> outer;
  inner.load([=](u32 n) { return group.inner_four(n); }), outer.load([=](u32 n) { return group.outer_four(n); });
  inner.each([=](u32 n, float4 four) { stage_inner(layer, n, four); });
  outer.each([&](u32, float4 four) {
    float two = larger(size_of(four.x), size_of(four.y)), more = larger(size_of(four.z), size_of(four.w));
    large = larger(large, larger(two, more));
  });
  large = largest<WARPS>(large, scratch);
  float scale = inverse_of(large);
  outer.each([=](u32 n, float4 four) { stage_outer(layer, n, four, scale); });
  return large;
}
