// Products of a warpgroup (wgmma): operands in shared memory by descriptor, sums in registers, done later.
//
// A warp computes its 16 of the 64 rows by itself; that the four warps issue the same is not checked, but
// a product is done only when all have issued it, and done for all when one of them has waited for it. From
// its issue to then it reads shared memory and A's registers whenever it likes, and its sums are nobody's
// until their warp has waited: they hold NaN meanwhile. It is multiplied at once, or as late as can be, like
// copies. Products are exact, the sum of one instruction as for mma.sync (tensor_cores.h), aligned where they
// are 8-bit floats. Sums of 8-bit integers are 32-bit integers, whose bits are kept in the place of floats.
#pragma once

#include "tensor_cores.h"
#include "tiles.h"

namespace autogemm_emulator {

constexpr uint32_t kMaxSums = 128;  // of a thread: 64 x 256 of a warpgroup

// The sums of a warp's lanes, while products add to them.
struct WarpSums {
    float* of_lane[32];
    uint32_t count;
    std::vector<float> values;  // [lane][count]
};

struct Product {
    WarpgroupOperands what;
    std::shared_ptr<WarpSums> sums;
    std::vector<unsigned> registers;  // A of the lanes, [lane][4], where it is not in shared memory
    std::vector<const unsigned*> of_lane;  // where a lane has them
    std::vector<uint32_t> issued;     // clocks of the lanes that brought them
    uint64_t pc;
};

struct Range {
    const char *begin, *end;
};

struct ProductGroup {
    std::vector<Product> products;
    bool done;
};

// State of a warp's products, kept for lane 0.
struct WarpProducts {
    std::vector<Product> open;
    std::vector<ProductGroup> groups;  // that this warp has not waited for
    uint32_t num_waited = 0;           // groups before these
    uint32_t done[32] = {};            // clocks of the lanes, up to which their accesses are over
    std::vector<uint32_t> loaded;      // those at the last product that took registers and is done
    std::vector<Range> known[32];  // sums and registers of A that products had, by lane
    bool fenced = false;           // since the kernel last wrote to these
};
inline std::unordered_map<const Thread*, WarpProducts> warp_products;  // by lane 0

inline WarpProducts& products_of(const Thread& thread) {
    Thread& lane_0 = *lane_of_warp(thread, 0);
    if (lane_0.products == nullptr) {
        lane_0.products = &warp_products[&lane_0];
    }
    return *lane_0.products;
}

constexpr uint32_t kWarpsOfGroup = 4;

// Calls visit(lane 0) for each warp of the thread's warpgroup.
template <class Visit>
inline void for_each_warp(const Thread& thread, Visit&& visit) {
    const uint32_t first = thread.index / (32 * kWarpsOfGroup) * kWarpsOfGroup;
    for (uint32_t warp = first; warp < first + kWarpsOfGroup && 32 * warp < num_threads; ++warp) {
        visit(threads[32 * warp]);
    }
}

constexpr uint32_t kMaxDepth = 32;

inline uint32_t depth_of(const WarpgroupOperands& what) {
    return 32 / bytes_of(what.element);
}

// Descriptors count from the 1024 bytes that dynamic shared memory begins in: the address keeps the bits
// that a swizzle looks at.
inline char* descriptor_base() {
    const auto begin = reinterpret_cast<uintptr_t>(smem.dynamic_begin);
    return reinterpret_cast<char*>(begin / 1024 * 1024);
}

__attribute__((noinline)) unsigned long long matrix_descriptor(const void* shared, unsigned leading,
                                                               unsigned stride) {
    const uint64_t pc = caller(__builtin_return_address(0));
    const auto* at = static_cast<const char*>(shared);
    if (at < smem.dynamic_begin || at >= smem.zone_end || (at - descriptor_base()) % 16 != 0) {
        report_here(Kind::kBadCopy, pc);
        end_process(State::kAborted);
    }
    const auto field = [](uint64_t bytes) { return bytes >> 4 & 0x3fff; };
    return field(static_cast<uint64_t>(at - descriptor_base())) | field(leading) << 16 |
           field(stride) << 32 | 1ull << 62;
}

// Where an element of an operand lies (PTX ISA, shared memory layouts of wgmma with a swizzle of 128 bytes):
// `across` counts rows of A or columns of B, `k` the depth; stored along k, or across it.
inline char* element_at(uint64_t descriptor, bool is_along_k, uint32_t across, uint32_t k,
                        uint32_t size) {
    const auto field = [&](int shift) { return (descriptor >> shift & 0x3fff) << 4; };
    const uint64_t start = field(0), leading = field(16), stride = field(32);
    const uint32_t in_row = (is_along_k ? k : across) * size, row = is_along_k ? across : k;
    const uint64_t offset =
        start + row / 8 * stride + row % 8 * 128 + in_row / 128 * leading + in_row % 128;
    return swizzled(descriptor_base() + offset, 128);
}

// Calls visit(address, across, k, elements) for all 16 bytes of an operand's part, which lie together.
template <class Visit>
inline void for_each_chunk(uint64_t descriptor, bool is_along_k, uint32_t first, uint32_t count,
                           uint32_t size, Visit&& visit) {
    const uint32_t depth = 32 / size, in_chunk = 16 / size;
    const uint32_t step_k = is_along_k ? in_chunk : 1, step_across = is_along_k ? 1 : in_chunk;
    for (uint32_t across = first; across < first + count; across += step_across) {
        const uint32_t elements = is_along_k ? in_chunk : std::min(in_chunk, first + count - across);
        for (uint32_t k = 0; k < depth; k += step_k) {
            visit(element_at(descriptor, is_along_k, across, k, size), across, k, elements);
        }
    }
}

// Calls put(across, k, value) for all elements of an operand's part.
template <class Put>
inline void read_operand(TensorElement element, uint64_t descriptor, bool is_along_k, uint32_t first,
                         uint32_t count, Put&& put) {
    const uint32_t size = bytes_of(element);
    with_reader(element, [&](const auto& read) {
        for_each_chunk(descriptor, is_along_k, first, count, size,
                       [&](const char* at, uint32_t across, uint32_t k, uint32_t elements) {
                           for (uint32_t i = 0; i < elements; ++i) {
                               put(across + (is_along_k ? 0 : i), k + (is_along_k ? i : 0),
                                   read(at + i * size));
                           }
                       });
    });
}

inline double number_in_register(const Product& product, uint32_t row, uint32_t k) {
    const WarpgroupOperands& what = product.what;
    const uint32_t size = bytes_of(what.element);
    const uint32_t run = 4 / size;  // neighbours in k that one register holds
    const uint32_t lane = row % 8 * 4 + k / run % 4;
    const uint32_t index = row / 8 + k / (4 * run) * 2;
    return float_of(what.element, product.registers[lane * 4 + index] >> 8 * size * (k % run));
}

// Rows of A that a warp multiplies.
inline uint32_t first_row(const Thread& thread) {
    return thread.index / 32 % 4 * 16;
}

// The numbers of B that a row meets, depth by depth. Rows are no power of two apart, which would have a
// column's numbers share few places of a cache.
constexpr uint32_t kRowOfB = 2 * kMaxSums + 8;

// The sums of one row: of all its columns side by side, each in the order of k, so that g++ makes
// vectors of them.
struct RowSums {
    float before[2 * kMaxSums], after[2 * kMaxSums];
};

inline void add_integers(RowSums& sums, const double* a, const double (*b)[kRowOfB],
                         uint32_t depth, uint32_t columns) {
    double added[2 * kMaxSums] = {};
    for (uint32_t k = 0; k < depth; ++k) {
        for (uint32_t column = 0; column < columns; ++column) {
            added[column] += a[k] * b[k][column];
        }
    }
    for (uint32_t column = 0; column < columns; ++column) {
        const uint32_t sum = __builtin_bit_cast(uint32_t, sums.before[column]) +
                             static_cast<uint32_t>(static_cast<int32_t>(added[column]));
        sums.after[column] = __builtin_bit_cast(float, sum);
    }
}

inline void add_aligned(RowSums& sums, const double* a, const double (*b)[kRowOfB],
                        uint32_t depth, uint32_t columns) {
    for (uint32_t column = 0; column < columns; ++column) {
        double products[kMaxDepth];
        for (uint32_t k = 0; k < depth; ++k) {
            products[k] = a[k] * b[k][column];
        }
        sums.after[column] = aligned_sum(sums.before[column], products, depth);
    }
}

inline void add_floats(RowSums& sums, const double* a, const double (*b)[kRowOfB],
                       uint32_t depth, uint32_t columns) {
    double wide[2 * kMaxSums];
    std::copy_n(sums.before, columns, wide);
    for (uint32_t k = 0; k < depth; ++k) {
        for (uint32_t column = 0; column < columns; ++column) {
            wide[column] += a[k] * b[k][column];
        }
    }
    for (uint32_t column = 0; column < columns; ++column) {
        sums.after[column] = cut_off(wide[column]);
    }
}

inline void multiply(const Product& product, uint32_t first_row) {
    const WarpgroupOperands& what = product.what;
    WarpSums& sums = *product.sums;
    const uint32_t depth = depth_of(what), columns = 2 * sums.count;
    static double a[16][kMaxDepth], b[kMaxDepth][kRowOfB];
    if (product.registers.empty()) {
        read_operand(what.element, what.a, what.a_along_k, first_row, 16,
                     [&](uint32_t row, uint32_t k, float value) { a[row - first_row][k] = value; });
    } else {
        for (uint32_t k = 0; k < depth; ++k) {
            for (uint32_t row = 0; row < 16; ++row) {
                a[row][k] = number_in_register(product, row, k);
            }
        }
    }
    read_operand(what.element_of_b, what.b, what.b_along_k, 0, columns,
                 [&](uint32_t column, uint32_t k, float value) { b[k][column] = value; });
    for (uint32_t row = 0; row < 16; ++row) {
        // Where the row's sums lie: four lanes have two neighbours of each eight columns.
        const auto sum_of = [&](uint32_t column) -> float& {
            const uint32_t lane = row % 8 * 4 + column % 8 / 2;
            return sums.values[lane * sums.count + column / 8 * 4 + row / 8 * 2 + column % 2];
        };
        static RowSums of_row;
        for (uint32_t column = 0; column < columns; ++column) {
            of_row.before[column] = what.accumulate ? sum_of(column) : 0.0f;
        }
        if (is_integer(what.element)) {
            add_integers(of_row, a[row], b, depth, columns);
        } else if (bytes_of(what.element) == 1) {
            add_aligned(of_row, a[row], b, depth, columns);
        } else {
            add_floats(of_row, a[row], b, depth, columns);
        }
        for (uint32_t column = 0; column < columns; ++column) {
            sum_of(column) = of_row.after[column];
        }
    }
}

// The sums of the lanes, kept aside: those of an earlier product that is not waited for yet, or new ones.
inline std::shared_ptr<WarpSums> sums_of(WarpProducts& products, const LaneOperands* const* lanes,
                                         uint32_t count) {
    const auto find = [&](const std::vector<Product>& group) -> std::shared_ptr<WarpSums> {
        for (const Product& product : group) {
            if (product.sums->of_lane[0] == lanes[0]->d) {
                return product.sums;
            }
        }
        return nullptr;
    };
    std::shared_ptr<WarpSums> found = find(products.open);
    for (size_t i = 0; i < products.groups.size() && !found; ++i) {
        found = find(products.groups[i].products);
    }
    if (found) {
        return found;
    }
    auto sums = std::make_shared<WarpSums>();
    sums->count = count;
    for (uint32_t lane = 0; lane < 32; ++lane) {
        sums->of_lane[lane] = lanes[lane]->d;
        sums->values.insert(sums->values.end(), lanes[lane]->d, lanes[lane]->d + count);
        fill_poison(reinterpret_cast<char*>(lanes[lane]->d), 4 * count);
    }
    return sums;
}

inline void remember(WarpProducts& products, const LaneOperands* const* lanes, uint32_t count) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
        const auto keep = [&](const void* begin, uint32_t bytes) {
            const auto* at = static_cast<const char*>(begin);
            std::vector<Range>& known = products.known[lane];
            const bool is_known = std::any_of(known.begin(), known.end(),
                                              [&](const Range& range) { return range.begin == at; });
            if (begin != nullptr && !is_known) {
                known.push_back({at, at + bytes});
            }
        };
        keep(lanes[lane]->d, 4 * count);
        keep(lanes[lane]->a, 16);
    }
}

