// Makes inputs and references on the GPU and checks results there: only a few numbers come back.
// Matrices are row-major; extents and positions are 64-bit, so that no problem that fits a GPU
// overflows them. All loops are grid-stride: any launch geometry is right. Elements are
// described by a number, `type`; all arithmetic on them is in float or double.

typedef long long int64;
typedef unsigned long long uint64;

// Values per block that check_result() writes; read as CHECK_FIELDS by verification.py.
constexpr int NUM_FIELDS = 13;
constexpr int MAX_THREADS = 256;
// Most products of a sum that check_few() adds up: FEW_PRODUCTS of precision.py.
constexpr int FEW_PRODUCTS = 16;

// An element type is Element.format_code of autogemm/model/dtypes.py: bytes, bits of the exponent and
// of the fraction, as in IEEE 754, unless it has no infinity. Types with 8 bits of exponent are the
// upper bits of a float.
__device__ int bytes_of(int type) {
    return type >> 16 & 0xff;
}

// Integers in two's complement have neither exponent nor fraction.
__device__ bool is_integer(int type) {
    return (type >> 25 & 1) != 0;
}

// Without one the largest exponent is one of numbers, and NaN has all bits set.
__device__ bool has_infinity(int type) {
    return type >> 24 == 0;
}

// Whether what is too large becomes the largest number (Element.saturates).
__device__ bool saturates(int type) {
    return bytes_of(type) == 1 && !is_integer(type);
}

__device__ int exponent_bits(int type) {
    return type >> 8 & 0xff;
}

__device__ int fraction_bits(int type) {
    return type & 0xff;
}

__device__ bool has_exponent_of_float(int type) {
    return exponent_bits(type) == 8;
}

// What is added to an exponent to store it; the largest exponent; 1 - bias is the least.
__device__ int bias_of(int type) {
    return (1 << (exponent_bits(type) - 1)) - 1;
}

__device__ float power_of_2(int exponent) {
    return __uint_as_float(static_cast<unsigned>(127 + exponent) << 23);
}

__device__ float rounded_to_bits(float value, int dropped) {
    const unsigned bits = __float_as_uint(value);
    const unsigned nearest = bits + ((1u << (dropped - 1)) - 1u) + (bits >> dropped & 1u);
    return __uint_as_float(nearest >> dropped << dropped);
}

// The nearest number of a type; without overflow where its exponent has fewer bits than a float's
// (inputs stay small, and so do exact results). NaN stays NaN: rounded, one of many bits, which a GPU
// makes, would be a number.
__device__ float rounded(float value, int type) {
    const int dropped = 23 - fraction_bits(type);
    if (dropped == 0 || value != value) {
        return value;
    }
    const int least = 1 - bias_of(type);
    if (!has_exponent_of_float(type) && fabsf(value) < power_of_2(least)) {
        // Subnormal: FP16's are multiples of 2^-24, the distance of floats next to 1/2.
        const float shift = copysignf(power_of_2(least + dropped), value);
        return (value + shift) - shift;
    }
    return rounded_to_bits(value, dropped);
}

// No float here is subnormal: CuPy has these kernels compiled so that such a one becomes zero.
__device__ float float_from_bits(unsigned bits, int type) {
    if (has_exponent_of_float(type)) {
        return __uint_as_float(bits << (32 - 8 * bytes_of(type)));
    }
    const int num_bits = fraction_bits(type), bias = bias_of(type);
    const unsigned sign_bit = 1u << (exponent_bits(type) + num_bits);
    const unsigned infinity = sign_bit - (1u << num_bits);
    const unsigned sign = bits & sign_bit ? 1u << 31 : 0, size = bits & (sign_bit - 1);
    if (size < 1u << num_bits) {
        const float value = static_cast<float>(size) * power_of_2(1 - bias - num_bits);
        return sign ? -value : value;
    }
    if (!has_infinity(type) && size == sign_bit - 1) {
        return __uint_as_float(sign | 0x7fffffffu);
    }
    // The exponents' biases differ; infinity and NaN have the largest exponent in both.
    const bool is_special = has_infinity(type) && size >= infinity;
    const unsigned shift = is_special ? 255u - (infinity >> num_bits) : 127u - bias;
    return __uint_as_float(sign | ((size << (23 - num_bits)) + (shift << 23)));
}

