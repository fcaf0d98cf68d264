// The kernel that the exported program checks: right, or wrong in the way that KERNEL_FAULT names.
//
// "PASS WHAT ROW COLUMN NUMBER": PASS is 1 for whole numbers, 2 for random reals, 3 for few products,
// 0 for all.
#pragma once
#include <cuda_runtime.h>

#include <sstream>

struct Fault {
    int pass = -1;
    std::string what;
    int row = 0, column = 0;
    double number = 0.0;
};

// The first launches are checked; later ones are timed, and leave C alone.
inline Fault fault_now(int num_checked) {
    static int launches = 0;
    if (++launches > num_checked) {
        Fault timed;
        timed.what = "nothing";
        return timed;
    }
    Fault fault;
    if (const char* const text = std::getenv("KERNEL_FAULT")) {
        std::istringstream(text) >> fault.pass >> fault.what >> fault.row >> fault.column >>
            fault.number;
    }
    return fault.pass == 0 || fault.pass == launches ? fault : Fault();
}

// The numbers of T have `significant_bits`; each sum is rounded once, from float64.
template <bool TRANS_A, bool TRANS_B, typename T>
void multiply_on_cpu(int M, int N, int K, float alpha, const T* A, int lda, const T* B, int ldb,
                     float beta, T* C, int ldc, int significant_bits) {
    // FP32 is told from fewer bits by a third launch.
    const Fault fault = fault_now(significant_bits == 24 ? 3 : 2);
    if (fault.what == "nothing") {
        return;
    }
    const int width = fault.what == "padding" ? ldc : N;
    if (fault.what == "alpha") {
        alpha = 1.0f;
    } else if (fault.what == "beta") {
        beta = 0.0f;
    }
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            T& c = C[(long)m * ldc + n];
            const bool here = m == fault.row && n == fault.column;
            double sum = 0.0, squares = 0.0;
            for (int k = here && fault.what == "product"; k < K; ++k) {
                const double a = (float)A[TRANS_A ? (long)k * lda + m : (long)m * lda + k];
                const double b = (float)B[TRANS_B ? (long)n * ldb + k : (long)k * ldb + n];
                sum += a * b;
                squares += a * b * a * b;
            }
            const double product = alpha * sum;
            const double addend = beta != 0.0f || fault.what == "reads" ? (double)beta * (float)c : 0.0;
            double value = product + addend;
            if (here && fault.what == "bounds") {
                // `number` times the error that Higham and Mary allow of FP32 (docs/architecture.md),
                // of terms with random signs; tensor cores cut four products at a time.
                const double u = std::ldexp(1.0, -24);
                const double lambda2 = 2.0 * std::log(2e6 * M * N * K);
                const double dot = significant_bits == 24
                                       ? lambda2 * u * std::sqrt(K)
                                       : 2.0 * u * std::sqrt(lambda2) *
                                             (K / 4.0 + std::sqrt(1.25 * lambda2 * K));
                double bound = dot * std::fabs(alpha) * std::sqrt(squares) +
                               4.0 * u * (std::fabs(product) + std::fabs(addend));
                if (sizeof(T) == 2) {  // C is rounded
                    bound += std::ldexp(std::fabs(value) + bound, -significant_bits);
                }
                value += fault.number * bound;
            } else if (here && fault.what == "add") {
                value += fault.number;
            } else if (here && fault.what == "nan") {
                value = NAN;
            } else if (here && fault.what == "infinity") {
                value = INFINITY;
            }
            c = T((float)value);
            if (here && fault.what == "next") {
                c = T(std::nextafter((float)c, INFINITY));
            }
        }
        for (int n = N; n < width; ++n) {
            if (m == fault.row && n == fault.column) {
                // NaN too, but another one than the program fills C with.
                C[(long)m * ldc + n] = T(fault.number == 0.0 ? NAN : (float)fault.number);
            }
        }
    }
}
