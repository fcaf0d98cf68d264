// Twin of cuBLAS that takes its time on the clock of the program that loads it, and multiplies where
// it is not captured in a graph.
//
// The environment says which calls are wrong and how (CALL_FAULT, "NAME WHAT" again and again) and how
// many algorithms cuBLASLt proposes (PROPOSALS).
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cuda_fp8.h"

extern "C" void queue_time(const char* name);
extern "C" void note(const char* line);
extern "C" int is_captured();

static std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return std::string(name) + "=" + (value != nullptr ? value : "");
}
extern "C" int cublasCreate_v2(void** handle) {
    note(variable("NVIDIA_TF32_OVERRIDE").c_str());
    note(variable("CUBLAS_EMULATE_SINGLE_PRECISION").c_str());
    *handle = nullptr;
    return 0;
}
extern "C" int cublasSetStream_v2(void*, void*) {
    return 0;
}
extern "C" int cublasSetWorkspace_v2(void*, void*, size_t) {
    return 0;
}
extern "C" int cublasGetProperty(int part, int* value) {
    *value = part == 0 ? 13 : part;
    return 0;
}

// A matrix of FP32 (cudaDataType_t 0), BF16 (14), E4M3 (28), E5M2 (29) or integers of 8 (3) or 32 bits
// (10), column-major, as it is multiplied.
struct Matrix {
    void* data;
    int type;
    long ld;
    bool is_transposed;
    // Scales of blocks of 128 of K and of so many rows: each row of blocks lies `row_step` behind the
    // one before, each block of K `k_step`.
    const float* scales = nullptr;
    long block_rows = 1, row_step = 0, k_step = 0;

    // Of an element of an operand: those of A have rows, those of B columns outside of K.
    float scale(long outside, long k) const {
        return scales == nullptr
                   ? 1.0f
                   : scales[outside / block_rows * row_step + k / 128 * k_step];
    }
    float get(long row, long column) const {
        const long i = is_transposed ? column + row * ld : row + column * ld;
        if (type == 0) {
            return static_cast<float*>(data)[i];
        }
        if (type == 3 || type == 10) {
            return type == 3 ? static_cast<int8_t*>(data)[i] : static_cast<int32_t*>(data)[i];
        }
        if (type == 28) {
            return (float)static_cast<__nv_fp8_e4m3*>(data)[i];
        }
        if (type == 29) {
            return (float)static_cast<__nv_fp8_e5m2*>(data)[i];
        }
        const uint32_t wide = (uint32_t)static_cast<uint16_t*>(data)[i] << 16;
        float value;
        std::memcpy(&value, &wide, 4);
        return value;
    }
    void set(long row, long column, float value) const {
        if (type == 0) {
            static_cast<float*>(data)[row + column * ld] = value;
            return;
        }
        if (type == 10) {
            static_cast<int32_t*>(data)[row + column * ld] = value;
            return;
        }
        if (type == 28) {
            static_cast<__nv_fp8_e4m3*>(data)[row + column * ld] = __nv_fp8_e4m3(value);
            return;
        }
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        static_cast<uint16_t*>(data)[row + column * ld] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
};

// The fault of a call: "fails", "double" (all of C), "last" (its last element) or "tf32".
static std::string fault_of(const char* name) {
    static std::map<std::string, std::string> faults;
    if (const char* const text = std::getenv("CALL_FAULT")) {
        std::istringstream words(text);
        for (std::string who, what; words >> who >> what;) {
            faults[who] = what;
        }
    }
    return faults[name];
}

static float cut(float value, bool is_cut) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    bits &= is_cut ? 0xffffe000u : 0xffffffffu;
    std::memcpy(&value, &bits, 4);
    return value;
}

static int gemm(const char* name, long m, long n, long k, float alpha, Matrix a, Matrix b,
                float beta, Matrix c) {
    const std::string fault = fault_of(name);
    if (fault == "fails") {
        return 15;
    }
    queue_time(name);
    for (long j = 0; j < n && !is_captured(); ++j) {
        for (long i = 0; i < m; ++i) {
            double sum = 0;
            for (long p = 0; p < k; ++p) {
                const double scale = (double)a.scale(i, p) * b.scale(j, p);
                const double of_b = cut(b.get(p, j), fault == "tf32");
                sum += cut(a.get(i, p), fault == "tf32") * of_b * scale;
            }
            const bool is_last = i == m - 1 && j == n - 1;
            sum *= fault == "double" || (fault == "last" && is_last) ? 2 : 1;
            c.set(i, j, (float)(alpha * sum + (beta != 0 ? (double)beta * c.get(i, j) : 0.0)));
        }
    }
    return 0;
}

