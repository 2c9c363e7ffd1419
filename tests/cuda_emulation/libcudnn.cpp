// TEST ONLY: the few functions of libcudnn that the GPU engine calls: convolutions as plain loops, on emulated device memory,
// for two and three spatial axes.
#include <cstddef>
#include <cstring>

#define API extern "C" __attribute__((visibility("default")))
enum { OK = 0, BAD_PARAM = 3 };
extern "C" int emulated_inside(const void* p, size_t size);
typedef void* Handle;

// A tensor's or filter's dimensions; of a convolution pad, stride and dilation, with its groups.
struct Descriptor { int axes, dims[8], stride[8], dilation[8], groups; };
struct Performance { int algorithm, status; float time; size_t memory; int determinism, math, reserved[3]; };

API size_t cudnnGetVersion() { return 91000; }
API const char* cudnnGetErrorString(int) { return "emulated: bad parameter"; }
API int cudnnCreate(Handle* handle) { *handle = (Handle)1; return OK; }
API int cudnnSetStream(Handle, Handle) { return OK; }

#define CREATE_AND_DESTROY(kind)                                                                             \
    API int cudnnCreate##kind##Descriptor(Descriptor** d) { *d = new Descriptor(); (*d)->groups = 1; return OK; } \
    API int cudnnDestroy##kind##Descriptor(Descriptor* d) { delete d; return OK; }
CREATE_AND_DESTROY(Tensor)
CREATE_AND_DESTROY(Filter)
CREATE_AND_DESTROY(Convolution)

static int set(Descriptor* d, int type, int axes, const int* dims) {
    if (type != 0 || axes < 4 || axes > 5) return BAD_PARAM;
    d->axes = axes;
    memcpy(d->dims, dims, axes * sizeof(int));
    return OK;
}
API int cudnnSetTensorNdDescriptor(Descriptor* d, int type, int axes, const int* dims, const int* strides) {
    int expected = 1;
    for (int i = axes - 1; i >= 0; expected *= dims[i--])
        if (strides[i] != expected) return BAD_PARAM;
    return set(d, type, axes, dims);
}
API int cudnnSetFilterNdDescriptor(Descriptor* d, int type, int format, int axes, const int* dims) {
    return format == 0 ? set(d, type, axes, dims) : BAD_PARAM;
}
API int cudnnSetConvolutionNdDescriptor(Descriptor* d, int axes, const int* pad, const int* stride, const int* dilation, int mode, int type) {
    if (mode != 1 || type != 0) return BAD_PARAM;
    d->axes = axes;
    memcpy(d->dims, pad, axes * sizeof(int));
    memcpy(d->stride, stride, axes * sizeof(int));
    memcpy(d->dilation, dilation, axes * sizeof(int));
    return OK;
}
API int cudnnSetConvolutionGroupCount(Descriptor* d, int groups) { d->groups = groups; return OK; }
API int cudnnSetConvolutionMathType(Descriptor*, int) { return OK; }

// The first is not deterministic, the second needs too much; so the third is right.
static int recommend(int requested, int* found, Performance* results) {
    if (requested < 3) return BAD_PARAM;
    memset(results, 0, 3 * sizeof(Performance));
    results[0] = {5, 0, 1, 64, 0, 0, {}};
    results[1] = {6, 0, 2, size_t(1) << 40, 1, 0, {}};
    results[2] = {1, 0, 3, 128, 1, 0, {}};
    *found = 3;
    return OK;
}
#define RECOMMEND(name)                                                                                                   \
    API int cudnnGetConvolution##name##Algorithm_v7(Handle, Descriptor*, Descriptor*, Descriptor*, Descriptor*, int n, int* found, \
                                                    Performance* results) { return recommend(n, found, results); }
RECOMMEND(Forward)
RECOMMEND(BackwardData)
RECOMMEND(BackwardFilter)

static size_t count(const Descriptor* d) {
    size_t n = 1;
    for (int i = 0; i < d->axes; i++) n *= d->dims[i];
    return n;
}

