#include "search/background.hpp"

#include <algorithm>
#include <csignal>
#include <ctime>

#include "common/border.hpp"
#include "common/process.hpp"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

namespace beamwood {
namespace {

double seconds_between(Task::Clock::time_point from, Task::Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

// Processor seconds of the calling thread; 0 where unknown.
double thread_seconds() {
#if defined(CLOCK_THREAD_CPUTIME_ID)
    timespec now{};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0) return static_cast<double>(now.tv_sec) + 1e-9 * now.tv_nsec;
#endif
    return 0;
}

// Only Linux has priorities by thread; a container may forbid it. A new thread has that of its creator.
void stand_behind([[maybe_unused]] int by) {
#if defined(__linux__)
    const auto thread = static_cast<id_t>(syscall(SYS_gettid));
    setpriority(PRIO_PROCESS, thread, std::min(19, getpriority(PRIO_PROCESS, thread) + by));
#endif
}

// Blocks signals for a scope: threads created in it inherit that, and Python's handlers run in its own threads.
class BlockedSignals {
public:
#if defined(__unix__) || defined(__APPLE__)
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
#endif
};

void wake([[maybe_unused]] int signal) {
#if defined(__unix__) || defined(__APPLE__)
    // A full pipe wakes its reader too.
    const char byte = 1;
    [[maybe_unused]] const auto written = write(signal, &byte, 1);
#endif
}

}  // namespace

void Task::run() noexcept {
    const auto began = Clock::now();
    waited_ = seconds_between(entered_, began);
    if (abandoned_ || began > deadline_) return;
    const double processor = thread_seconds();
    try {
        work_();
    } catch (...) {
        failure_ = std::current_exception();
    }
    processor_ = thread_seconds() - processor;
    seconds_ = seconds_between(began, Clock::now());
    ran_ = true;
}

nb::object Task::result() const {
    require(ran_, "the task did not run");
    if (failure_) std::rethrow_exception(failure_);
    return result_;
}

Background::Background(int threads, int behind, int signal) : process_(process_id()), state_(new State) {
    require(1 <= threads && threads <= 1024, "threads must be in 1..1024");
    const BlockedSignals blocked;
    try {
        for (int number = 0; number < threads; ++number)
            state_->threads.emplace_back([state = state_.get(), behind, signal] { work(*state, behind, signal); });
    } catch (...) {
        close();
        throw;
    }
}

void Background::submit(Task& task, double seconds) {
    require(process_ == process_id(), "the threads belong to the parent of this process");
    require(!task.submitted_, "the task was submitted before");
    require(0 <= seconds && seconds <= 1e9, "seconds must be in 0..1e9");
    task.entered_ = Task::Clock::now();
    task.deadline_ = task.entered_ + std::chrono::duration_cast<Task::Clock::duration>(std::chrono::duration<double>(seconds));
    {
        const std::lock_guard<std::mutex> lock(state_->mutex);
        require(!state_->is_closed, "the threads have ended");
        task.submitted_ = true;
        state_->waiting.push_back({&task, nb::find(task).release().ptr()});
    }
    state_->ready.notify_one();
}

nb::list Background::ended() {
    std::vector<Entry> ended;
    if (process_ == process_id()) {
        const std::lock_guard<std::mutex> lock(state_->mutex);
        ended.swap(state_->ended);
    }
    nb::list tasks;
    for (const Entry& entry : ended) tasks.append(nb::steal(entry.owner));
    return tasks;
}

void Background::close() {
    if (!state_) return;
    if (process_ != process_id()) {
        // The mutex may be locked forever.
        state_.release();
        return;
    }
    // Taken by one caller; others return while these end.
    std::vector<std::thread> threads;
    {
        const std::lock_guard<std::mutex> lock(state_->mutex);
        state_->is_closed = true;
        threads.swap(state_->threads);
    }
    state_->ready.notify_all();
    {
        const ReleasedGil released;
        for (auto& thread : threads) thread.join();
    }
    for (const Entry& entry : state_->waiting) nb::steal(entry.owner);
    state_->waiting.clear();
    ended();
}

void Background::work(State& state, int behind, int signal) {
    stand_behind(behind);
    for (;;) {
        Entry next{};
        {
            std::unique_lock<std::mutex> lock(state.mutex);
            state.ready.wait(lock, [&] { return state.is_closed || !state.waiting.empty(); });
            if (state.is_closed) return;
            next = state.waiting.front();
            state.waiting.pop_front();
        }
        next.task->run();
        bool first;
        {
            const std::lock_guard<std::mutex> lock(state.mutex);
            first = state.ended.empty();
            state.ended.push_back(next);
        }
        if (first) wake(signal);
    }
}

void register_background(nb::module_& module) {
    nb::class_<Task>(module, "Task", "A search to run once; see beamwood.kernels.native_search.")
        .def("abandon", &Task::abandon)
        .def("result", &Task::result)
        .def_prop_ro("ran", &Task::ran)
        .def_prop_ro("waited", &Task::waited)
        .def_prop_ro("seconds", &Task::seconds)
        .def_prop_ro("processor", &Task::processor);
    nb::class_<Background>(module, "Background", "Threads that run tasks without the interpreter.")
        .def(nb::init<int, int, int>(), nb::arg("threads"), nb::arg("behind"), nb::arg("signal"))
        .def("submit", &Background::submit, nb::arg("task"), nb::arg("seconds"))
        .def("ended", &Background::ended)
        .def("close", &Background::close);
}

}  // namespace beamwood
