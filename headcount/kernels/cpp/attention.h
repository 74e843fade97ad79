// Attention of a tile's columns, head by head and lane by lane, forwards and backwards.
#pragma once
#include "columns.h"
#include "dropping.h"

// Whom a query hears: all tokens that exist; those not after its own column; those not after its own place, which
// differs from lane to lane where queries were gathered.
enum Hearing { ALL, BEFORE, BEFORE_ITS_PLACE };

struct Attention {  // of a layer: what enters, and what is kept for the way back
    int heads, dim, queries, number;  // queries of each group; number of the layer
    Hearing hearing;
    bool gathered;
    const vec *query, *key, *value;
    int query_step, key_step;  // from one column to the next; that of keys is that of values
    vec *weights = nullptr, *keep = nullptr, *mixed = nullptr;  // keep: what dropout multiplies weights by, or none
    int mixed_step = 0;
};

// One query of each group that asks along one direction per head and hears one mean state per head: keys and values are
// applied to it, not to the tokens.
struct Asked {
    int heads, dim, number;
    const vec* below;  // the states that are asked, of F numbers each
    int below_step, F, F_step = 0, wide = 0;
    vec *along = nullptr, *weights = nullptr, *mean = nullptr, *keep = nullptr;
    // along: gradients of the mean states, then the directions; weights: these, then the gradients of the scores
};

class Attending : protected Columns {
  protected:
    using Columns::Columns;
    using Columns::softmax;

    void attend(Attention& a) {
        const int n = a.dim, far = G * a.key_step, wide = odd(T), apart = G * a.query_step;
        a.mixed_step = odd(a.heads * n);
        a.mixed = scratch.take(size_t(a.queries) * G * a.mixed_step);
        a.weights = scratch.take(size_t(a.heads) * G * a.queries * wide);
        a.keep = drop.on ? scratch.take(size_t(a.heads) * G * a.queries * wide) : nullptr;
        vec* dropped = drop.on ? scratch.take(size_t(4) * wide) : nullptr;
        for (int h = 0; h < a.heads; ++h)
            for (int g = 0; g < G; ++g) {
                const int near = g * a.key_step + h * n;
                const vec* q = a.query + g * a.query_step + h * n;
                vec* out = a.mixed + g * a.mixed_step + h * n;
                for (int at = 0; at < a.queries; at += 4) {
                    const int some = std::min(4, a.queries - at), heard = a.hearing == BEFORE ? at + some : T;
                    vec* row = a.weights + (size_t(h * G + g) * a.queries + at) * wide;
                    each(some, heard, n, {q + at * apart, apart, 1}, {a.key + near, 1, far}, row, wide, 1);
                    for (int r = 0; r < some; ++r) weigh(a.hearing, row + r * wide, at + r, g, heard);
                    if (a.keep) drop_weights(a, h, g, at, some, heard, dropped), row = dropped;
                    each(some, n, heard, {row, wide, 1}, {a.value + near, far, 1}, out + at * G * a.mixed_step,
                         G * a.mixed_step, 1);
                }
            }
    }

    // From the gradient of what was mixed to those of queries, keys and values, which lie as these do.
    void attend_back(const Attention& a, const vec* d_mixed, int d_step, vec* d_query, vec* d_key, vec* d_value) {
        const int n = a.dim, far = G * a.key_step, wide = odd(T), apart = G * a.query_step, d_apart = G * d_step;
        vec* some_d = scratch.take(size_t(4) * wide);
        vec* dropped = a.keep ? scratch.take(size_t(a.queries) * wide) : nullptr;
        for (int h = 0; h < a.heads; ++h)
            for (int g = 0; g < G; ++g) {
                const int near = g * a.key_step + h * n, asking = g * a.query_step + h * n;
                const vec *d_out = d_mixed + g * d_step + h * n, *out = a.mixed + g * a.mixed_step + h * n;
                const size_t from = size_t(h * G + g) * a.queries * wide;
                vec* p = a.weights + from;
                const vec *keep = a.keep ? a.keep + from : nullptr, *given = keep ? dropped : p;
                for (int r = 0; keep && r < a.queries; ++r)
                    for (int t = 0; t < T; ++t) dropped[r * wide + t] = p[r * wide + t] * keep[r * wide + t];
                gather_back(a, given, {d_out, d_apart, 1}, d_value + near, far);
                for (int at = 0; at < a.queries; at += 4) {
                    const int some = std::min(4, a.queries - at), heard = a.hearing == BEFORE ? at + some : T;
                    each(some, heard, n, {d_out + at * d_apart, d_apart, 1}, {a.value + near, 1, far}, some_d, wide, 1);
                    for (int r = 0; keep && r < some; ++r)
                        for (int t = 0; t < heard; ++t) some_d[r * wide + t] *= keep[(at + r) * wide + t];
                    for (int r = 0; r < some; ++r)
                        slopes(n, heard, d_out + (at + r) * d_apart, out + (at + r) * G * a.mixed_step,
                               p + (at + r) * wide, some_d + r * wide);
                    each(some, n, heard, {p + at * wide, wide, 1}, {a.key + near, far, 1},
                         d_query + asking + at * apart, apart, 1);
                }
                gather_back(a, p, {a.query + asking, apart, 1}, d_key + near, far);
            }
    }

