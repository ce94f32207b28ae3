#include "engine/batch.h"

#include <algorithm>

namespace bastion {

bool Batch::full() const {
    return std::all_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.taken; });
}

std::vector<Session*> Batch::active() const {
    std::vector<Session*> sessions;
    for (const Seat& seat : seats_) {
        if (seat.taken) sessions.push_back(seat.session.get());
    }
    return sessions;
}

Batch::Seat& Batch::best_seat(std::span<const Token> prompt) {
    Seat* best = nullptr;
    std::ptrdiff_t most = -1;
    for (Seat& seat : seats_) {
        if (seat.taken) continue;
        std::ptrdiff_t shared = 0;
        if (seat.session) {
            const std::vector<Token>& cached = seat.session->tokens();
            shared = std::mismatch(prompt.begin(), prompt.end(), cached.begin(), cached.end()).first - prompt.begin();
        }
        if (shared > most) {
            most = shared;
            best = &seat;
        }
    }
    return *best;
}

Status Batch::join(Request request) {
    Seat& seat = best_seat(request.prompt);
    if (!seat.session) {
        BASTION_ASSIGN(seat.session, engine_.open_session());
    }
    BASTION_CHECK(seat.session->begin(std::move(request.prompt), request.options));
    seat.request = std::move(request);
    seat.taken = true;
    return {};
}

Status Batch::step() {
    const std::vector<Session*> sessions = active();
    Status stepped = engine_.step(sessions);
    Status reported;
    for (Seat& seat : seats_) {
        if (!seat.taken) continue;
        if (const Status status = report(seat); reported.ok()) reported = status;
    }
    BASTION_CHECK(reported);
    return stepped;
}

Status Batch::report(Seat& seat) {
    Session& session = *seat.session;
    const std::string text = session.take_text();
    if (!text.empty() && seat.request.on_text && !seat.request.on_text(text) && !session.done()) session.interrupt();
    if (!session.done()) return {};
    // The seat is free before the callback runs, which may join the next request.
    const Request request = std::move(seat.request);
    seat.taken = false;
    return request.on_done ? request.on_done(session) : Status();
}

}  // namespace bastion