// The bits of the nearest number of the type.
__device__ unsigned bits_from_float(float value, int type) {
    if (has_exponent_of_float(type)) {
        return __float_as_uint(rounded(value, type)) >> (32 - 8 * bytes_of(type));
    }
    const int num_bits = fraction_bits(type), bias = bias_of(type);
    const unsigned sign_bit = 1u << (exponent_bits(type) + num_bits);
    const unsigned infinity = sign_bit - (1u << num_bits);
    const unsigned sign = __float_as_uint(value) >> 31 ? sign_bit : 0;
    const float size = fabsf(rounded(value, type));
    if (saturates(type)) {
        const unsigned largest = has_infinity(type) ? infinity - 1 : sign_bit - 2;
        if (value != value || size > float_from_bits(largest, type)) {
            return sign | (value == value ? largest : sign_bit - 1);
        }
    } else if (!(size < power_of_2(bias + 1))) {
        return sign | infinity | (value == value ? 0u : 1u << (num_bits - 1));
    }
    if (size < power_of_2(1 - bias)) {
        return sign | static_cast<unsigned>(size * power_of_2(bias - 1 + num_bits));
    }
    return sign | ((__float_as_uint(size) >> (23 - num_bits)) - ((127u - bias) << num_bits));
}

// Bits of an element: the upper ones are 0 where it has fewer than 32.
__device__ unsigned bits_of(const void* data, int64 i, int bytes) {
    return bytes == 1   ? static_cast<const unsigned char*>(data)[i]
           : bytes == 2 ? static_cast<const unsigned short*>(data)[i]
                        : static_cast<const unsigned*>(data)[i];
}

__device__ void set_bits(void* data, int64 i, int bytes, unsigned bits) {
    if (bytes == 1) {
        static_cast<unsigned char*>(data)[i] = static_cast<unsigned char>(bits);
    } else if (bytes == 2) {
        static_cast<unsigned short*>(data)[i] = static_cast<unsigned short>(bits);
    } else {
        static_cast<unsigned*>(data)[i] = bits;
    }
}

__device__ double integer_from_bits(unsigned bits, int bytes) {
    const int unused = 32 - 8 * bytes;
    return static_cast<int>(bits << unused) >> unused;
}

// In double, which alone holds integers of 32 bits.
__device__ double element(const void* data, int64 i, int type) {
    const unsigned bits = bits_of(data, i, bytes_of(type));
    return is_integer(type) ? integer_from_bits(bits, bytes_of(type)) : float_from_bits(bits, type);
}

// Integers are given as what they are.
__device__ void set_element(void* data, int64 i, int type, float value) {
    if (is_integer(type)) {
        set_bits(data, i, bytes_of(type), static_cast<unsigned>(static_cast<int>(value)));
        return;
    }
    set_bits(data, i, bytes_of(type), bits_from_float(value, type));
}

