// y = exp(scale · x + shift)
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x_, float* y_, float scale, float shift) {
    FOR_EACH(i, n) {
        const float x = x_[i];
        y_[i] = expf(scale * x + shift);
    }
}

extern "C" __global__ void backward(int n, const float* x_, const float* y_, const float* dy_, float* dx_, float scale, float shift) {
    FOR_EACH(i, n) {
        const float y = y_[i], dy = dy_[i];
        dx_[i] = dy * y * scale;
    }
}