static void note_call(const char* name, int ta, int tb, int m, int n, int k, float alpha, int lda,
                      int ldb, float beta, int ldc, const std::string& types) {
    char line[200];
    std::snprintf(line, sizeof line, "call %s %d %d %d %d %d %g %d %d %g %d%s", name, ta, tb, m, n,
                  k, alpha, lda, ldb, beta, ldc, types.c_str());
    note(line);
}
extern "C" int cublasSgemm_v2(void*, int ta, int tb, int m, int n, int k, const float* alpha,
                              float* A, int lda, float* B, int ldb, const float* beta, float* C,
                              int ldc) {
    note_call("sgemm", ta, tb, m, n, k, *alpha, lda, ldb, *beta, ldc, "");
    return gemm("sgemm", m, n, k, *alpha, {A, 0, lda, ta == 1}, {B, 0, ldb, tb == 1}, *beta,
                {C, 0, ldc, false});
}
// Alpha or beta: integers where sums are (72).
static float factor(const void* at, int compute) {
    return compute == 72 ? *static_cast<const int*>(at) : *static_cast<const float*>(at);
}
extern "C" int cublasGemmEx(void*, int ta, int tb, int m, int n, int k, const void* alpha_at, void* A,
                            int type_a, int lda, void* B, int type_b, int ldb, const void* beta_at,
                            void* C, int type_c, int ldc, int compute, int) {
    char types[60];
    std::snprintf(types, sizeof types, " %d %d %d %d", type_a, type_b, type_c, compute);
    const float alpha = factor(alpha_at, compute), beta = factor(beta_at, compute);
    note_call("gemm_ex", ta, tb, m, n, k, alpha, lda, ldb, beta, ldc, types);
    return gemm("gemm_ex", m, n, k, alpha, {A, type_a, lda, ta == 1}, {B, type_b, ldb, tb == 1},
                beta, {C, type_c, ldc, false});
}

