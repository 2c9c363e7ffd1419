// y = max(low, min(x, high))
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x_, float* y_, float low, float high) {
    FOR_EACH(i, n) {
        const float x = x_[i];
        y_[i] = x < low ? low : x > high ? high : x;
    }
}

extern "C" __global__ void backward(int n, const float* x_, const float* y_, const float* dy_, float* dx_, float low, float high) {
    FOR_EACH(i, n) {
        const float x = x_[i], dy = dy_[i];
        dx_[i] = x >= low && x <= high ? dy : 0 * dy;
    }
}
