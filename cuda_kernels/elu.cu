// y = x where x > 0, alpha · (exp(x) - 1) elsewhere
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x_, float* y_, float alpha) {
    FOR_EACH(i, n) {
        const float x = x_[i];
        y_[i] = x > 0 ? x : alpha * (expf(x) - 1);
    }
}

extern "C" __global__ void backward(int n, const float* x_, const float* y_, const float* dy_, float* dx_, float alpha) {
    FOR_EACH(i, n) {
        const float x = x_[i], y = y_[i], dy = dy_[i];
        dx_[i] = x > 0 ? dy : (y + alpha) * dy;
    }
}
