// What TMA reads and writes where rows end before the matrix does, in two forms of tensor map.
//
//     nvcc -std=c++17 -arch=sm_90a -o tma_outside benchmarks/tma_outside.cu -lcuda
//     ./tma_outside FORM STORE END N
//
// A box of 128 rows begins N rows before row END of a matrix, from which on nothing is to be read or
// written; N is 0 or less for none of its rows. Addresses before and behind the matrix are not mapped.
// The map's second dimension ends where TMA clips, and the third moves that to END: FORM 3 begins as
// many rows before the matrix as the second dimension has; FORM 4 begins with the matrix, and its
// fourth dimension takes 2^30 rows back, modulo 2^64. STORE is 0 to load, 1 to store.

#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
#define CK(x)                          \
    do {                               \
        CUresult r = (x);              \
        if (r) {                       \
            printf("%s: %d\n", #x, r); \
            exit(2);                   \
        }                              \
    } while (0)
struct __align__(64) Map {
    unsigned long long words[16];
};
template <int RANK, bool STORE>
__global__ void probe(const __grid_constant__ Map map, int c0, int c1, int c2, int c3,
                      unsigned short* out, unsigned bytes) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ unsigned long long bar;
    unsigned b = (unsigned)__cvta_generic_to_shared(&bar),
             s = (unsigned)__cvta_generic_to_shared(shared);
    for (int i = threadIdx.x; i < bytes / 2; i += blockDim.x)
        ((unsigned short*)shared)[i] = 7777;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        if (STORE) {
            if (RANK == 3)
                asm volatile(
                    "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1,%2,%3}], "
                    "[%4];" ::"l"(&map),
                    "r"(c0), "r"(c1), "r"(c2), "r"(s)
                    : "memory");
            else
                asm volatile(
                    "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, "
                    "{%1,%2,%3,%4}], [%5];" ::"l"(&map),
                    "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(s)
                    : "memory");
            asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
        } else {
            asm volatile(
                "mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::
                    "r"(b)
                : "memory");
            asm volatile(
                "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(b),
                "r"(bytes)
                : "memory");
            if (RANK == 3)
                asm volatile(
                    "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::"
                    "bytes [%0], [%1, {%2,%3,%4}], [%5];" ::"r"(s),
                    "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(b)
                    : "memory");
            else
                asm volatile(
                    "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::"
                    "bytes [%0], [%1, {%2,%3,%4,%5}], [%6];" ::"r"(s),
                    "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(b)
                    : "memory");
            unsigned done;
            do {
                asm volatile(
                    "{.reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], "
                    "0; selp.u32 %0,1,0,p;}"
                    : "=r"(done)
                    : "r"(b)
                    : "memory");
            } while (!done);
        }
    }
    __syncthreads();
    if (!STORE)
        for (int i = threadIdx.x; i < bytes / 2; i += blockDim.x)
            out[i] = ((unsigned short*)shared)[i];
}
int main(int argc, char** argv) {
    const int form = atoi(argv[1]);
    const bool store = atoi(argv[2]);
    const long end = atol(argv[3]), n = atol(argv[4]);
    cudaSetDevice(0);
    cudaFree(0);
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = 0;
    const size_t size = 32 << 20, room = 512u << 20;
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    CK(cuMemAddressReserve(&va, room, 0, 0, 0));
    CK(cuMemCreate(&h, size, &prop, 0));
    CUdeviceptr A = va + room / 2;
    CK(cuMemMap(A, size, 0, h, 0));
    CUmemAccessDesc acc = {};
    acc.location = prop.location;
    acc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CK(cuMemSetAccess(A, size, &acc, 1));
    const long K = 14336, S = K * 2, M = size / S, BM = 128;  // M = 1170 rows
    std::vector<unsigned short> host(M * K);
    for (long m = 0; m < M; ++m)
        for (long k = 0; k < K; ++k)
            host[m * K + k] = m + 1;
    cudaMemcpy((void*)A, host.data(), M * S, cudaMemcpyHostToDevice);
    unsigned short* out;
    cudaMalloc(&out, 64 * 128 * 2);
    Map map;
    CUresult r;
    const cuuint32_t step[4] = {1, 1, 1, 1}, box[4] = {64, 128, 1, 1};
    const unsigned bytes = 64 * 128 * 2;
    const long B30 = 1 << 30;
    if (form == 3) {
        cuuint64_t ext[3] = {(cuuint64_t)K, (cuuint64_t)BM, (cuuint64_t)M + 1},
                   pitch[2] = {(cuuint64_t)S, (cuuint64_t)S};
        r = cuTensorMapEncodeTiled(
            (CUtensorMap*)&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void*)(A - BM * S), ext,
            pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    } else {
        cuuint64_t ext[4] = {(cuuint64_t)K, (cuuint64_t)B30, (cuuint64_t)M + 1,
                             (cuuint64_t)B30 + 1},
                   pitch[3] = {(cuuint64_t)S, (cuuint64_t)S, (cuuint64_t)((1ll << 34) - S)};
        r = cuTensorMapEncodeTiled((CUtensorMap*)&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
                                   (void*)A, ext, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    }
    if (r) {
        printf("encode %d\n", r);
        return 3;
    }
    const int c1 = form == 3 ? BM - n : B30 - n, c2 = end, c3 = B30;
    auto go = [&](auto kernel) {
        cudaFuncSetAttribute((void*)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
        kernel<<<1, 128, 32768>>>(map, 0, c1, c2, c3, out, bytes);
    };
    if (form == 3)
        store ? go(probe<3, true>) : go(probe<3, false>);
    else
        store ? go(probe<4, true>) : go(probe<4, false>);
    cudaError_t e = cudaDeviceSynchronize();
    if (e) {
        printf("form %d store %d end %ld n %ld: %s\n", form, store, end, n, cudaGetErrorString(e));
        return 1;
    }
    bool right = true;
    std::vector<unsigned short> got(64 * 128);
    if (!store) {
        cudaMemcpy(got.data(), out, bytes, cudaMemcpyDeviceToHost);
        for (int i = 0; i < 128; ++i)
            for (int j = 0; j < 64; ++j)
                right &= got[i * 64 + j] == (i < n ? end - n + i + 1 : 0);
    } else {
        std::vector<unsigned short> now(M * K);
        cudaMemcpy(now.data(), (void*)A, M * S, cudaMemcpyDeviceToHost);
        for (long m = 0; m < M; ++m)
            for (long k = 0; k < K; ++k)
                right &= now[m * K + k] == (k < 64 && m >= end - n && m < end ? 7777 : m + 1);
    }
    printf("form %d store %d end %ld n %ld: ran, %s\n", form, store, end, n,
           right ? "right" : "WRONG");
}