void start_product(const Thread& thread, const LaneOperands* const* lanes) {
    WarpProducts& products = products_of(thread);
    Product product{*lanes[0]->warpgroup, nullptr, {}, {}, {}, thread.pc};
    if (!products.fenced) {
        report_here(Kind::kNoRegisterFence, thread.pc);
        products.fenced = true;
    }
    product.sums = sums_of(products, lanes, product.what.num_sums);
    for (uint32_t lane = 0; lane < 32 && lanes[0]->a != nullptr; ++lane) {
        product.registers.insert(product.registers.end(), lanes[lane]->a, lanes[lane]->a + 4);
        product.of_lane.push_back(lanes[lane]->a);
        product.issued.push_back(lane_of_warp(thread, lane)->clock++);
    }
    remember(products, lanes, product.what.num_sums);
    shadow_product_issued(product, first_row(thread));
    if (!exchange->late_copies) {
        multiply(product, first_row(thread));
    }
    products.open.push_back(std::move(product));
}

// A product may read A's registers until it is done: what lanes write to them meanwhile is multiplied.
inline void read_registers(Product& product) {
    for (size_t lane = 0; lane < product.of_lane.size(); ++lane) {
        std::copy_n(product.of_lane[lane], 4, product.registers.begin() + 4 * lane);
    }
}