// cuBLASLt, which by default proposes three algorithms; the second cannot run.
struct Layout {
    int type;
    long rows, columns, ld;
};
struct Description {
    int compute, transposed[2];
    // cublasLtEpilogue_t, 1 where there is none, and what is added to each row of a column-major C.
    int epilogue;
    void* bias;
    int8_t adds_fast;
    // cublasLtMatmulMatrixScale_t of A and B, 0 where they have none, and the scales.
    int scale_modes[2];
    float* scales[2];
};
extern "C" int cublasLtCreate(void**) {
    return 0;
}
extern "C" int cublasLtMatmulDescCreate(Description** created, int compute, int) {
    *created = new Description{compute, {0, 0}, 1, nullptr, 0, {0, 0}, {nullptr, nullptr}};
    return 0;
}
extern "C" int cublasLtMatmulDescSetAttribute(Description* description, int attribute,
                                              const void* value, size_t bytes) {
    if (attribute == 3 || attribute == 4) {
        std::memcpy(&description->transposed[attribute - 3], value, bytes);
    } else if (attribute == 7) {
        std::memcpy(&description->epilogue, value, bytes);
    } else if (attribute == 8) {
        std::memcpy(&description->bias, value, bytes);
    } else if (attribute == 17 || attribute == 18) {
        std::memcpy(&description->scales[attribute - 17], value, bytes);
    } else if (attribute == 31 || attribute == 32) {
        std::memcpy(&description->scale_modes[attribute - 31], value, bytes);
    } else if (attribute == 25) {
        std::memcpy(&description->adds_fast, value, bytes);
    } else {
        return 7;
    }
    return 0;
}
extern "C" int cublasLtMatrixLayoutCreate(Layout** created, int type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
    *created = new Layout{type, (long)rows, (long)columns, (long)ld};
    return 0;
}
extern "C" int cublasLtMatmulPreferenceCreate(void**) {
    return 0;
}
static uint64_t workspace_bytes = 0;
extern "C" int cublasLtMatmulPreferenceSetAttribute(void*, int attribute, const uint64_t* value,
                                                    size_t) {
    if (attribute == 1) {
        workspace_bytes = *value;
    }
    return 0;
}
struct Proposal {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
};
extern "C" int cublasLtMatmulAlgoGetHeuristic(void*, void*, Layout* a, Layout* b, void*, Layout* d,
                                              void*, int most, Proposal* found, int* count) {
    note(("operands " + std::to_string(a->type) + " " + std::to_string(b->type)).c_str());
    // No two E5M2 (29), and of integers (3) no BF16.
    if ((a->type == 29 && b->type == 29) || (a->type == 3 && d->type == 14)) {
        return 15;
    }
    const char* const wanted = std::getenv("PROPOSALS");
    const int num_known = wanted != nullptr ? std::atoi(wanted) : 3;
    *count = num_known < most ? num_known : most;
    for (int i = 0; i < *count; ++i) {
        found[i] = {};
        found[i].algorithm[0] = i + 1;
        found[i].status = i == 1 ? 15 : 0;
    }
    return 0;
}
extern "C" int cublasLtMatmul(void*, Description* multiply, const void* alpha_at, void* A, Layout* a,
                              void* B, Layout* b, const void* beta_at, void* C, Layout* c, void* D,
                              Layout* d, const uint64_t* algorithm, void*, size_t bytes, void*) {
    const bool ta = multiply->transposed[0] == 1;
    const bool tb = multiply->transposed[1] == 1;
    const long m = ta ? a->columns : a->rows;
    const long k = ta ? a->rows : a->columns;
    const long n = tb ? b->rows : b->columns;
    const long k_of_b = tb ? b->columns : b->rows;
    // FP32 is computed in FP32 (68) or TF32 (77), 16 bits with sums in FP32.
    const int compute = multiply->compute;
    const bool is_known = compute == 68 || (compute == 77 && a->type == 0) ||
                          (compute == 72 && a->type == 3 && c->type == 10);
    const float alpha = factor(alpha_at, compute), beta = factor(beta_at, compute);
    // With an epilogue C may be another matrix than D, and to 8-bit floats none is added.
    const bool adds_none = C == nullptr && beta == 0 && d->type == 28;
    const bool has_epilogue = c != d && !adds_none;
    const bool has_scales = multiply->scale_modes[0] != 0;
    // Blocks of 128 x 128 of A, and of 128 along k of B.
    if (has_scales && (multiply->scale_modes[0] != 5 || multiply->scale_modes[1] != 4)) {
        return 7;
    }
    if (!is_known || m != c->rows || n != c->columns || k != k_of_b || m != d->rows ||
        n != d->columns || (C != D && !has_epilogue && !adds_none) || (C == nullptr && !adds_none) || bytes != workspace_bytes) {
        return 7;  // CUBLAS_STATUS_INVALID_VALUE
    }
    // Graphs keep the name.
    static std::set<std::string> names;
    const std::string number = std::to_string(algorithm[0]) + (multiply->adds_fast ? "f" : "");
    const std::string& name = *names.insert((has_epilogue ? "fused" : "lt") + number).first;
    const Matrix from = {C, c->type, c->ld, false};
    const Matrix to = {D, d->type, d->ld, false};
    Matrix of_a = {A, a->type, a->ld, ta};
    Matrix of_b = {B, b->type, b->ld, tb};
    if (has_scales) {
        of_a = {A, a->type, a->ld, ta, multiply->scales[0], 128, (k + 511) / 512 * 4, 1};
        of_b = {B, b->type, b->ld, tb, multiply->scales[1], 1, 1, n};
    }
    if (!has_epilogue) {
        return gemm(name.c_str(), m, n, k, alpha, of_a, of_b, beta, to);
    }
    // Sums in FP32, then a bias for each row and relu, which are the epilogues that it knows.
    std::vector<float> sums(m * n);
    const Matrix sum = {sums.data(), 0, m, false};
    const int status = gemm(name.c_str(), m, n, k, alpha, of_a, of_b, 0, sum);
    const Matrix bias = {multiply->bias, d->type, 1, false};
    for (long i = 0; i < m && status == 0 && !is_captured(); ++i) {
        for (long j = 0; j < n; ++j) {
            float value = sum.get(i, j) + (bias.data != nullptr ? bias.get(i, 0) : 0.0f);
            value += beta != 0 ? beta * from.get(i, j) : 0.0f;
            to.set(i, j, multiply->epilogue == 6 && value < 0 ? 0.0f : value);
        }
    }
    return multiply->epilogue == 1 || multiply->epilogue == 4 || multiply->epilogue == 6 ? status : 15;
}
