// Bounds of errors over boxes of tokens on a CPU: a lane for every box, boxes of one member together.
#include <algorithm>
#include <vector>

#include "box_bounds.h"
#include "crew.h"

extern "C" {

// `sizes`: length, token_dim, heads, hidden units of the read-out, units of the encoder, their kind, numbers of a member,
// boxes, threads. Boxes of one member follow each other. All else is as in box_bounds.h, box by box.
int bound_boxes(const int64_t* sizes, const double* parameters, const int64_t* member, const double* lo,
                const double* hi, const double* y, const double* slope, const double* slope_rad, const double* values,
                const double* values_rad, double* upper, double* least, double* middle, double* guilt) {
    const box_bounds::Sizes z{int(sizes[0]), int(sizes[1]), int(sizes[2]), int(sizes[3]), int(sizes[4]), int(sizes[5])};
    const int64_t stride = sizes[6], boxes = sizes[7];
    const int td = z.T * z.d;
    std::vector<int64_t> starts;  // of groups of at most a lane each
    for (int64_t i = 0; i < boxes;) {
        starts.push_back(i);
        int64_t j = i + 1;
        while (j < boxes && j < i + LANES && member[j] == member[i]) ++j;
        i = j;
    }
    starts.push_back(boxes);
    const int64_t groups = int64_t(starts.size()) - 1;
    const int64_t part = 64, jobs = (groups + part - 1) / part;
    Crew::share(int(jobs), int(sizes[8]), [&](int job) {
        std::vector<num> room(5 * td + SCRATCH(z.T, z.d, z.H, z.N));
        num *low = room.data(), *high = low + td, *dy = high + td, *dy_rad = dy + td, *blame = dy_rad + td;
        for (int64_t g = job * part; g < std::min(groups, (job + 1) * part); ++g) {
            const int64_t first = starts[g], last = starts[g + 1] - 1;
            num target, range, range_rad;
            for (int lane = 0; lane < LANES; ++lane) {
                const int64_t box = std::min(first + lane, last);
                for (int j = 0; j < td; ++j) {
                    low[j][lane] = lo[box * td + j];
                    high[j][lane] = hi[box * td + j];
                    dy[j][lane] = slope[box * td + j];
                    dy_rad[j][lane] = slope_rad[box * td + j];
                }
                target[lane] = y[box];
                range[lane] = values[box];
                range_rad[lane] = values_rad[box];
            }
            const box_bounds::Found found =
                box_bounds::bound(z, parameters + member[first] * stride, low, high, target, dy, dy_rad, range,
                                  range_rad, blame, blame + td);
            for (int64_t box = first; box <= last; ++box) {
                const int lane = int(box - first);
                upper[box] = found.upper[lane];
                least[box] = found.least[lane];
                middle[box] = found.middle[lane];
                for (int j = 0; j < td; ++j) guilt[box * td + j] = blame[j][lane];
            }
        }
    });
    return 0;
}
}
