// The border with Python: arrays in and out, checks, and the interpreter lock (GIL).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace beamwood {

namespace nb = nanobind;

// A contiguous array of the CPU whose values are aligned.
template <class Value, int Dimensions>
struct AlignedArray : nb::ndarray<Value, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu> {
    using Unchecked = nb::ndarray<Value, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

    AlignedArray() = default;
    explicit AlignedArray(Unchecked array) : Unchecked(std::move(array)) {}
};

template <class Value, int Dimensions>
using Result = nb::ndarray<nb::numpy, Value, nb::ndim<Dimensions>>;

inline void require(bool holds, const std::string& message) {
    if (!holds) throw std::invalid_argument(message);
}
inline void require(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

// Memory for a result of `rows` times `columns` values, with its owner. Throws std::bad_alloc.
template <class Value>
std::pair<Value*, nb::capsule> owned(std::size_t rows, std::size_t columns = 1) {
    if (columns && rows > std::numeric_limits<std::size_t>::max() / columns) throw std::bad_array_new_length();
    std::unique_ptr<Value[]> values(new Value[rows * columns]);
    nb::capsule owner(values.get(), [](void* pointer) noexcept { delete[] static_cast<Value*>(pointer); });
    return {values.release(), std::move(owner)};
}

// Releases the GIL for a scope.
//
// When the interpreter ends, Python ends a daemon thread that requests the GIL by unwinding its stack. C++ frames do not
// allow this, and the process would abort. The thread therefore sleeps until the process ends.
class ReleasedGil {
public:
    ReleasedGil() : state_(PyEval_SaveThread()) {}
    ReleasedGil(const ReleasedGil&) = delete;
    ReleasedGil& operator=(const ReleasedGil&) = delete;
    ~ReleasedGil() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }

private:
    PyThreadState* state_;
};

// Runs pending Python signal handlers during a long call; only Python's main thread may.
class Signals {
public:
    // Requires the GIL. `watched`: whether the call is long enough to check for signals.
    explicit Signals(bool watched) {
        if (!watched) return;
        const nb::object threading = nb::module_::import_("threading");
        watched_ = threading.attr("current_thread")().is(threading.attr("main_thread")());
    }

    // Requires that the GIL is released. Throws the exception of a signal handler.
    void check() {
        if (!watched_ || Clock::now() < next_) return;
        next_ = Clock::now() + EVERY;
        const nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds EVERY{100};

    bool watched_ = false;
    Clock::time_point next_ = Clock::now() + EVERY;
};

}  // namespace beamwood

namespace nanobind::detail {

template <class Scalar, int Dimensions>
struct type_caster<beamwood::AlignedArray<Scalar, Dimensions>> {
    using Array = beamwood::AlignedArray<Scalar, Dimensions>;
    using Unchecked = make_caster<typename Array::Unchecked>;

    NB_TYPE_CASTER(Array, Unchecked::Name)

    bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
        Unchecked unchecked;
        if (!unchecked.from_python(source, flags, cleanup)) return false;
        value = Array(std::move(unchecked.value));
        return reinterpret_cast<std::uintptr_t>(value.data()) % alignof(Scalar) == 0;
    }
};

}  // namespace nanobind::detail
