// E = 1/(2N) Σ (a - b)²
#include "common.cuh"

// partial[block]: the block's share of Σ (a - b)²
extern "C" __global__ void forward(int n, const float* a, const float* b, float* difference, float* partial) {
    float sum = 0;
    FOR_EACH(i, n) {
        const float d = a[i] - b[i];
        difference[i] = d;
        sum += d * d;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void backward(int n, const float* difference, const float* weight, float* dx, float factor) {
    const float scale = factor * weight[0];
    FOR_EACH(i, n) { dx[i] = scale * difference[i]; }
}
