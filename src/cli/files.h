// Reading inputs and writing outputs of the command line, with errors that name the file.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "bastion/status.h"

namespace bastion::cli {

/// The whole file, or stdin for "-". `what` names its role in the error ("prompt file").
Result<std::string> read_text(const std::string& path, const std::string& what);

/// Checks before long work that `path` can be created or replaced.
Status check_writable(const std::string& path, const std::string& what);

/// Replaces the file in one step, so that a reader never sees half of it. Devices and pipes are written directly.
/// `create_folders`: missing parent folders are made.
Status write_text(const std::string& path, const std::string& text, const std::string& what,
                  bool create_folders = false);

/// What became of a write to stdout.
enum class Written { ok, closed, failed };

/// Writes and flushes to stdout. `closed`: nobody reads any more (EPIPE), which is no error worth a message.
Written write_stdout(std::string_view text);

/// The exit of a command whose last act is to print `text`: 0, quiet 1 for a closed reader, an error otherwise.
Result<int> print_result(std::string_view text);

/// The error for Written::failed.
Error stdout_error();

/// Whether all of `text` is valid UTF-8.
bool is_utf8(std::string_view text);

}  // namespace bastion::cli
