// The words that stand for enum values on the command line and in JSON.
#pragma once

#include <array>
#include <string>
#include <utility>

#include "bastion/options.h"

namespace bastion::cli {

/// What is written to stderr after an answer.
enum class StatsFormat { text, json, none };

/// One table an enum: every accepted word with its value, in the order that help and errors list them.
template <class E>
struct Words;

template <>
struct Words<Method> {
    static constexpr std::array<std::pair<const char*, Method>, 4> table{
        {{"ar", Method::ar}, {"chain", Method::chain}, {"tree", Method::tree}, {"beam", Method::beam}}};
};

template <>
struct Words<ControllerKind> {
    static constexpr std::array<std::pair<const char*, ControllerKind>, 4> table{
        {{"static", ControllerKind::fixed_fit},
         {"ema", ControllerKind::ema},
         {"ema+static", ControllerKind::ema_fixed_fit},
         {"curve", ControllerKind::curve}}};
};

template <>
struct Words<KvType> {
    static constexpr std::array<std::pair<const char*, KvType>, 3> table{
        {{"f16", KvType::f16}, {"bf16", KvType::bf16}, {"q8_0", KvType::q8_0}}};
};

template <>
struct Words<Kernels> {
    static constexpr std::array<std::pair<const char*, Kernels>, 6> table{{{"auto", Kernels::automatic},
                                                                           {"packed", Kernels::packed},
                                                                           {"packed-avx2", Kernels::packed_avx2},
                                                                           {"packed-avx512", Kernels::packed_avx512},
                                                                           {"generic", Kernels::generic},
                                                                           {"library", Kernels::library}}};
};

template <>
struct Words<StatsFormat> {
    static constexpr std::array<std::pair<const char*, StatsFormat>, 3> table{
        {{"text", StatsFormat::text}, {"json", StatsFormat::json}, {"none", StatsFormat::none}}};
};

/// The word of a value; "?" for a value outside the table.
template <class E>
std::string word(E value) {
    for (const auto& [name, candidate] : Words<E>::table) {
        if (candidate == value) return name;
    }
    return "?";
}

/// "ar, chain, tree or beam".
template <class E>
std::string word_list() {
    const auto& table = Words<E>::table;
    std::string list;
    for (std::size_t i = 0; i < table.size(); ++i) {
        if (i > 0) list += i + 1 == table.size() ? " or " : ", ";
        list += table[i].first;
    }
    return list;
}

}  // namespace bastion::cli
