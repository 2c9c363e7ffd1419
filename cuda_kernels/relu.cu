// y = x where x > 0, slope · x elsewhere
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x_, float* y_, float slope) {
    FOR_EACH(i, n) {
        const float x = x_[i];
        y_[i] = x > 0 ? x : slope == 0 && x <= 0 ? 0 : slope * x;
    }
}

extern "C" __global__ void backward(int n, const float* x_, const float* y_, const float* dy_, float* dx_, float slope) {
    FOR_EACH(i, n) {
        const float x = x_[i], dy = dy_[i];
        dx_[i] = x > 0 ? dy : slope == 0 ? 0 : slope * dy;
    }
}
