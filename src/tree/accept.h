// The acceptance walk (paper section 2.1, exact match; sampling by one draw per position makes it lossless).
#pragma once

#include <functional>

#include "base/types.h"

namespace bastion {

/// Draws the target's token after `node`, from the logits of that node's row.
using DrawAt = std::function<Token(std::int32_t node)>;

/// Told every emitted token in order; returning false ends the walk after that token (end of text, length limit, ...).
using KeepGoing = std::function<bool(Token token)>;

/// Walks from the root: draws at the visited node, emits the token, follows the child that carries it; stops at the
/// first token without a child or when `keep_going` says so. At least one token is emitted (the tree has a root).
/// `accepted` holds the nodes that were drawn at, so accepted.size() == emitted.size() and the last emitted token is
/// the next anchor, even where `keep_going` ended the walk at a token that has a node.
Verdict accept(const Tree& tree, const DrawAt& draw, const KeepGoing& keep_going);

}  // namespace bastion