__device__ int64 first_index() {
    return static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ int64 stride() {
    return static_cast<int64>(gridDim.x) * blockDim.x;
}

// SplitMix64's finaliser (Steele, Lea and Flood, 2014): a counter in, 64 well-mixed bits out.
__device__ uint64 mixed(uint64 counter) {
    uint64 z = (counter + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// One of -3, -2, -1, 1, 2, 3: never 0, so that each dropped or doubled product is seen.
__device__ float small_integer(uint64 bits) {
    const int magnitude = 1 + static_cast<int>((bits >> 32) % 3);
    return static_cast<float>(bits & 1 ? magnitude : -magnitude);
}

// Uniform on [-1, 1), a multiple of 2^-23: 24 significant bits, so that TF32 or BF16 would lose; an
// input of these types is rounded afterwards.
__device__ float uniform_real(uint64 bits) {
    return static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;
}

// Normal with mean 0 and standard deviation 1 (Box and Muller, 1958).
__device__ float normal_real(uint64 bits) {
    // On (0, 1] and [0, 1): the logarithm of 0 is never taken.
    const float radius = sqrtf(-2.0f * logf((static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f));
    return radius * cosf(6.28318531f * static_cast<float>(bits & 0xffffffu) * 0x1p-24f);
}

// An integer of that many bytes: of 8 bits any, but from 64 to 127 in every eighth row, so that some
// sums have more bits than floats; of 32 bits up to 2^20, so that sums with it fit in 32 bits.
__device__ float uniform_integer(uint64 bits, int bytes, int64 row) {
    const int value = static_cast<int>(bits >> 32 & 0xff);
    if (bytes == 1) {
        return static_cast<float>(row % 8 == 0 ? 64 + value % 64 : value - 128);
    }
    return static_cast<float>(static_cast<int>(bits >> 43) - (1 << 20));
}

// What random values are; the numbers of FILL_NUMBERS in inputs.py.
constexpr int UNIFORM = 0;
constexpr int INTEGERS = 1;
constexpr int NORMAL = 2;
// The standard deviation of integers, so that hardly any is beyond 127.
constexpr float NORMAL_INTEGERS = 32.0f;

extern "C" __global__ void fill_bits(void* data, int64 count, int bytes, unsigned bits) {
    for (int64 i = first_index(); i < count; i += stride()) {
        set_bits(data, i, bytes, bits);
    }
}

// Random values of that type, or zeros, for a rows x cols matrix; what lies between the rows stays.
extern "C" __global__ void fill_random(void* data, int type, int64 rows, int64 cols, int64 ld,
                                       uint64 seed, int fill) {
    for (int64 i = first_index(); i < rows * cols; i += stride()) {
        const uint64 bits = mixed(mixed(seed) + static_cast<uint64>(i));
        float value = fill == UNIFORM    ? uniform_real(bits)
                      : fill == INTEGERS ? small_integer(bits)
                      : fill == NORMAL   ? normal_real(bits)
                                         : 0.0f;
        if (is_integer(type) && fill == UNIFORM) {
            value = uniform_integer(bits, bytes_of(type), i / cols);
        } else if (is_integer(type) && fill == NORMAL) {
            value = rintf(fminf(fmaxf(NORMAL_INTEGERS * value, -127.0f), 127.0f));
        }
        set_element(data, i / cols * ld + i % cols, type, value);
    }
}

// Multiplies all elements by a power of two, exactly.
extern "C" __global__ void scale_elements(void* data, int type, int64 rows, int64 cols, int64 ld,
                                          float power) {
    for (int64 i = first_index(); i < rows * cols; i += stride()) {
        const int64 at = i / cols * ld + i % cols;
        set_element(data, at, type, power * static_cast<float>(element(data, at, type)));
    }
}

// E5M2 is the upper half of FP16, and all its numbers are numbers of BF16.
__device__ float float_from_e5m2(unsigned bits) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(bits << 8)));
    return value;
#else
    constexpr int E5M2 = 1 << 16 | 5 << 8 | 2;
    return float_from_bits(bits, E5M2);
#endif
}

__device__ unsigned short short_from_e5m2(unsigned bits, int is_bf16) {
    if (!is_bf16) {
        return static_cast<unsigned short>(bits << 8);
    }
    return static_cast<unsigned short>(__float_as_uint(float_from_e5m2(bits)) >> 16);
}

struct alignas(16) Sixteen {
    unsigned char elements[16];
};

struct alignas(32) SixteenShort {
    unsigned short elements[16];
};

// E5M2 as FP16 or BF16, 16 at a time.
extern "C" __global__ void widen_e5m2(const unsigned char* from, unsigned short* to, int64 count,
                                      int is_bf16) {
    for (int64 i = first_index(); i < count / 16; i += stride()) {
        const Sixteen read = reinterpret_cast<const Sixteen*>(from)[i];
        SixteenShort written;
        #pragma unroll
        for (int e = 0; e < 16; ++e) {
            written.elements[e] = short_from_e5m2(read.elements[e], is_bf16);
        }
        reinterpret_cast<SixteenShort*>(to)[i] = written;
    }
    for (int64 i = count / 16 * 16 + first_index(); i < count; i += stride()) {
        to[i] = short_from_e5m2(from[i], is_bf16);
    }
}

// The nearest number of FP16 or BF16.
__device__ unsigned short short_from_float(float value, int is_bf16) {
    constexpr int F16 = 2 << 16 | 5 << 8 | 10;
    constexpr int BF16 = 2 << 16 | 8 << 8 | 7;
    return static_cast<unsigned short>(is_bf16 ? bits_from_float(value, BF16)
                                               : bits_from_float(value, F16));
}

__device__ float float_from_e4m3(unsigned bits) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned both;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(static_cast<unsigned short>(bits)));
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(both)));
    return value;
