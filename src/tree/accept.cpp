#include "tree/accept.h"

#include "tree/layout.h"

namespace bastion {

Verdict accept(const Tree& tree, const DrawAt& draw, const KeepGoing& keep_going) {
    Verdict verdict;
    std::int32_t node = tree.nodes.empty() ? -1 : 0;
    while (node >= 0) {
        const Token token = draw(node);
        verdict.accepted.push_back(node);
        verdict.emitted.push_back(token);
        if (!keep_going(token)) break;
        node = child_with(tree, node, token);
    }
    return verdict;
}

}  // namespace bastion
