// Dropout by counter, as dropping.py has it: which unit is left out is a hash of key, layer, site, sample, token, unit.
#pragma once
#include "lanes.h"

typedef uint32_t words __attribute__((vector_size(4 * LANES)));

// C. Wellons, "Prospecting for hash functions" (2018): lowbias32.
template <class W>
static inline W mixed_bits(W x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

enum Site { WEIGHTS, HEARD, HIDDEN, SAID };
constexpr uint32_t HEADS_APART = 1u << 16;  // from the units of one head's weights to those of the next

struct Dropping {
    bool on = false;
    uint32_t key = 0, limit = 0;  // hashes below the limit are left out
    real factor = 1;  // of those that stay

    uint32_t stream(int layer, Site site) const { return mixed_bits(key + 4 * uint32_t(layer) + uint32_t(site)); }

    vec unit(words row, uint32_t number) const {
        const auto stays = mixed_bits(row + number) >= limit;
        return __builtin_convertvector(stays, ints) ? all(factor) : vec{};
    }
};
