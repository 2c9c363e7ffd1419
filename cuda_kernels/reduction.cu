// For each row < n of x (n, length): y = coeff · Σ x (0), Σ |x| (1) or Σ x² (2)
#include "common.cuh"

extern "C" __global__ void forward(int n, const float* x, float* y, int length, int operation, float coeff) {
    FOR_EACH_ROW(row, n) {
        float sum = 0;
        for (int i = threadIdx.x; i < length; i += blockDim.x) {
            const float value = x[row * length + i];
            sum += operation == 0 ? value : operation == 1 ? fabsf(value) : value * value;
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0) y[row] = coeff * sum;
    }
}

extern "C" __global__ void backward(int n, const float* x, const float* dy, float* dx, int length, int operation, float coeff) {
    FOR_EACH(i, n) {
        const float scale = dy[i / length] * coeff;
        dx[i] = operation == 0 ? scale : operation == 1 ? sign(x[i]) * scale : 2 * scale * x[i];
    }
}
