// y = factor[d] · x + term[d], x as (outer, d, inner)
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x, const float* factor, float* y, int d, int inner) {
    FOR_EACH(i, n) { y[i] = x[i] * factor[i / inner % d]; }
}

extern "C" __global__ void forward_with_bias(int n, const float* x, const float* factor, const float* term, float* y, int d,
                                             int inner) {
    FOR_EACH(i, n) {
        const int j = i / inner % d;
        y[i] = x[i] * factor[j] + term[j];
    }
}