    // Memory, and where the directions begin: [head][group].
    vec* begin(Asked& a) {
        a.F_step = odd(a.F), a.wide = odd(T);
        a.along = scratch.take(size_t(2 * a.heads) * G * a.F_step);
        a.weights = scratch.take(size_t(2 * a.heads) * G * a.wide);
        a.mean = scratch.take(size_t(a.heads) * G * a.F_step);
        a.keep = drop.on ? scratch.take(size_t(a.heads) * G * a.wide) : nullptr;
        return a.along + a.heads * G * a.F_step;
    }

    // The directions W_K^T q of queries, by the rows of keys in a matrix of queries, keys and values; and back.
    void direct(Asked& a, const Matrix& three, const vec* query, int step) {
        vec* u = begin(a);
        const real* key = plain + three.at + a.heads * a.dim * three.step;
        for (int h = 0; h < a.heads; ++h)
            map({key + h * a.dim * three.step, a.F, a.dim, three.step}, G, query + h * a.dim, step, u + h * G * a.F_step,
                a.F_step);
    }

    vec* direct_back(const Asked& a, const Matrix& three, const vec* query, int step) {
        const int rows = a.heads * a.dim;
        vec* d_query = scratch.take(size_t(G) * step);
        for (int h = 0; h < a.heads; ++h) {
            const vec* d = a.mean + h * G * a.F_step;  // in place of the mean states, by `ask_back`
            weight_gradient(three, rows + h * a.dim, G, query + h * a.dim, step, a.dim, d, a.F_step);
            map({turned + three.turned + rows + h * a.dim, a.dim, a.F, three.turned_step}, G, d, a.F_step,
                d_query + h * a.dim, step);
        }
        return d_query;
    }

    // Values of the mean states, by the rows of a matrix from `first_row` on; and back.
    vec* values(const Asked& a, const Matrix& v, int first_row, const real* bias, int& step) {
        step = odd(a.heads * a.dim);
        vec* out = scratch.take(size_t(G) * step);
        for (int h = 0; h < a.heads; ++h)
            map({turned + v.turned + first_row + h * a.dim, a.dim, a.F, v.turned_step, bias ? bias + h * a.dim : nullptr},
                G, a.mean + h * G * a.F_step, a.F_step, out + h * a.dim, step);
        return out;
    }

    void values_back(const Asked& a, const Matrix& v, int first_row, const vec* d, int step) {
        for (int h = 0; h < a.heads; ++h) {
            const int row = first_row + h * a.dim;
            weight_gradient(v, row, G, d + h * a.dim, step, a.dim, a.mean + h * G * a.F_step, a.F_step);
            map({plain + v.at + row * v.step, a.F, a.dim, v.step}, G, d + h * a.dim, step, a.along + h * G * a.F_step,
                a.F_step);
        }
    }

    void ask(const Asked& a) {
        const int H = a.heads, next = G * a.wide;
        const vec* u = a.along + H * G * a.F_step;
        for (int g = 0; g < G; ++g) {
            vec *p = a.weights + g * a.wide, *given = p;
            const vec* z = a.below + g * a.below_step;
            each(H, T, a.F, {u + g * a.F_step, G * a.F_step, 1}, {z, 1, G * a.below_step}, p, next, 1);
            for (int h = 0; h < H; ++h) softmax(p + h * next, g);
            if (a.keep) {
                given = p + H * next;  // where gradients will be
                const words row = dropping_row(a.number, WEIGHTS, g, true);
                for (int h = 0; h < H; ++h)
                    for (int t = 0; t < T; ++t) {
                        const vec factor = drop.unit(row, uint32_t(h) * HEADS_APART + uint32_t(t));
                        a.keep[h * next + g * a.wide + t] = factor, given[h * next + t] = p[h * next + t] * factor;
                    }
            }
            each(H, a.F, T, {given, next, 1}, {z, G * a.below_step, 1}, a.mean + g * a.F_step, G * a.F_step, 1);
        }
    }

