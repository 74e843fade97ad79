// Arenas of numbers, their memory used again from call to call.
#pragma once
#include <cstdlib>
#include <mutex>
#include <vector>

#include "lanes.h"

// Memory of earlier calls, to be used again: fresh pages from the system cost as much as a small bank's products.
class Shelf {
  public:
    static void* take(size_t bytes) {
        std::lock_guard<std::mutex> hold(lock());
        auto& free = kept();
        for (size_t i = 0; i < free.size(); ++i)
            if (free[i].second == bytes) {
                void* at = free[i].first;
                free[i] = free.back(), free.pop_back();
                return at;
            }
        size_t total = 0;
        for (auto& [at, size] : free) total += size;
        if (total > (size_t(64) << 20)) {  // of banks that are gone
            for (auto& [at, size] : free) std::free(at);
            free.clear();
        }
        return std::aligned_alloc(BYTES, bytes);
    }
    static void give(void* at, size_t bytes) {
        std::lock_guard<std::mutex> hold(lock());
        kept().push_back({at, bytes});
    }

  private:
    static std::mutex& lock() {
        static std::mutex* one = new std::mutex;
        return *one;
    }
    static std::vector<std::pair<void*, size_t>>& kept() {
        static auto* all = new std::vector<std::pair<void*, size_t>>;
        return *all;
    }
};

struct Numbers {  // aligned, and as they come
    size_t bytes;
    real* at;
    explicit Numbers(size_t n)
        : bytes((n * sizeof(real) / BYTES + 1) * BYTES), at(static_cast<real*>(Shelf::take(bytes))) {}
    ~Numbers() { Shelf::give(at, bytes); }
    Numbers(const Numbers&) = delete;
};

static inline void add(real* to, const real* from, real times, int n) {  // both aligned, n a multiple of LANES
    for (int i = 0; i < n; i += LANES) *(vec*)(to + i) += times * *(const vec*)(from + i);
}
