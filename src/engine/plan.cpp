#include "engine/plan.h"

#include <cmath>
#include <cstdio>

#include "tree/build.h"

namespace bastion {
namespace {

/// Sums such as 0.7 + 0.3 may come out a little above 1.
constexpr double kSlack = 1e-9;

std::string number(double value) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%g", value);
    return buffer;
}

/// p_1..p_K.
std::vector<double> rank_probabilities(const AcceptanceModel& model) {
    std::vector<double> p{model.top1};
    const double total = 1 - std::exp2(1 - model.topk);
    for (int rank = 2; rank <= model.topk; ++rank) p.push_back(model.further_mass * std::exp2(1 - rank) / total);
    return p;
}

Status check(const AcceptanceModel& model) {
    if (!(model.top1 > 0 && model.top1 <= 1)) {
        return bad_input("acceptance is " + number(model.top1) + ", expected a probability above 0 and at most 1");
    }
    if (!(model.further_mass >= 0 && model.top1 + model.further_mass <= 1 + kSlack)) {
        return bad_input("topk-mass is " + number(model.further_mass) + ", expected at least 0 and, with acceptance " +
                         number(model.top1) + ", at most " + number(1 - model.top1));
    }
    if (model.topk < 1 || model.depth < 1) {
        return bad_input("topk is " + std::to_string(model.topk) + " and the drafted positions are " +
                         std::to_string(model.depth) + ", expected at least 1 of both");
    }
    if (model.topk == 1 && model.further_mass > 0) {
        return bad_input("topk-mass is " + number(model.further_mass) +
                         ", but topk 1 leaves no further ranks to have it, expected 0");
    }
    return {};
}

}  // namespace

Result<std::vector<double>> expected_gains(const AcceptanceModel& model, int max_nodes) {
    BASTION_CHECK(check(model));
    const std::vector<double> p = rank_probabilities(model);
    if (p.size() > 1 && p[1] > p[0] * (1 + kSlack)) {
        return bad_input("topk-mass " + number(model.further_mass) + " makes rank 2 (" + number(p[1]) +
                         ") likelier than acceptance " + number(p[0]) + ", which is that of rank 1");
    }
    Lattice lattice;
    lattice.depth = model.depth;
    lattice.width = model.topk;
    std::vector<double> logprobs;
    for (int row = 0; row < lattice.depth; ++row) {
        for (int rank = 0; rank < lattice.width; ++rank) {
            lattice.tokens.push_back(rank);
            lattice.logprobs.push_back(static_cast<float>(std::log(p[rank])));
            logprobs.push_back(std::log(p[rank]));
        }
    }
    TreeBuilder builder(lattice, logprobs, -1);
    std::vector<double> gains;
    while (builder.tree().size() < max_nodes) {
        const auto logprob = builder.next_logprob();
        if (!logprob) break;
        gains.push_back(std::exp(*logprob));
        builder.grow();
    }
    return gains;
}

}  // namespace bastion
