// Checks of a GGUF's vocabulary keys, made before libllama reads them.
#pragma once

#include <string>

#include "bastion/status.h"

struct gguf_context;

namespace bastion {

/// Refuses, with a sentence that names `path` and the key, every vocabulary on which libllama would abort, read out of
/// range, overflow its stack on long texts or silently fall back to a guess. `gguf`: the file's header.
Status check_vocabulary(const gguf_context* gguf, const std::string& path);

/// True if `key` is present in the header.
bool has_key(const gguf_context* gguf, const char* key);

}  // namespace bastion
