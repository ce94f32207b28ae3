#include "tree/layout.h"

#include <algorithm>
#include <set>
#include <utility>

namespace bastion {

std::vector<std::int32_t> positions(const Tree& tree, std::int32_t root_position) {
    std::vector<std::int32_t> result;
    result.reserve(tree.nodes.size());
    for (const Node& node : tree.nodes) result.push_back(root_position + node.depth);
    return result;
}

std::vector<std::int32_t> parents(const Tree& tree) {
    std::vector<std::int32_t> result;
    result.reserve(tree.nodes.size());
    for (const Node& node : tree.nodes) result.push_back(node.parent);
    return result;
}

std::vector<std::int32_t> path_to(const Tree& tree, std::int32_t node) {
    std::vector<std::int32_t> path;
    for (std::int32_t at = node; at >= 0; at = tree.nodes[at].parent) path.push_back(at);
    std::reverse(path.begin(), path.end());
    return path;
}

std::int32_t child_with(const Tree& tree, std::int32_t node, Token token) {
    // Children stand behind their parent, so the scan starts there.
    for (std::int32_t i = node + 1; i < tree.size(); ++i) {
        if (tree.nodes[i].parent == node && tree.nodes[i].token == token) return i;
    }
    return -1;
}

bool is_well_formed(const Tree& tree) {
    if (tree.nodes.empty() || tree.nodes[0].parent != -1 || tree.nodes[0].depth != 0) return false;
    std::set<std::pair<std::int32_t, Token>> siblings;
    for (std::int32_t i = 1; i < tree.size(); ++i) {
        const Node& node = tree.nodes[i];
        if (node.parent < 0 || node.parent >= i) return false;
        if (node.depth != tree.nodes[node.parent].depth + 1) return false;
        if (!siblings.emplace(node.parent, node.token).second) return false;
    }
    return true;
}

}  // namespace bastion
