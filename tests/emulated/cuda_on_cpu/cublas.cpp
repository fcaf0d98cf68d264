// The calls of cuBLAS that autogemm makes, column-major as there, as plain loops.
#include <functional>
#include <vector>

typedef std::vector<std::function<void()>> Work;
static std::vector<Work> graphs;
static bool capturing = false;

// Called by the simulated stream. A graph holds either cuBLAS calls or kernels.
extern "C" void begin_capture() {
    graphs.emplace_back();
    capturing = true;
}
extern "C" int end_capture() {
    capturing = false;
    return graphs.size() - 1;
}
extern "C" void replay(int graph) {
    for (auto& work : graphs[graph]) {
        work();
    }
}

extern "C" int cublasCreate_v2(void** handle) {
    *handle = reinterpret_cast<void*>(1);
    return 0;
}
extern "C" int cublasSetStream_v2(void*, void*) {
    return 0;
}
extern "C" int cublasSetMathMode(void*, int) {
    return 0;
}
extern "C" int cublasSetWorkspace_v2(void*, void*, size_t) {
    return 0;
}
extern "C" int cublasGetProperty(int part, int* value) {
    *value = part == 0 ? 13 : 0;
    return 0;
}

template <typename T>
int gemm(int trans_a, int trans_b, long m, long n, long k, T alpha, const T* A, int lda, const T* B,
         int ldb, T beta, T* C, int ldc) {
    auto work = [=] {
        for (long j = 0; j < n; ++j) {
            for (long i = 0; i < m; ++i) {
                T sum = 0;
                for (long p = 0; p < k; ++p) {
                    sum += (trans_a ? A[p + i * lda] : A[i + p * lda]) *
                           (trans_b ? B[j + p * ldb] : B[p + j * ldb]);
                }
                T& c = C[i + j * ldc];
                c = alpha * sum + (beta != 0 ? beta * c : 0);
            }
        }
    };
    if (capturing) {
        graphs.back().push_back(work);
    } else {
        work();
    }
    return 0;
}

extern "C" int cublasSgemm_v2(void*, int ta, int tb, int m, int n, int k, const float* alpha,
                              const float* A, int lda, const float* B, int ldb, const float* beta,
                              float* C, int ldc) {
    return gemm(ta, tb, m, n, k, *alpha, A, lda, B, ldb, *beta, C, ldc);
}
extern "C" int cublasDgemm_v2(void*, int ta, int tb, int m, int n, int k, const double* alpha,
                              const double* A, int lda, const double* B, int ldb,
                              const double* beta, double* C, int ldc) {
    return gemm(ta, tb, m, n, k, *alpha, A, lda, B, ldb, *beta, C, ldc);
}
