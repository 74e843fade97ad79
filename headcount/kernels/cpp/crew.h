// Threads that share a list of jobs. They sleep between calls; a forked process starts its own.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

class Crew {
  public:
    // Every job once, by the caller and up to `threads - 1` others. Which thread does a job does not matter to it.
    static void share(int jobs, int threads, const std::function<void(int)>& job) {
        threads = std::min(threads, jobs);
        if (threads < 2) {
            for (int i = 0; i < jobs; ++i) job(i);
            return;
        }
        static std::mutex one_at_a_time;
        std::lock_guard<std::mutex> turn(one_at_a_time);
        static Crew* crew = nullptr;  // never destroyed: its threads end with the process
        if (!crew || crew->process != getpid()) crew = new Crew;
        crew->work(jobs, threads, job);
    }

  private:
    void work(int jobs, int threads, const std::function<void(int)>& job) {
        {
            std::lock_guard<std::mutex> hold(lock);
            while (hired < threads - 1) std::thread([this, seat = hired++] { serve(seat); }).detach();
            task = &job, count = jobs, next = 0, wanted = threads - 1, ++round;
        }
        call.notify_all();
        take(job, jobs);
        std::unique_lock<std::mutex> hold(lock);
        wanted = 0;  // who has not come yet need not come
        done.wait(hold, [this] { return inside == 0; });
    }

    void take(const std::function<void(int)>& job, int jobs) {
        for (int i; (i = next++) < jobs;) job(i);
    }

    void serve(int seat) {
        long seen = 0;
        std::unique_lock<std::mutex> hold(lock);
        for (;;) {
            call.wait(hold, [&] { return round != seen; });
            seen = round;
            if (seat >= wanted) continue;
            const auto job = task;
            const int jobs = count;
            ++inside;
            hold.unlock();
            take(*job, jobs);
            hold.lock();
            if (--inside == 0) done.notify_one();
        }
    }

    const pid_t process = getpid();
    std::mutex lock;
    std::condition_variable call, done;
    const std::function<void(int)>* task = nullptr;
    std::atomic<int> next{0};
    int hired = 0, wanted = 0, inside = 0, count = 0;
    long round = 0;
};
