// Bounds of errors over boxes of tokens: a thread for every box. Boxes of one member follow each other, so that a warp
// reads the same parameters at once.
#include "warp.cuh"
#define SIZES
#define T_ LENGTH
#define D_ TOKEN_DIM
#define H_ HEADS
#define M_ HIDDEN
#define N_ UNITS
#define UNITS_ KIND
#include "../cpp/box_bounds.h"

#ifdef EMULATED
#define FOUR_AT_ONCE static void
#else
#define FOUR_AT_ONCE extern "C" __global__ void __launch_bounds__(32 * WARPS, 4)  // programs of a multiprocessor
#endif

FOUR_AT_ONCE
bound_boxes(const double* parameters, long long stride, const long long* member, const double* lo, const double* hi,
            const double* y, const double* slope, const double* slope_rad, const double* values,
            const double* values_rad, double* upper, double* least, double* middle, double* guilt, long long boxes) {
  constexpr int td = T_ * D_;
  double low[td], high[td], dy[td], dy_rad[td], blame[td], scratch[SCRATCH(T_, D_, H_, N_)];
  for (long long box = program(0) * 32LL * WARPS + thread(); box < boxes; box += programs(0) * 32LL * WARPS) {
    for (int j = 0; j < td; ++j) {
      low[j] = lo[box * td + j];
      high[j] = hi[box * td + j];
      dy[j] = slope[box * td + j];
      dy_rad[j] = slope_rad[box * td + j];
    }
    const box_bounds::Found found = box_bounds::bound(parameters + member[box] * stride, low, high, y[box], dy, dy_rad,
                                                      values[box], values_rad[box], blame, scratch);
    upper[box] = found.upper;
    least[box] = found.least;
    middle[box] = found.middle;
    for (int j = 0; j < td; ++j) guilt[box * td + j] = blame[j];
  }
}

EMULATE(bound_boxes)
