// A GGUF file (or the parts of a split one), memory-mapped, with checked access to its keys and tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ggml_ptr.h"
#include "bastion/status.h"

namespace bastion {

/// A tensor of the file; `data` points into the mapping and has `bytes` readable bytes.
struct TensorInfo {
    std::string name;
    ggml_type type;
    std::int64_t ne[4];  ///< ggml order: ne[0] is the contiguous dimension
    const void* data;
    std::size_t bytes;

    std::string shape() const;  ///< "[576, 49152]"
};

/// Read-only view of a model file. Opening validates the whole header and that every tensor lies inside the file at
/// a multiple of 32 bytes; no accessor reads outside the mapping.
class GgufFile {
 public:
    static Result<GgufFile> open(const std::string& path);

    GgufFile(GgufFile&&) noexcept;
    GgufFile& operator=(GgufFile&&) noexcept;
    ~GgufFile();

    const std::string& path() const;
    std::uint64_t file_bytes() const;  ///< all parts together

    bool has(std::string_view key) const;

    /// Typed access. A missing key or a value of another type is an error that names file and key. Integer keys accept
    /// every integer type that holds the value; floats accept f32 and f64.
    Result<std::int64_t> integer(std::string_view key) const;
    Result<double> number(std::string_view key) const;
    Result<bool> boolean(std::string_view key) const;
    Result<std::string> text(std::string_view key) const;
    Result<std::vector<std::int64_t>> integers(std::string_view key) const;
    Result<std::vector<bool>> booleans(std::string_view key) const;  ///< array of bool

    /// Number of strings in a string array, and one of them (no copy).
    Result<std::size_t> text_count(std::string_view key) const;
    std::string_view text_at(std::string_view key, std::size_t index) const;

    std::vector<std::string> keys() const;
    /// Short printable form of a key's value, arrays abbreviated.
    std::string describe(std::string_view key) const;

    const std::vector<TensorInfo>& tensors() const;
    const TensorInfo* find(std::string_view name) const;

    /// Tells the system that the tensor's pages are not needed for now; they are read again when touched.
    void release(const TensorInfo& tensor) const;

 private:
    struct Impl;
    explicit GgufFile(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace bastion
