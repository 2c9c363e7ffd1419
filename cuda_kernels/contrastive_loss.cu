// E = 1/(2N) Σ y d² + (1 - y) max(margin - d, 0)², d = ‖a - b‖; with legacy, dissimilar pairs cost max(margin - d², 0)
#include "common.cuh"

// For each pair < n: its loss, and factor such that dE/d(a - b) = factor · (a - b) / N
extern "C" __global__ void forward(int n, const float* a, const float* b, const float* y, float* difference, float* factor,
                                   float* loss, int channels, float margin, int legacy) {
    FOR_EACH_ROW(pair, n) {
        float squared = 0;
        for (int c = threadIdx.x; c < channels; c += blockDim.x) {
            const int i = pair * channels + c;
            const float d = a[i] - b[i];
            difference[i] = d;
            squared += d * d;
        }
        squared = block_sum(squared);
        if (threadIdx.x == 0) {
            const float distance = sqrtf(squared);
            const float near = fmaxf(legacy ? margin - squared : margin - distance, 0);
            if (truncf(y[pair]) != 0) {
                loss[pair] = squared;
                factor[pair] = 1;
            } else if (legacy) {
                loss[pair] = near;
                factor[pair] = near > 0 ? -1.0f : 0.0f;
            } else {
                loss[pair] = near * near;
                factor[pair] = -near / (distance + 1e-4f);
            }
        }
    }
}

extern "C" __global__ void backward(int n, const float* difference, const float* factor, const float* weight, float* dx,
                                    int channels, float scale) {
    FOR_EACH(i, n) { dx[i] = scale * weight[0] * factor[i / channels] * difference[i]; }
}
