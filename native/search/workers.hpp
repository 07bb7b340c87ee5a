// A bounded pool of workers that searches lease in first-in, first-out order.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/process.hpp"
#include "search/beam.hpp"

namespace beamwood {

// A batch leases a worker for each row, so that a concurrent query waits for one search, not for the batch.
//
// A process may fork while other threads hold the mutex or a worker; these threads do not exist in the child. The child
// detects the fork by its process id and creates its own pool. It leaks the memory of the parent's pool, once per fork.
class Workers {
    // A waiting caller, and the worker it receives; null: it may create one.
    struct Caller {
        std::condition_variable called;
        std::unique_ptr<Worker> worker;
        bool served = false;
    };

    struct Pool {
        explicit Pool(int most) { idle.reserve(most); }

        const std::int64_t process = process_id();
        std::mutex mutex;
        std::deque<Caller*> line;
        int made = 0;
        std::vector<std::unique_ptr<Worker>> idle;
        std::uint64_t asked = 0, waited = 0, most_ahead = 0;

        // Hands the worker to the first waiting caller; no worker is idle while a caller waits.
        void give(std::unique_ptr<Worker> worker) {
            if (!line.empty()) {
                Caller& first = *line.front();
                line.pop_front();
                first.worker = std::move(worker);
                first.served = true;
                // Notify with the mutex held: the caller destroys the condition variable once it has the mutex.
                first.called.notify_one();
            } else if (worker) {
                idle.push_back(std::move(worker));
            } else {
                --made;
            }
        }
    };

public:
    using Make = std::function<std::unique_ptr<Worker>()>;

    Workers(int most, Make make) : most_(most), make_(std::move(make)), pool_(new Pool(most)) {}
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;
    ~Workers() {
        // The mutex of another process's pool may be locked forever.
        Pool* pool = pool_.load();
        if (pool->process == process_id()) delete pool;
    }

    int most() const { return most_; }

    // Counts of this process: searches that requested a worker, those that waited, and the longest queue ahead of one.
    // Callers never wait if they are at most as many as workers.
    std::array<std::uint64_t, 3> queue() {
        Pool& pool = current();
        std::lock_guard<std::mutex> lock(pool.mutex);
        return {pool.asked, pool.waited, pool.most_ahead};
    }

    class Lease {
    public:
        explicit Lease(Workers& from) : pool_(from.current()), worker_(take(from)) {}
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        ~Lease() {
            std::lock_guard<std::mutex> lock(pool_.mutex);
            pool_.give(std::move(worker_));
        }
        Worker& operator*() const { return *worker_; }

    private:
        std::unique_ptr<Worker> take(Workers& from) {
            std::unique_lock<std::mutex> lock(pool_.mutex);
            ++pool_.asked;
            std::unique_ptr<Worker> worker;
            if (!pool_.idle.empty()) {
                worker = std::move(pool_.idle.back());
                pool_.idle.pop_back();
            } else if (pool_.made < from.most_) {
                ++pool_.made;
            } else {
                Caller caller;
                ++pool_.waited;
                pool_.most_ahead = std::max<std::uint64_t>(pool_.most_ahead, pool_.line.size());
                pool_.line.push_back(&caller);
                caller.called.wait(lock, [&] { return caller.served; });
                worker = std::move(caller.worker);
            }
            if (worker) return worker;
            lock.unlock();
            try {
                return from.make_();
            } catch (...) {
                lock.lock();
                pool_.give(nullptr);
                throw;
            }
        }

        Pool& pool_;
        std::unique_ptr<Worker> worker_;
    };

private:
    // The pool of this process.
    Pool& current() {
        Pool* pool = pool_.load();
        if (pool->process == process_id()) return *pool;
        auto own = std::make_unique<Pool>(most_);
        // If several threads detect the fork, the pool of the first one is used.
        if (pool_.compare_exchange_strong(pool, own.get())) return *own.release();
        return *pool;
    }

    const int most_;
    const Make make_;
    std::atomic<Pool*> pool_;
};

}  // namespace beamwood
