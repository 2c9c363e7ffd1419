// y[i] = W[index[i]]; indices have been checked on the host
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* index, const float* weights, float* y, int outputs) {
    FOR_EACH(i, n) { y[i] = weights[(int)index[i / outputs] * outputs + i % outputs]; }
}

// Equal indices add up in any order.
extern "C" __global__ void backward(int n, const float* index, const float* dy, float* weights_diff, int outputs) {
    FOR_EACH(i, n) { atomicAdd(&weights_diff[(int)index[i / outputs] * outputs + i % outputs], dy[i]); }
}
