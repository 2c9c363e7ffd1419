// y = log(1 + exp(x)), without overflow
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x_, float* y_) {
    FOR_EACH(i, n) {
        const float x = x_[i];
        y_[i] = fmaxf(x, 0) + log1pf(expf(-fabsf(x)));
    }
}

extern "C" __global__ void backward(int n, const float* x_, const float* y_, const float* dy_, float* dx_) {
    FOR_EACH(i, n) {
        const float x = x_[i], dy = dy_[i];
        dx_[i] = dy * sigmoid(x);
    }
}
