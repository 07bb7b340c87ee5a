// Maps from ids to items, from items to leaves, from found leaves to items, and from histories to neighbours. In numpy
// these would take two dozen calls per request.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/border.hpp"

namespace beamwood {
namespace {

template <class Value, int Dimensions>
using Array = AlignedArray<const Value, Dimensions>;
using Int32 = std::int32_t;

// The value at an index. Throws std::out_of_range.
template <class Value>
Value at(const Array<Value, 1>& values, Int32 index) {
    if (index < 0 || static_cast<std::size_t>(index) >= values.shape(0))
        throw std::out_of_range("index " + std::to_string(index) + " is out of range");
    return values.data()[index];
}

// The bounds of a row in compressed rows. Throws if they are outside the entries.
std::pair<std::int64_t, std::int64_t> row_of(const Array<std::int64_t, 1>& indptr, std::size_t row, std::size_t size) {
    const std::int64_t begin = indptr.data()[row], end = indptr.data()[row + 1];
    if (begin < 0 || end < begin || static_cast<std::size_t>(end) > size)
        throw std::invalid_argument("indptr does not match the items");
    return {begin, end};
}

std::size_t rows_of(const Array<std::int64_t, 1>& indptr) {
    if (indptr.shape(0) == 0) throw std::invalid_argument("indptr is empty");
    return indptr.shape(0) - 1;
}

// [B, length]: the leaves of the last items of each row, padded on the left with -1.
Result<Int32, 2> leaves_of(const Array<Int32, 1>& leaf_of_item, const Array<std::int64_t, 1>& indptr,
                           const Array<Int32, 1>& items, std::int64_t length) {
    if (length < 1 || length >= (1 << 20)) throw std::invalid_argument("length must be in 1..1048575");
    const std::size_t rows = rows_of(indptr), columns = static_cast<std::size_t>(length);
    auto [leaves, owner] = owned<Int32>(rows, columns);
    std::fill_n(leaves, rows * columns, -1);
    for (std::size_t row = 0; row < rows; ++row) {
        const auto [begin, end] = row_of(indptr, row, items.shape(0));
        Int32* last = leaves + (row + 1) * columns;
        for (std::int64_t i = 1; i <= std::min(length, end - begin); ++i) last[-i] = at(leaf_of_item, items.data()[end - i]);
    }
    return Result<Int32, 2>(leaves, {rows, columns}, owner);
}

// The leaves of each row's items, ascending and distinct, as compressed rows; only of `allowed` items, if given.
nb::tuple banned_of(const Array<Int32, 1>& leaf_of_item, const Array<std::int64_t, 1>& indptr,
                    const Array<Int32, 1>& items, const std::optional<Array<bool, 1>>& allowed) {
    const std::size_t rows = rows_of(indptr);
    auto [leaves, owner] = owned<Int32>(items.shape(0));
    auto [stops, stops_owner] = owned<std::int64_t>(rows + 1);
    std::int64_t count = stops[0] = 0, before = 0;
    for (std::size_t row = 0; row < rows; ++row) {
        const auto [begin, end] = row_of(indptr, row, items.shape(0));
        if (begin != before) throw std::invalid_argument("indptr does not match the items");
        before = end;
        Int32* const first = leaves + count;
        for (std::int64_t i = begin; i < end; ++i) {
            const Int32 item = items.data()[i];
            if (!allowed || at(*allowed, item)) leaves[count++] = at(leaf_of_item, item);
        }
        std::sort(first, leaves + count);
        stops[row + 1] = count = std::unique(first, leaves + count) - leaves;
    }
    return nb::make_tuple(Result<std::int64_t, 1>(stops, {rows + 1}, stops_owner),
                          Result<Int32, 1>(leaves, {static_cast<std::size_t>(count)}, owner));
}

// [B, K]: the items of found leaves, -1 for empty places; ties by the lower item.
Result<Int32, 2> items_of(const Array<Int32, 1>& item_of_leaf, const Array<Int32, 2>& leaves,
                          const Array<float, 2>& scores) {
    const std::size_t rows = leaves.shape(0), columns = leaves.shape(1);
    if (scores.shape(0) != rows || scores.shape(1) != columns)
        throw std::invalid_argument("leaves and scores differ in shape");
    auto [items, owner] = owned<Int32>(rows, columns);
    for (std::size_t row = 0; row < rows; ++row) {
        Int32* own = items + row * columns;
        const Int32* found = leaves.data() + row * columns;
        const float* score = scores.data() + row * columns;
        std::size_t count = 0;
        for (; count < columns && found[count] >= 0; ++count) own[count] = at(item_of_leaf, found[count]);
        std::fill(own + count, own + columns, -1);
        for (std::size_t begin = 0, end; begin < count; begin = end) {
            for (end = begin + 1; end < count && score[end] == score[begin];) ++end;
            std::sort(own + begin, own + end);
        }
    }
    return Result<Int32, 2>(items, {rows, columns}, owner);
}

// The index of each Python integer: near[id - lowest], or -1. Returns None if an id is not an `int` of 64 bits; the
// caller then handles it.
nb::object places_of(const Array<Int32, 1>& near, std::int64_t lowest, nb::list ids) {
    const std::size_t count = ids.size();
    auto [places, owner] = owned<Int32>(count);
    for (std::size_t i = 0; i < count; ++i) {
        PyObject* const id = PyList_GetItem(ids.ptr(), static_cast<Py_ssize_t>(i));
        int overflow = 0;
        if (!PyLong_CheckExact(id)) return nb::none();
        const long long value = PyLong_AsLongLongAndOverflow(id, &overflow);
        if (overflow) return nb::none();
        const std::uint64_t place = static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(lowest);
        places[i] = value >= lowest && place < near.shape(0) ? near.data()[place] : -1;
    }
    return nb::cast(Result<Int32, 1>(places, {count}, owner));
}

// Assigns consecutive indices to items in order of first occurrence, for at most `most` occurrences of `size` items. Uses
// an array of `size` entries if that is small compared with `most`, else a hash table with open addressing.
class Places {
public:
    Places(std::size_t most, std::size_t size) {
        items.reserve(std::min(most, size));
        if (size <= kFew * most) {
            place_of_.assign(size, -1);
            return;
        }
        std::size_t slots = 16;
        while (slots < 2 * most) slots *= 2;
        slots_.assign(slots, Slot{-1, 0});
    }

