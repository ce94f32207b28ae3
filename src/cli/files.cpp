#include "cli/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "text/stream.h"

namespace bastion::cli {

namespace fs = std::filesystem;

namespace {

/// Inputs of the command line are texts; beyond this a path such as /dev/zero was meant by mistake.
constexpr std::size_t kMostInputBytes = std::size_t{1} << 30;

int last_stdout_errno = 0;

std::string in_words(const std::string& what, const std::string& path) { return what + " '" + path + "'"; }

/// Writes everything, going on after signals. Returns 0 or errno.
int write_all(int file, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(file, text.data(), text.size());
        if (n < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return 0;
}

int write_file(const std::string& path, const std::string& text, int flags) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666);
    if (file < 0) return errno;
    const int error = write_all(file, text);
    const int close_error = ::close(file) == 0 ? 0 : errno;
    return error ? error : close_error;
}

}  // namespace

Result<std::string> read_text(const std::string& path, const std::string& what) {
    const bool from_stdin = path == "-";
    std::error_code ignored;
    if (!from_stdin && fs::is_directory(path, ignored)) return bad_input(in_words(what, path) + " is a directory");
    const int file = from_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return bad_input(in_words(what, path) + " cannot be read: " + std::strerror(errno));
    std::string text;
    char buffer[1 << 16];
    int error = 0;
    while (true) {
        const ssize_t n = ::read(file, buffer, sizeof buffer);
        if (n == 0) break;
        if (n < 0) {
            error = errno;
            break;
        }
        text.append(buffer, static_cast<std::size_t>(n));
        if (text.size() > kMostInputBytes) {
            error = EFBIG;
            break;
        }
    }
    if (!from_stdin) ::close(file);
    if (error) return bad_input(in_words(what, path) + " cannot be read: " + std::strerror(error));
    return text;
}

Status check_writable(const std::string& path, const std::string& what) {
    std::error_code ignored;
    if (path.empty()) return bad_input(what + ": expected a file name, got an empty text");
    if (fs::is_directory(path, ignored)) return bad_input(in_words(what, path) + " is a directory");
    const fs::path parent = fs::path(path).parent_path();
    const std::string folder = parent.empty() ? "." : parent.string();
    // An existing device such as /dev/stdout needs no right on its folder.
    const bool exists = fs::exists(path, ignored);
    const bool regular = !exists || fs::is_regular_file(path, ignored);
    if (regular && !fs::is_directory(folder, ignored)) {
        return bad_input(in_words(what, path) + " cannot be written: there is no folder " + folder);
    }
    if (::access(regular ? folder.c_str() : path.c_str(), W_OK) != 0) {
        return bad_input(in_words(what, path) + " cannot be written: " + std::strerror(errno));
    }
    return {};
}

Status write_text(const std::string& path, const std::string& text, const std::string& what, bool create_folders) {
    std::error_code ignored;
    if (create_folders) fs::create_directories(fs::path(path).parent_path(), ignored);
    int error = 0;
    if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
        error = write_file(path, text, 0);
    } else {
        const std::string temporary = path + ".part" + std::to_string(::getpid());
        error = write_file(temporary, text, O_CREAT | O_TRUNC);
        if (!error && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
        if (error) ::unlink(temporary.c_str());
    }
    if (error) return runtime_error(in_words(what, path) + " cannot be written: " + std::strerror(error));
    return {};
}

Written write_stdout(std::string_view text) {
    last_stdout_errno = write_all(STDOUT_FILENO, text);
    if (last_stdout_errno == 0) return Written::ok;
    return last_stdout_errno == EPIPE ? Written::closed : Written::failed;
}

Error stdout_error() {
    return runtime_error(std::string("stdout cannot be written: ") + std::strerror(last_stdout_errno));
}

Result<int> print_result(std::string_view text) {
    switch (write_stdout(text)) {
        case Written::ok:
            return 0;
        case Written::closed:
            return 1;
        case Written::failed:
            break;
    }
    return stdout_error();
}

bool is_utf8(std::string_view text) { return sanitize_utf8(text) == text; }

}  // namespace bastion::cli
