// y = tanh(x)
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x_, float* y_) {
    FOR_EACH(i, n) {
        const float x = x_[i];
        y_[i] = tanhf(x);
    }
}

extern "C" __global__ void backward(int n, const float* x_, const float* y_, const float* dy_, float* dx_) {
    FOR_EACH(i, n) {
        const float y = y_[i], dy = dy_[i];
        dx_[i] = dy * (1 - y * y);
    }
}
