// Requests answered together: the loop under every command and server that has more than one.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "bastion/engine.h"

namespace bastion {

/// Requests join while there is a free seat and leave when their answer ends, both between steps, so that nobody waits
/// for the longest answer. In each step those that still read their prompt read a chunk of it and all others take part
/// in one cycle. A seat keeps its session, and a request is given the seat whose cache shares most with its prompt.
/// Not thread-safe.
class Batch {
 public:
    struct Request {
        std::vector<Token> prompt;
        GenerateOptions options;
        /// Text as it becomes safe to show, after every step that brought some; false ends the answer as `interrupted`.
        std::function<bool(std::string_view)> on_text;
        /// Called once, when the answer has ended, whatever the reason, after its last text; its seat is free by then.
        /// An error ends the step.
        std::function<Status(const Session&)> on_done;
    };

    /// `seats` requests at once, at most as many as the engine has free slots. The engine must outlive the batch.
    Batch(Engine& engine, int seats) : engine_(engine), seats_(seats) {}

    bool full() const;
    bool empty() const { return active().empty(); }

    /// The sessions of the requests in progress, by seat.
    std::vector<Session*> active() const;

    /// REQUIRES !full(). Refuses what Session::begin refuses, and then nothing has happened.
    Status join(Request request);

    /// One step for all requests in progress. A failure of the engine is returned after the endings have been reported:
    /// the answers it concerned have ended as `interrupted`.
    Status step();

 private:
    struct Seat {
        std::unique_ptr<Session> session;  ///< opened with the first request
        Request request;
        bool taken = false;
    };

    Seat& best_seat(std::span<const Token> prompt);
    Status report(Seat& seat);

    Engine& engine_;
    std::vector<Seat> seats_;
};

}  // namespace bastion
