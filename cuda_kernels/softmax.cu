// y = exp(x) / Σ exp(x) over classes, x as (outer, classes, inner)
#include "common.cuh"

// inner is 1: a block for each row.
extern "C" __global__ void forward_rows(int n, const float* x_, float* y_, int classes) {
    FOR_EACH_ROW(row, n) {
        const float* x = x_ + row * classes;
        float* y = y_ + row * classes;
        float most = -FLT_MAX;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) most = x[c] > most ? x[c] : most;
        most = block_max(most);
        float sum = 0;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) {
            y[c] = expf(x[c] - most);
            sum += y[c];
        }
        sum = block_sum(sum);
        for (int c = threadIdx.x; c < classes; c += blockDim.x) y[c] /= sum;
    }
}

extern "C" __global__ void backward_rows(int n, const float* y_, const float* dy_, float* dx_, int classes) {
    FOR_EACH_ROW(row, n) {
        const float *y = y_ + row * classes, *dy = dy_ + row * classes;
        float* dx = dx_ + row * classes;
        float along = 0;
        for (int c = threadIdx.x; c < classes; c += blockDim.x) along += dy[c] * y[c];
        along = block_sum(along);
        for (int c = threadIdx.x; c < classes; c += blockDim.x) dx[c] = (dy[c] - along) * y[c];
    }
}

// Any inner: a thread for each position, so that neighbours read neighbouring numbers.
extern "C" __global__ void forward_positions(int n, const float* x_, float* y_, int classes, int inner) {
    FOR_EACH(position, n) {
        const int start = position / inner * classes * inner + position % inner, end = start + classes * inner;
        float most = -FLT_MAX, sum = 0;
        for (int i = start; i < end; i += inner) most = x_[i] > most ? x_[i] : most;
        for (int i = start; i < end; i += inner) {
            y_[i] = expf(x_[i] - most);
            sum += y_[i];
        }
        for (int i = start; i < end; i += inner) y_[i] /= sum;
    }
}

extern "C" __global__ void backward_positions(int n, const float* y, const float* dy, float* dx, int classes, int inner) {
    FOR_EACH(position, n) {
        const int start = position / inner * classes * inner + position % inner, end = start + classes * inner;
        float along = 0;
        for (int i = start; i < end; i += inner) along += dy[i] * y[i];
        for (int i = start; i < end; i += inner) dx[i] = (dy[i] - along) * y[i];
    }
}