#else
    constexpr int E4M3 = 1 << 16 | 4 << 8 | 3;
    return float_from_bits(bits, E4M3);
#endif
}

// 8-bit floats of that type times the scales of their blocks, each of `block_rows` rows and 128
// columns, rounded to FP16 or BF16. The scale of the block below lies `row_step` further on, that of
// the block on the right `col_step`.
extern "C" __global__ void widen_scaled(const unsigned char* from, int type, unsigned short* to,
                                        int64 rows, int64 cols, int64 ld, const float* scales,
                                        int64 block_rows, int64 row_step, int64 col_step,
                                        int is_bf16) {
    constexpr int E5M2 = 1 << 16 | 5 << 8 | 2;
    const auto wide = [=](unsigned bits) {
        return type == E5M2 ? float_from_e5m2(bits) : float_from_e4m3(bits);
    };
    // A thread has 16 elements of a row, all of one block.
    const int64 pieces = (cols + 15) / 16;
    for (int64 i = first_index(); i < rows * pieces; i += stride()) {
        const int64 row = i / pieces;
        const int64 col = i % pieces * 16;
        const float scale = scales[row / block_rows * row_step + col / 128 * col_step];
        const unsigned char* const read = from + row * ld + col;
        unsigned short* const written = to + row * ld + col;
        if (ld % 16 == 0 && col + 16 <= cols) {
            const Sixteen all = *reinterpret_cast<const Sixteen*>(read);
            SixteenShort scaled;
            #pragma unroll
            for (int e = 0; e < 16; ++e) {
                scaled.elements[e] = short_from_float(wide(all.elements[e]) * scale, is_bf16);
            }
            *reinterpret_cast<SixteenShort*>(written) = scaled;
        } else {
            for (int64 e = 0; e < 16 && col + e < cols; ++e) {
                written[e] = short_from_float(wide(read[e]) * scale, is_bf16);
            }
        }
    }
}

// A tile of a stored matrix as packed float64, optionally each element squared.
extern "C" __global__ void widen_tile(double* tile, const void* data, int type, int64 ld,
                                      int64 row0, int64 col0, int64 rows, int64 cols, int squared) {
    for (int64 i = first_index(); i < rows * cols; i += stride()) {
        const double value = element(data, (row0 + i / cols) * ld + col0 + i % cols, type);
        tile[i] = squared ? value * value : value;
    }
}

