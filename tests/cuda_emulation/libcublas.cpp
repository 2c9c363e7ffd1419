// TEST ONLY: the few functions of libcublas that the GPU engine calls, as plain loops over emulated device memory.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
typedef void* Handle;
enum { OK = 0, INVALID = 7, EXECUTION_FAILED = 13 };
extern "C" int emulated_inside(const void* p, size_t size);

static int math_mode = -1;
API int emulated_math_mode() { return math_mode; }

API int cublasCreate_v2(Handle* handle) { *handle = (Handle)1; return OK; }
API int cublasDestroy_v2(Handle) { return OK; }
API int cublasSetStream_v2(Handle, void*) { return OK; }
API int cublasSetMathMode(Handle, int mode) { math_mode = mode; return OK; }
API int cublasGetVersion_v2(Handle, int* version) { *version = 130000; return OK; }

static int check(const char* what, const float* p, int rows, int columns, int leading) {
    size_t count = rows && columns ? (size_t)(columns - 1) * leading + rows : 0;
    if (!count || emulated_inside(p, 4 * count)) return OK;
    fprintf(stderr, "emulated cuBLAS: %s (%d x %d, leading dimension %d) reaches outside its allocation\n", what, rows, columns, leading);
    return EXECUTION_FAILED;
}

API int cublasSgemm_v2(Handle, int ta, int tb, int m, int n, int k, const float* alpha, const float* a, int lda,
                       const float* b, int ldb, const float* beta, float* c, int ldc) {
    int a_rows = ta ? k : m, b_rows = tb ? n : k;
    if (m < 0 || n < 0 || k < 0 || lda < 1 || ldb < 1 || ldc < 1 || lda < a_rows || ldb < b_rows || ldc < m) return INVALID;
    if (check("A", a, a_rows, ta ? m : k, lda) || check("B", b, b_rows, tb ? k : n, ldb) || check("C", c, m, n, ldc))
        return EXECUTION_FAILED;
    std::vector<double> column(m);
    for (int j = 0; j < n; j++) {
        column.assign(m, 0);
        for (int l = 0; l < k; l++) {
            double factor = tb ? b[j + (int64_t)l * ldb] : b[l + (int64_t)j * ldb];
            const float* source = ta ? a + l : a + (int64_t)l * lda;
            int64_t step = ta ? lda : 1;
            for (int i = 0; i < m; i++) column[i] += source[i * step] * factor;
        }
        for (int i = 0; i < m; i++) {
            float& target = c[i + (int64_t)j * ldc];
            target = (float)(*alpha * column[i] + (*beta == 0 ? 0 : *beta * target));
        }
    }
    return OK;
}

API int cublasSgemmStridedBatched(Handle handle, int ta, int tb, int m, int n, int k, const float* alpha, const float* a, int lda,
                                  long long a_step, const float* b, int ldb, long long b_step, const float* beta, float* c,
                                  int ldc, long long c_step, int count) {
    for (int i = 0; i < count; i++) {
        int status = cublasSgemm_v2(handle, ta, tb, m, n, k, alpha, a + i * a_step, lda, b + i * b_step, ldb, beta, c + i * c_step, ldc);
        if (status) return status;
    }
    return OK;
}
