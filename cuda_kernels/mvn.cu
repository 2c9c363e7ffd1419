// y = (x - mean) / (deviation + eps) for each row < n of x (n, length)
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x_, float* y_, float* deviation, int length, int normalize, float eps) {
    FOR_EACH_ROW(row, n) {
        const float* x = x_ + row * length;
        float* y = y_ + row * length;
        float sum = 0, squares = 0;
        for (int i = threadIdx.x; i < length; i += blockDim.x) sum += x[i];
        const float mean = block_sum(sum) / length;
        for (int i = threadIdx.x; i < length; i += blockDim.x) {
            const float d = x[i] - mean;
            y[i] = d;
            squares += d * d;
        }
        if (!normalize) continue;
        const float s = sqrtf(block_sum(squares) / length);
        if (threadIdx.x == 0) deviation[row] = s;
        for (int i = threadIdx.x; i < length; i += blockDim.x) y[i] /= s + eps;
    }
}

extern "C" __global__ void backward(int n, const float* y_, const float* dy_, const float* deviation, float* dx_, int length,
                                    int normalize, float eps) {
    FOR_EACH_ROW(row, n) {
        const float *y = y_ + row * length, *dy = dy_ + row * length;
        float* dx = dx_ + row * length;
        float sum = 0, along = 0;
        for (int i = threadIdx.x; i < length; i += blockDim.x) {
            sum += dy[i];
            if (normalize) along += dy[i] * y[i];
        }
        const float mean = block_sum(sum) / length;
        along = block_sum(along) / length;
        const float s = normalize ? deviation[row] : 1, divisor = normalize ? s + eps : 1;
        const float share = normalize && s > 0 ? along * divisor / s : 0;
        for (int i = threadIdx.x; i < length; i += blockDim.x)
            dx[i] = normalize ? (dy[i] - mean - y[i] * share) / divisor : dy[i] - mean;
    }
}
