#include "engine/tree_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_set>
#include <utility>
#include <vector>

namespace bastion {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostNodes = 1 << 20;

/// A lattice with its log-probabilities in the file's own precision.
struct ExactLattice {
    Lattice lattice;               // float copies in lattice.logprobs
    std::vector<double> logprobs;  // [depth][width]
};

struct Entry {
    Token token;
    double logprob;
};

/// Reads one lattice; every message starts with the file and names the place.
class LatticeReader {
 public:
    explicit LatticeReader(const std::string& name) : name_(name) {}

    Result<ExactLattice> read(const std::string& text) const {
        const Json root = Json::parse(text, nullptr, false);
        if (root.is_discarded()) return wrong("is not valid JSON");
        if (!root.is_object()) return wrong("must hold one JSON object with `tokens` and `logprobs`");
        BASTION_CHECK(check_rows(root, "tokens"));
        BASTION_CHECK(check_rows(root, "logprobs"));
        const Json &tokens = root["tokens"], &logprobs = root["logprobs"];
        if (tokens.size() != logprobs.size()) {
            return wrong("has " + std::to_string(tokens.size()) + " rows of tokens but " +
                         std::to_string(logprobs.size()) + " rows of logprobs");
        }
        ExactLattice result;
        result.lattice.depth = static_cast<int>(tokens.size());
        result.lattice.width = static_cast<int>(tokens[0].size());
        for (std::size_t row = 0; row < tokens.size(); ++row) {
            BASTION_ASSIGN(const std::vector<Entry> entries, read_row(tokens[row], logprobs[row], row));
            if (std::cmp_not_equal(entries.size(), result.lattice.width)) {
                return wrong("has " + std::to_string(entries.size()) + " entries in " + place("tokens", row) +
                             ", expected " + std::to_string(result.lattice.width) + " as in " + place("tokens", 0));
            }
            for (const Entry& entry : entries) {
                result.lattice.tokens.push_back(entry.token);
                result.lattice.logprobs.push_back(static_cast<float>(entry.logprob));
                result.logprobs.push_back(entry.logprob);
            }
        }
        return result;
    }

 private:
    Error wrong(const std::string& what) const { return bad_input("lattice '" + name_ + "' " + what); }

    static std::string place(const char* key, std::size_t row) {
        return std::string(key).append("[").append(std::to_string(row)).append("]");
    }

    static std::string place(const char* key, std::size_t row, std::size_t rank) {
        return place(key, row) + "[" + std::to_string(rank) + "]";
    }

    /// `key` is a non-empty array of non-empty arrays.
    Status check_rows(const Json& root, const char* key) const {
        const auto it = root.find(key);
        if (it == root.end()) return wrong(std::string("has no `") + key + "`, expected an array of rows");
        if (!it->is_array() || it->empty()) return wrong(std::string("needs a non-empty array of rows in ") + key);
        for (std::size_t row = 0; row < it->size(); ++row) {
            const Json& entries = (*it)[row];
            if (!entries.is_array() || entries.empty()) return wrong("needs a non-empty array in " + place(key, row));
        }
        return {};
    }

    Result<std::vector<Entry>> read_row(const Json& tokens, const Json& logprobs, std::size_t row) const {
        if (tokens.size() != logprobs.size()) {
            return wrong("has " + std::to_string(logprobs.size()) + " entries in " + place("logprobs", row) +
                         ", expected " + std::to_string(tokens.size()) + " as in " + place("tokens", row));
        }
        std::vector<Entry> entries;
        std::unordered_set<Token> seen;
        for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
            const Json &token = tokens[rank], &logprob = logprobs[rank];
            if (!token.is_number_integer() || token < 0 || token > std::numeric_limits<Token>::max()) {
                return wrong("needs a token id (an integer from 0 to 2147483647) in " + place("tokens", row, rank));
            }
            if (!logprob.is_number()) return wrong("needs a number in " + place("logprobs", row, rank));
            entries.push_back({token.get<Token>(), logprob.get<double>()});
            if (!std::isfinite(entries.back().logprob)) {
                return wrong("needs a finite number in " + place("logprobs", row, rank));
            }
            if (!seen.insert(entries.back().token).second) {
                return wrong("repeats token " + std::to_string(entries.back().token) + " of its row in " +
                             place("tokens", row, rank));
            }
        }
        std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
            return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
        });
        return entries;
    }

    const std::string& name_;
};

