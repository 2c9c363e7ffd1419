// Items (num, length) picked by a list of numbers: BatchReindex and Filter
#include "common.cuh"

extern "C" __global__ void pick(int n, const float* x, const int* which, float* y, int length) {
    FOR_EACH(i, n) { y[i] = x[which[i / length] * length + i % length]; }
}

// dx[item] = Σ dy of its copies, 0 where there are none
extern "C" __global__ void add_up(int n, const float* dy, const int* which, float* dx, int length, int copies) {
    FOR_EACH(i, n) {
        const int item = i / length;
        float sum = 0;
        for (int k = 0; k < copies; k++)
            if (which[k] == item) sum += dy[k * length + i % length];
        dx[i] = sum;
    }
}
