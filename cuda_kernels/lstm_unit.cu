// One step of LSTM: gates (streams, 4 · d) in the order i, f, o, g; cont (streams)
#include "common.cuh"

// values: the gates after σ and tanh, f times cont; squashed: tanh(c)
extern "C" __global__ void forward(int n, const float* gates, const float* cont, const float* c_prev, float* values, float* c,
                                   float* squashed, float* h, int d) {
    FOR_EACH(k, n) {
        const int stream = k / d, at = stream * 4 * d + k % d;
        const float i = sigmoid(gates[at]), f = cont[stream] * sigmoid(gates[at + d]);
        const float o = sigmoid(gates[at + 2 * d]), g = tanhf(gates[at + 3 * d]);
        values[at] = i;
        values[at + d] = f;
        values[at + 2 * d] = o;
        values[at + 3 * d] = g;
        c[k] = f * c_prev[k] + i * g;
        squashed[k] = tanhf(c[k]);
        h[k] = o * squashed[k];
    }
}

// Diffs of the gates' inputs, and of c_prev; either may be null.
extern "C" __global__ void backward(int n, const float* values, const float* c_prev, const float* squashed, const float* c_diff,
                                    const float* h_diff, float* gates_diff, float* c_prev_diff, int d) {
    FOR_EACH(k, n) {
        const int at = k / d * 4 * d + k % d;
        const float i = values[at], f = values[at + d], o = values[at + 2 * d], g = values[at + 3 * d], s = squashed[k];
        const float dh = h_diff[k], total = c_diff[k] + dh * o * (1 - s * s), previous = c_prev[k];
        if (gates_diff) {
            gates_diff[at] = total * g * i * (1 - i);
            gates_diff[at + d] = total * previous * f * (1 - f);
            gates_diff[at + 2 * d] = dh * s * o * (1 - o);
            gates_diff[at + 3 * d] = total * i * (1 - g * g);
        }
        if (c_prev_diff) c_prev_diff[k] = total * f;
    }
}