std::string to_json(const Tree& tree) {
    Json nodes = Json::array();
    for (const Node& node : tree.nodes) {
        nodes.push_back(
            Json{{"token", node.token}, {"parent", node.parent}, {"depth", node.depth}, {"logprob", node.logprob}});
    }
    return Json{{"nodes", std::move(nodes)}, {"surrogate", tree.surrogate}, {"budget", tree.size()}}.dump();
}

/// T_N* for the `static` controller at `context`.
Tree best_tree(TreeBuilder& builder, const Profile& profile, int context) {
    int max_nodes = 1;
    for (const GridPoint& point : profile.grid) max_nodes = std::max(max_nodes, std::min(point.nodes, kMostNodes));
    const LatencyModel latency(profile, ControllerKind::fixed_fit);
    BudgetSearch search(latency, context, max_nodes);
    return builder.take(grow(builder, search, max_nodes));
}

}  // namespace

int grow(TreeBuilder& builder, BudgetSearch& search, int max_nodes) {
    return grow_together({&builder, 1}, search, max_nodes).front();
}

std::vector<int> grow_together(std::span<TreeBuilder> builders, BudgetSearch& search, int max_nodes) {
    using Front = std::pair<double, int>;  // log rho of a builder's next node, and the negated index of the builder
    std::priority_queue<Front> heap;
    const auto propose = [&](int i) {
        const auto logprob = builders[i].next_logprob();
        if (logprob && builders[i].tree().size() < max_nodes) heap.emplace(*logprob, -i);
    };
    std::vector<int> nodes(builders.size(), 1), taken;
    for (int i = 0; i < std::ssize(builders); ++i) propose(i);
    const int start = search.best_nodes();
    while (!heap.empty()) {
        const auto [logprob, negated] = heap.top();
        if (!search.offer(std::exp(logprob), -negated)) break;
        heap.pop();
        builders[-negated].grow();
        taken.push_back(-negated);
        propose(-negated);
    }
    for (int i = 0; i < search.best_nodes() - start; ++i) ++nodes[taken[i]];
    return nodes;
}

Result<std::string> tree_from_lattice_json(const std::string& lattice_json, const std::string& lattice_name, int budget,
                                           const Profile* profile, int context) {
    if (budget < 0) return bad_input("budget must be at least 1 node, the root, not " + std::to_string(budget));
    if (budget == 0 && !profile) return bad_input("budget auto needs a latency profile (--profile)");
    if (context < 0) return bad_input("context must be at least 0 tokens, not " + std::to_string(context));
    BASTION_ASSIGN(const ExactLattice exact, LatticeReader(lattice_name).read(lattice_json));
    TreeBuilder builder(exact.lattice, exact.logprobs, -1);
    Tree tree;
    if (budget == 0) {
        tree = best_tree(builder, *profile, context);
    } else {
        while (builder.tree().size() < std::min(budget, kMostNodes) && builder.next_logprob()) builder.grow();
        if (budget > kMostNodes && builder.next_logprob()) {
            return bad_input("budget must be at most " + std::to_string(kMostNodes) + " nodes, not " +
                             std::to_string(budget));
        }
        tree = builder.take(budget);
    }
    if (!std::isfinite(tree.surrogate)) {
        return bad_input("lattice '" + lattice_name + "' has logprobs so large that the surrogate overflows");
    }
    return to_json(tree);
}

}  // namespace bastion
