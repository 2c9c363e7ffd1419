// S ← fraction · S + (1 - fraction) · g²;  W ← W - rate · g / (√S + delta)
#include "common.cuh"

// g = diff · scale + decay · (w, or its sign with l1); history and diff become the new ones, and w loses diff.
extern "C" __global__ void update(int n, float* w, float* diff, float* s, float scale, float decay, int l1, float rate, float fraction, float delta) {
    FOR_EACH(i, n) {
        const float g = diff[i] * scale + decay * (l1 ? sign(w[i]) : w[i]);
        const float squares = fraction * s[i] + (1 - fraction) * g * g;
        const float u = rate * (g / (sqrtf(squares) + delta));
        s[i] = squares;
        diff[i] = u;
        w[i] -= u;
    }
}