// Calls use(image index, filter index, feature index) for all that meet.
template <class F>
static int meet(const Descriptor* image, const Descriptor* filter, const Descriptor* features, const Descriptor* conv, F use) {
    int axes = conv->axes, groups = conv->groups;
    if (image->axes != axes + 2 || filter->axes != axes + 2 || features->axes != axes + 2) return BAD_PARAM;
    int size[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, places[3] = {1, 1, 1}, pad[3] = {0, 0, 0}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
    for (int i = 0; i < axes; i++) {
        int to = 3 - axes + i;
        size[to] = image->dims[2 + i], kernel[to] = filter->dims[2 + i], places[to] = features->dims[2 + i];
        pad[to] = conv->dims[i], stride[to] = conv->stride[i], dilation[to] = conv->dilation[i];
        if (places[to] != (size[to] + 2 * pad[to] - dilation[to] * (kernel[to] - 1) - 1) / stride[to] + 1) return BAD_PARAM;
    }
    int num = image->dims[0], channels = image->dims[1], outputs = features->dims[1], each = channels / groups;
    if (filter->dims[0] != outputs || filter->dims[1] != each || features->dims[0] != num) return BAD_PARAM;
    for (int n = 0; n < num; n++)
        for (int o = 0; o < outputs; o++)
            for (int c = 0; c < each; c++)
                for (int p = 0; p < places[0] * places[1] * places[2]; p++)
                    for (int t = 0; t < kernel[0] * kernel[1] * kernel[2]; t++) {
                        int pd = p / (places[1] * places[2]), ph = p / places[2] % places[1], pw = p % places[2];
                        int td = t / (kernel[1] * kernel[2]), th = t / kernel[2] % kernel[1], tw = t % kernel[2];
                        int d = pd * stride[0] + td * dilation[0] - pad[0], h = ph * stride[1] + th * dilation[1] - pad[1];
                        int w = pw * stride[2] + tw * dilation[2] - pad[2];
                        if (d < 0 || h < 0 || w < 0 || d >= size[0] || h >= size[1] || w >= size[2]) continue;
                        int channel = o / (outputs / groups) * each + c;
                        use(((n * channels + channel) * size[0] + d) * size[1] * size[2] + h * size[2] + w,
                            (o * each + c) * kernel[0] * kernel[1] * kernel[2] + t,
                            (n * outputs + o) * places[0] * places[1] * places[2] + p);
                    }
    return OK;
}

static bool inside(const Descriptor* d, const void* p) { return emulated_inside(p, 4 * count(d)); }
static int prepare(const Descriptor* d, float* target, const float* beta, int algorithm, const void* workspace, size_t size) {
    if (algorithm != 1 || size != 128 || !emulated_inside(workspace, size) || !inside(d, target)) return BAD_PARAM;
    for (size_t i = 0; i < count(d); i++) target[i] = *beta == 0 ? 0 : *beta * target[i];
    return OK;
}

API int cudnnConvolutionForward(Handle, const float*, Descriptor* xd, const float* x, Descriptor* wd, const float* w, Descriptor* conv,
                                int algorithm, void* workspace, size_t size, const float* beta, Descriptor* yd, float* y) {
    if (!inside(xd, x) || !inside(wd, w) || prepare(yd, y, beta, algorithm, workspace, size)) return BAD_PARAM;
    return meet(xd, wd, yd, conv, [=](int i, int j, int k) { y[k] += x[i] * w[j]; });
}
API int cudnnConvolutionBackwardData(Handle, const float*, Descriptor* wd, const float* w, Descriptor* yd, const float* dy, Descriptor* conv,
                                     int algorithm, void* workspace, size_t size, const float* beta, Descriptor* xd, float* dx) {
    if (!inside(yd, dy) || !inside(wd, w) || prepare(xd, dx, beta, algorithm, workspace, size)) return BAD_PARAM;
    return meet(xd, wd, yd, conv, [=](int i, int j, int k) { dx[i] += dy[k] * w[j]; });
}
API int cudnnConvolutionBackwardFilter(Handle, const float*, Descriptor* xd, const float* x, Descriptor* yd, const float* dy,
                                       Descriptor* conv, int algorithm, void* workspace, size_t size, const float* beta, Descriptor* wd,
                                       float* dw) {
    if (!inside(xd, x) || !inside(yd, dy) || prepare(wd, dw, beta, algorithm, workspace, size)) return BAD_PARAM;
    return meet(xd, wd, yd, conv, [=](int i, int j, int k) { dw[j] += dy[k] * x[i]; });
}
