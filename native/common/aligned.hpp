// A growable buffer of trivially copyable values, aligned to a cache line.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace beamwood {

template <class Value>
class Aligned {
public:
    Aligned() = default;
    explicit Aligned(std::size_t size) { resize(size); }
    Aligned(const Aligned&) = delete;
    Aligned& operator=(const Aligned&) = delete;
    Aligned(Aligned&& other) noexcept { *this = std::move(other); }
    Aligned& operator=(Aligned&& other) noexcept {
        std::swap(values_, other.values_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~Aligned() { std::free(values_); }

    // Sets all values to zero. The memory is reused if it is large enough.
    void resize(std::size_t size) {
        if (size > size_) {
            std::free(values_);
            values_ = nullptr;
            size_ = 0;
            const std::size_t bytes = (size * sizeof(Value) + 63) / 64 * 64;
            values_ = static_cast<Value*>(std::aligned_alloc(64, bytes));
            if (!values_) throw std::bad_alloc();
            size_ = size;
        }
        if (size) std::memset(static_cast<void*>(values_), 0, size * sizeof(Value));
    }
    std::size_t size() const { return size_; }
    Value* data() { return values_; }
    const Value* data() const { return values_; }
    Value& operator[](std::size_t index) { return values_[index]; }
    const Value& operator[](std::size_t index) const { return values_[index]; }

private:
    Value* values_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace beamwood
