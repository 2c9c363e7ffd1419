// Images (num, channels, *sizes) and their columns (num, channels, *kernel, *places), for up to three spatial axes d, h, w;
// a missing axis has size, kernel, stride, dilation and places 1 and pad 0.
#include "common.cuh"

// A thread for each (image, channel, place): it writes one number for each tap.
extern "C" __global__ void im2col(int n, const float* image, float* columns, int size_d, int size_h, int size_w, int kernel_d,
                                  int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h,
                                  int pad_w, int dilation_d, int dilation_h, int dilation_w, int places_d, int places_h,
                                  int places_w) {
    const int places = places_d * places_h * places_w, taps = kernel_d * kernel_h * kernel_w;
    FOR_EACH(i, n) {
        const int plane = i / places, place = i - plane * places;
        const int d0 = place / (places_h * places_w) * stride_d - pad_d;
        const int h0 = place / places_w % places_h * stride_h - pad_h, w0 = place % places_w * stride_w - pad_w;
        const float* x = image + plane * (size_d * size_h * size_w);
        float* y = columns + (long long)plane * taps * places + place;
        for (int td = 0; td < kernel_d; td++)
            for (int th = 0; th < kernel_h; th++)
                for (int tw = 0; tw < kernel_w; tw++, y += places) {
                    const int d = d0 + td * dilation_d, h = h0 + th * dilation_h, w = w0 + tw * dilation_w;
                    const bool inside = d >= 0 && d < size_d && h >= 0 && h < size_h && w >= 0 && w < size_w;
                    *y = inside ? x[(d * size_h + h) * size_w + w] : 0;
                }
    }
}

// A thread for each pixel: it adds up what saw it.
extern "C" __global__ void col2im(int n, const float* columns, float* image, int size_d, int size_h, int size_w, int kernel_d,
                                  int kernel_h, int kernel_w, int stride_d, int stride_h, int stride_w, int pad_d, int pad_h,
                                  int pad_w, int dilation_d, int dilation_h, int dilation_w, int places_d, int places_h,
                                  int places_w) {
    const int size = size_d * size_h * size_w, places = places_d * places_h * places_w, taps = kernel_d * kernel_h * kernel_w;
    FOR_EACH(i, n) {
        const int plane = i / size, pixel = i - plane * size;
        const int d = pixel / (size_h * size_w) + pad_d, h = pixel / size_w % size_h + pad_h, w = pixel % size_w + pad_w;
        const float* y = columns + (long long)plane * taps * places;
        float sum = 0;
        for (int td = 0; td < kernel_d; td++) {
            const int sd = d - td * dilation_d, od = sd / stride_d;
            if (sd < 0 || od * stride_d != sd || od >= places_d) continue;
            for (int th = 0; th < kernel_h; th++) {
                const int sh = h - th * dilation_h, oh = sh / stride_h;
                if (sh < 0 || oh * stride_h != sh || oh >= places_h) continue;
                for (int tw = 0; tw < kernel_w; tw++) {
                    const int sw = w - tw * dilation_w, ow = sw / stride_w;
                    if (sw < 0 || ow * stride_w != sw || ow >= places_w) continue;
                    const int tap = (td * kernel_h + th) * kernel_w + tw;
                    sum += y[tap * places + (od * places_h + oh) * places_w + ow];
                }
            }
        }
        image[i] = sum;
    }
}
