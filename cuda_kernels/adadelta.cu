// S ← μ · S + (1 - μ) · g²;  u = g · √((U + delta) / (S + delta));  U ← μ · U + (1 - μ) · u²;  W ← W - rate · u
#include "common.cuh"

// g = diff · scale + decay · (w, or its sign with l1); history and diff become the new ones, and w loses diff.
extern "C" __global__ void update(int n, float* w, float* diff, float* s, float* updates, float scale, float decay, int l1, float rate, float momentum, float delta) {
    FOR_EACH(i, n) {
        const float g = diff[i] * scale + decay * (l1 ? sign(w[i]) : w[i]);
        const float squares = momentum * s[i] + (1 - momentum) * g * g;
        const float step = g * sqrtf((updates[i] + delta) / (squares + delta)), u = rate * step;
        s[i] = squares;
        updates[i] = momentum * updates[i] + (1 - momentum) * step * step;
        diff[i] = u;
        w[i] -= u;
    }
}
