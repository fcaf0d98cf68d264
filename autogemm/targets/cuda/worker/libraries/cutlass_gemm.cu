// CUTLASS's SIMT SGEMM in a few tile shapes, behind one function for ctypes. Row-major, packed or
// not, no transposition. Built by autogemm.targets.cuda.worker.libraries.with_cutlass.

#include <cuda_runtime.h>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm.h>

using RowMajor = cutlass::layout::RowMajor;
using Epilogue = cutlass::epilogue::thread::LinearCombination<float, 1, float, float>;
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>;

// Tile of a block and of a warp, stages in shared memory. With two it is a double buffer through
// registers, with more a cp.async pipeline.
template <int BM, int BN, int WM, int WN, int STAGES, class ARCH>
using Tile = cutlass::gemm::device::Gemm<
    float, RowMajor, float, RowMajor, float, RowMajor, float, cutlass::arch::OpClassSimt, ARCH,
    cutlass::gemm::GemmShape<BM, BN, 8>, cutlass::gemm::GemmShape<WM, WN, 8>,
    cutlass::gemm::GemmShape<1, 1, 1>, Epilogue, Swizzle, STAGES>;

template <class GEMM>
int run(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
        float beta, float* C, int ldc, cudaStream_t stream) {
    GEMM gemm;
    typename GEMM::Arguments arguments({M, N, K}, {A, lda}, {B, ldb}, {C, ldc}, {C, ldc},
                                       {alpha, beta});
    return (int)gemm(arguments, nullptr, stream);
}

using Function = int (*)(int, int, int, float, const float*, int, const float*, int, float, float*,
                         int, cudaStream_t);
static const Function FUNCTIONS[] = {
    run<Tile<128, 128, 32, 64, 2, cutlass::arch::Sm50>>,
    run<Tile<64, 128, 32, 64, 2, cutlass::arch::Sm50>>,
#ifdef HAS_CP_ASYNC
    run<Tile<256, 128, 64, 64, 4, cutlass::arch::Sm80>>,
    run<Tile<128, 128, 32, 64, 4, cutlass::arch::Sm80>>,
    run<Tile<64, 128, 32, 64, 4, cutlass::arch::Sm80>>,
#endif
};
static const char* const NAMES[] = {"128x128 2 stages", "64x128 2 stages", "256x128 4 stages",
                                    "128x128 4 stages", "64x128 4 stages"};

extern "C" int autogemm_num_tiles() {
    return sizeof(FUNCTIONS) / sizeof(FUNCTIONS[0]);
}

extern "C" const char* autogemm_tile_name(int tile) {
    return NAMES[tile];
}

// 0 when the GEMM was queued, else a cutlass::Status.
extern "C" int autogemm_gemm(int tile, int M, int N, int K, float alpha, const float* A, int lda,
                             const float* B, int ldb, float beta, float* C, int ldc, void* stream) {
    return FUNCTIONS[tile](M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, (cudaStream_t)stream);
}
