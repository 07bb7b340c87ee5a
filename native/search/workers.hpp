// Workers that searches lease, at most so many at once, in the order in which they ask.
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

    // A caller in line; what it gets is put here, null for the room to make one.
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

        // A worker goes to who is first in line, at once: none is idle while somebody waits to be woken.
        void give(std::unique_ptr<Worker> worker) {
            if (!line.empty()) {
                Caller& first = *line.front();
                line.pop_front();
                first.worker = std::move(worker);
                first.served = true;
                // With the mutex held: the caller, and the condition with it, goes once it has that.
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
        // Another process's may be locked for ever.
        Pool* pool = pool_.load();
        if (pool->process == process_id()) delete pool;
    }

    int most() const { return most_; }

    // How many searches asked for a worker in this process, how many of them waited for one, and the most that stood in
    // line before one. So few callers as there may be workers never wait.
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
