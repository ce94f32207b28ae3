// What tree drafting would bring on a device nobody has measured: the roofline as a profile, and the budget search on
// it. A plan is a predicted profile; everything that decides from a measured one decides from it unchanged.
#pragma once

#include <span>
#include <vector>

#include "budget/calibration.h"
#include "budget/roofline.h"

namespace bastion {

/// What a DFlash draft costs: one pass over the block, and the injection of what the last cycle committed.
struct DraftShape {
    ModelShape pass;             ///< of the drafter's own layers; `vocab` rows of the head it uses
    int block = 16;              ///< rows of the pass: the anchor and the masks
    int taps = 5;                ///< target layers whose states `fc` reads
    double fc_weight_bytes = 2;  ///< per element of `fc`, [taps * hidden, hidden]
    int window = 0;              ///< positions that windowed layers attend to
    int windowed_layers = 0;     ///< of pass.layers
};

/// A dense drafter of `layers` layers as wide as the target's, with the target's head and embeddings and as many taps
/// as layers. For a mixture of experts its feed-forward width is 3 h, since that of one expert says nothing.
DraftShape draft_shape_like(const ModelShape& target, int layers, int block);

/// Milliseconds of one target pass over `rows` rows of each of `requests` sequences with `context` committed tokens
/// each: the terms of the roofline, where the weights are shared and every sequence attends to its own cache. For one
/// request this is roofline_ms.
double batch_verify_ms(const ModelShape& shape, const DevicePeak& peak, int requests, int rows, int context);

/// Milliseconds of one draft for `requests` sequences: the pass over their blocks, and the injection of as many rows as
/// a cycle can commit at most (`fc`, then keys and values).
double batch_draft_ms(const DraftShape& draft, const DevicePeak& peak, int requests, int context);

struct PlanSetup {
    ModelShape target;
    DraftShape draft;
    DevicePeak peak;
    int max_nodes = 64;  ///< largest tree a request may have
};

/// The profile that `bastion calibrate` would write if the roofline were exact, for passes shared by `requests` equal
/// requests: grid[N-1].verify_ms is that of N rows of every request at `context`, N = 1..max_nodes; the rest of a cycle
/// counts as nothing. `shape` and `fit` describe one request alone.
Profile predicted_profile(const PlanSetup& setup, int requests, int context);

/// The best budget at one context and concurrency.
struct PlanPoint {
    int context = 0, requests = 0;
    double plain_ms = 0;          ///< L_AR: one row of every request, no draft
    double draft_ms = 0;          ///< T_draft
    std::vector<GridPoint> grid;  ///< T_verify(N), N = 1.. per request
    int best_nodes = 1;           ///< N* per request: argmax over all nested trees
    double tau = 1;               ///< expected tokens a cycle there
    double verify_ms = 0, cycle_ms = 0;
    double speedup = 0;            ///< over plain decoding in the same company; below 1 drafting does not pay
    int first_decrease_nodes = 0;  ///< where the stop rule of Algorithm 4 ends; 0: not known for several requests

    double tokens_per_s() const { return 1e3 * requests * tau / cycle_ms; }
    double plain_tokens_per_s() const { return 1e3 * requests / plain_ms; }
};

/// `gains[i]` is what node i+2 adds to the expected tokens of a cycle, so that tau(N) = 1 + gains[0] + .. + gains[N-2].
/// Trees end where the gains do.
PlanPoint plan_point(const PlanSetup& setup, std::span<const double> gains, int requests, int context);

/// tau(N) of those gains; N - 1 of them are needed.
double tokens_a_cycle(std::span<const double> gains, int nodes);

}  // namespace bastion