// A tile of A or B as stored, times the scales of its blocks of `block_rows` rows and `block_cols`
// columns; the scale of the block below lies `row_step` elements further on, that of the block on
// the right `col_step`.
extern "C" __global__ void scale_tile(double* tile, const float* scales, int64 block_rows,
                                      int64 row_step, int64 block_cols, int64 col_step, int64 row0,
                                      int64 col0, int64 rows, int64 cols, int squared) {
    for (int64 i = first_index(); i < rows * cols; i += stride()) {
        const int64 row = (row0 + i / cols) / block_rows;
        const int64 col = (col0 + i % cols) / block_cols;
        const double scale = scales[row * row_step + col * col_step];
        tile[i] *= squared ? scale * scale : scale;
    }
}

constexpr double UNIT_ROUNDOFF = 0x1p-24;

// The expected square of an element's error: that of its sum, and one rounding each of alpha times
// the sum, beta times the old C, and both together. RMS_ROUNDING is RMS_ROUNDING of precision.py.
__device__ double predicted_square(double of_sum, double scaled, double added) {
    constexpr double RMS_ROUNDING = 0.4247 * UNIT_ROUNDOFF;
    const double both = scaled + added;
    return of_sum + RMS_ROUNDING * RMS_ROUNDING * (scaled * scaled + added * added + both * both);
}

// The least number that is rounded to infinity, of a type that has one.
__device__ double overflow_of(int type) {
    return ldexp(1.0, bias_of(type) + 1) - ldexp(1.0, bias_of(type) - 1 - fraction_bits(type));
}

// Writes a result as an element of that type: the nearest, and how far from it those are that are
// nearest to the ends of what an error leaves. NaN is NaN alone. Where a result may be infinite or
// not, overflow_of() stands for it.
__device__ void set_nearest(double value, double error, int type, double* reference, float* bound) {
    const double ends[3] = {value, value - error, value + error};
    double elements[3];
    for (int i = 0; i < 3; ++i) {
        elements[i] = float_from_bits(bits_from_float(static_cast<float>(ends[i]), type), type);
    }
    const bool is_certain = value != value || elements[1] == elements[2];
    if (!is_certain && has_infinity(type)) {
        const double most = overflow_of(type);
        for (double& end : elements) {
            end = fmin(fmax(end, -most), most);
        }
    }
    *reference = elements[0];
    const double steps = fmax(elements[2] - elements[0], elements[0] - elements[1]);
    // An error that no float holds says that nothing is known; one that is subnormal would become
    // zero, as all floats here do.
    const float largest = static_cast<float>(error);
    const bool is_known = largest - largest == 0.0f;
    const float known = fmaxf(static_cast<float>(steps), 0x1p-126f);
    *bound = is_certain ? 0.0f : is_known ? known : largest;
}

// The reference of one tile of C, alpha * product + beta * c0, and how far a result may be off.
//
// allowance * sqrt(squares) bounds the rounding error of the dot product (reference.py says
// where it comes from); 4 roundings more for alpha, beta and their sum, and one of the result where
// C has fewer bits than a float. Integers in C are exact. `*predicted` is raised by the squares of the errors that FP32 is
// expected to make, chain * squares those of the sums (precision.py).
extern "C" __global__ void finish_tile(const double* product, const double* squares, const void* c0,
                                       int type, double alpha, double beta, double allowance,
                                       double chain, int64 row0, int64 col0, int64 rows, int64 cols,
                                       int64 N, double* reference, float* bound,
                                       double* predicted) {
    const int num_bits = fraction_bits(type);
    const double last_roundoff = bytes_of(type) < 4 ? power_of_2(-1 - num_bits) : 0.0;
    // Half the distance of subnormal numbers; of types with the exponents of floats it hardly counts.
    const double smallest_step =
        has_exponent_of_float(type) || is_integer(type) ? 0.0 : power_of_2(-bias_of(type) - num_bits);
    const double scalar_roundoff = is_integer(type) ? 0.0 : 4 * UNIT_ROUNDOFF;
    double mine = 0;
    for (int64 i = first_index(); i < rows * cols; i += stride()) {
        const int64 at = (row0 + i / cols) * N + col0 + i % cols;
        const double scaled = alpha * product[i];
        const double added = c0 != nullptr ? beta * element(c0, at, type) : 0.0;
        reference[at] = scaled + added;
        const double dot_error = fabs(alpha) * allowance * sqrt(squares[i]);
        const double scalar_error = scalar_roundoff * (fabs(scaled) + fabs(added));
        const double error = dot_error + scalar_error;
        if (saturates(type)) {
            set_nearest(scaled + added, error, type, reference + at, bound + at);
            continue;
        }
        const double last_error = last_roundoff * (fabs(scaled + added) + error) + smallest_step;
        // Rounded up to float; the smallest normal number covers results that underflow.
        bound[at] = static_cast<float>((error + last_error) * (1 + 0x1p-22)) + 0x1p-126f;
        mine += predicted_square(alpha * alpha * chain * squares[i], scaled, added);
    }
    atomicAdd(predicted, mine);
}

