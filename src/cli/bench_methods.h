// The methods a benchmark compares.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bastion/options.h"
#include "bastion/status.h"

namespace bastion::cli {

struct BenchMethod {
    std::string name;        ///< as written in the list
    bool reference = false;  ///< llama.cpp's own decoding instead of ours
    Method method = Method::ar;
    int budget = 0;                                 ///< 0: auto
    int beam_width = 0, beam_depth = 0;             ///< 0: as in the options
    std::optional<ControllerKind> controller = {};  ///< none: as in the options

    /// Whether a controller decides the budget.
    bool adaptive() const { return method == Method::tree && budget == 0; }
    /// `options` with this method's fields.
    GenerateOptions apply(GenerateOptions options) const;
};

/// Reads "ar,chain,tree,tree@curve,tree:16,beam:4x15,llama.cpp"; what follows @ is a controller. `ar` is put in front
/// where the list lacks it, because every method is compared with it. Empty, unknown and repeated items are refused.
Result<std::vector<BenchMethod>> parse_methods(const std::string& list);

/// The order of methods for one prompt: rotated from prompt to prompt, so that none always runs first.
std::vector<std::size_t> method_order(std::size_t methods, std::size_t prompt_index);

/// Index of the method "ar"; the number of methods if there is none.
std::size_t plain_index(const std::vector<BenchMethod>& methods);

}  // namespace bastion::cli
