// Results of operations that can fail. Nothing below the command line throws across a module boundary, prints or
// aborts: a failure is one sentence that names the file, the field or the flag and says what was expected.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace bastion {

/// What kind of failure it is; the command line maps it to an exit code, a server to a status code.
enum class ErrorKind {
    bad_input,  ///< the caller's file, flag, prompt or request cannot be used (exit code 2)
    runtime,    ///< the machine let us down: memory, device, disk (exit code 1)
};

struct Error {
    ErrorKind kind = ErrorKind::runtime;
    std::string message;  ///< one sentence, no trailing full stop or newline
};

inline Error bad_input(std::string message) { return {ErrorKind::bad_input, std::move(message)}; }
inline Error runtime_error(std::string message) { return {ErrorKind::runtime, std::move(message)}; }

/// A value or an Error. `value()` requires `ok()`, `error()` requires `!ok()`.
template <class T>
class [[nodiscard]] Result {
 public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& value() & { return std::get<0>(state_); }
    const T& value() const& { return std::get<0>(state_); }
    T&& value() && { return std::get<0>(std::move(state_)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    const Error& error() const { return std::get<1>(state_); }

 private:
    std::variant<T, Error> state_;
};

/// Success or an Error.
class [[nodiscard]] Status {
 public:
    Status() = default;
    Status(Error error) : error_(std::move(error)) {}

    bool ok() const { return !error_.has_value(); }
    explicit operator bool() const { return ok(); }
    const Error& error() const { return *error_; }

 private:
    std::optional<Error> error_;
};

}  // namespace bastion

/// Returns the error of a Status expression from the enclosing function.
#define BASTION_CHECK(expr)                                                                              \
    do {                                                                                                 \
        if (const auto& bastion_status_ = (expr); !bastion_status_.ok()) return bastion_status_.error(); \
    } while (0)

#define BASTION_CONCAT_INNER_(a, b) a##b
#define BASTION_CONCAT_(a, b) BASTION_CONCAT_INNER_(a, b)
#define BASTION_ASSIGN_IMPL_(result, declaration, expr) \
    auto result = (expr);                               \
    if (!result.ok()) return result.error();            \
    declaration = std::move(result).value()

/// `BASTION_ASSIGN(auto x, f())` declares x from a Result or returns its error.
#define BASTION_ASSIGN(declaration, expr) \
    BASTION_ASSIGN_IMPL_(BASTION_CONCAT_(bastion_result_, __LINE__), declaration, expr)
