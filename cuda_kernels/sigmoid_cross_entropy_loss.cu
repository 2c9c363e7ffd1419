// E = -1/Z Σ t log σ(x) + (1 - t) log(1 - σ(x)), without overflow
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x, const float* t, float* partial, int ignores, float ignored) {
    float sum = 0;
    FOR_EACH(i, n) {
        if (ignores && truncf(t[i]) == ignored) continue;
        sum += fmaxf(x[i], 0) + log1pf(expf(-fabsf(x[i]))) - x[i] * t[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void backward(int n, const float* x, const float* t, const float* weight, float* dx, float divisor,
                                    int ignores, float ignored) {
    const float scale = weight[0] / divisor;
    FOR_EACH(i, n) { dx[i] = ignores && truncf(t[i]) == ignored ? 0 : (sigmoid(x[i]) - t[i]) * scale; }
}
