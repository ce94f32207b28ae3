// What cycles of several requests really take, beside what the latency model says of them.
#pragma once

#include <array>
#include <cstddef>

namespace bastion {

/// The parts of a cycle: the pass with one row of each request, what its further rows add, and the draft with what
/// surrounds it. In milliseconds, or as factors on those.
struct CycleCost {
    double plain = 1, rows = 1, draft = 1;

    double ms(const CycleCost& predicted) const {
        return plain * predicted.plain + rows * predicted.rows + draft * predicted.draft;
    }
};

/// Learns, by the size of the batch (to a power of two), the factors between predicted and measured times: a profile of
/// single requests knows nothing of caches that are not shared, of row counts that change from cycle to cycle, nor of
/// what surrounds a draft of many.
///
/// `plain` and `rows` come from undrafted cycles, by least squares of t = plain + rows x over t = measured and x =
/// rows, both in units of the predicted plain pass; cycles fade by 2 %, `rows` is drawn to `plain` and `plain` to 1 as
/// far as the cycles say nothing. `draft` is what drafted cycles take beyond these, a ratio of fading sums.
/// Deterministic in what it is told.
class BatchCosts {
 public:
    /// A cycle of `requests` requests. Times that are not positive numbers are not counted.
    void observe(int requests, const CycleCost& predicted_ms, double measured_ms);

    CycleCost factors(int requests) const;

 private:
    struct Sums {
        double n = 0, x = 0, xx = 0, t = 0, xt = 0;  ///< of undrafted cycles
        double draft_ms = 0, draft_predicted_ms = 0;

        CycleCost factors() const;
        void add_undrafted(double x_now, double t_now);
        void add_drafted(const CycleCost& predicted_ms, double measured_ms);
    };
    static constexpr std::size_t kSizes = 11;

    static std::size_t size_class(int requests);

    std::array<Sums, kSizes> sums_;  ///< [i]: of batches of 2^i to 2^(i+1) - 1 requests
};

}  // namespace bastion
