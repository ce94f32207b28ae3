#include "model/gguf.h"

#include <fcntl.h>
#include <gguf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <unordered_map>

namespace bastion {
namespace {

constexpr std::size_t kTensorAlignment = 32;  // what kernels may assume of a tensor used in place

/// A read-only mapping of a whole file.
class Mapping {
 public:
    static Result<Mapping> open(const std::string& path) {
        std::error_code ec;
        if (std::filesystem::is_directory(path, ec)) return bad_input(path + " is a directory, expected a GGUF file");
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return bad_input("cannot open " + path + ": " + std::strerror(errno));
        struct stat info {};
        if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
            ::close(fd);
            return bad_input(path + " is not a regular file, expected a GGUF file");
        }
        const auto bytes = static_cast<std::size_t>(info.st_size);
        if (bytes < 24) {
            ::close(fd);
            return bad_input(path + " is too short to be a GGUF file (" + std::to_string(bytes) + " bytes)");
        }
        void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
        ::close(fd);
        if (data == MAP_FAILED) return runtime_error("cannot map " + path + ": " + std::strerror(errno));
        return Mapping(data, bytes);
    }

    Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Mapping() {
        if (data_) ::munmap(data_, bytes_);
    }

    const char* data() const { return static_cast<const char*>(data_); }
    std::size_t bytes() const { return bytes_; }

