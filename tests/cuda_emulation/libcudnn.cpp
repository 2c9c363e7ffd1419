// TEST ONLY: the few functions of libcudnn that the GPU engine calls, as plain loops over their definitions, on emulated
// device memory, for two and three spatial axes. Descriptors, parameters' bounds and addresses are checked.
//
// Where cuDNN's documentation leaves open from which of its arguments a gradient is computed, all must give the same.
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
enum { OK = 0, BAD_PARAM = 3, NOT_SUPPORTED = 9 };
extern "C" int emulated_inside(const void* p, size_t size);
typedef void* Handle;

// A tensor's or filter's dimensions; of a convolution pad, stride and dilation, with its groups; of pooling pad, stride and
// window, of an activation its function (mode); of LRN the window and alpha, beta, k.
struct Descriptor { int axes, dims[8], stride[8], dilation[8], groups, window[8], mode; double alpha, beta, k; };
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
CREATE_AND_DESTROY(Pooling)
CREATE_AND_DESTROY(LRN)
CREATE_AND_DESTROY(Activation)

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

// The first is not deterministic, the second needs too much, the third is not for this descriptor; so the fourth is right.
static int recommend(int requested, int* found, Performance* results) {
    if (requested < 4) return BAD_PARAM;
    memset(results, 0, 4 * sizeof(Performance));
    results[0] = {5, 0, 1, 64, 0, 0, {}};
    results[1] = {6, 0, 2, size_t(1) << 40, 1, 0, {}};
    results[2] = {7, 0, 3, 64, 1, 1, {}};
    results[3] = {1, 0, 3, 64, 1, 1, {}};  // of another math type, which needs less than the descriptor's
    *found = 4;
    return OK;
}
static int workspace(int algorithm, size_t* size) {
    *size = algorithm == 6 ? size_t(1) << 40 : 128;
    return algorithm == 7 ? NOT_SUPPORTED : OK;
}
#define RECOMMEND(name)                                                                                                   \
    API int cudnnGetConvolution##name##Algorithm_v7(Handle, Descriptor*, Descriptor*, Descriptor*, Descriptor*, int n, int* found, \
                                                    Performance* results) { return recommend(n, found, results); } \
    API int cudnnGetConvolution##name##WorkspaceSize(Handle, Descriptor*, Descriptor*, Descriptor*, Descriptor*, int algorithm, \
                                                     size_t* size) { return workspace(algorithm, size); }
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

// A handle is for one thread at a time.
struct Use {
    static std::atomic<int> users;
    const bool alone;
    Use() : alone(users++ == 0) {}
    ~Use() { users--; }
};
std::atomic<int> Use::users;

static bool inside(const Descriptor* d, const void* p) { return emulated_inside(p, 4 * count(d)); }
static int prepare(const Descriptor* d, float* target, const float* beta, int algorithm, const void* workspace, size_t size) {
    if (algorithm != 1 || size != 128 || !emulated_inside(workspace, size) || !inside(d, target)) return BAD_PARAM;
    for (size_t i = 0; i < count(d); i++) target[i] = *beta == 0 ? 0 : *beta * target[i];
    return OK;
}