// The groups before that number of one warp are done.
inline void finish_products(const Thread& lane_0, uint32_t end, uint64_t pc) {
    WarpProducts& products = products_of(lane_0);
    for (size_t i = 0; i < products.groups.size() && products.num_waited + i < end; ++i) {
        ProductGroup& group = products.groups[i];
        for (size_t j = 0; j < group.products.size() && !group.done; ++j) {
            if (exchange->late_copies) {
                read_registers(group.products[j]);
                multiply(group.products[j], first_row(lane_0));
            }
            const Product& product = group.products[j];
            // Values that lanes loaded to registers were there when the product began.
            std::copy(product.issued.begin(), product.issued.end(), products.done);
            if (!product.issued.empty()) {
                products.loaded = product.issued;
            }
            products.done[31] = shadow_product_done(product, lane_0, pc);
        }
        group.done = true;
    }
}

// The sums of the groups before that number are the warp's again, unless later ones add to them.
inline void take_sums_back(WarpProducts& products, uint32_t end) {
    const size_t num_done = end - products.num_waited;
    std::vector<std::shared_ptr<WarpSums>> done;
    for (size_t i = 0; i < num_done; ++i) {
        for (const Product& product : products.groups[i].products) {
            done.push_back(product.sums);
        }
    }
    products.num_waited = end;
    products.groups.erase(products.groups.begin(),
                          products.groups.begin() + static_cast<ptrdiff_t>(num_done));
    for (auto& sums : done) {
        const auto adds = [&](const Product& product) { return product.sums == sums; };
        bool in_use = std::any_of(products.open.begin(), products.open.end(), adds);
        for (const ProductGroup& group : products.groups) {
            in_use |= std::any_of(group.products.begin(), group.products.end(), adds);
        }
        for (uint32_t lane = 0; lane < 32 && !in_use; ++lane) {
            memcpy(sums->of_lane[lane], &sums->values[lane * sums->count], 4 * sums->count);
        }
    }
}

