// y = x where x > 0, slope[c] · x elsewhere
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x, const float* slope, float* y, int channels, int inner) {
    FOR_EACH(i, n) { y[i] = x[i] > 0 ? x[i] : x[i] * slope[i / inner % channels]; }
}

extern "C" __global__ void backward(int n, const float* x, const float* slope, const float* dy, float* dx, int channels,
                                    int inner) {
    FOR_EACH(i, n) { dx[i] = x[i] > 0 ? dy[i] : dy[i] * slope[i / inner % channels]; }
}

// For each channel < n: out = before · out + Σ min(0, x) · dy
extern "C" __global__ void slope_gradient(int n, const float* x, const float* dy, float* out, int outer, int inner,
                                          float before) {
    FOR_EACH_ROW(channel, n) {
        float sum = 0;
        for (int k = threadIdx.x; k < outer * inner; k += blockDim.x) {
            const int o = k / inner, i = (o * n + channel) * inner + k - o * inner;
            if (x[i] <= 0) sum += x[i] * dy[i];
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0) out[channel] = before == 0 ? sum : before * out[channel] + sum;
    }
}