API int cudnnConvolutionForward(Handle, const float*, Descriptor* xd, const float* x, Descriptor* wd, const float* w, Descriptor* conv,
                                int algorithm, void* workspace, size_t size, const float* beta, Descriptor* yd, float* y) {
    const Use use;
    if (!use.alone || !inside(xd, x) || !inside(wd, w) || prepare(yd, y, beta, algorithm, workspace, size)) return BAD_PARAM;
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

// -- element by element, along channels, and windows ------------------------------------------------------------------------

static bool same(const Descriptor* a, const Descriptor* b) {
    return a->axes == b->axes && !memcmp(a->dims, b->dims, a->axes * sizeof(int));
}
static bool plain(const float* alpha, const float* beta) { return *alpha == 1 && *beta == 0; }

API int cudnnSetActivationDescriptor(Descriptor* d, int mode, int propagate_nan, double coefficient) {
    d->mode = mode;
    return mode >= 0 && mode <= 2 && propagate_nan == 1 && coefficient == 0 ? OK : BAD_PARAM;
}
API int cudnnActivationForward(Handle, Descriptor* d, const float* alpha, Descriptor* xd, const float* x, const float* beta,
                               Descriptor* yd, float* y) {
    if (!plain(alpha, beta) || !same(xd, yd) || !inside(xd, x) || !inside(yd, y)) return BAD_PARAM;
    for (size_t i = 0; i < count(xd); i++)
        y[i] = d->mode == 0 ? 1 / (1 + expf(-x[i])) : d->mode == 1 ? (x[i] <= 0 ? 0 : x[i]) : tanhf(x[i]);
    return OK;
}
API int cudnnActivationBackward(Handle, Descriptor* d, const float* alpha, Descriptor* yd, const float* y, Descriptor* dyd,
                                const float* dy, Descriptor* xd, const float* x, const float* beta, Descriptor* dxd, float* dx) {
    if (!plain(alpha, beta) || !same(xd, yd) || !same(xd, dyd) || !same(xd, dxd)) return BAD_PARAM;
    if (!inside(xd, x) || !inside(yd, y) || !inside(dyd, dy) || !inside(dxd, dx)) return BAD_PARAM;
    for (size_t i = 0; i < count(xd); i++) {
        float from_x = x[i] > 0, from_y = y[i] > 0;
        if (d->mode != 1) {
            float value = d->mode == 0 ? 1 / (1 + expf(-x[i])) : tanhf(x[i]);
            from_x = d->mode == 0 ? value * (1 - value) : 1 - value * value;
            from_y = d->mode == 0 ? y[i] * (1 - y[i]) : 1 - y[i] * y[i];
        }
        if (fabsf(from_x - from_y) > 1e-5f) return BAD_PARAM;
        dx[i] = dy[i] * from_y;
    }
    return OK;
}

// Calls use(first index, step, length) for each position: its values along axis 1.
template <class F>
static void along_channels(const Descriptor* d, F use) {
    int inner = 1;
    for (int i = 2; i < d->axes; i++) inner *= d->dims[i];
    for (int n = 0; n < d->dims[0]; n++)
        for (int i = 0; i < inner; i++) use((size_t)n * d->dims[1] * inner + i, inner, d->dims[1]);
}

API int cudnnSoftmaxForward(Handle, int algorithm, int mode, const float* alpha, Descriptor* xd, const float* x, const float* beta,
                            Descriptor* yd, float* y) {
    if (algorithm != 1 || mode != 1 || !plain(alpha, beta) || !same(xd, yd) || !inside(xd, x) || !inside(yd, y)) return BAD_PARAM;
    along_channels(xd, [=](size_t first, int step, int length) {
        float most = -FLT_MAX, sum = 0;
        for (int c = 0; c < length; c++) most = fmaxf(most, x[first + c * step]);
        for (int c = 0; c < length; c++) sum += y[first + c * step] = expf(x[first + c * step] - most);
        for (int c = 0; c < length; c++) y[first + c * step] /= sum;
    });
    return OK;
}
API int cudnnSoftmaxBackward(Handle, int algorithm, int mode, const float* alpha, Descriptor* yd, const float* y, Descriptor* dyd,
                             const float* dy, const float* beta, Descriptor* dxd, float* dx) {
    if (algorithm != 1 || mode != 1 || !plain(alpha, beta) || !same(yd, dyd) || !same(yd, dxd)) return BAD_PARAM;
    if (!inside(yd, y) || !inside(dyd, dy) || !inside(dxd, dx)) return BAD_PARAM;
    along_channels(yd, [=](size_t first, int step, int length) {
        float sum = 0;
        for (int c = 0; c < length; c++) sum += y[first + c * step] * dy[first + c * step];
        for (int c = 0; c < length; c++) dx[first + c * step] = y[first + c * step] * (dy[first + c * step] - sum);
    });
    return OK;
}

API int cudnnSetLRNDescriptor(Descriptor* d, unsigned size, double alpha, double beta, double k) {
    d->window[0] = size, d->alpha = alpha, d->beta = beta, d->k = k;
    return size >= 1 && size <= 16 && beta >= 0.01 && k >= 1e-5 ? OK : BAD_PARAM;
}
// The energies of one position.
static std::vector<float> energies(const Descriptor* d, const float* x, int step, int length) {
    std::vector<float> s(length);
    for (int c = 0; c < length; c++) {
        float sum = 0;
        for (int o = c - (d->window[0] - 1) / 2; o <= c + d->window[0] / 2; o++)
            if (o >= 0 && o < length) sum += x[o * step] * x[o * step];
        s[c] = (float)d->k + (float)d->alpha / d->window[0] * sum;
    }
    return s;
}
API int cudnnLRNCrossChannelForward(Handle, Descriptor* d, int mode, const float* alpha, Descriptor* xd, const float* x,
                                    const float* beta, Descriptor* yd, float* y) {
    if (mode != 0 || !plain(alpha, beta) || !same(xd, yd) || !inside(xd, x) || !inside(yd, y) || x == y) return BAD_PARAM;
    along_channels(xd, [=](size_t first, int step, int length) {
        std::vector<float> s = energies(d, x + first, step, length);
        for (int c = 0; c < length; c++) y[first + c * step] = x[first + c * step] * powf(s[c], -d->beta);
    });
    return OK;
}
API int cudnnLRNCrossChannelBackward(Handle, Descriptor* d, int mode, const float* alpha, Descriptor* yd, const float* y, Descriptor* dyd,
                                     const float* dy, Descriptor* xd, const float* x, const float* beta, Descriptor* dxd, float* dx) {
    if (mode != 0 || !plain(alpha, beta) || !same(xd, yd) || !same(xd, dyd) || !same(xd, dxd)) return BAD_PARAM;
    if (!inside(xd, x) || !inside(yd, y) || !inside(dyd, dy) || !inside(dxd, dx)) return BAD_PARAM;
    bool right = true;
    along_channels(xd, [=, &right](size_t first, int step, int length) {
        std::vector<float> s = energies(d, x + first, step, length);
        for (int c = 0; c < length; c++) {
            size_t i = first + c * step;
            float power = powf(s[c], -d->beta), sum = 0;
            right = right && fabsf(y[i] - x[i] * power) <= 1e-5f * (1 + fabsf(y[i]));
            for (int o = c - (d->window[0] - 1) / 2; o <= c + d->window[0] / 2; o++)
                if (o >= 0 && o < length) sum += dy[first + o * step] * y[first + o * step] / s[o];
            dx[i] = dy[i] * power - 2 * (float)d->alpha * (float)d->beta / d->window[0] * x[i] * sum;
        }
    });
    return right ? OK : BAD_PARAM;
}

API int cudnnSetPoolingNdDescriptor(Descriptor* d, int mode, int propagate_nan, int axes, const int* window, const int* pad,
                                    const int* stride) {
    if (mode > 1 || propagate_nan != 1 || axes < 2 || axes > 3) return BAD_PARAM;
    d->axes = axes, d->mode = mode;
    for (int i = 0; i < axes; i++) {
        d->window[i] = window[i], d->dims[i] = pad[i], d->stride[i] = stride[i];
        if (window[i] < 1 || stride[i] < 1 || pad[i] < 0 || pad[i] >= window[i]) return BAD_PARAM;
    }
    return OK;
}
// Calls use(pixel, place) for all pixels that a window sees.
template <class F>
static int pool(const Descriptor* d, const Descriptor* xd, const Descriptor* yd, F use) {
    int axes = d->axes, size[3] = {1, 1, 1}, window[3] = {1, 1, 1}, places[3] = {1, 1, 1}, pad[3] = {0, 0, 0}, stride[3] = {1, 1, 1};
    if (xd->axes != axes + 2 || yd->axes != axes + 2 || xd->dims[0] != yd->dims[0] || xd->dims[1] != yd->dims[1]) return BAD_PARAM;
    for (int i = 0; i < axes; i++) {
        int to = 3 - axes + i;
        size[to] = xd->dims[2 + i], places[to] = yd->dims[2 + i];
        window[to] = d->window[i], pad[to] = d->dims[i], stride[to] = d->stride[i];
        if (places[to] != 1 + (size[to] + 2 * pad[to] - window[to]) / stride[to]) return BAD_PARAM;
    }
    for (int plane = 0; plane < xd->dims[0] * xd->dims[1]; plane++)
        for (int p = 0; p < places[0] * places[1] * places[2]; p++)
            for (int t = 0; t < window[0] * window[1] * window[2]; t++) {
                int a = p / (places[1] * places[2]) * stride[0] - pad[0] + t / (window[1] * window[2]);
                int b = p / places[2] % places[1] * stride[1] - pad[1] + t / window[2] % window[1];
                int c = p % places[2] * stride[2] - pad[2] + t % window[2];
                if (a < 0 || b < 0 || c < 0 || a >= size[0] || b >= size[1] || c >= size[2]) continue;
                use((size_t)plane * size[0] * size[1] * size[2] + (a * size[1] + b) * size[2] + c,
                    (size_t)plane * places[0] * places[1] * places[2] + p);
            }
    return OK;
}
static float taps(const Descriptor* d) {
    int n = 1;
    for (int i = 0; i < d->axes; i++) n *= d->window[i];
    return n;
}
API int cudnnPoolingForward(Handle, Descriptor* d, const float* alpha, Descriptor* xd, const float* x, const float* beta,
                            Descriptor* yd, float* y) {
    if (!plain(alpha, beta) || !inside(xd, x) || !inside(yd, y)) return BAD_PARAM;
    for (size_t i = 0; i < count(yd); i++) y[i] = d->mode == 0 ? -FLT_MAX : 0;
    float n = taps(d);
    return pool(d, xd, yd, [=](size_t i, size_t o) { d->mode == 0 ? y[o] = x[i] > y[o] ? x[i] : y[o] : y[o] += x[i] / n; });
}
// Of means only: which of equal maxima cuDNN chooses is not documented.
API int cudnnPoolingBackward(Handle, Descriptor* d, const float* alpha, Descriptor* yd, const float* y, Descriptor* dyd, const float* dy,
                             Descriptor* xd, const float* x, const float* beta, Descriptor* dxd, float* dx) {
    if (d->mode != 1 || !plain(alpha, beta) || !same(xd, dxd) || !same(yd, dyd)) return BAD_PARAM;
    if (!inside(xd, x) || !inside(yd, y) || !inside(dyd, dy) || !inside(dxd, dx)) return BAD_PARAM;
    for (size_t i = 0; i < count(xd); i++) dx[i] = 0;
    float n = taps(d);
    return pool(d, xd, yd, [=](size_t i, size_t o) { dx[i] += dy[o] / n; });
}
