// Text <-> token ids, by libllama's vocabulary (loaded without weights).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "bastion/status.h"

namespace bastion {

/// Makes ggml and libllama write nothing to stderr. Cheap, idempotent, callable from any thread.
void silence_libraries();

/// Immutable after loading; safe to share between threads. Copies share one vocabulary.
class Tokenizer {
 public:
    /// Loads the vocabulary of a GGUF that has already passed the checks of model/gguf.h. What libllama would abort
    /// on or guess is refused before it sees the file (text/vocabulary.h); of a split file only the first part is read.
    static Result<Tokenizer> load(const std::string& path);

    int size() const;  ///< V, number of ids

    /// `special`: special-token texts in `text` become their ids (templates) instead of plain text (user input).
    /// `add_bos`: prepend BOS where the model's metadata asks for it and the text does not begin with it already.
    /// `text` is any bytes, NUL included; invalid UTF-8 is read as U+FFFD. Bytes beyond 2^31 - 1 are not read.
    std::vector<Token> encode(std::string_view text, bool special, bool add_bos) const;

    /// Bytes of one token; control tokens render as nothing unless `special`. An id outside [0, V) has no bytes.
    std::string piece(Token token, bool special = false) const;

    bool is_end(Token token) const;  ///< any end-of-generation token
    Token bos() const;               ///< -1 if none
    Token eos() const;               ///< -1 if none

    /// Text of BOS / EOS as templates see it; empty if none.
    std::string bos_text() const;
    std::string eos_text() const;

 private:
    struct Impl;
    explicit Tokenizer(std::shared_ptr<const Impl> impl);
    std::shared_ptr<const Impl> impl_;
};

}  // namespace bastion
