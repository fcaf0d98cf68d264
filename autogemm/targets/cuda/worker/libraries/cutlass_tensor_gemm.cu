// CUTLASS's GEMM on tensor cores in a few tile shapes, behind one function for ctypes. ELEMENT is
// the type of A, B and C; sums are FP32. Row-major, no transposition; rows begin on 16 bytes.
// Built by autogemm.targets.cuda.worker.libraries.with_cutlass, one library for each ELEMENT.

#include <cuda_runtime.h>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

using RowMajor = cutlass::layout::RowMajor;
constexpr int ALIGNMENT = 128 / cutlass::sizeof_bits<ELEMENT>::value;

struct Call {
    int M, N, K;
    float alpha;
    const ELEMENT* A;
    int lda;
    const ELEMENT* B;
    int ldb;
    float beta;
    ELEMENT* C;
    int ldc;
    cudaStream_t stream;
};

// mma.sync behind a cp.async pipeline, as for Ampere.
template <int BM, int BN, int BK, int WM, int WN, int STAGES>
using Multistage = cutlass::gemm::device::Gemm<
    ELEMENT, RowMajor, ELEMENT, RowMajor, ELEMENT, RowMajor, float, cutlass::arch::OpClassTensorOp,
    cutlass::arch::Sm80, cutlass::gemm::GemmShape<BM, BN, BK>, cutlass::gemm::GemmShape<WM, WN, BK>,
    cutlass::gemm::GemmShape<16, 8, 16>,
    cutlass::epilogue::thread::LinearCombination<ELEMENT, ALIGNMENT, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, STAGES>;

template <class GEMM>
int run_multistage(const Call& call) {
    typename GEMM::Arguments arguments({call.M, call.N, call.K}, {call.A, call.lda},
                                       {call.B, call.ldb}, {call.C, call.ldc}, {call.C, call.ldc},
                                       {call.alpha, call.beta});
    if (auto status = GEMM::can_implement(arguments); status != cutlass::Status::kSuccess) {
        return (int)status;
    }
    GEMM gemm;
    return (int)gemm(arguments, nullptr, call.stream);
}

#ifdef HAS_WGMMA
// wgmma behind a TMA pipeline, with the stages that fit.
template <int BM, int BN, int BK, int CLUSTER_M, class MAINLOOP, class EPILOGUE>
struct Hopper {
    using Tile = cute::Shape<cute::Int<BM>, cute::Int<BN>, cute::Int<BK>>;
    using Cluster = cute::Shape<cute::Int<CLUSTER_M>, cute::_1, cute::_1>;
    using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
        cutlass::epilogue::collective::EpilogueTileAuto, float, float, ELEMENT, RowMajor, ALIGNMENT,
        ELEMENT, RowMajor, ALIGNMENT, EPILOGUE>::CollectiveOp;
    using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, ELEMENT, RowMajor, ALIGNMENT, ELEMENT,
        RowMajor, ALIGNMENT, float, Tile, Cluster,
        cutlass::gemm::collective::StageCountAutoCarveout<(int)sizeof(
            typename Epilogue::SharedStorage)>,
        MAINLOOP>::CollectiveOp;
    using Kernel =
        cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
    using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
};

template <int BM, int BN, int BK, int CLUSTER_M>
using Pingpong = Hopper<BM, BN, BK, CLUSTER_M, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                        cutlass::epilogue::TmaWarpSpecialized>;
template <int BM, int BN, int BK, int CLUSTER_M>
using Cooperative =
    Hopper<BM, BN, BK, CLUSTER_M, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
           cutlass::epilogue::TmaWarpSpecializedCooperative>;

// The strides of a matrix whose rows are `ld` apart; B counts as its transpose, so that there it is
// the second stride that is not 1.
template <class STRIDE>
STRIDE strides(int ld) {
    STRIDE found{};
    if constexpr (cute::is_constant<1, decltype(cute::get<0>(found))>::value) {
        cute::get<1>(found) = ld;
    } else {
        cute::get<0>(found) = ld;
    }
    return found;
}

template <class HOPPER>
int run_hopper(const Call& call) {
    using Gemm = typename HOPPER::Gemm;
    using Kernel = typename Gemm::GemmKernel;
    const auto of_c = strides<typename Kernel::StrideC>(call.ldc);
    static const int num_sms = cutlass::KernelHardwareInfo::query_device_multiprocessor_count();
    cutlass::KernelHardwareInfo hardware;
    hardware.sm_count = num_sms;
    typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                       {call.M, call.N, call.K, 1},
                                       {call.A, strides<typename Kernel::StrideA>(call.lda), call.B,
                                        strides<typename Kernel::StrideB>(call.ldb)},
                                       {{call.alpha, call.beta}, call.C, of_c, call.C, of_c},
                                       hardware};
    if (auto status = Gemm::can_implement(arguments); status != cutlass::Status::kSuccess) {
        return (int)status;
    }
    if (Gemm::get_workspace_size(arguments) != 0) {
        return (int)cutlass::Status::kErrorWorkspaceNull;
    }
    Gemm gemm;
    return (int)gemm.run(arguments, nullptr, call.stream);
}
#endif

using Function = int (*)(const Call&);
static const Function FUNCTIONS[] = {
#ifdef HAS_WGMMA
    run_hopper<Cooperative<128, 256, 64, 2>>,
    run_hopper<Cooperative<256, 128, 64, 2>>,
    run_hopper<Pingpong<64, 256, 64, 2>>,
    run_hopper<Pingpong<64, 128, 64, 1>>,
#endif
    run_multistage<Multistage<128, 256, 32, 64, 64, 3>>,
    run_multistage<Multistage<128, 128, 32, 64, 64, 4>>,
    run_multistage<Multistage<64, 64, 32, 32, 32, 5>>,
};
static const char* const NAMES[] = {
#ifdef HAS_WGMMA
    "128x256x64 wgmma cooperative", "256x128x64 wgmma cooperative", "64x256x64 wgmma pingpong",
    "64x128x64 wgmma pingpong",
#endif
    "128x256x32 mma.sync",          "128x128x32 mma.sync",          "64x64x32 mma.sync",
};

extern "C" int autogemm_num_tiles() {
    return sizeof(FUNCTIONS) / sizeof(FUNCTIONS[0]);
}

extern "C" const char* autogemm_tile_name(int tile) {
    return NAMES[tile];
}

// 0 when the GEMM was queued, else a cutlass::Status.
extern "C" int autogemm_gemm(int tile, int M, int N, int K, float alpha, const void* A, int lda,
                             const void* B, int ldb, float beta, void* C, int ldc, void* stream) {
    return FUNCTIONS[tile]({M, N, K, alpha, (const ELEMENT*)A, lda, (const ELEMENT*)B, ldb, beta,
                            (ELEMENT*)C, ldc, (cudaStream_t)stream});
}
