// A member's own matrices, without padding, as the products read them; and the way from and to its row of the bank.
#pragma once
#include <cstring>
#include <vector>

#include "products.h"

static inline int filled(int n) { return (n + LANES - 1) / LANES * LANES; }
static inline int odd(int n) { return n | 1; }  // strides of an odd number of vectors spread over the cache

// rows x columns numbers at `at`, as stored and as gradients lie; and transposed, in an arena of their own.
struct Matrix {
    int at = 0, rows = 0, columns = 0, step = 0, turned = 0, turned_step = 0;
};

struct Feed {  // columns -> rows of `inner`, an activation, columns -> rows of `outer`
    Matrix inner, outer;
    int inner_bias = 0, outer_bias = 0;
};

struct Layer {
    int heads = 0, dim = 0;
    Matrix three, output;  // queries (scaled), keys and values below each other; output: embed x (heads dim)
    Feed between;
};

// A parameter of the bank: d[0] matrices of d[1] x d[2] numbers. Matrices and their rows lie apart by `from` there and by
// `to` here; transposed (turned >= 0: where), matrices and columns by `over`.
struct Copy {
    int64_t offset, from[2];
    int d[3], at, to[2], turned, over[2];
    real scale;
};

// Matrices and vectors one after the other, and what is copied into them from a row of the bank.
struct Arena {
    int size = 0, turned_size = 0;
    std::vector<Copy> copies;

    void load(const real* theta, real* plain, real* turned) const {
        std::memset(plain, 0, sizeof(real) * size_t(size));
        std::memset(turned, 0, sizeof(real) * size_t(turned_size));
        for (const Copy& c : copies)
            for (int i = 0; i < c.d[0]; ++i) {
                for (int j = 0; j < c.d[1]; ++j)
                    scaled(theta + c.offset + i * c.from[0] + j * c.from[1], c.scale, c.d[2],
                           plain + c.at + i * c.to[0] + j * c.to[1]);
                if (c.turned >= 0)
                    turn(plain + c.at + i * c.to[0], c.to[1], c.d[1], c.d[2], turned + c.turned + i * c.over[0], c.over[1]);
            }
    }

    void store(const real* plain, real* gradient) const {
        for (const Copy& c : copies)
            for (int i = 0; i < c.d[0]; ++i)
                for (int j = 0; j < c.d[1]; ++j)
                    scaled(plain + c.at + i * c.to[0] + j * c.to[1], c.scale, c.d[2],
                           gradient + c.offset + i * c.from[0] + j * c.from[1]);
    }

  protected:
    static void scaled(const real* __restrict from, real by, int n, real* __restrict to) {
        for (int k = 0; k < n; ++k) to[k] = by * from[k];
    }

    static void turn(const real* from, int step, int rows, int columns, real* to, int far) {
        for (int j = 0; j < rows; j += LANES)
            for (int k = 0; k < columns; k += LANES) {
                if (j + LANES <= rows && k + LANES <= columns) {
                    vec v[LANES];
                    for (int i = 0; i < LANES; ++i) v[i] = *(const loose*)(from + (j + i) * step + k);
                    transpose(v);
                    for (int i = 0; i < LANES; ++i) *(loose*)(to + (k + i) * far + j) = v[i];
                    continue;
                }
                for (int r = j; r < std::min(rows, j + LANES); ++r)
                    for (int c = k; c < std::min(columns, k + LANES); ++c) to[c * far + r] = from[r * step + c];
            }
    }

    int take(int n) {
        const int at = size;
        size += filled(n);
        return at;
    }

    Matrix matrix(int rows, int columns) {
        Matrix m{0, rows, columns, filled(columns), turned_size, filled(rows)};
        m.at = take(rows * m.step);
        turned_size += columns * m.turned_step;
        return m;
    }

    int vector(const int64_t*& p, int n) {
        const int at = take(n);
        copies.push_back({p[0], {0, 0}, {1, 1, n}, at, {0, 0}, -1, {0, 0}, 1});
        p += 3;
        return at;
    }

    Matrix weight(const int64_t*& p, int rows, int columns) {
        const Matrix m = matrix(rows, columns);
        copies.push_back(
            {p[0], {0, p[1]}, {1, rows, columns}, m.at, {0, m.step}, m.turned, {0, m.turned_step}, 1});
        p += 3;
        return m;
    }
};

struct Shape {  // what all members share
    int depth, features, outputs, length, batch;
    bool every, linear, smooth;  // the class token asks in every layer; tokens enter by one matrix; GELU, not ReLU
    const int64_t* place;  // (offset, stride, stride) of every parameter, in the order in which `Member` takes them
};

struct Member : Arena {
    int width = 0, embed = 0, cls = 0;
    Feed encoder, read_out;
    std::vector<Layer> layers;
    Matrix question, value;  // one layer alone: directions and values on hidden units, composed with the encoder
    int shift = 0;

    Member(const Shape& s, const int32_t* sizes, const real* scale) {
        width = sizes[0], embed = sizes[1];
        const int64_t* p = s.place;
        if (s.linear) encoder.outer = weight(p, embed, s.features), encoder.outer_bias = vector(p, embed);
        else encoder = feed(p, s.features, embed);
        cls = vector(p, embed);
        for (int l = 0; l < s.depth; ++l) {
            Layer layer;
            layer.heads = sizes[2 + 2 * l], layer.dim = sizes[3 + 2 * l];
            const int rows = layer.heads * layer.dim;
            layer.three = matrix(3 * rows, embed);
            for (int part = 0; part < 3; ++part) heads(p, layer, part, part == 0 ? scale[l] : real(1));
            layer.output = matrix(embed, rows);
            outputs(p, layer);
            if (l + 1 < s.depth) layer.between = feed(p, embed, embed);
            layers.push_back(layer);
        }
        read_out = feed(p, embed, s.outputs);
        if (s.depth > 1) return;
        question = matrix(layers[0].heads, width);
        value = matrix(layers[0].heads * layers[0].dim, width);
        shift = take(value.rows);
    }

  private:
    Feed feed(const int64_t*& p, int in, int out) {
        Feed f;
        f.inner = weight(p, width, in), f.inner_bias = vector(p, width);
        f.outer = weight(p, out, width), f.outer_bias = vector(p, out);
        return f;
    }

    void heads(const int64_t*& p, const Layer& l, int part, real scale) {
        const Matrix& m = l.three;
        const int first = part * l.heads * l.dim;
        copies.push_back({p[0], {p[1], p[2]}, {l.heads, l.dim, embed},
                          m.at + first * m.step, {l.dim * m.step, m.step},
                          m.turned + first, {l.dim, m.turned_step}, scale});
        p += 3;
    }

    void outputs(const int64_t*& p, const Layer& l) {
        const Matrix& m = l.output;
        copies.push_back({p[0], {p[1], p[2]}, {l.heads, embed, l.dim},
                          m.at, {l.dim, m.step},
                          m.turned, {l.dim * m.turned_step, m.turned_step}, 1});
        p += 3;
    }
};