    std::size_t of(Int32 item) {
        if (!place_of_.empty()) {
            Int32& place = place_of_[static_cast<std::size_t>(item)];
            return static_cast<std::size_t>(place < 0 ? place = added(item) : place);
        }
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t at = static_cast<std::uint32_t>(item) * 2654435769u & mask;; at = (at + 1) & mask) {
            Slot& slot = slots_[at];
            if (slot.item < 0) slot = {item, added(item)};
            if (slot.item == item) return static_cast<std::size_t>(slot.place);
        }
    }

    std::vector<Int32> items;

private:
    static constexpr std::size_t kFew = 4;
    struct Slot {
        Int32 item, place;
    };

    Int32 added(Int32 item) {
        items.push_back(item);
        return static_cast<Int32>(items.size() - 1);
    }

    std::vector<Int32> place_of_;
    std::vector<Slot> slots_;
};

// The weighted sum of rows of a sparse matrix: the columns with a sum, the `asked` ones first, their sums, and the position
// of each asked column.
nb::tuple sum_of_rows(const Array<Int32, 1>& indptr, const Array<Int32, 1>& indices, const Array<float, 1>& data,
                      const Array<Int32, 1>& rows, const Array<float, 1>& weights, const Array<Int32, 1>& asked) {
    if (indptr.shape(0) == 0) throw std::invalid_argument("indptr is empty");
    if (indices.shape(0) != data.shape(0)) throw std::invalid_argument("indices and data differ in length");
    if (rows.shape(0) != weights.shape(0)) throw std::invalid_argument("rows and weights differ in length");
    const std::size_t size = indptr.shape(0) - 1;
    const auto within = [size](Int32 item) {
        if (item < 0 || static_cast<std::size_t>(item) >= size)
            throw std::out_of_range("index " + std::to_string(item) + " is out of range");
        return item;
    };
    std::size_t most = asked.shape(0);
    // Checked bounds are copied, as another thread may write to the arrays while the GIL is released.
    std::vector<std::pair<Int32, Int32>> parts(rows.shape(0));
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const Int32 row = within(rows.data()[i]), begin = indptr.data()[row], end = indptr.data()[row + 1];
        if (begin < 0 || end < begin || static_cast<std::size_t>(end) > indices.shape(0))
            throw std::invalid_argument("indptr does not match the indices");
        parts[i] = {begin, end};
        most += static_cast<std::size_t>(end - begin);
    }
    auto [places, places_owner] = owned<Int32>(asked.shape(0));
    std::vector<Int32> columns;
    std::vector<float> sums;
    {
        const ReleasedGil released;
        Places found(most, size);
        for (std::size_t i = 0; i < asked.shape(0); ++i)
            places[i] = static_cast<Int32>(found.of(within(asked.data()[i])));
        sums.reserve(std::min(most, size));
        sums.resize(found.items.size());
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const float weight = weights.data()[i];
            for (Int32 entry = parts[i].first; entry < parts[i].second; ++entry) {
                const std::size_t place = found.of(within(indices.data()[entry]));
                if (place == sums.size()) sums.push_back(0);
                sums[place] += weight * data.data()[entry];
            }
        }
        columns = std::move(found.items);
    }
    const std::size_t count = sums.size();
    auto [items, items_owner] = owned<Int32>(count);
    auto [values, values_owner] = owned<float>(count);
    std::copy(columns.begin(), columns.end(), items);
    std::copy(sums.begin(), sums.end(), values);
    return nb::make_tuple(Result<Int32, 1>(items, {count}, items_owner), Result<float, 1>(values, {count}, values_owner),
                          Result<Int32, 1>(places, {asked.shape(0)}, places_owner));
}

}  // namespace

void register_rows(nb::module_& module) {
    module.def("leaves_of", &leaves_of, nb::arg("leaf_of_item").noconvert(), nb::arg("indptr").noconvert(),
               nb::arg("items").noconvert(), nb::arg("length"));
    module.def("banned_of", &banned_of, nb::arg("leaf_of_item").noconvert(), nb::arg("indptr").noconvert(),
               nb::arg("items").noconvert(), nb::arg("allowed").noconvert().none());
    module.def("items_of", &items_of, nb::arg("item_of_leaf").noconvert(), nb::arg("leaves").noconvert(),
               nb::arg("scores").noconvert());
    module.def("places_of", &places_of, nb::arg("near").noconvert(), nb::arg("lowest"), nb::arg("ids"));
    module.def("sum_of_rows", &sum_of_rows, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
               nb::arg("data").noconvert(), nb::arg("rows").noconvert(), nb::arg("weights").noconvert(),
               nb::arg("asked").noconvert());
}

}  // namespace beamwood