inline uint32_t num_committed(const Thread& lane_0) {
    const WarpProducts& products = products_of(lane_0);
    return products.num_waited + static_cast<uint32_t>(products.groups.size());
}

void commit_products(const Thread& thread) {
    WarpProducts& products = products_of(thread);
    products.groups.push_back({std::move(products.open), false});
    products.open.clear();
    for (uint32_t i = 0; i < num_threads; ++i) {
        if (threads[i].status == Status::kAtProducts) {
            threads[i].status = Status::kReady;
        }
    }
}

void fence_registers(const Thread& thread) {
    products_of(thread).fenced = true;
}

__attribute__((noinline)) void multiply_warpgroup(const WarpgroupOperands& what, float* d,
                                                  const unsigned* a) {
    const uint64_t pc = caller(__builtin_return_address(0));
    with_whole_warp(Tensor::kStartProduct, {d, a, nullptr, nullptr, nullptr, &what}, pc);
}

__attribute__((noinline)) void order_warpgroup(Tensor operation) {
    const uint64_t pc = caller(__builtin_return_address(0));
    with_whole_warp(operation, {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr}, pc);
}

// All lanes pass here, the first of them does the work.
__attribute__((noinline)) void wait_for_products(unsigned num_left) {
    const uint64_t pc = caller(__builtin_return_address(0));
    WarpProducts& products = products_of(*current);
    const uint32_t committed = num_committed(*lane_of_warp(*current, 0));
    const uint32_t end = committed - std::min(committed, num_left);
    with_whole_warp(Tensor::kMeet, {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr}, pc);
    const auto all_have_issued = [&] {
        bool all = true;
        for_each_warp(*current, [&](const Thread& lane_0) { all &= num_committed(lane_0) >= end; });
        return all;
    };
    while (!all_have_issued()) {
        current->pc = pc;
        current->status = Status::kAtProducts;
        leave();
    }
    for_each_warp(*current, [&](const Thread& lane_0) {
        finish_products(lane_0, end, pc);
        shadow_knows_products(lane_0, products_of(lane_0).done);
        shadow_knows_loads(lane_0, products_of(lane_0).loaded);
    });
    if (end > products.num_waited) {
        take_sums_back(products, end);
    }
}

// The first thread of a warp leaves: nothing may still be on its way to it.
void end_products_of_thread() {
    const auto found = warp_products.find(lane_of_warp(*current, 0));
    if (found == warp_products.end() ||
        (found->second.open.empty() && found->second.groups.empty())) {
        return;
    }
    WarpProducts& products = found->second;
    // No group where there is nothing: other lanes may still be in the wait for the last one.
    if (!products.open.empty()) {
        products.groups.push_back({std::move(products.open), false});
        products.open.clear();
    }
    for (const ProductGroup& group : products.groups) {
        if (!group.products.empty()) {
            report_here(Kind::kLostCopy, group.products[0].pc);
        }
    }
    const uint32_t end = num_committed(*found->first);
    finish_products(*found->first, end, 0);
    take_sums_back(products, end);
}

void forget_products(Thread& lane_0) {
    warp_products.erase(&lane_0);
    lane_0.products = nullptr;
}

}  // namespace autogemm_emulator