// As above for integer inputs, where every kernel that is right has exactly this result.
extern "C" __global__ void finish_exact_tile(const double* product, const void* c0, int type,
                                             double alpha, double beta, int64 row0, int64 col0,
                                             int64 rows, int64 cols, int64 N, float* exact) {
    for (int64 i = first_index(); i < rows * cols; i += stride()) {
        const int64 at = (row0 + i / cols) * N + col0 + i % cols;
        const double added = c0 != nullptr ? beta * element(c0, at, type) : 0.0;
        const float value = static_cast<float>(alpha * product[i] + added);
        exact[at] = is_integer(type) ? value : float_from_bits(bits_from_float(value, type), type);
    }
}

// C is that of several products, each M x N and `rows` rows behind the one before. Where there are
// `counts`, they say how many rows each has.
__device__ bool is_element(int64 at, int64 M, int64 N, int64 rows, int64 ldc, const int* counts) {
    const int64 row = at / ldc;
    return at % ldc < N && row % rows < (counts != nullptr ? counts[row / rows] : M);
}

// The place of an element of C among those of all products, packed.
__device__ int64 packed_place(int64 at, int64 M, int64 N, int64 rows, int64 ldc) {
    const int64 row = at / ldc;
    return (row / rows * M + row % rows) * N + at % ldc;
}

// C as it is before a launch: c0 (or NaN, which a kernel at beta = 0 must not read) inside,
// canaries around it and between its rows.
extern "C" __global__ void reset_result(void* buffer, int bytes, int64 total, int64 guard, int64 M,
                                        int64 N, int64 rows, int64 ldc, const int* counts,
                                        const void* c0, unsigned poison, unsigned canary) {
    for (int64 i = first_index(); i < total; i += stride()) {
        const int64 at = i - guard;
        const bool inside = at >= 0 && i < total - guard && is_element(at, M, N, rows, ldc, counts);
        const unsigned before =
            inside && c0 != nullptr ? bits_of(c0, packed_place(at, M, N, rows, ldc), bytes) : poison;
        set_bits(buffer, i, bytes, inside ? before : canary);
    }
}

// Notes an element of C at `place`, the expected value and how far from it C may be; and is_exact
// where that is no distance at all. NaN never passes.
__device__ void note_element(double* mine, int64 place, double value, double expected,
                             double allowed, bool is_exact) {
    const double infinity = __longlong_as_double(0x7ff0000000000000ll);
    double error = value == expected ? 0.0 : fabs(value - expected);
    if (!(error <= infinity)) {
        error = infinity;
    }
    const double score = is_exact ? error : error / allowed;
    if (!(error <= allowed)) {
        mine[0] += 1;
    }
    if (score > mine[1]) {
        mine[1] = score;
        mine[2] = static_cast<double>(place);
        mine[3] = value;
        mine[4] = expected;
    }
    mine[5] = fmax(mine[5], error);
    mine[6] += error * error;
    mine[7] += expected * expected;
}

