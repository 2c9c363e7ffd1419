// Two or more arrays, element by element
#include "common.cuh"

extern "C" __global__ void sum(int n, const float* a, float ca, const float* b, float cb, float* y) {
    FOR_EACH(i, n) { y[i] = ca * a[i] + cb * b[i]; }
}

extern "C" __global__ void product(int n, const float* a, const float* b, float* y) {
    FOR_EACH(i, n) { y[i] = a[i] * b[i]; }
}

// y = max(a, b); winner: which bottom has it. The first two: b where they tie. Later ones only where they are greater.
extern "C" __global__ void first_max(int n, const float* a, const float* b, float* y, int* winner) {
    FOR_EACH(i, n) {
        const bool first = a[i] > b[i];
        const float most = first || a[i] != a[i] ? a[i] : b[i];
        winner[i] = first ? 0 : 1;
        y[i] = most;
    }
}

extern "C" __global__ void next_max(int n, const float* x, float* y, int* winner, int which) {
    FOR_EACH(i, n) {
        if (x[i] > y[i]) winner[i] = which;
        if (x[i] > y[i] || x[i] != x[i]) y[i] = x[i];
    }
}

extern "C" __global__ void max_backward(int n, const float* dy, const int* winner, float* dx, int which) {
    FOR_EACH(i, n) { dx[i] = winner[i] == which ? dy[i] : 0 * dy[i]; }
}

// dx = dy · product / x
extern "C" __global__ void quotient(int n, const float* dy, const float* product, const float* x, float* dx) {
    FOR_EACH(i, n) { dx[i] = product[i] / x[i] * dy[i]; }
}
