// V' ← momentum · V + rate · g;  W ← W - ((1 + momentum) · V' - momentum · V)
#include "common.cuh"

// g = diff · scale + decay · (w, or its sign with l1); history and diff become the new ones, and w loses diff.
extern "C" __global__ void update(int n, float* w, float* diff, float* v, float scale, float decay, int l1, float rate, float momentum) {
    FOR_EACH(i, n) {
        const float g = diff[i] * scale + decay * (l1 ? sign(w[i]) : w[i]);
        const float before = momentum * v[i], now = before + rate * g;
        const float u = (1 + momentum) * now - before;
        v[i] = now;
        diff[i] = u;
        w[i] -= u;
    }
}
