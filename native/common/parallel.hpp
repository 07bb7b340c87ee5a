// Parallel work over rows; each row is processed by one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace beamwood {

// The number of threads that the rows can use, at least 1.
inline int threads_for(std::int64_t rows, int threads) {
    return static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(threads, rows)));
}

// Calls `work(worker, row)` for every row in [0, rows) on up to `threads` threads, worker in [0, threads). Worker 0 is
// the calling thread. Rows are assigned one by one, without spinning or barriers. The first exception is rethrown in the
// calling thread.
template <class Work>
void parallel_rows(std::int64_t rows, int threads, Work&& work) {
    threads = threads_for(rows, threads);
    if (threads == 1) {
        for (std::int64_t row = 0; row < rows; ++row) work(0, row);
        return;
    }
    std::atomic<std::int64_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_mutex;
    auto run = [&](int worker) {
        try {
            for (std::int64_t row; (row = next.fetch_add(1, std::memory_order_relaxed)) < rows;) work(worker, row);
        } catch (...) {
            std::lock_guard<std::mutex> lock(failure_mutex);
            if (!failure) failure = std::current_exception();
            next = rows;
        }
    };
    std::vector<std::thread> others;
    try {
        for (int worker = 1; worker < threads; ++worker) others.emplace_back(run, worker);
    } catch (...) {
        // If fewer threads can be created, those do the work.
    }
    run(0);
    for (auto& thread : others) thread.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace beamwood