// Each block writes NUM_FIELDS numbers: mismatches, worst score (error / bound, or the error where
// none is allowed), its index, the value there, the expected value, largest error, sum of squared
// errors, sum of squared expected values, canaries overwritten, first such position in the buffer,
// sum of the squares of errors that FP32 is expected to make (0 where that is known beforehand);
// sums of the squares of errors and of expected values, as shares of their bounds (0 without bounds).
__device__ void write_fields(double* mine, double* fields) {
    __shared__ double all[MAX_THREADS][NUM_FIELDS];
    for (int field = 0; field < NUM_FIELDS; ++field) {
        all[threadIdx.x][field] = mine[field];
    }
    __syncthreads();
    if (threadIdx.x != 0) {
        return;
    }
    for (int thread = 1; thread < blockDim.x; ++thread) {
        const double* other = all[thread];
        mine[0] += other[0];
        if (other[1] > mine[1]) {
            for (int field = 1; field <= 4; ++field) {
                mine[field] = other[field];
            }
        }
        mine[5] = fmax(mine[5], other[5]);
        mine[6] += other[6];
        mine[7] += other[7];
        mine[8] += other[8];
        mine[9] = fmin(mine[9], other[9]);
        for (int field = 10; field < NUM_FIELDS; ++field) {
            mine[field] += other[field];
        }
    }
    for (int field = 0; field < NUM_FIELDS; ++field) {
        fields[static_cast<int64>(blockIdx.x) * NUM_FIELDS + field] = mine[field];
    }
}

// Whether an infinite result is right: its type has no number as large as one that is `allowed`
// from the expected one.
__device__ bool is_beyond_type(double value, double expected, double allowed, int type) {
    const double infinity = __longlong_as_double(0x7ff0000000000000ll);
    if (is_integer(type) || saturates(type)) {
        return false;
    }
    const double beyond = overflow_of(type);
    return (value == infinity && expected + allowed >= beyond) ||
           (value == -infinity && expected - allowed <= -beyond);
}

// Compares C with `exact` (no error allowed) or, where that is null, with `reference` within
// `bound`.
extern "C" __global__ void check_result(const void* buffer, int type, int64 total, int64 guard,
                                        int64 M, int64 N, int64 rows, int64 ldc,
                                        const int* counts, unsigned canary, const float* exact,
                                        const double* reference, const float* bound,
                                        double* fields) {
    const int bytes = bytes_of(type);
    double mine[NUM_FIELDS] = {0, -1, 0, 0, 0, 0, 0, 0, 0, static_cast<double>(total)};
    for (int64 i = first_index(); i < total; i += stride()) {
        const int64 at = i - guard;
        const bool inside = at >= 0 && i < total - guard && is_element(at, M, N, rows, ldc, counts);
        if (!inside) {
            if (bits_of(buffer, i, bytes) != canary) {
                mine[8] += 1;
                mine[9] = fmin(mine[9], static_cast<double>(i));
            }
            continue;
        }
        const int64 place = packed_place(at, M, N, rows, ldc);
        const double expected = exact != nullptr ? exact[place] : reference[place];
        const double allowed = exact != nullptr ? 0.0 : bound[place];
        const double value = element(buffer, i, type);
        // A NaN in A or B has to reach C.
        const bool both_nan = expected != expected && value != value;
        // With an infinite bound any result is right, unless infinity or NaN is expected.
        const bool is_unknown = fabs(expected) < 0x1p128 && allowed - allowed != 0.0;
        if (both_nan || is_unknown) {
            continue;
        }
        const bool is_right = is_beyond_type(value, expected, allowed, type);
        note_element(mine, place, is_right ? expected : value, expected, allowed, exact != nullptr);
        if (allowed > 0 && value - expected == value - expected) {
            const double of_error = is_right ? 0.0 : (value - expected) / allowed;
            const double of_expected = expected / allowed;
            mine[11] += of_error * of_error;
            mine[12] += of_expected * of_expected;
        }
    }
    write_fields(mine, fields);
}

