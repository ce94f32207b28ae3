#include "cli/bench_methods.h"

#include <algorithm>

#include "cli/args.h"

namespace bastion::cli {

namespace {

/// What follows the @ of `item`.
Status parse_controller(const std::string& item, const std::string& text, BenchMethod& method) {
    if (!method.adaptive()) return bad_input("--methods '" + item + "': only a tree of budget auto has a controller");
    for (const auto& [candidate, value] : Words<ControllerKind>::table) {
        if (text == candidate) method.controller = value;
    }
    if (method.controller) return {};
    return bad_input("--methods '" + item + "': expected " + word_list<ControllerKind>() + " after the @");
}

Result<BenchMethod> parse_method(const std::string& item) {
    BenchMethod method{.name = item};
    if (const std::size_t at = item.find('@'); at != std::string::npos) {
        BASTION_ASSIGN(method, parse_method(item.substr(0, at)));
        method.name = item;
        BASTION_CHECK(parse_controller(item, item.substr(at + 1), method));
        return method;
    }
    const std::size_t colon = item.find(':');
    const std::string kind = item.substr(0, colon);
    const std::string detail = colon == std::string::npos ? "" : item.substr(colon + 1);
    const std::string where = "--methods '" + item + "'";
    if (kind == "tree") {
        method.method = Method::tree;
        if (colon != std::string::npos) BASTION_CHECK(parse_budget(where, detail, method.budget));
        return method;
    }
    if (kind == "beam") {
        method.method = Method::beam;
        if (colon != std::string::npos) BASTION_CHECK(parse_beam(where, detail, method.beam_width, method.beam_depth));
        return method;
    }
    if (item == "chain") {
        method.method = Method::chain;
        return method;
    }
    if (item == "llama.cpp") method.reference = true;
    if (item == "ar" || item == "llama.cpp") return method;
    return bad_input("--methods: expected a list of ar, chain, tree, tree@C, tree:N, beam:WxD and llama.cpp, got '" +
                     item + "'");
}

}  // namespace

GenerateOptions BenchMethod::apply(GenerateOptions options) const {
    options.method = method;
    options.budget = budget;
    if (controller) options.controller = *controller;
    if (beam_width > 0) options.beam_width = beam_width;
    if (beam_depth > 0) options.beam_depth = beam_depth;
    return options;
}

Result<std::vector<BenchMethod>> parse_methods(const std::string& list) {
    std::vector<BenchMethod> methods;
    std::size_t start = 0;
    while (start <= list.size()) {
        const std::size_t comma = std::min(list.find(',', start), list.size());
        BASTION_ASSIGN(BenchMethod method, parse_method(list.substr(start, comma - start)));
        const auto same = [&](const BenchMethod& other) { return other.name == method.name; };
        if (std::any_of(methods.begin(), methods.end(), same)) {
            return bad_input("--methods: '" + method.name + "' stands twice in the list");
        }
        methods.push_back(std::move(method));
        start = comma + 1;
    }
    const auto plain = [](const BenchMethod& method) { return method.name == "ar"; };
    if (std::none_of(methods.begin(), methods.end(), plain)) methods.insert(methods.begin(), BenchMethod{.name = "ar"});
    return methods;
}

std::vector<std::size_t> method_order(std::size_t methods, std::size_t prompt_index) {
    std::vector<std::size_t> order(methods);
    for (std::size_t i = 0; i < methods; ++i) order[i] = (i + prompt_index) % methods;
    return order;
}

std::size_t plain_index(const std::vector<BenchMethod>& methods) {
    const auto plain = std::find_if(methods.begin(), methods.end(), [](const auto& m) { return m.name == "ar"; });
    return static_cast<std::size_t>(plain - methods.begin());
}

}  // namespace bastion::cli
