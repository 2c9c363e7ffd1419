// E = -1/Z Σ log p[label], p as (outer, classes, inner); positions whose label is ignored count for nothing
#include "common.cuh"

// Labels have been checked on the host. partial[block]: the block's share of the sum.
extern "C" __global__ void forward(int n, const float* p, const float* labels, float* partial, int classes, int inner,
                                   int ignores, int ignored) {
    float sum = 0;
    FOR_EACH(position, n) {
        const int label = (int)labels[position];
        if (ignores && label == ignored) continue;
        const float likelihood = p[(position / inner * classes + label) * inner + position % inner];
        sum -= logf(likelihood < FLT_MIN ? FLT_MIN : likelihood);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// dx = (p - onehot(label)) · weight / divisor
extern "C" __global__ void backward(int n, const float* p, const float* labels, const float* weight, float* dx, int classes,
                                    int inner, float divisor, int ignores, int ignored) {
    const float scale = weight[0] / divisor;
    FOR_EACH(i, n) {
        const int position = i / (classes * inner) * inner + i % inner, label = (int)labels[position];
        dx[i] = ignores && label == ignored ? 0 : (p[i] - (i / inner % classes == label ? 1.0f : 0.0f)) * scale;
    }
}
