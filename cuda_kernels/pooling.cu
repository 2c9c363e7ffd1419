// Planes (num · channels, *sizes) under windows, for up to three spatial axes d, h, w; a missing axis has size, kernel, stride
// and places 1 and pad 0. A window covers kernel pixels from stride · place - pad on; only those inside the image count.
#include "common.cuh"

// top: the maximum. index: where in its plane, -1 for none; the first of equals. The padding never wins.
extern "C" __global__ void max_forward(int n, const float* bottom, float* top, int* index, int size_d, int size_h, int size_w,
                                       int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w,
                                       int pad_d, int pad_h, int pad_w, int places_d, int places_h, int places_w) {
    const int places = places_d * places_h * places_w;
    FOR_EACH(i, n) {
        const int plane = i / places, place = i - plane * places;
        const int d0 = place / (places_h * places_w) * stride_d - pad_d;
        const int h0 = place / places_w % places_h * stride_h - pad_h, w0 = place % places_w * stride_w - pad_w;
        const float* x = bottom + plane * (size_d * size_h * size_w);
        float most = -FLT_MAX;
        int chosen = -1;
        for (int d = max(d0, 0); d < min(d0 + kernel_d, size_d); d++)
            for (int h = max(h0, 0); h < min(h0 + kernel_h, size_h); h++)
                for (int w = max(w0, 0); w < min(w0 + kernel_w, size_w); w++) {
                    const int pixel = (d * size_h + h) * size_w + w;
                    const float value = x[pixel];
                    if (value > most || value != value) {
                        most = value;
                        chosen = pixel;
                    }
                }
        top[i] = most;
        index[i] = chosen;
    }
}

// The second top: the index as a number.
extern "C" __global__ void index_as_float(int n, const int* index, float* top) {
    FOR_EACH(i, n) { top[i] = (float)index[i]; }
}

// A thread for each pixel: it adds up the diffs of the windows that chose it.
extern "C" __global__ void chosen_backward(int n, const float* top_diff, const int* index, float* bottom_diff, int size_d,
                                           int size_h, int size_w, int kernel_d, int kernel_h, int kernel_w, int stride_d,
                                           int stride_h, int stride_w, int pad_d, int pad_h, int pad_w, int places_d,
                                           int places_h, int places_w) {
    const int size = size_d * size_h * size_w, places = places_d * places_h * places_w;
    FOR_EACH(i, n) {
        const int plane = i / size, pixel = i - plane * size;
        const int d = pixel / (size_h * size_w) + pad_d, h = pixel / size_w % size_h + pad_h, w = pixel % size_w + pad_w;
        const int d0 = d < kernel_d ? 0 : (d - kernel_d) / stride_d + 1, d1 = min(d / stride_d + 1, places_d);
        const int h0 = h < kernel_h ? 0 : (h - kernel_h) / stride_h + 1, h1 = min(h / stride_h + 1, places_h);
        const int w0 = w < kernel_w ? 0 : (w - kernel_w) / stride_w + 1, w1 = min(w / stride_w + 1, places_w);
        float sum = 0;
        for (int od = d0; od < d1; od++)
            for (int oh = h0; oh < h1; oh++)
                for (int ow = w0; ow < w1; ow++) {
                    const int place = plane * places + (od * places_h + oh) * places_w + ow;
                    if (index[place] == pixel) sum += top_diff[place];
                }
        bottom_diff[i] = sum;
    }
}

// The mean over the window up to the end of the padding, padding included.
extern "C" __global__ void average_forward(int n, const float* bottom, float* top, int size_d, int size_h, int size_w,
                                           int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w,
                                           int pad_d, int pad_h, int pad_w, int places_d, int places_h, int places_w) {
    const int places = places_d * places_h * places_w;
    FOR_EACH(i, n) {
        const int plane = i / places, place = i - plane * places;
        const int d0 = place / (places_h * places_w) * stride_d - pad_d;
        const int h0 = place / places_w % places_h * stride_h - pad_h, w0 = place % places_w * stride_w - pad_w;
        const int divisor = (min(d0 + kernel_d, size_d + pad_d) - d0) * (min(h0 + kernel_h, size_h + pad_h) - h0) *
                            (min(w0 + kernel_w, size_w + pad_w) - w0);
        const float* x = bottom + plane * (size_d * size_h * size_w);
        float sum = 0;
        for (int d = max(d0, 0); d < min(d0 + kernel_d, size_d); d++)
            for (int h = max(h0, 0); h < min(h0 + kernel_h, size_h); h++)
                for (int w = max(w0, 0); w < min(w0 + kernel_w, size_w); w++) sum += x[(d * size_h + h) * size_w + w];
        top[i] = sum / (float)divisor;
    }
}

extern "C" __global__ void average_backward(int n, const float* top_diff, float* bottom_diff, int size_d, int size_h, int size_w,
                                            int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w,
                                            int pad_d, int pad_h, int pad_w, int places_d, int places_h, int places_w) {
    const int size = size_d * size_h * size_w, places = places_d * places_h * places_w;
    FOR_EACH(i, n) {
        const int plane = i / size, pixel = i - plane * size;
        const int d = pixel / (size_h * size_w) + pad_d, h = pixel / size_w % size_h + pad_h, w = pixel % size_w + pad_w;
        const int d0 = d < kernel_d ? 0 : (d - kernel_d) / stride_d + 1, d1 = min(d / stride_d + 1, places_d);
        const int h0 = h < kernel_h ? 0 : (h - kernel_h) / stride_h + 1, h1 = min(h / stride_h + 1, places_h);
        const int w0 = w < kernel_w ? 0 : (w - kernel_w) / stride_w + 1, w1 = min(w / stride_w + 1, places_w);
        float sum = 0;
        for (int od = d0; od < d1; od++)
            for (int oh = h0; oh < h1; oh++)
                for (int ow = w0; ow < w1; ow++) {
                    const int ds = od * stride_d, hs = oh * stride_h, ws = ow * stride_w;  // starts, from the padding's begin
                    const int divisor = (min(ds + kernel_d, size_d + 2 * pad_d) - ds) *
                                        (min(hs + kernel_h, size_h + 2 * pad_h) - hs) *
                                        (min(ws + kernel_w, size_w + 2 * pad_w) - ws);
                    sum += top_diff[plane * places + (od * places_h + oh) * places_w + ow] / (float)divisor;
                }
        bottom_diff[i] = sum;
    }
}

