// Banks of standard encoders on a CPU: outputs and gradients, by the function at the end. Jobs are cut and added as in
// bank.cpp, by the batch and the shape alone.
#include "crew.h"
#include "encoder.h"
#include "numbers.h"

namespace {

thread_local Scratch scratch;

constexpr int PART = 64;  // samples of a job at least

// Groups of a tile: so many that what a token holds at once in all layers stays in the second cache. Where the class
// token alone asks, that is little.
int groups_of(const Standard& s) {
    int64_t numbers = s.features;
    for (int l = 0; l < s.depth; ++l) {
        const int H = s.layers[2 * l], rows = H * s.layers[2 * l + 1];
        const bool asking = s.classed && l + 1 == s.depth;
        numbers += asking ? 3 * s.embed + 2 * H : 5 * s.embed + 4 * rows + 2 * s.width + H * s.length;
    }
    int groups = 1;
    while (groups * 2 * numbers * s.length * BYTES <= 1 << 19 && groups * 2 * LANES <= PART) groups *= 2;
    return groups;
}

}  // namespace

extern "C" {

// `sizes`: depth, embed, width, features, vocab, places, outputs, length, batch, class token, GELU, models, parameters
// of a row, classes, threads, data sets, samples of each. `rows` choose samples of `data[which]`, or `ids[which]` where
// there is a table; `present` may be none, its strides are those of models and samples. `keys` are those of dropout, or
// none; hashes below `limit` are left out, the others take the factor `stay`. With `gradient`, that of the mean loss;
// with `output`, the outputs. Models that are not `active`, where that is said, are left out: zeros. Returns 1 where a
// row is none of the samples (then nothing is done), 2 where an id is none of the table, 0 where all is well.
int encoder_pass(const int64_t* sizes, const int32_t* layers, const real* theta, const real* data, const int64_t* ids,
                 int64_t set_step, const int64_t* which, const int64_t* rows, const uint8_t* present,
                 const int64_t* present_steps, const uint8_t* active, const int64_t* keys, int64_t limit, double stay,
                 const real* target, real* output, real* gradient) {
    const Standard s{int(sizes[0]), int(sizes[1]), int(sizes[2]), int(sizes[3]), int(sizes[4]), int(sizes[5]),
                     int(sizes[6]), int(sizes[7]), int(sizes[8]), sizes[9] != 0, sizes[10] != 0, layers};
    const int models = int(sizes[11]), threads = int(sizes[14]);
    const int64_t parameters = sizes[12];
    for (int k = 0; k < models; ++k) {
        bool inside = which[k] >= 0 && which[k] < sizes[15];
        for (int b = 0; b < s.batch; ++b) {
            const int64_t row = rows[int64_t(k) * s.batch + b];
            inside = inside && row >= 0 && row < sizes[16];
        }
        if (!inside) return 1;
    }
    const Encoder m(s);
    const int groups = groups_of(s), tile = groups * LANES, least = std::max(PART, (s.batch + 15) / 16);
    const int part = (least + tile - 1) / tile * tile, parts = (s.batch + part - 1) / part;
    std::vector<int> working;
    for (int k = 0; k < models; ++k)
        if (!active || active[k]) working.push_back(k);
        else if (gradient) std::memset(gradient + k * parameters, 0, sizeof(real) * parameters);
    const int count = int(working.size());
    std::vector<Numbers*> plain(count), turned(count), sums(count);
    std::atomic<bool> lost{false};
    Crew::share(count, threads, [&](int i) {
        plain[i] = new Numbers(m.size), turned[i] = new Numbers(m.turned_size);
        sums[i] = new Numbers(gradient ? size_t(m.size) * parts : 0);
        m.load(theta + working[i] * parameters, plain[i]->at, turned[i]->at);
        m.compose(plain[i]->at, turned[i]->at, scratch);
    });
    Crew::share(count * parts, threads, [&](int number) {
        const int i = number / parts, k = working[i], p = number % parts, end = std::min(s.batch, (p + 1) * part);
        const int64_t answers = int64_t(k) * s.batch * s.outputs;
        const Samples x{data ? data + which[k] * set_step : nullptr,
                        rows + int64_t(k) * s.batch,
                        target ? target + answers : nullptr,
                        present ? present + k * present_steps[0] : nullptr,
                        present ? present_steps[1] : 0,
                        output ? output + answers : nullptr,
                        sizes[13] != 0,
                        ids ? ids + which[k] * set_step : nullptr};
        const Dropping drop{keys != nullptr, keys ? uint32_t(keys[k]) : 0, uint32_t(limit), real(stay)};
        real* sum = sums[i]->at + size_t(p) * m.size;
        if (gradient) std::memset(sum, 0, sizeof(real) * m.size);
        EncoderTile one(s, m, plain[i]->at, turned[i]->at, x, drop, scratch, lost);
        for (int from = p * part; from < end; from += tile) {
            one.forward(from, std::min(groups, (end - from + LANES - 1) / LANES));
            if (gradient) one.backward(sum);
        }
    });
    Crew::share(count, threads, [&](int i) {
        for (int p = 1; gradient && p < parts; ++p) add(sums[i]->at, sums[i]->at + size_t(p) * m.size, 1, m.size);
        if (gradient) m.decompose(plain[i]->at, sums[i]->at, scratch);
        if (gradient) m.store(sums[i]->at, gradient + working[i] * parameters);
        delete plain[i], delete turned[i], delete sums[i];
    });
    return lost ? 2 : 0;
}
}
