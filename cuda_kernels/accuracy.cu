// Is a position's labelled class among the top_k? scores as (outer, classes, inner)
#include "common.cuh"

// partial[block]: how many are right. hits and present (classes), if not null: the same for each class, and its positions.
extern "C" __global__ void forward(int n, const float* scores, const float* labels, float* partial, float* hits,
                                   float* present, int classes, int inner, int top_k, int ignores, int ignored) {
    float right = 0;
    FOR_EACH(position, n) {
        const int label = (int)labels[position], start = position / inner * classes * inner + position % inner;
        if (ignores && label == ignored) continue;
        const float own = scores[start + label * inner];
        int rivals = 0;
        for (int c = 0; c < classes; c++) rivals += scores[start + c * inner] >= own;
        const float hit = rivals > 0 && rivals <= top_k ? 1 : 0;
        right += hit;
        if (hits) {
            atomicAdd(&hits[label], hit);
            atomicAdd(&present[label], 1.0f);
        }
    }
    right = block_sum(right);
    if (threadIdx.x == 0) partial[blockIdx.x] = right;
}

extern "C" __global__ void shares(int n, const float* hits, const float* present, float* y) {
    FOR_EACH(c, n) { y[c] = present[c] > 0 ? hits[c] / present[c] : 0; }
}
