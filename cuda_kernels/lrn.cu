// y = x · s^-beta, s = k + scale · Σ x² over a window of axes (a, b, c) in x as (outer, a, b, c, inner). Across channels a is
// the channels, b = c = 1 and inner the pixels; within a channel a, b, c are the pixels and inner 1.
#include "common.cuh"

extern "C" __global__ void energy(int n, const float* x, float* s, int a, int b, int c, int inner, int reach_a, int reach_b,
                                  int reach_c, float k, float scale) {
    FOR_EACH(i, n) {
        const int p = i / inner, pc = p % c, pb = p / c % b, pa = p / (c * b) % a;
        float sum = 0;
        for (int qa = max(pa - reach_a, 0); qa <= min(pa + reach_a, a - 1); qa++)
            for (int qb = max(pb - reach_b, 0); qb <= min(pb + reach_b, b - 1); qb++)
                for (int qc = max(pc - reach_c, 0); qc <= min(pc + reach_c, c - 1); qc++) {
                    const float value = x[i + (((qa - pa) * b + qb - pb) * c + qc - pc) * inner];
                    sum += value * value;
                }
        s[i] = k + scale * sum;
    }
}

extern "C" __global__ void forward(int n, const float* x, const float* s, float* y, float beta) {
    FOR_EACH(i, n) { y[i] = x[i] * powf(s[i], -beta); }
}

// ratio = dy · x · s^(-beta - 1)
extern "C" __global__ void ratios(int n, const float* x, const float* s, const float* dy, float* ratio, float beta) {
    FOR_EACH(i, n) { ratio[i] = dy[i] * x[i] * powf(s[i], -beta) / s[i]; }
}

// dx = dy · s^-beta - factor · x · Σ ratio
extern "C" __global__ void backward(int n, const float* x, const float* s, const float* dy, const float* ratio, float* dx, int a,
                                    int b, int c, int inner, int reach_a, int reach_b, int reach_c, float beta, float factor) {
    FOR_EACH(i, n) {
        const int p = i / inner, pc = p % c, pb = p / c % b, pa = p / (c * b) % a;
        float sum = 0;
        for (int qa = max(pa - reach_a, 0); qa <= min(pa + reach_a, a - 1); qa++)
            for (int qb = max(pb - reach_b, 0); qb <= min(pb + reach_b, b - 1); qb++)
                for (int qc = max(pc - reach_c, 0); qc <= min(pc + reach_c, c - 1); qc++)
                    sum += ratio[i + (((qa - pa) * b + qb - pb) * c + qc - pc) * inner];
        dx[i] = dy[i] * powf(s[i], -beta) - factor * x[i] * sum;
    }
}
