// y = 1 where x > threshold, 0 elsewhere; no gradient
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x, float* y, float threshold) {
    FOR_EACH(i, n) { y[i] = x[i] > threshold ? 1.0f : 0.0f; }
}
