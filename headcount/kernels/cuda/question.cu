// The class token's last question: what its heads hear of every sample, and back. A warp has a sample at a time.
#include "sequences.cuh"

#ifndef BACKWARD  // one of the two kernels is compiled
#define BACKWARD 0
#endif

constexpr int SAMPLE = TOKENS * ES;  // numbers of float16

DEVICE void take(f16* xs, const float* x) {
#pragma unroll
  for (int strip = 0; strip < TOKENS; strip += 16) {
    float states[NE][4];
    u32 seen[NE / 2][4];
    load_rows<EMBED>(states, x, strip + thread() % 32 / 4, LONGEST);
    as_left(seen, states);
    keep(seen, xs, ES, strip);
  }
}

// The sample after this one will be read soon.
DEVICE void next_sample(const float* x, int sample, int batch) {
  int further = programs(1) * WARPS;
  if (sample + further >= batch) return;
  for (int i = 32 * (thread() % 32); i < LONGEST * EMBED; i += 1024) expect_line(x + further * LONGEST * EMBED + i);
}

#if !BACKWARD
KERNEL(WARPS)
question_forward(const float* x, const int* lengths, const float* directions, float* heard, int batch, int shared) {
  SHARED;
  long long model = program(0);
  int length = RAGGED ? lengths[model] : LONGEST;
  f16* xs = (f16*)shared_bytes + thread() / 32 * SAMPLE;
  for (int sample = program(1) * WARPS + thread() / 32; sample < batch; sample += programs(1) * WARPS) {
    long long at = model * batch + sample;
    next_sample(x + at * LONGEST * EMBED, sample, batch);
    meet_warp();
    take(xs, x + at * LONGEST * EMBED);
    meet_warp();
    hear(directions + (shared ? model : at) * HEADS * EMBED, xs, length, heard + at * HEADS * EMBED);
  }
}
EMULATE(question_forward)
#else
KERNEL(WARPS)
question_backward(const float* x, const int* lengths, const float* directions, const float* d_heard, float* d_x,
                  float* d_directions, int batch, int shared) {
  SHARED;
  long long model = program(0);
  int length = RAGGED ? lengths[model] : LONGEST;
  f16* xs = (f16*)shared_bytes + thread() / 32 * (SAMPLE + ANSWERS);
  Answers kept(xs + SAMPLE);
  for (int sample = program(1) * WARPS + thread() / 32; sample < batch; sample += programs(1) * WARPS) {
    long long at = model * batch + sample, asked = (shared ? model : at) * HEADS * EMBED;
    next_sample(x + at * LONGEST * EMBED, sample, batch);
    meet_warp();
    take(xs, x + at * LONGEST * EMBED);
    meet_warp();
    hear_back(directions + asked, d_heard + at * HEADS * EMBED, xs, length, d_directions + at * HEADS * EMBED, kept);
    meet_warp();
#pragma unroll
    for (int strip = 0; strip < TOKENS / 16; ++strip) {
      float dx[NE][4];
      zero(dx);
      heard_by(dx, strip, kept);
      store_rows<EMBED>(dx, d_x + at * LONGEST * EMBED, 16 * strip + thread() % 32 / 4, LONGEST);
    }
  }
}
EMULATE(question_backward)
#endif
