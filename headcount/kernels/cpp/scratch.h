// Memory of a thread for vectors, and the products that take their results from it.
#pragma once
#include <cstdlib>
#include <vector>

#include "member.h"

// Memory for vectors, taken in the same order for every tile and kept for the next.
class Scratch {
  public:
    vec* take(size_t vectors) {
        if (used == blocks.size()) blocks.push_back({nullptr, 0});
        Block& b = blocks[used++];
        if (b.size < vectors) {
            std::free(b.at);
            b.size = vectors;
            b.at = static_cast<vec*>(std::aligned_alloc(BYTES, vectors * BYTES));
        }
        return b.at;
    }
    void reset() { used = 0; }
    ~Scratch() {
        for (Block& b : blocks) std::free(b.at);
    }

  private:
    struct Block {
        vec* at;
        size_t size;
    };
    std::vector<Block> blocks;
    size_t used = 0;
};

// A tile on its way through a network: its matrices, plain and transposed, and the gradient it adds to.
class Passage {
  protected:
    Passage(const real* plain, const real* turned, Scratch& scratch)
        : plain(plain), turned(turned), scratch(scratch) {}

    vec* map_to(const Map& f, int columns, const vec* from, int from_step, int& step) {
        step = odd(f.outputs);
        vec* out = scratch.take(size_t(columns) * step);
        map(f, columns, from, from_step, out, step);
        return out;
    }

    // Sums across lanes cost as much as 6 columns of products, a transposition as much as 6 rows of them.
    void weight_gradient(const Matrix& w, int row, int columns, const vec* to, int to_step, int tall, const vec* from,
                         int from_step) {
        real* out = gradient + w.at + row * w.step;
        if (tall <= columns || tall < 4 || 3 * w.columns < 2 * w.step)
            return gram(columns, to, to_step, tall, from, from_step, w.columns, out, w.step);
        few_gram(columns, to, to_step, tall, from, from_step, w.columns, out, w.step);
    }

    const real *plain, *turned;
    Scratch& scratch;
    real* gradient = nullptr;
};
