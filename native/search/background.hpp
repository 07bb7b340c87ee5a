// Searches on native threads, for an event loop: they never wait for the interpreter.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace beamwood {

namespace nb = nanobind;

// A search to run once. Python owns it; while a thread runs it, `Background` holds a reference.
class Task {
public:
    using Clock = std::chrono::steady_clock;

    // `work` owns all that it reads, and fills the arrays of `result`. It is called without the GIL.
    Task(nb::object result, std::function<void()> work) : result_(std::move(result)), work_(std::move(work)) {}

    // Without the GIL, by one thread. Does nothing if it was abandoned, or its deadline has passed.
    void run() noexcept;
    void abandon() { abandoned_ = true; }
    // Whether the search ran to its end, or to an error.
    bool ran() const { return ran_; }
    // The arrays; throws the error of the search.
    nb::object result() const;
    // Seconds in the queue, of the search, and of a processor during it.
    double waited() const { return waited_; }
    double seconds() const { return seconds_; }
    double processor() const { return processor_; }

private:
    friend class Background;

    const nb::object result_;
    const std::function<void()> work_;
    std::atomic<bool> abandoned_{false};
    bool submitted_ = false, ran_ = false;
    Clock::time_point entered_, deadline_;
    double waited_ = 0, seconds_ = 0, processor_ = 0;
    std::exception_ptr failure_;
};

// Threads with one queue, first in, first out. All methods need the GIL.
class Background {
public:
    // A byte is written to the file descriptor `signal` when tasks have ended and none waited to be collected. `behind`:
    // how much higher the threads' niceness is than the caller's, where a thread has its own.
    Background(int threads, int behind, int signal);
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;
    ~Background() { close(); }

    // Queues a task, which must begin within these seconds.
    void submit(Task& task, double seconds);
    // The tasks that ended since the last call.
    nb::list ended();
    // Ends the threads after their running tasks; others never run.
    void close();

private:
    struct Entry {
        Task* task;
        PyObject* owner;  // a reference, as a thread must not count references
    };
    // Apart, because a forked child, whose threads do not exist, can only leak it.
    struct State {
        std::mutex mutex;
        std::condition_variable ready;
        std::deque<Entry> waiting;
        std::vector<Entry> ended;
        std::vector<std::thread> threads;
        bool is_closed = false;
    };

    static void work(State& state, int behind, int signal);

    const std::int64_t process_;
    std::unique_ptr<State> state_;
};

}  // namespace beamwood
