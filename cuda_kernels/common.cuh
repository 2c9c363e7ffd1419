// What all kernels share. Each is `extern "C" __global__ void name(int n, ...)`: n threads have work, or n rows, one
// block for each. Shapes come as arguments; arrays are float, in C order.
#pragma once
#include <float.h>

// A grid-stride loop: any number of blocks will do. n is below 2^31 less the number of threads, so i does not overflow.
#define FOR_EACH(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)

// One block for each row, or for several in turn.
#define FOR_EACH_ROW(row, n) for (int row = blockIdx.x; row < (n); row += gridDim.x)

#define MOST_THREADS 256

// Combines each thread's value over the block, by halves; all threads get the result. The block has a power of two of
// threads, MOST_THREADS at most, all of which must call it.
#define BLOCK_REDUCTION(name, type, combined)                                    \
    __device__ inline type name(type value) {                                    \
        __shared__ type lanes[MOST_THREADS];                                     \
        lanes[threadIdx.x] = value;                                              \
        __syncthreads();                                                         \
        for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {              \
            if (threadIdx.x < half) {                                            \
                const type a = lanes[threadIdx.x], b = lanes[threadIdx.x + half]; \
                lanes[threadIdx.x] = combined;                                   \
            }                                                                    \
            __syncthreads();                                                     \
        }                                                                        \
        const type result = lanes[0];                                            \
        __syncthreads(); /* before the next call writes there */                 \
        return result;                                                           \
    }

BLOCK_REDUCTION(block_sum, float, a + b)
BLOCK_REDUCTION(block_max, float, a > b ? a : b)

__device__ inline float sigmoid(float x) { return 0.5f * tanhf(0.5f * x) + 0.5f; }
__device__ inline float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
