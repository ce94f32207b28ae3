// From token pieces to a stream of text: whole UTF-8 characters only, stop texts never leaked. No model needed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace bastion {

/// Length of the longest prefix of `bytes` that does not end inside a UTF-8 character. Bytes that can never become
/// valid count as complete (they are replaced when emitted).
std::size_t complete_utf8_prefix(std::string_view bytes);

/// `bytes` with every invalid sequence replaced by U+FFFD, as the Unicode standard recommends (maximal subparts).
std::string sanitize_utf8(std::string_view bytes);

/// Collects the pieces of an answer and releases text as early as it is safe: every released chunk is valid UTF-8,
/// the joined chunks equal sanitize_utf8 of the whole answer, and no byte of a stop text (or after it) is ever
/// released. Stop texts are matched on raw bytes and may span pieces; the one whose last byte comes first wins, and of
/// those that end together the longest. Empty stop texts are ignored. What is released does not depend on how the
/// answer was cut into pieces.
class TextStream {
 public:
    explicit TextStream(std::vector<std::string> stop_texts = {});

    /// Adds the bytes of one token. Returns true if a stop text is now complete; nothing may be added after that.
    bool add(std::string_view piece);

    /// Text that became safe since the last call.
    std::string take();

    /// Ends the stream: what was held back for a stop text that did not come is released by the next `take`; an
    /// unfinished character becomes U+FFFD.
    void finish();

    bool stopped() const { return stopped_; }

 private:
    std::size_t stop_at_end() const;
    std::size_t held_back() const;
    void release(std::size_t bytes);

    std::vector<std::string> stops_;
    std::string pending_;  // raw bytes not released yet; starts at a character boundary, holds every possible stop
    std::string ready_;    // sanitised text for the next take
    bool stopped_ = false;
};

}  // namespace bastion
