#include "text/stream.h"

#include <algorithm>
#include <utility>

namespace bastion {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// What starts at the front of some bytes: `length` bytes of a well-formed character, of a maximal ill-formed
/// subpart, or (`unfinished`) of a character whose rest has not come.
struct Sequence {
    std::size_t length;
    bool valid;
    bool unfinished;
};

/// Number of bytes a character with this first byte has, and the range of its second byte (Unicode 15, table 3-7);
/// length 0 for bytes that start none.
struct Lead {
    std::size_t length;
    unsigned char low = 0x80, high = 0xBF;
};

Lead lead_of(unsigned char byte) {
    if (byte < 0x80) return {1};
    if (byte < 0xC2) return {0};
    if (byte < 0xE0) return {2};
    if (byte == 0xE0) return {3, 0xA0, 0xBF};
    if (byte == 0xED) return {3, 0x80, 0x9F};
    if (byte < 0xF0) return {3};
    if (byte == 0xF0) return {4, 0x90, 0xBF};
    if (byte < 0xF4) return {4};
    if (byte == 0xF4) return {4, 0x80, 0x8F};
    return {0};
}

/// Requires non-empty `bytes`.
Sequence first_sequence(std::string_view bytes) {
    const Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
    if (lead.length == 0) return {1, false, false};
    unsigned char low = lead.low, high = lead.high;
    for (std::size_t i = 1; i < lead.length; ++i) {
        if (i == bytes.size()) return {i, false, true};
        const auto byte = static_cast<unsigned char>(bytes[i]);
        if (byte < low || byte > high) return {i, false, false};
        low = 0x80;
        high = 0xBF;
    }
    return {lead.length, true, false};
}

bool ends_with_prefix(std::string_view bytes, std::string_view text, std::size_t length) {
    return bytes.ends_with(text.substr(0, length));
}

}  // namespace

std::size_t complete_utf8_prefix(std::string_view bytes) {
    // A byte that can start a character never continues one, so a character cut by the end of `bytes` starts at such
    // a byte among the last three.
    const std::size_t reach = std::min<std::size_t>(bytes.size(), 3);
    for (std::size_t back = 1; back <= reach; ++back) {
        const std::size_t start = bytes.size() - back;
        if (first_sequence(bytes.substr(start)).unfinished) return start;
    }
    return bytes.size();
}

std::string sanitize_utf8(std::string_view bytes) {
    std::string result;
    result.reserve(bytes.size());
    while (!bytes.empty()) {
        const Sequence sequence = first_sequence(bytes);
        result += sequence.valid ? bytes.substr(0, sequence.length) : kReplacement;
        bytes.remove_prefix(sequence.length);
    }
    return result;
}

TextStream::TextStream(std::vector<std::string> stop_texts) : stops_(std::move(stop_texts)) {
    std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

bool TextStream::add(std::string_view piece) {
    if (stopped_) return true;
    // Byte by byte, so that the stop that completes first wins however the text is cut into pieces.
    for (const char byte : piece) {
        pending_ += byte;
        const std::size_t stop = stop_at_end();
        if (stop == 0) continue;
        release(pending_.size() - stop);
        pending_.clear();
        stopped_ = true;
        return true;
    }
    const std::string_view safe = std::string_view(pending_).substr(0, pending_.size() - held_back());
    release(complete_utf8_prefix(safe));
    return false;
}

/// Length of the longest stop text that ends at the end of pending_, 0 if none does.
std::size_t TextStream::stop_at_end() const {
    std::size_t longest = 0;
    for (const std::string& stop : stops_) {
        if (pending_.ends_with(stop)) longest = std::max(longest, stop.size());
    }
    return longest;
}

/// Length of the longest end of pending_ that may still grow into a stop text.
std::size_t TextStream::held_back() const {
    std::size_t longest = 0;
    for (const std::string& stop : stops_) {
        for (std::size_t length = std::min(stop.size() - 1, pending_.size()); length > longest; --length) {
            if (ends_with_prefix(pending_, stop, length)) longest = length;
        }
    }
    return longest;
}

void TextStream::release(std::size_t bytes) {
    ready_ += sanitize_utf8(std::string_view(pending_).substr(0, bytes));
    pending_.erase(0, bytes);
}

std::string TextStream::take() { return std::exchange(ready_, {}); }

void TextStream::finish() { release(pending_.size()); }

}  // namespace bastion