    // From the gradients of mean states to those of what was asked, and of the directions in place of the mean states.
    // `beside`, of every head and group, is what one more weight would have added to the loss.
    void ask_back(const Asked& a, vec* d_below, const vec* beside) {
        const int H = a.heads, next = G * a.wide, far = G * a.below_step;
        for (int g = 0; g < G; ++g) {
            vec *p = a.weights + g * a.wide, *d = p + H * next;
            const vec *z = a.below + g * a.below_step, *along = a.along + g * a.F_step;
            each(H, T, a.F, {along, G * a.F_step, 1}, {z, 1, far}, d, next, 1);
            for (int h = 0; a.keep && h < H; ++h)
                for (int t = 0; t < T; ++t) {
                    d[h * next + t] += beside[h * G + g];
                    d[h * next + t] *= a.keep[h * next + g * a.wide + t];
                }
            for (int h = 0; h < H; ++h) score_slopes(p + h * next, d + h * next);
            for (int h = 0; a.keep && h < H; ++h)
                for (int t = 0; t < T; ++t) p[h * next + t] *= a.keep[h * next + g * a.wide + t];
            each(T, a.F, 2 * H, {p, 1, next}, {along, G * a.F_step, 1}, d_below + g * a.below_step, far, 1);
            each(H, a.F, T, {d, next, 1}, {z, far, 1}, a.mean + g * a.F_step, G * a.F_step, 1);
        }
    }

    int place_of(int query, int lane) const { return std::max(0, where[size_t(query) * LANES + lane]); }

    // What dropout multiplies a column's units by begins with this; `gathered` columns are those of their places.
    words dropping_row(int layer, Site site, int column, bool gathered) const {
        words token{}, of{};
        for (int i = 0; i < LANES; ++i) {
            token[i] = uint32_t(gathered ? place_of(column, i) : column / G);
            of[i] = uint32_t(samples[sample(column % G, i)]);
        }
        return mixed_bits(mixed_bits(of + drop.stream(layer, site)) + token);
    }

    Dropping drop;
    const int64_t* samples = nullptr;  // whose masks they are, of every sample of the batch
    std::vector<int> where;  // gathered places, [query][G][lane]; -1: no more of them

  private:
    void weigh(Hearing hearing, vec* p, int query, int g, int heard) const {
        if (hearing == ALL) return softmax(p, g);
        if (hearing == BEFORE) return softmax(p, query + 1, heard);
        vec place;
        for (int i = 0; i < LANES; ++i) place[i] = real(place_of(query * G + g, i));
        for (int t = 0; t < T; ++t) p[t] = place < real(t) ? all(real(-1e30)) : p[t];
        softmax(p, T, T);
        for (int t = 0; t < T; ++t) p[t] = place < real(t) ? vec{} : p[t];
    }

    static void softmax(vec* p, int count, int heard) {
        vec most = p[0];
        for (int t = 1; t < count; ++t) most = larger(most, p[t]);
        const vec total = real(1) / exponentials(p, count, most);
        for (int t = 0; t < count; ++t) p[t] *= total;
        for (int t = count; t < heard; ++t) p[t] = vec{};
    }

    void drop_weights(const Attention& a, int h, int g, int at, int some, int heard, vec* dropped) const {
        const int wide = odd(T);
        for (int r = 0; r < some; ++r) {
            const size_t from = (size_t(h * G + g) * a.queries + at + r) * wide;
            const words row = dropping_row(a.number, WEIGHTS, (at + r) * G + g, a.gathered);
            for (int t = 0; t < heard; ++t) {
                const vec factor = drop.unit(row, uint32_t(h) * HEADS_APART + uint32_t(t));
                a.keep[from + t] = factor, dropped[r * wide + t] = a.weights[from + t] * factor;
            }
        }
    }

    // What a token gets from those that hear it: sum over queries of p[query][token] b[query].
    void gather_back(const Attention& a, const vec* p, View b, vec* out, int far) const {
        const int wide = odd(T);
        if (a.hearing != BEFORE) return each(T, a.dim, a.queries, {p, 1, wide}, b, out, far, 1);
        for (int at = 0; at < T; at += 4)  // nobody before it does
            each(std::min(4, T - at), a.dim, T - at, {p + at * wide + at, 1, wide},
                 {b.at + at * b.row, b.row, b.column}, out + at * far, far, 1);
    }

    // d = p (d - sum p d)
    void score_slopes(const vec* p, vec* d) const {
        vec total{};
        for (int t = 0; t < T; ++t) total += p[t] * d[t];
        for (int t = 0; t < T; ++t) d[t] = p[t] * (d[t] - total);
    }

    // p (d - sum p d) in place of p, where sum p d = <d_out, out>.
    static void slopes(int n, int heard, const vec* d_out, const vec* out, vec* p, const vec* d) {
        vec total{};
        for (int j = 0; j < n; ++j) total += d_out[j] * out[j];
        for (int t = 0; t < heard; ++t) p[t] *= d[t] - total;
    }
};
