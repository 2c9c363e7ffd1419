// y = x · σ(beta · x); the gate σ is kept, since the layer may work in place
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x, float* y, float* gate, float beta) {
    FOR_EACH(i, n) {
        const float value = x[i], g = sigmoid(beta * value);
        gate[i] = g;
        y[i] = value * g;
    }
}

extern "C" __global__ void backward(int n, const float* y, const float* gate, const float* dy, float* dx, float beta) {
    FOR_EACH(i, n) { dx[i] = dy[i] * (beta * y[i] + gate[i] * (1 - beta * y[i])); }
}
