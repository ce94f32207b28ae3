#include <gguf.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "support.h"

namespace bastion::test {

GgufEdit::GgufEdit(const std::string& path) {
    ggml_context* data = nullptr;
    header_.reset(gguf_init_from_file(path.c_str(), {.no_alloc = false, .ctx = &data}));
    if (!header_) throw std::runtime_error("cannot edit " + path);
    contexts_.emplace_back(data);
    for (std::int64_t i = 0; i < gguf_get_n_tensors(header_.get()); ++i) {
        tensors_.push_back(ggml_get_tensor(data, gguf_get_tensor_name(header_.get(), i)));
    }
}

GgufEdit& GgufEdit::remove_key(const std::string& key) {
    if (gguf_remove_key(header_.get(), key.c_str()) < 0) throw std::runtime_error("there is no key " + key);
    return *this;
}

GgufEdit& GgufEdit::set(const std::string& key, std::uint32_t value) {
    gguf_set_val_u32(header_.get(), key.c_str(), value);
    return *this;
}

GgufEdit& GgufEdit::set(const std::string& key, float value) {
    gguf_set_val_f32(header_.get(), key.c_str(), value);
    return *this;
}

GgufEdit& GgufEdit::set(const std::string& key, bool value) {
    gguf_set_val_bool(header_.get(), key.c_str(), value);
    return *this;
}

GgufEdit& GgufEdit::set(const std::string& key, const char* value) {
    gguf_set_val_str(header_.get(), key.c_str(), value);
    return *this;
}

GgufEdit& GgufEdit::set(const std::string& key, const std::vector<std::int32_t>& values) {
    gguf_set_arr_data(header_.get(), key.c_str(), GGUF_TYPE_INT32, values.data(), values.size());
    return *this;
}

GgufEdit& GgufEdit::set_token(std::size_t index, const std::string& text) {
    const char* key = "tokenizer.ggml.tokens";
    const std::int64_t id = gguf_find_key(header_.get(), key);
    std::vector<std::string> tokens;
    for (std::size_t i = 0; i < gguf_get_arr_n(header_.get(), id); ++i) {
        tokens.push_back(i == index ? text : gguf_get_arr_str(header_.get(), id, i));
    }
    std::vector<const char*> texts;
    for (const std::string& token : tokens) texts.push_back(token.c_str());
    gguf_set_arr_str(header_.get(), key, texts.data(), texts.size());
    return *this;
}

GgufEdit& GgufEdit::remove_tensor(const std::string& name) {
    const auto removed = std::erase_if(tensors_, [&](const ggml_tensor* tensor) { return tensor->name == name; });
    if (removed != 1) throw std::runtime_error("there is no tensor " + name);
    return *this;
}

GgufEdit& GgufEdit::add_vector(const std::string& name, int length) {
    contexts_.emplace_back(ggml_init({ggml_tensor_overhead() + length * sizeof(float) + 64, nullptr, false}));
    ggml_tensor* tensor = ggml_new_tensor_1d(contexts_.back().get(), GGML_TYPE_F32, length);
    std::fill_n(static_cast<float*>(tensor->data), length, 1.0f);
    ggml_set_name(tensor, name.c_str());
    tensors_.push_back(tensor);
    return *this;
}

GgufEdit& GgufEdit::set_i64(const std::string& name, int index, std::int64_t value) {
    for (ggml_tensor* tensor : tensors_) {
        if (tensor->name == name) static_cast<std::int64_t*>(tensor->data)[index] = value;
    }
    return *this;
}

GgufEdit& GgufEdit::convert(ggml_type type) {
    for (ggml_tensor*& tensor : tensors_) {
        if (ggml_n_dims(tensor) < 2) continue;
        const std::int64_t count = ggml_nelements(tensor);
        std::vector<float> values(count);
        if (tensor->type == GGML_TYPE_F32) {
            std::memcpy(values.data(), tensor->data, count * sizeof(float));
        } else {
            ggml_get_type_traits(tensor->type)->to_float(tensor->data, values.data(), count);
        }
        const std::size_t bytes = ggml_row_size(type, tensor->ne[0]) * ggml_nrows(tensor);
        contexts_.emplace_back(ggml_init({ggml_tensor_overhead() + bytes + 64, nullptr, false}));
        ggml_tensor* copy = ggml_new_tensor(contexts_.back().get(), type, GGML_MAX_DIMS, tensor->ne);
        if (type == GGML_TYPE_F32) {
            std::memcpy(copy->data, values.data(), bytes);
        } else {
            ggml_quantize_chunk(type, values.data(), copy->data, 0, ggml_nrows(tensor), tensor->ne[0], nullptr);
        }
        ggml_set_name(copy, tensor->name);
        tensor = copy;
    }
    return *this;
}

std::vector<std::string> GgufEdit::keys() const {
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < gguf_get_n_kv(header_.get()); ++i) names.emplace_back(gguf_get_key(header_.get(), i));
    return names;
}

std::vector<std::string> GgufEdit::tensors() const {
    std::vector<std::string> names;
    for (const ggml_tensor* tensor : tensors_) names.emplace_back(tensor->name);
    return names;
}

std::string GgufEdit::write(const std::string& name) const {
    gguf_context_ptr file(gguf_init_empty());
    gguf_set_kv(file.get(), header_.get());
    for (const ggml_tensor* tensor : tensors_) gguf_add_tensor(file.get(), tensor);
    const std::string path = scratch_path(name);
    if (!gguf_write_to_file(file.get(), path.c_str(), false)) throw std::runtime_error("cannot write " + path);
    return path;
}

}  // namespace bastion::test
