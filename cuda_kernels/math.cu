// What several layers need of arithmetic on whole arrays.
#include "common.cuh"

// y = factor · x
extern "C" __global__ void scaled(int n, const float* x, float* y, float factor) {
    FOR_EACH(i, n) { y[i] = factor * x[i]; }
}

// y = a · x + y
extern "C" __global__ void add_scaled(int n, float a, const float* x, float* y) {
    FOR_EACH(i, n) { y[i] += a * x[i]; }
}

// y = a + b
extern "C" __global__ void add(int n, const float* a, const float* b, float* y) {
    FOR_EACH(i, n) { y[i] = a[i] + b[i]; }
}

extern "C" __global__ void fill(int n, float* y, float value) {
    FOR_EACH(i, n) { y[i] = value; }
}

// y (outer, d, inner) += term (d), repeated
extern "C" __global__ void add_repeated(int n, float* y, const float* term, int d, int inner) {
    FOR_EACH(i, n) { y[i] += term[i / inner % d]; }
}

// For each j < n = d: out[j] = before · out[j] + Σ over outer and inner of a (outer, d, inner)
extern "C" __global__ void block_total(int n, const float* a, float* out, int outer, int inner, float before) {
    FOR_EACH_ROW(j, n) {
        float sum = 0;
        for (int k = threadIdx.x; k < outer * inner; k += blockDim.x) {
            const int o = k / inner;
            sum += a[(o * n + j) * inner + k - o * inner];
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0) out[j] = before == 0 ? sum : before * out[j] + sum;
    }
}

// The same of a · b.
extern "C" __global__ void block_product(int n, const float* a, const float* b, float* out, int outer, int inner, float before) {
    FOR_EACH_ROW(j, n) {
        float sum = 0;
        for (int k = threadIdx.x; k < outer * inner; k += blockDim.x) {
            const int o = k / inner, i = (o * n + j) * inner + k - o * inner;
            sum += a[i] * b[i];
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0) out[j] = before == 0 ? sum : before * out[j] + sum;
    }
}

// One number of each block's share of terms (n) into partial, then of one block into out: Σ terms · factor.
extern "C" __global__ void partial_sums(int n, const float* terms, float* partial) {
    float sum = 0;
    FOR_EACH(i, n) { sum += terms[i]; }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// For each row < n = 1: out = factor · Σ partial (count)
extern "C" __global__ void total(int n, const float* partial, int count, float* out, float factor) {
    FOR_EACH_ROW(row, n) {
        float sum = 0;
        for (int i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
        sum = block_sum(sum);
        if (threadIdx.x == 0) out[row] = sum * factor;
    }
}

// partial[block] = Σ x²
extern "C" __global__ void partial_squares(int n, const float* x, float* partial) {
    float sum = 0;
    FOR_EACH(i, n) { sum += x[i] * x[i]; }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// A part of an array with axes (outer, along, inner): part (outer, size, inner) is whole from `begin` on.
extern "C" __global__ void copy_out(int n, const float* whole, float* part, int along, int begin, int size, int inner) {
    FOR_EACH(i, n) {
        const int o = i / (size * inner);
        part[i] = whole[(o * along + begin) * inner + i - o * size * inner];
    }
}

extern "C" __global__ void copy_in(int n, const float* part, float* whole, int along, int begin, int size, int inner) {
    FOR_EACH(i, n) {
        const int o = i / (size * inner);
        whole[(o * along + begin) * inner + i - o * size * inner] = part[i];
    }
}