// The k of the product that is kept of the group-th `step` products: one that looks random.
__device__ int64 kept_k(int64 group, int64 step, int64 K) {
    const int64 first = group * step, size = step < K - first ? step : K - first;
    return first + static_cast<int64>(mixed(static_cast<uint64>(group)) >> 1) % size;
}

// Makes zero what an A [rows, cols] has besides one column (or, transposed, row) of each `step`.
extern "C" __global__ void keep_few(void* a, int type, int64 rows, int64 cols, int64 ld,
                                    int is_transposed, int64 step) {
    const int64 K = is_transposed ? rows : cols;
    for (int64 i = first_index(); i < rows * cols; i += stride()) {
        const int64 k = is_transposed ? i / cols : i % cols;
        if (kept_k(k / step, step, K) != k) {
            set_bits(a, i / cols * ld + i % cols, bytes_of(type), 0);
        }
    }
}

// As check_result(), of an A that keep_few() left one product of each `step` of: few enough for each
// thread to add up in float64. Matrices of the products are rows_a, rows_b and rows_c rows apart.
extern "C" __global__ void check_few(const void* c, const void* a, const void* b, const void* c0,
                                     int type_c, int type_ab, int64 M, int64 N, int64 K, int64 lda,
                                     int64 ldb, int64 ldc, int trans_a, int trans_b, int64 step,
                                     int64 count, int64 rows_a, int64 rows_b, int64 rows_c,
                                     double alpha, double beta, double allowance, double chain,
                                     double* fields) {
    double mine[NUM_FIELDS] = {0, -1};
    // The same for all elements; the remainders behind it would take longer than the products.
    __shared__ int64 kept[FEW_PRODUCTS];
    for (int64 group = threadIdx.x; group * step < K; group += blockDim.x) {
        kept[group] = kept_k(group, step, K);
    }
    __syncthreads();
    for (int64 i = first_index(); i < count * M * N; i += stride()) {
        const int64 which = i / (M * N), row = i / N % M, col = i % N;
        const int64 from_a = which * rows_a * lda, from_b = which * rows_b * ldb;
        double product = 0, squares = 0;
        for (int64 group = 0; group * step < K; ++group) {
            const int64 k = kept[group];
            const int64 at_a = from_a + (trans_a ? k * lda + row : row * lda + k);
            const int64 at_b = from_b + (trans_b ? col * ldb + k : k * ldb + col);
            const double term =
                static_cast<double>(element(a, at_a, type_ab)) * element(b, at_b, type_ab);
            product += term;
            squares += term * term;
        }
        const double scaled = alpha * product;
        const double added = c0 != nullptr ? beta * element(c0, i, type_c) : 0.0;
        const double allowed = fabs(alpha) * allowance * sqrt(squares) +
                               4 * UNIT_ROUNDOFF * (fabs(scaled) + fabs(added)) + 0x1p-126;
        const double value = element(c, (which * rows_c + row) * ldc + col, type_c);
        const double expected = scaled + added;
        const bool is_right = is_beyond_type(value, expected, allowed, type_c);
        note_element(mine, i, is_right ? expected : value, expected, allowed, false);
        mine[10] += predicted_square(alpha * alpha * chain * squares, scaled, added);
    }
    write_fields(mine, fields);
}

// Adds a hash of the bits and their positions to `sum`: inputs must come out as they went in. Once
// for each block: a million threads that add to one number take a millisecond.
extern "C" __global__ void add_checksum(const void* data, int64 count, int bytes, uint64* sum) {
    uint64 mine = 0;
    for (int64 i = first_index(); i < count; i += stride()) {
        const uint64 bits = bits_of(data, i, bytes);
        mine += mixed(static_cast<uint64>(i) ^ (bits << 32));
    }
    __shared__ uint64 all[MAX_THREADS];
    all[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int thread = 1; thread < blockDim.x; ++thread) {
            mine += all[thread];
        }
        atomicAdd(sum, mine);
    }
}
