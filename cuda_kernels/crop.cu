// A box of an array of any number of axes. geometry: for each axis the box's size, where it begins, and the whole's stride.
#include "common.cuh"

__device__ inline int place_in_whole(int i, const int* geometry, int axes) {
    int place = 0;
    for (int axis = axes - 1; axis >= 0; axis--) {
        const int *g = geometry + 3 * axis, at = i % g[0];
        place += (at + g[1]) * g[2];
        i /= g[0];
    }
    return place;
}

extern "C" __global__ void copy_out(int n, const float* whole, float* box, const int* geometry, int axes) {
    FOR_EACH(i, n) { box[i] = whole[place_in_whole(i, geometry, axes)]; }
}

extern "C" __global__ void copy_in(int n, const float* box, float* whole, const int* geometry, int axes) {
    FOR_EACH(i, n) { whole[place_in_whole(i, geometry, axes)] = box[i]; }
}