 private:
    Mapping(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

struct Part {
    Mapping mapping;
    gguf_context_ptr header;
};

Result<Part> open_part(const std::string& path) {
    BASTION_ASSIGN(Mapping mapping, Mapping::open(path));
    if (std::memcmp(mapping.data(), "GGUF", 4) != 0) {
        return bad_input(path + " is not a GGUF file (it does not start with the letters GGUF)");
    }
    gguf_context_ptr header(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
    if (!header) return bad_input(path + " has a malformed or truncated GGUF header");
    return Part{std::move(mapping), std::move(header)};
}

/// Value of a scalar integer key of any width; nothing if it is no integer or does not fit.
std::optional<std::int64_t> integer_value(const gguf_context* header, std::int64_t id) {
    switch (gguf_get_kv_type(header, id)) {
        case GGUF_TYPE_UINT8:
            return gguf_get_val_u8(header, id);
        case GGUF_TYPE_INT8:
            return gguf_get_val_i8(header, id);
        case GGUF_TYPE_UINT16:
            return gguf_get_val_u16(header, id);
        case GGUF_TYPE_INT16:
            return gguf_get_val_i16(header, id);
        case GGUF_TYPE_UINT32:
            return gguf_get_val_u32(header, id);
        case GGUF_TYPE_INT32:
            return gguf_get_val_i32(header, id);
        case GGUF_TYPE_INT64:
            return gguf_get_val_i64(header, id);
        case GGUF_TYPE_UINT64: {
            const std::uint64_t value = gguf_get_val_u64(header, id);
            if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
            return static_cast<std::int64_t>(value);
        }
        default:
            return std::nullopt;
    }
}

template <class T>
std::vector<std::int64_t> widen(const gguf_context* header, std::int64_t id) {
    const auto* data = static_cast<const T*>(gguf_get_arr_data(header, id));
    return std::vector<std::int64_t>(data, data + gguf_get_arr_n(header, id));
}

std::string part_name(const std::string& first, std::int64_t index, std::int64_t count) {
    char from[32], to[32];
    std::snprintf(from, sizeof from, "-%05d-of-%05d.gguf", 1, static_cast<int>(count));
    std::snprintf(to, sizeof to, "-%05d-of-%05d.gguf", static_cast<int>(index + 1), static_cast<int>(count));
    const std::size_t stem = first.size() - std::strlen(from);
    return first.substr(0, stem) + to;
}

}  // namespace

std::string TensorInfo::shape() const {
    int dims = 4;
    while (dims > 1 && ne[dims - 1] == 1) --dims;
    std::string text = "[";
    for (int i = 0; i < dims; ++i) text += (i ? ", " : "") + std::to_string(ne[i]);
    return text + "]";
}

struct GgufFile::Impl {
    std::string path;
    std::vector<Part> parts;
    std::vector<TensorInfo> tensors;
    std::unordered_map<std::string, std::size_t> index;

    const gguf_context* header() const { return parts.front().header.get(); }

    /// Adds the tensors of a part after checking that their bytes lie inside it.
    Status add_tensors(const Part& part, const std::string& part_path) {
        const gguf_context* g = part.header.get();
        const std::size_t base = gguf_get_data_offset(g);
        for (std::int64_t i = 0; i < gguf_get_n_tensors(g); ++i) {
            TensorInfo info;
            info.name = gguf_get_tensor_name(g, i);
            info.type = gguf_get_tensor_type(g, i);
            info.bytes = gguf_get_tensor_size(g, i);
            const std::int64_t* ne = gguf_get_tensor_ne(g, i);
            std::copy(ne, ne + 4, info.ne);
            const std::size_t offset = base + gguf_get_tensor_offset(g, i);
            if (offset > part.mapping.bytes() || info.bytes > part.mapping.bytes() - offset) {
                return bad_input(part_path + " is truncated: tensor " + info.name + " ends at byte " +
                                 std::to_string(offset + info.bytes) + " of " + std::to_string(part.mapping.bytes()));
            }
            if (std::any_of(info.ne, info.ne + 4, [](std::int64_t n) { return n <= 0; })) {
                return bad_input(part_path + ": tensor " + info.name + " is empty, shape " + info.shape());
            }
            info.data = part.mapping.data() + offset;
            if (reinterpret_cast<std::uintptr_t>(info.data) % kTensorAlignment != 0) {
                return bad_input(part_path + ": tensor " + info.name + " is not aligned to " +
                                 std::to_string(kTensorAlignment) + " bytes");
            }
            if (!index.emplace(info.name, tensors.size()).second) {
                return bad_input(part_path + ": tensor " + info.name + " occurs twice");
            }
            tensors.push_back(std::move(info));
        }
        return {};
    }
};

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::open(const std::string& path) {
    auto impl = std::make_unique<Impl>();
    impl->path = path;
    BASTION_ASSIGN(Part first, open_part(path));
    impl->parts.push_back(std::move(first));
    BASTION_CHECK(impl->add_tensors(impl->parts.front(), path));

    GgufFile file(std::move(impl));
    if (!file.has("split.count")) return file;
    BASTION_ASSIGN(const std::int64_t count, file.integer("split.count"));
    if (count <= 1) return file;
    if (count > 99999) return bad_input(path + ": split.count is " + std::to_string(count));
    BASTION_ASSIGN(const std::int64_t number, file.integer("split.no"));
    if (number != 0) {
        return bad_input(path + " is part " + std::to_string(number + 1) + " of a split model; give the first part");
    }
    char suffix[32];
    std::snprintf(suffix, sizeof suffix, "-00001-of-%05d.gguf", static_cast<int>(count));
    if (!path.ends_with(suffix)) {
        return bad_input(path + " is the first part of a split model, its name must end in " + suffix);
    }
    for (std::int64_t i = 1; i < count; ++i) {
        const std::string name = part_name(path, i, count);
        BASTION_ASSIGN(Part part, open_part(name));
        file.impl_->parts.push_back(std::move(part));
        BASTION_CHECK(file.impl_->add_tensors(file.impl_->parts.back(), name));
    }
    return file;
}

const std::string& GgufFile::path() const { return impl_->path; }

std::uint64_t GgufFile::file_bytes() const {
    std::uint64_t total = 0;
    for (const Part& part : impl_->parts) total += part.mapping.bytes();
    return total;
}

namespace {

std::string wrong_type(const std::string& path, std::string_view key, const char* expected, const gguf_context* header,
                       std::int64_t id) {
    return path + ": key " + std::string(key) + " must be " + expected + ", it is of type " +
           gguf_type_name(gguf_get_kv_type(header, id));
}

}  // namespace

bool GgufFile::has(std::string_view key) const { return gguf_find_key(impl_->header(), std::string(key).c_str()) >= 0; }

/// Declares `g` and `id` for an existing key or returns the error that names it.
#define BASTION_FIND_KEY(key)                                           \
    const gguf_context* g = impl_->header();                            \
    const std::int64_t id = gguf_find_key(g, std::string(key).c_str()); \
    if (id < 0) return bad_input(impl_->path + ": key " + std::string(key) + " is missing")

Result<std::int64_t> GgufFile::integer(std::string_view key) const {
    BASTION_FIND_KEY(key);
    if (const auto value = integer_value(g, id)) return *value;
    return bad_input(wrong_type(impl_->path, key, "an integer", g, id));
}

Result<double> GgufFile::number(std::string_view key) const {
    BASTION_FIND_KEY(key);
    double value = 0;
    if (gguf_get_kv_type(g, id) == GGUF_TYPE_FLOAT32) {
        value = gguf_get_val_f32(g, id);
    } else if (gguf_get_kv_type(g, id) == GGUF_TYPE_FLOAT64) {
        value = gguf_get_val_f64(g, id);
    } else {
        return bad_input(wrong_type(impl_->path, key, "a number", g, id));
    }
    if (!std::isfinite(value)) return bad_input(impl_->path + ": key " + std::string(key) + " is not finite");
    return value;
}

Result<bool> GgufFile::boolean(std::string_view key) const {
    BASTION_FIND_KEY(key);
    if (gguf_get_kv_type(g, id) != GGUF_TYPE_BOOL) {
        return bad_input(wrong_type(impl_->path, key, "a boolean", g, id));
    }
    return gguf_get_val_bool(g, id);
}

Result<std::string> GgufFile::text(std::string_view key) const {
    BASTION_FIND_KEY(key);
    if (gguf_get_kv_type(g, id) != GGUF_TYPE_STRING) return bad_input(wrong_type(impl_->path, key, "a text", g, id));
    return std::string(gguf_get_val_str(g, id));
}

Result<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
    BASTION_FIND_KEY(key);
    if (gguf_get_kv_type(g, id) == GGUF_TYPE_ARRAY) {
        switch (gguf_get_arr_type(g, id)) {
            case GGUF_TYPE_UINT8:
                return widen<std::uint8_t>(g, id);
            case GGUF_TYPE_INT8:
                return widen<std::int8_t>(g, id);
            case GGUF_TYPE_UINT16:
                return widen<std::uint16_t>(g, id);
            case GGUF_TYPE_INT16:
                return widen<std::int16_t>(g, id);
            case GGUF_TYPE_UINT32:
                return widen<std::uint32_t>(g, id);
            case GGUF_TYPE_INT32:
                return widen<std::int32_t>(g, id);
            case GGUF_TYPE_INT64:
                return widen<std::int64_t>(g, id);
            default:
                break;
        }
    }
    return bad_input(wrong_type(impl_->path, key, "an array of integers", g, id));
}

Result<std::vector<bool>> GgufFile::booleans(std::string_view key) const {
    BASTION_FIND_KEY(key);
    if (gguf_get_kv_type(g, id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(g, id) != GGUF_TYPE_BOOL) {
        return bad_input(wrong_type(impl_->path, key, "an array of booleans", g, id));
    }
    const auto* data = static_cast<const std::int8_t*>(gguf_get_arr_data(g, id));
    return std::vector<bool>(data, data + gguf_get_arr_n(g, id));
}

Result<std::size_t> GgufFile::text_count(std::string_view key) const {
    BASTION_FIND_KEY(key);
    if (gguf_get_kv_type(g, id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(g, id) != GGUF_TYPE_STRING) {
        return bad_input(wrong_type(impl_->path, key, "an array of texts", g, id));
    }
    return gguf_get_arr_n(g, id);
}

#undef BASTION_FIND_KEY

std::string_view GgufFile::text_at(std::string_view key, std::size_t index) const {
    const gguf_context* g = impl_->header();
    return gguf_get_arr_str(g, gguf_find_key(g, std::string(key).c_str()), index);
}

std::vector<std::string> GgufFile::keys() const {
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < gguf_get_n_kv(impl_->header()); ++i)
        names.emplace_back(gguf_get_key(impl_->header(), i));
    return names;
}

std::string GgufFile::describe(std::string_view key) const {
    const gguf_context* g = impl_->header();
    const std::int64_t id = gguf_find_key(g, std::string(key).c_str());
    if (id < 0) return "";
    if (const auto value = integer_value(g, id)) return std::to_string(*value);
    switch (gguf_get_kv_type(g, id)) {
        case GGUF_TYPE_STRING:
            return gguf_get_val_str(g, id);
        case GGUF_TYPE_BOOL:
            return gguf_get_val_bool(g, id) ? "true" : "false";
        case GGUF_TYPE_FLOAT32:
            return std::to_string(gguf_get_val_f32(g, id));
        case GGUF_TYPE_FLOAT64:
            return std::to_string(gguf_get_val_f64(g, id));
        case GGUF_TYPE_ARRAY:
            return "array of " + std::to_string(gguf_get_arr_n(g, id)) + " " + gguf_type_name(gguf_get_arr_type(g, id));
        default:
            return "";
    }
}

void GgufFile::release(const TensorInfo& tensor) const {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
    const std::uintptr_t begin = (address + page - 1) / page * page;  // whole pages inside the tensor only
    const std::uintptr_t end = (address + tensor.bytes) / page * page;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

const std::vector<TensorInfo>& GgufFile::tensors() const { return impl_->tensors; }

const TensorInfo* GgufFile::find(std::string_view name) const {
    const auto it = impl_->index.find(std::string(name));
    return it == impl_->index.end() ? nullptr : &impl_->tensors[it->second];
}

}  // namespace bastion
