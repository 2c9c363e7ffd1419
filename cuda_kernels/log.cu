// y = factor · log(shift + scale · x)
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x_, float* y_, float scale, float shift, float factor) {
    FOR_EACH(i, n) {
        const float x = x_[i];
        y_[i] = logf(shift + scale * x) * factor;
    }
}

extern "C" __global__ void backward(int n, const float* x_, const float* y_, const float* dy_, float* dx_, float scale, float shift, float factor) {
    FOR_EACH(i, n) {
        const float x = x_[i], dy = dy_[i];
        dx_[i] = dy / (shift + scale * x) * (scale * factor);
    }
}