// One pixel of each window, drawn with probability x / Σ x from the window's 32 random bits; negative x are never drawn.
extern "C" __global__ void draw_forward(int n, const float* bottom, const unsigned* bits, float* top, int* index, int size_d,
                                        int size_h, int size_w, int kernel_d, int kernel_h, int kernel_w, int stride_d,
                                        int stride_h, int stride_w, int pad_d, int pad_h, int pad_w, int places_d, int places_h,
                                        int places_w) {
    const int places = places_d * places_h * places_w;
    FOR_EACH(i, n) {
        const int plane = i / places, place = i - plane * places;
        const int d0 = place / (places_h * places_w) * stride_d, h0 = place / places_w % places_h * stride_h;
        const int w0 = place % places_w * stride_w;
        const float* x = bottom + plane * (size_d * size_h * size_w);
        float total = 0, running = 0;
        for (int d = d0; d < min(d0 + kernel_d, size_d); d++)
            for (int h = h0; h < min(h0 + kernel_h, size_h); h++)
                for (int w = w0; w < min(w0 + kernel_w, size_w); w++) total += fmaxf(x[(d * size_h + h) * size_w + w], 0);
        const float threshold = (float)(bits[i] >> 8) * (1.0f / (1 << 24)) * total;
        int chosen = -1;
        for (int d = d0; d < min(d0 + kernel_d, size_d); d++)
            for (int h = h0; h < min(h0 + kernel_h, size_h); h++)
                for (int w = w0; w < min(w0 + kernel_w, size_w); w++) {
                    const int pixel = (d * size_h + h) * size_w + w;
                    const bool open = running <= threshold;
                    running += fmaxf(x[pixel], 0);
                    if (chosen < 0 && total == 0) chosen = pixel;
                    if (open && running > threshold) chosen = pixel;
                }
        index[i] = chosen;
        top[i] = chosen < 0 ? 0 : x[chosen];
    }
}

// The expected value of that draw, Σ x² / Σ x, and 1 / Σ x; both 0 where all x are 0 or less.
extern "C" __global__ void expectation(int n, const float* bottom, float* mean, float* inverse, int size_d, int size_h,
                                       int size_w, int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h,
                                       int stride_w, int pad_d, int pad_h, int pad_w, int places_d, int places_h, int places_w) {
    const int places = places_d * places_h * places_w;
    FOR_EACH(i, n) {
        const int plane = i / places, place = i - plane * places;
        const int d0 = place / (places_h * places_w) * stride_d, h0 = place / places_w % places_h * stride_h;
        const int w0 = place % places_w * stride_w;
        const float* x = bottom + plane * (size_d * size_h * size_w);
        float sum = 0, squares = 0;
        for (int d = d0; d < min(d0 + kernel_d, size_d); d++)
            for (int h = h0; h < min(h0 + kernel_h, size_h); h++)
                for (int w = w0; w < min(w0 + kernel_w, size_w); w++) {
                    const float value = fmaxf(x[(d * size_h + h) * size_w + w], 0);
                    sum += value;
                    squares += value * value;
                }
        inverse[i] = sum > 0 ? 1 / sum : 0;
        mean[i] = squares * inverse[i];
    }
}

extern "C" __global__ void expectation_backward(int n, const float* bottom, const float* mean, const float* inverse,
                                                const float* top_diff, float* bottom_diff, int size_d, int size_h, int size_w,
                                                int kernel_d, int kernel_h, int kernel_w, int stride_d, int stride_h,
                                                int stride_w, int pad_d, int pad_h, int pad_w, int places_d, int places_h,
                                                int places_w) {
    const int size = size_d * size_h * size_w, places = places_d * places_h * places_w;
    FOR_EACH(i, n) {
        const int plane = i / size, pixel = i - plane * size;
        const int d = pixel / (size_h * size_w), h = pixel / size_w % size_h, w = pixel % size_w;
        const int d0 = d < kernel_d ? 0 : (d - kernel_d) / stride_d + 1, d1 = min(d / stride_d + 1, places_d);
        const int h0 = h < kernel_h ? 0 : (h - kernel_h) / stride_h + 1, h1 = min(h / stride_h + 1, places_h);
        const int w0 = w < kernel_w ? 0 : (w - kernel_w) / stride_w + 1, w1 = min(w / stride_w + 1, places_w);
        float sum = 0;
        for (int od = d0; od < d1; od++)
            for (int oh = h0; oh < h1; oh++)
                for (int ow = w0; ow < w1; ow++) {
                    const int place = plane * places + (od * places_h + oh) * places_w + ow;
                    sum += top_diff[place] * inverse[place] * (2 * bottom[i] - mean[place]);
                }
        bottom_diff[i] = bottom[i] > 0 ? sum : 0;
    }
}
