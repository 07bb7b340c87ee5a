// Workers that searches lease, at most so many at once, in the order in which they ask.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "search/beam.hpp"

namespace beamwood {

// A batch leases anew for each of its rows, so that a query beside it waits for one search, not for the batch.
//
// A fork may come while other threads hold the mutex or a worker, none of which lives on in the child: the child notices
// by its process id and starts with a pool of its own. What the parent's held there is given up, once for each fork.
class Workers {
    static std::int64_t process_id() {
#if defined(__unix__) || defined(__APPLE__)
        return static_cast<std::int64_t>(getpid());
#else
        return 0;
#endif
    }

    struct Pool {
        explicit Pool(int most) { idle.reserve(most); }

        const std::int64_t process = process_id();
        std::mutex mutex;
        std::condition_variable changed;
        std::uint64_t next_ticket = 0, served = 0;
        int made = 0;
        std::vector<std::unique_ptr<Worker>> idle;
    };

public:
    using Make = std::function<std::unique_ptr<Worker>()>;

    Workers(int most, Make make) : most_(most), make_(std::move(make)), pool_(new Pool(most)) {}
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;
    ~Workers() {
        // Another process's may be locked for ever.
        Pool* pool = pool_.load();
        if (pool->process == process_id()) delete pool;
    }

    int most() const { return most_; }

    class Lease {
    public:
        explicit Lease(Workers& from) : pool_(from.current()), worker_(take(from)) {}
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        ~Lease() {
            std::lock_guard<std::mutex> lock(pool_.mutex);
            pool_.idle.push_back(std::move(worker_));
            pool_.changed.notify_all();
        }
        Worker& operator*() const { return *worker_; }

    private:
        std::unique_ptr<Worker> take(Workers& from) {
            std::unique_lock<std::mutex> lock(pool_.mutex);
            const std::uint64_t ticket = pool_.next_ticket++;
            pool_.changed.wait(lock, [&] {
                return ticket == pool_.served && (!pool_.idle.empty() || pool_.made < from.most_);
            });
            ++pool_.served;
            pool_.changed.notify_all();
            if (!pool_.idle.empty()) {
                auto worker = std::move(pool_.idle.back());
                pool_.idle.pop_back();
                return worker;
            }
            ++pool_.made;
            lock.unlock();
            try {
                return from.make_();
            } catch (...) {
                lock.lock();
                --pool_.made;
                pool_.changed.notify_all();
                throw;
            }
        }

        Pool& pool_;
        std::unique_ptr<Worker> worker_;
    };

private:
    // This process's pool.
    Pool& current() {
        Pool* pool = pool_.load();
        if (pool->process == process_id()) return *pool;
        auto own = std::make_unique<Pool>(most_);
        // Of several threads that notice at once one is first; the others take its pool.
        if (pool_.compare_exchange_strong(pool, own.get())) return *own.release();
        return *pool;
    }

    const int most_;
    const Make make_;
    std::atomic<Pool*> pool_;
};

}  // namespace beamwood
