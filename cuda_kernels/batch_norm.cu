// y = (x - mean) / sqrt(variance + eps) for each channel of x (outer, channels, inner)
#include "common.cuh"

// For each channel < n: mean and inverse deviation of the batch; the running sums go on.
extern "C" __global__ void statistics(int n, const float* x, float* mean, float* inverse, float* running_mean,
                                      float* running_variance, float* running_count, int outer, int inner, float eps,
                                      float fraction) {
    const int count = outer * inner;
    FOR_EACH_ROW(channel, n) {
        float sum = 0;
        for (int k = threadIdx.x; k < count; k += blockDim.x) {
            const int o = k / inner;
            sum += x[(o * n + channel) * inner + k - o * inner];
        }
        const float m = block_sum(sum) / count;
        float squares = 0;
        for (int k = threadIdx.x; k < count; k += blockDim.x) {
            const int o = k / inner;
            const float d = x[(o * n + channel) * inner + k - o * inner] - m;
            squares += d * d;
        }
        const float variance = block_sum(squares) / count;
        if (threadIdx.x == 0) {
            mean[channel] = m;
            inverse[channel] = 1 / sqrtf(variance + eps);
            running_mean[channel] = fraction * running_mean[channel] + m;
            running_variance[channel] = fraction * running_variance[channel] + variance * (count > 1 ? count / (count - 1.0f) : 1);
            if (channel == 0) running_count[0] = fraction * running_count[0] + 1;
        }
    }
}

// The same from the running sums.
extern "C" __global__ void running(int n, const float* running_mean, const float* running_variance, const float* running_count,
                                   float* mean, float* inverse, float eps) {
    const float factor = running_count[0] == 0 ? 0 : 1 / running_count[0];
    FOR_EACH(channel, n) {
        mean[channel] = factor * running_mean[channel];
        inverse[channel] = 1 / sqrtf(factor * running_variance[channel] + eps);
    }
}

// kept: a copy of y for backward, or null
extern "C" __global__ void forward(int n, const float* x, const float* mean, const float* inverse, float* y, float* kept,
                                   int channels, int inner) {
    FOR_EACH(i, n) {
        const int channel = i / inner % channels;
        y[i] = (x[i] - mean[channel]) * inverse[channel];
        if (kept) kept[i] = y[i];
    }
}

extern "C" __global__ void backward_running(int n, const float* dy, const float* inverse, float* dx, int channels, int inner) {
    FOR_EACH(i, n) { dx[i] = dy[i] * inverse[i / inner % channels]; }
}

// dx = (dy - sum_dy / count - y · sum_dy_y / count) · inverse
extern "C" __global__ void backward(int n, const float* dy, const float* y, const float* sum_dy, const float* sum_dy_y,
                                    const float* inverse, float* dx, int channels, int inner, float count) {
    FOR_EACH(i, n) {
        const int channel = i / inner % channels;
        dx[i] = (dy[i] - sum_dy[channel] / count - y[i] * (sum_dy_y[channel] / count)) * inverse[channel];
    }
}
