// Masks from the counter-based generator of random_streams.py, so that they are the same on the CPU and here.
#include "common.cuh"

// Philox4x64-10 (Salmon et al., SC'11): the four words at a counter.
__device__ inline void philox(unsigned long long* c, unsigned long long k0, unsigned long long k1) {
    const unsigned long long m0 = 0xD2E7470EE14C6C93ull, m1 = 0xCA5A826395121157ull;
    for (int round = 0; round < 10; round++) {
        const unsigned long long low0 = m0 * c[0], high0 = __umul64hi(m0, c[0]);
        const unsigned long long low1 = m1 * c[2], high1 = __umul64hi(m1, c[2]);
        const unsigned long long c1 = c[1], c3 = c[3];
        c[0] = high1 ^ c1 ^ k0;
        c[1] = low1;
        c[2] = high0 ^ c3 ^ k1;
        c[3] = low0;
        k0 += 0x9E3779B97F4A7C15ull;
        k1 += 0xBB67AE8584CAA73Bull;
    }
}

// bits[i]: 32-bit word i of the draw (iteration, sub) of a stream; each thread makes eight, from one counter.
extern "C" __global__ void draw(int n, unsigned* bits, int count, unsigned long long k0, unsigned long long k1,
                                unsigned long long iteration, unsigned long long sub) {
    FOR_EACH(block, n) {
        unsigned long long c[4] = {block + 1ull, sub, iteration, 0};  // NumPy advances before the first
        philox(c, k0, k1);
        for (int k = 0; k < 8; k++) {
            const int i = 8 * block + k;
            if (i < count) bits[i] = (unsigned)(c[k / 2] >> (32 * (k % 2)));
        }
    }
}

// y = x · scale where the element's bits exceed the threshold, 0 elsewhere. Forward, and backward on the diffs.
extern "C" __global__ void apply(int n, const float* x, float* y, int count, unsigned threshold, float scale,
                                 unsigned long long k0, unsigned long long k1, unsigned long long iteration,
                                 unsigned long long sub) {
    FOR_EACH(block, n) {
        unsigned long long c[4] = {block + 1ull, sub, iteration, 0};
        philox(c, k0, k1);
        for (int k = 0; k < 8; k++) {
            const int i = 8 * block + k;
            if (i < count) y[i] = x[i] * ((unsigned)(c[k / 2] >> (32 * (k % 2))) > threshold ? 1.0f : 0.0f) * scale;
        }
    }
}
