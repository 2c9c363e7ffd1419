// M ← β₁ · M + (1 - β₁) · g;  S ← β₂ · S + (1 - β₂) · g²;  W ← W - rate · M / (√S + delta), rate already corrected
#include "common.cuh"

// g = diff · scale + decay · (w, or its sign with l1); history and diff become the new ones, and w loses diff.
extern "C" __global__ void update(int n, float* w, float* diff, float* m, float* s, float scale, float decay, int l1, float rate, float beta1, float beta2, float delta) {
    FOR_EACH(i, n) {
        const float g = diff[i] * scale + decay * (l1 ? sign(w[i]) : w[i]);
        const float mean = beta1 * m[i] + (1 - beta1) * g, squares = beta2 * s[i] + (1 - beta2) * g * g;
        const float u = rate * (mean / (sqrtf(squares) + delta));
        m[i] = mean;
        s[i] = squares;
        diff[i] = u;
        w[i] -= u;
    }
}
