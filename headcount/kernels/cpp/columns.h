// A tile of samples as columns: a column is a token of LANES samples, [token][group]. How samples enter, which of their
// tokens exist, who is asked, and what the outputs lose.
#pragma once
#include "scratch.h"

struct Samples {  // one member's share of the batch
    const real* data;  // [samples][length][features]
    const int64_t* rows;
    const real* target;  // [batch][outputs], or none
    const uint8_t* present;  // which tokens exist, or none
    int64_t present_step;  // from one sample of the batch to the next
    real* output;  // [batch][outputs], or none
    bool classes;  // cross-entropy of distributions, or the squared gap
    const int64_t* ids = nullptr;  // [samples][length], where tokens are rows of a table
};

class Columns : protected Passage {
  protected:
    Columns(const real* plain, const real* turned, Scratch& scratch, int batch)
        : Passage(plain, turned, scratch), batch(batch) {}

    int sample(int group, int lane) const { return std::min(first + group * LANES + lane, batch - 1); }
    bool there(int group, int lane) const { return first + group * LANES + lane < batch; }

    // T is that of the longest sample, with `ahead` columns before that always exist; the mask is there if one of them
    // lacks a token.
    void lengths(const Samples& x, int length, int ahead = 0) {
        T = ahead + length;
        here = nullptr;
        if (!x.present) return;
        int longest = 1;
        bool full = true;
        for (int g = 0; g < G; ++g)
            for (int i = 0; i < LANES; ++i) {
                const uint8_t* mark = x.present + sample(g, i) * x.present_step;
                for (int t = length; t > longest; --t)
                    if (mark[t - 1]) longest = t;
            }
        T = ahead + longest;
        here = scratch.take(size_t(T) * G);
        for (int c = 0; c < ahead * G; ++c) here[c] = all(1);
        for (int t = 0; t < longest; ++t)
            for (int g = 0; g < G; ++g)
                for (int i = 0; i < LANES; ++i) {
                    const bool on = x.present[sample(g, i) * x.present_step + t];
                    here[(ahead + t) * G + g][i] = on, full = full && on;
                }
        if (full) here = nullptr;
    }

    // The first `tokens` tokens of every sample, whose rows have `length` of them.
    vec* read(const Samples& x, int length, int features, int tokens, int& step) {
        step = odd(features);
        vec* in = scratch.take(size_t(tokens) * G * step);
        const int count = tokens * features;
        for (int g = 0; g < G; ++g) {
            const real* from[LANES];
            for (int i = 0; i < LANES; ++i) from[i] = x.data + x.rows[sample(g, i)] * int64_t(length) * features;
            int at = 0;
            for (; at + LANES <= count; at += LANES) {
                vec a[LANES];
                for (int i = 0; i < LANES; ++i) a[i] = *reinterpret_cast<const loose*>(from[i] + at);
                transpose(a);
                for (int i = 0, t = at / features, f = at % features; i < LANES; ++i) {
                    in[(t * G + g) * step + f] = a[i];
                    if (++f == features) f = 0, ++t;
                }
            }
            for (; at < count; ++at) {
                vec& to = in[(at / features * G + g) * step + at % features];
                for (int i = 0; i < LANES; ++i) to[i] = from[i][at];
            }
        }
        return in;
    }

    void softmax(vec* p, int g) const {
        if (here)
            for (int t = 0; t < T; ++t) p[t] = here[t * G + g] > 0 ? p[t] : all(real(-1e30));
        vec most = p[0];
        for (int t = 1; t < T; ++t) most = larger(most, p[t]);
        vec total = exponentials(p, T, most);
        if (here) {
            total = vec{};
            for (int t = 0; t < T; ++t) total += p[t] = here[t * G + g] > 0 ? p[t] : vec{};
        }
        total = real(1) / total;
        for (int t = 0; t < T; ++t) p[t] *= total;
    }

    void tell(const Samples& x, int outputs, const vec* out, int step) const {
        if (!x.output) return;
        for (int g = 0; g < G; ++g)
            for (int i = 0; i < LANES; ++i)
                for (int j = 0; j < outputs && there(g, i); ++j)
                    x.output[int64_t(sample(g, i)) * outputs + j] = out[g * step + j][i];
    }

    // The gradient of the mean loss with respect to the outputs, in place of these.
    void loss(const Samples& x, int outputs, vec* out, int step) const {
        for (int g = 0; g < G; ++g) {
            vec *y = out + g * step, share{};
            for (int i = 0; i < LANES; ++i) share[i] = there(g, i) ? real(1) / batch : real(0);
            vec most = y[0], total{}, mass{};
            for (int j = 1; j < outputs; ++j) most = larger(most, y[j]);
            if (x.classes) {
                total = exponentials(y, outputs, most);
                for (int j = 0; j < outputs; ++j) mass += target(x, outputs, g, j);
            }
            for (int j = 0; j < outputs; ++j) {
                const vec t = target(x, outputs, g, j);
                y[j] = x.classes ? (y[j] * mass / total - t) * share : (y[j] - t) * (share * 2 / real(outputs));
            }
        }
    }

    const int batch;
    int first = 0, G = 0, T = 0;
    vec* here = nullptr;

  private:
    vec target(const Samples& x, int outputs, int g, int j) const {
        vec t;
        for (int i = 0; i < LANES; ++i) t[i] = x.target[int64_t(sample(g, i)) * outputs + j];
        return t;
    }
};
