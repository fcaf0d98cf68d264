// The calls of cuBLAS that autogemm makes, column-major as there, as plain loops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
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

// Where K is 95 the calls take times by the GPU's own clock: SGEMM is far slower than the others, and
// GemmEx faster than the third proposal, but only in its first calls. Where it is 98 GemmEx is the
// fastest, where it is 94 the first and the third proposal are.
static double sgemm_us(long k) {
    return k == 95 ? 37600 : k == 94 || k == 98 ? 20000 : 0;
}
static double gemm_ex_us(long k) {
    static int calls = 0;
    return k == 94 ? 20000 : k != 95 ? 0 : ++calls <= 60 ? 19600 : 20800;
}
static double proposal_us(long k) {
    return k == 95 || k == 98 ? 20000 : 0;
}
static double slow_us(long) {
    return 2e5;
}
static double at_once(long) {
    return 0;
}

template <typename T>
int gemm(int trans_a, int trans_b, long m, long n, long k, T alpha, const T* A, int lda, const T* B,
         int ldb, T beta, T* C, int ldc, double (*time_us)(long)) {
    auto work = [=] {
        wait_s(1e-6 * time_us(k));
        std::vector<T> sums(m);
        for (long j = 0; j < n; ++j) {
            // All sums of a column side by side, each in the order of k: g++ makes vectors of them.
            std::fill(sums.begin(), sums.end(), T(0));
            for (long p = 0; p < k; ++p) {
                const T b = trans_b ? B[j + p * ldb] : B[p + j * ldb];
                for (long i = 0; i < m; ++i) {
                    sums[i] += (trans_a ? A[p + i * lda] : A[i + p * lda]) * b;
                }
            }
            for (long i = 0; i < m; ++i) {
                T& c = C[i + j * ldc];
                c = alpha * sums[i] + (beta != 0 ? beta * c : 0);
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
    return gemm(ta, tb, m, n, k, *alpha, A, lda, B, ldb, *beta, C, ldc, sgemm_us);
}
extern "C" int cublasDgemm_v2(void*, int ta, int tb, int m, int n, int k, const double* alpha,
                              const double* A, int lda, const double* B, int ldb,
                              const double* beta, double* C, int ldc) {
    return gemm(ta, tb, m, n, k, *alpha, A, lda, B, ldb, *beta, C, ldc, at_once);
}

// Elements of the types of tensor cores, by cudaDataType_t: FP32 is TF32 where that is computed in.
struct Tensor {
    void* data;
    int type;
    bool is_cut = false;
    // Scales of blocks of 128 of K and of so many rows: each row of blocks lies `row_step` behind the
    // one before, each block of K `k_step`.
    const float* scales = nullptr;
    long block_rows = 1, row_step = 0, k_step = 0;

    // Of an element of an operand: those of A have rows, those of B columns outside of K.
    float scale(long outside, long k) const {
        return scales == nullptr ? 1.0f
                                 : scales[outside / block_rows * row_step + k / 128 * k_step];
    }

    float get(long i) const {
        if (type == 0) {
            unsigned bits = static_cast<uint32_t*>(data)[i];
            bits &= is_cut ? 0xffffe000u : 0xffffffffu;
            float value;
            memcpy(&value, &bits, 4);
            return value;
        }
        if (type == 3) {
            return static_cast<int8_t*>(data)[i];
        }
        if (type == 10) {
            return static_cast<int32_t*>(data)[i];
        }
        if (type == 28 || type == 29) {
            return of_8_bits(static_cast<uint8_t*>(data)[i]);
        }
        const unsigned bits = static_cast<uint16_t*>(data)[i];
        if (type == 14) {
            const unsigned wide = bits << 16;
            float value;
            memcpy(&value, &wide, 4);
            return value;
        }
        _Float16 half;
        memcpy(&half, &bits, 2);
        return half;
    }
    // E4M3 has 4 bits of exponent and no infinity; E5M2 is the upper half of FP16.
    float of_8_bits(unsigned bits) const {
        const unsigned size = bits & 0x7f, wide = bits << 8;
        if (type == 28) {
            if (size == 0x7f) {
                return NAN;
            }
            const int exponent = size < 8 ? 1 : size / 8;
            const float value = ldexpf(size < 8 ? size : size % 8 + 8, exponent - 10);
            return bits >> 7 ? -value : value;
        }
        _Float16 half;
        memcpy(&half, &wide, 2);
        return half;
    }
    void set(long i, float value) const {
        if (type == 0) {
            static_cast<float*>(data)[i] = value;
        } else if (type == 10) {
            static_cast<int32_t*>(data)[i] = value;
        } else if (type == 14) {
            unsigned bits;
            memcpy(&bits, &value, 4);
            static_cast<uint16_t*>(data)[i] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        } else {
            const _Float16 half = value;
            memcpy(static_cast<uint16_t*>(data) + i, &half, 2);
        }
    }
};

// The numbers of a matrix, each made wide once: the columns of `rows` numbers, one after the other.
static std::vector<float> widened(Tensor from, bool transposed, long rows, long columns, long ld) {
    std::vector<float> wide(rows * columns);
    for (long j = 0; j < columns; ++j) {
        for (long i = 0; i < rows; ++i) {
            wide[i + j * rows] = from.get(transposed ? j + i * ld : i + j * ld);
        }
    }
    return wide;
}

static int tensor_gemm(int trans_a, int trans_b, long m, long n, long k, float alpha, Tensor a,
                       long lda, Tensor b, long ldb, float beta, Tensor c, long ldc,
                       double (*time_us)(long)) {
    auto work = [=] {
        wait_s(1e-6 * time_us(k));
        std::vector<float> wide_a = widened(a, trans_a, m, k, lda);
        std::vector<float> wide_b = widened(b, trans_b, k, n, ldb);
        for (long p = 0; p < k; ++p) {
            for (long i = 0; i < m; ++i) {
                wide_a[i + p * m] *= a.scale(i, p);
            }
            for (long j = 0; j < n; ++j) {
                wide_b[p + j * k] *= b.scale(j, p);
            }
        }
        std::vector<float> sums(m);
        for (long j = 0; j < n; ++j) {
            std::fill(sums.begin(), sums.end(), 0.0f);
            for (long p = 0; p < k; ++p) {
                for (long i = 0; i < m; ++i) {
                    sums[i] += wide_a[i + p * m] * wide_b[p + j * k];
                }
            }
            for (long i = 0; i < m; ++i) {
                const float old = beta != 0 ? beta * c.get(i + j * ldc) : 0;
                c.set(i + j * ldc, alpha * sums[i] + old);
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

// Alpha or beta: integers where sums are (72).
static float factor(const void* at, int compute) {
    return compute == 72 ? *static_cast<const int*>(at) : *static_cast<const float*>(at);
}

extern "C" int cublasGemmEx(void*, int ta, int tb, int m, int n, int k, const void* alpha, void* A,
                            int type_a, int lda, void* B, int type_b, int ldb, const void* beta,
                            void* C, int type_c, int ldc, int compute, int) {
    // FP32 is computed in FP32 (68) or TF32 (77), 16 bits with sums in FP32, 8-bit integers with
    // sums in FP32 or in 32-bit integers, each in a C of its own.
    const bool is_whole = type_a == 3 && type_c == (compute == 72 ? 10 : 0);
    if (compute == 72 || type_a == 3 ? !is_whole : compute != 68 && (compute != 77 || type_a != 0)) {
        return 15;
    }
    const bool is_fp32 = type_a == 0 && compute == 68;
    // Where K is 96 sums are coarse, and where it is 97 all but the first ones; where FP32's K is 98
    // TF32 was left on.
    static int calls = 0;
    const bool is_coarse = !is_fp32 && (k == 96 || (k == 97 && ++calls > 2));
    const bool is_tf32 = is_fp32 && k == 98;
    return tensor_gemm(ta, tb, m, n, k, (is_coarse ? 2 : 1) * factor(alpha, compute),
                       {A, type_a, is_tf32}, lda, {B, type_b, is_tf32}, ldb, factor(beta, compute),
                       {C, type_c}, ldc, gemm_ex_us);
}

static int num_strided_calls = 0;
extern "C" int strided_calls() {
    return num_strided_calls;
}
// Bytes of so many elements.
static void* behind(void* data, int type, long elements) {
    return static_cast<char*>(data) + elements * (type == 0 || type == 10 ? 4 : type == 3 ? 1 : 2);
}

// Where K is 93 the last product is left out.
extern "C" int cublasGemmStridedBatchedEx(void* handle, int ta, int tb, int m, int n, int k,
                                          const void* alpha, void* A, int type_a, int lda,
                                          long long stride_a, void* B, int type_b, int ldb,
                                          long long stride_b, const void* beta, void* C,
                                          int type_c, int ldc, long long stride_c, int count,
                                          int compute, int algo) {
    ++num_strided_calls;
    for (int i = 0; i < count - (k == 93); ++i) {
        const int status = cublasGemmEx(
            handle, ta, tb, m, n, k, alpha, behind(A, type_a, i * stride_a), type_a, lda,
            behind(B, type_b, i * stride_b), type_b, ldb, beta, behind(C, type_c, i * stride_c),
            type_c, ldc, compute, algo);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

// Where K is 93 the last group is left out.
extern "C" int cublasGemmGroupedBatchedEx(void* handle, const int* ta, const int* tb, const int* m,
                                          const int* n, const int* k, const float* alpha, void** A,
                                          int type_a, const int* lda, void** B, int type_b,
                                          const int* ldb, const float* beta, void** C, int type_c,
                                          const int* ldc, int count, const int* sizes,
                                          int compute) {
    for (int i = 0; i < count - (k[0] == 93); ++i) {
        const int status =
            sizes[i] != 1 ? 7
                          : cublasGemmEx(handle, ta[i], tb[i], m[i], n[i], k[i], &alpha[i], A[i],
                                         type_a, lda[i], B[i], type_b, ldb[i], &beta[i], C[i],
                                         type_c, ldc[i], compute, -1);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

// cuBLASLt, which proposes three algorithms: one that is wrong, one that is slow, one like GemmEx.
struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t ld;
    int32_t count = 1;
    int64_t stride = 0;
};
struct Description {
    int compute;
    int transposed[2];
    // cublasLtMatmulMatrixScale_t of A and B, 0 where they have none, and the scales.
    int scale_modes[2];
    const float* scales[2];
};
extern "C" int cublasLtCreate(void** handle) {
    *handle = reinterpret_cast<void*>(2);
    return 0;
}
extern "C" int cublasLtDestroy(void*) { return 0; }
extern "C" int cublasLtMatmulDescCreate(Description** created, int compute, int) {
    *created = new Description{compute, {0, 0}, {0, 0}, {nullptr, nullptr}};
    return 0;
}
extern "C" int cublasLtMatmulDescSetAttribute(Description* description, int attribute,
                                              const void* value, size_t bytes) {
    if (attribute == 3 || attribute == 4) {
        memcpy(&description->transposed[attribute - 3], value, bytes);
    } else if (attribute == 17 || attribute == 18) {
        memcpy(&description->scales[attribute - 17], value, bytes);
    } else if (attribute == 31 || attribute == 32) {
        memcpy(&description->scale_modes[attribute - 31], value, bytes);
    }
    return 0;
}
extern "C" int cublasLtMatrixLayoutCreate(Layout** created, int type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
    *created = new Layout{type, rows, columns, ld};
    return 0;
}
extern "C" int cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value,
                                                size_t) {
    if (attribute == 5) {
        layout->count = *static_cast<const int32_t*>(value);
    } else {
        layout->stride = *static_cast<const int64_t*>(value);
    }
    return 0;
}
extern "C" int cublasLtMatmulPreferenceCreate(void** created) {
    *created = nullptr;
    return 0;
}
static uint32_t allowed_reductions = 7;
extern "C" int cublasLtMatmulPreferenceSetAttribute(void*, int attribute, const void* value,
                                                    size_t) {
    if (attribute == 3) {
        allowed_reductions = *static_cast<const uint32_t*>(value);
    }
    return 0;
}
struct Proposal {
    uint64_t algo[8];
    size_t workspace_size;
    int state;
    float waves_count;
    int reserved[4];
};
extern "C" int cublasLtMatmulAlgoGetHeuristic(void*, Description* description, Layout*, Layout*,
                                              Layout*, Layout* d, void*, int most,
                                              Proposal* found, int* count) {
    // Rows that have scales of blocks are a multiple of 4.
    if (description->scale_modes[0] != 0 && d->columns % 4 != 0) {
        return 15;
    }
    *count = most < 3 ? most : 3;
    for (int i = 0; i < *count; ++i) {
        found[i] = {};
        found[i].algo[0] = i;
        found[i].algo[1] = allowed_reductions;
    }
    return 0;
}
extern "C" int cublasLtMatmul(void*, Description* description, const void* alpha, void* A,
                              Layout* a, void* B, Layout* b, const void* beta, void* C, Layout* c,
                              void*, Layout*, const uint64_t* algo, void*, size_t, void*) {
    const long k = description->transposed[0] ? a->rows : a->columns;
    const bool is_coarse = k == 96 && algo[1] != 2;
    const float wrong = algo[0] == 0 || is_coarse ? 2.0f : 1.0f;
    // Blocks of 128 x 128 of A, rows of which are a multiple of 4 apart, and of 128 along k of B.
    const bool has_scales = description->scale_modes[0] != 0;
    if (has_scales && (description->scale_modes[0] != 5 || description->scale_modes[1] != 4)) {
        return 7;
    }
    Tensor of_a = {nullptr, a->type}, of_b = {nullptr, b->type};
    if (has_scales) {
        of_a = {nullptr, a->type, false, description->scales[0], 128, (k + 511) / 512 * 4, 1};
        of_b = {nullptr, b->type, false, description->scales[1], 1, 1, (long)c->columns};
    }
    for (int i = 0; i < c->count; ++i) {
        of_a.data = behind(A, a->type, i * a->stride);
        of_b.data = behind(B, b->type, i * b->stride);
        tensor_gemm(description->transposed[0], description->transposed[1], c->rows, c->columns, k,
                    factor(alpha, description->compute) * wrong, of_a, a->ld, of_b, b->ld,
                    factor(beta, description->compute),
                    {behind(C, c->type, i * c->stride), c->type}, c->ld,
                    algo[0] == 1 ? slow_us : proposal_us);
    }
    return 0;
}
