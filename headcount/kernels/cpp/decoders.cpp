// Banks of causal networks over letters on a CPU: the gradient, by the function at the end. Jobs are cut and added as
// in bank.cpp, by the batch alone.
#include "crew.h"
#include "decoder.h"
#include "numbers.h"

constexpr int PART = 32;  // strings of a job at least

extern "C" {

// `sizes`: depth, embed, width, vocab, context (0: no places), length, batch, models, parameters of a row, threads.
// Strings lie [models][batch][length]; `counts` are the judged places of a member.
void decoder_gradient(const int64_t* sizes, const int32_t* layers, const real* theta, const int64_t* ids,
                      const int64_t* targets, const uint8_t* judged, const int64_t* offset, const int64_t* counts,
                      real* gradient) {
    const Letters s{int(sizes[0]), int(sizes[1]), int(sizes[2]), int(sizes[3]), int(sizes[4]), int(sizes[5]),
                    int(sizes[6]), layers};
    const int models = int(sizes[7]), threads = int(sizes[9]);
    const int64_t parameters = sizes[8];
    const Decoder m(s);
    int groups = 1;  // some columns at least, of short strings
    while (groups * s.length < 12 && groups * LANES < PART) groups *= 2;
    const int tile = groups * LANES, least = std::max(PART, (s.batch + 15) / 16);
    const int part = (least + tile - 1) / tile * tile, parts = (s.batch + part - 1) / part;
    std::vector<Numbers*> plain(models), turned(models), sums(models);
    Crew::share(models, threads, [&](int k) {
        plain[k] = new Numbers(m.size), turned[k] = new Numbers(m.turned_size);
        sums[k] = new Numbers(size_t(m.size) * parts);
        m.load(theta + k * parameters, plain[k]->at, turned[k]->at);
    });
    Crew::share(models * parts, threads, [&](int number) {
        static thread_local Scratch scratch;
        const int k = number / parts, p = number % parts, end = std::min(s.batch, (p + 1) * part);
        const int64_t at = int64_t(k) * s.batch * s.length;
        const Strings x{ids + at, targets + at, judged + at, offset + int64_t(k) * s.batch, counts[k]};
        real* sum = sums[k]->at + size_t(p) * m.size;
        std::memset(sum, 0, sizeof(real) * m.size);
        DecoderTile one(s, m, plain[k]->at, turned[k]->at, x, scratch);
        for (int from = p * part; from < end; from += tile)
            one.pass(from, std::min(groups, (end - from + LANES - 1) / LANES), sum);
    });
    Crew::share(models, threads, [&](int k) {
        for (int p = 1; p < parts; ++p) add(sums[k]->at, sums[k]->at + size_t(p) * m.size, 1, m.size);
        m.store(sums[k]->at, gradient + k * parameters);
        delete plain[k], delete turned[k], delete sums[k];
    });
}
}
