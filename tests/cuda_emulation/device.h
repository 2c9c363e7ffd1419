// TEST ONLY. What a .cu file needs so that g++ compiles it, unchanged, for the emulated driver (libcuda.cpp).
//
// The build puts this in front of the text and an EMULATED_KERNEL line for each __global__ function behind it. Threads
// of a block are fibers of libcuda.cpp, which sets emulated_thread and emulated_block before it lets one run.
#pragma once
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

struct uint3 { unsigned x, y, z; };
typedef uint3 dim3;

extern "C" {
extern uint3 emulated_thread, emulated_block;
extern dim3 emulated_block_size, emulated_grid_size;
extern char* emulated_dynamic_shared;
void emulated_barrier(int site);
extern char __start_emulated_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_emulated_shared[] __attribute__((weak, visibility("hidden")));
}

// A kernel as the driver sees it. signature: one letter for each parameter, P for a pointer, else as in Python's struct.
struct EmulatedKernel {
    char signature[64];
    void (*run)(void** arguments);
    char *shared_begin, *shared_end;
};

#define __CUDA_ARCH__ 900
#define __host__
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __global__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("emulated_shared")))
#define threadIdx emulated_thread
#define blockIdx emulated_block
#define blockDim emulated_block_size
#define gridDim emulated_grid_size
// The site tells barriers apart: threads of one block that wait at two of them have diverged.
#define __syncthreads() emulated_barrier(__COUNTER__ + 1)

template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T atomicAdd(T* p, T v) { T before = *p; *p = before + v; return before; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

template <class T> constexpr char emulated_letter() {
    if (std::is_pointer<T>::value) return 'P';
    if (std::is_same<T, float>::value) return 'f';
    if (std::is_same<T, double>::value) return 'd';
    if (sizeof(T) == 8) return std::is_signed<T>::value ? 'q' : 'Q';
    return std::is_signed<T>::value ? 'i' : 'I';
}

template <class F> struct EmulatedCall;
template <class... A> struct EmulatedCall<void (*)(A...)> {
    template <void (*kernel)(A...), size_t... I> static void apply(void** a, std::index_sequence<I...>) {
        kernel(*(typename std::remove_cv<A>::type*)a[I]...);
    }
    template <void (*kernel)(A...)> static void run(void** a) {
        apply<kernel>(a, std::index_sequence_for<A...>{});
    }
    template <void (*kernel)(A...)> static EmulatedKernel describe() {
        EmulatedKernel k = {{emulated_letter<typename std::remove_cv<A>::type>()...}, &run<kernel>,
                            __start_emulated_shared, __stop_emulated_shared};
        return k;
    }
};

#define EMULATED_KERNEL(name)                                                               \
    extern "C" __attribute__((visibility("default"))) EmulatedKernel emulated_kernel_##name \
        = EmulatedCall<decltype(&name)>::describe<&name>();
