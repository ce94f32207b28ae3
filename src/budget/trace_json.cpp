// The file form of a trace (bastion generate --trace writes it).
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "budget/trace.h"

namespace bastion {
namespace {

using Json = nlohmann::ordered_json;

/// Reads one line; every message names the file and the line.
class LineReader {
 public:
    LineReader(const std::string& file, int line) : file_(file), line_(line) {}

    Result<RecordedCycle> read(std::string_view text) const {
        const Json root = Json::parse(text, nullptr, false);
        if (root.is_discarded()) return wrong("is not valid JSON");
        if (!root.is_object()) return wrong("must hold one JSON object, a cycle");
        RecordedCycle cycle;
        cycle.line = line_;
        BASTION_ASSIGN(cycle.position, whole(root, "position", 0));
        BASTION_ASSIGN(cycle.draft_ms, time(root, "draft_ms"));
        BASTION_ASSIGN(cycle.verify_ms, time(root, "verify_ms"));
        if (cycle.verify_ms == 0) return wrong("verify_ms must be a finite number above 0");
        BASTION_CHECK(read_nodes(root, cycle));
        const auto emitted = root.find("emitted");
        if (emitted == root.end() || !emitted->is_array() || emitted->size() > cycle.accepted.size()) {
            return wrong("emitted must be an array of at most one token for each accepted node");
        }
        cycle.emitted = static_cast<int>(emitted->size());
        return cycle;
    }

 private:
    Error wrong(const std::string& what) const {
        return bad_input("trace '" + file_ + "' line " + std::to_string(line_) + ": " + what);
    }

    Result<int> whole(const Json& object, const std::string& key, int least, const std::string& place = "") const {
        const auto it = object.find(key);
        if (it == object.end() || !it->is_number_integer() || *it < least || *it > std::numeric_limits<int>::max()) {
            return wrong(place + key + " must be a whole number of at least " + std::to_string(least));
        }
        return it->get<int>();
    }

    Result<double> time(const Json& object, const std::string& key) const {
        const auto it = object.find(key);
        const double value = it != object.end() && it->is_number() ? it->get<double>() : std::nan("");
        if (!std::isfinite(value) || value < 0) return wrong(key + " must be a finite number of at least 0");
        return value;
    }

    Status read_nodes(const Json& root, RecordedCycle& cycle) const {
        const auto nodes = root.find("nodes");
        if (nodes == root.end() || !nodes->is_array() || nodes->empty())
            return wrong("nodes must be a non-empty array");
        std::vector<int> depths;
        for (const Json& node : *nodes) BASTION_CHECK(read_node(node, depths, cycle));
        cycle.depth = *std::max_element(depths.begin(), depths.end());
        return {};
    }

    /// Appends one node; `depths` are those of the nodes before it.
    Status read_node(const Json& node, std::vector<int>& depths, RecordedCycle& cycle) const {
        const int index = cycle.nodes();
        const std::string place = "nodes[" + std::to_string(index) + "].";
        if (!node.is_object()) return wrong("nodes[" + std::to_string(index) + "] must be an object");
        BASTION_ASSIGN(const int parent, whole(node, "parent", -1, place));
        const bool fits = index == 0 ? parent == -1 : parent >= 0 && parent < index;
        if (!fits) return wrong(place + "parent must be " + (index == 0 ? "-1" : "an earlier node"));
        BASTION_ASSIGN(const int depth, whole(node, "depth", 0, place));
        if (depth != (index == 0 ? 0 : depths[parent] + 1)) {
            return wrong(place + "depth must be " + (index == 0 ? "0" : "one more than that of its parent"));
        }
        const auto logprob = node.find("logprob");
        if (logprob == node.end() || !logprob->is_number() || !std::isfinite(logprob->get<double>())) {
            return wrong(place + "logprob must be a finite number");
        }
        const auto accepted = node.find("accepted");
        if (accepted == node.end() || !accepted->is_boolean()) return wrong(place + "accepted must be true or false");
        if (*accepted) {
            if (index > 0 && parent != cycle.accepted.back()) {
                return wrong(place + "accepted must be false, for its parent is not the last accepted node");
            }
            cycle.accepted.push_back(index);
        } else if (index == 0) {
            return wrong(place + "accepted must be true, for a token is always drawn at the root");
        }
        depths.push_back(depth);
        cycle.logprobs.push_back(logprob->get<double>());
        return {};
    }

    const std::string& file_;
    int line_;
};

}  // namespace

Result<std::vector<RecordedCycle>> read_trace(const std::string& text, const std::string& file_name) {
    std::vector<RecordedCycle> cycles;
    bool drafted = false;
    std::string_view rest = text;
    for (int line = 1; !rest.empty(); ++line) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view one = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        BASTION_ASSIGN(RecordedCycle cycle, LineReader(file_name, line).read(one));
        drafted = drafted || cycle.drafted();
        cycles.push_back(std::move(cycle));
    }
    if (cycles.empty()) return bad_input("trace '" + file_name + "' is empty, expected one JSON object a cycle");
    if (!drafted) {
        return bad_input("trace '" + file_name + "' has " + std::to_string(cycles.size()) +
                         " cycles but none with a draft, expected one of --method tree with a drafter");
    }
    return cycles;
}

}  // namespace bastion
