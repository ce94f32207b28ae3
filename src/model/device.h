// The device a model runs on and the way its matrices are multiplied.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ggml_ptr.h"
#include "bastion/options.h"
#include "bastion/status.h"
#include "kernels/thread_pool.h"

namespace bastion {

/// A ggml backend with its settings. Shared by all models of an engine; one computation at a time.
class Device {
 public:
    /// `name`: "cpu", or a ggml device such as "cuda0" (case-insensitive). threads 0: one per physical core.
    static Result<std::unique_ptr<Device>> open(const std::string& name, int threads, Kernels kernels);

    ggml_backend_t backend() const { return backend_.get(); }
    ggml_backend_buffer_type_t buffer_type() const { return ggml_backend_get_default_buffer_type(backend_.get()); }
    bool is_cpu() const { return is_cpu_; }
    /// Row-independent kernels of our own (docs/exactness.md) instead of ggml's.
    bool exact() const { return pool_ != nullptr; }
    /// Whether the vectorised kernels run: weights are repacked where their type has a packed form (kernels/packed.h).
    bool packs() const { return pool_ && pool_->isa() != kernels::Isa::portable; }
    /// Threads of the exact kernels. REQUIRES exact().
    kernels::ThreadPool& pool() const { return *pool_; }
    int threads() const { return threads_; }
    const std::string& name() const { return name_; }
    std::string description() const;
    std::size_t free_bytes() const;
    /// packed-avx512, packed-avx2, generic or library.
    const char* kernels_name() const;

    /// Names `open` accepts on this machine.
    static std::vector<std::string> names();

 private:
    Device() = default;
    ggml_backend_ptr backend_;
    std::string name_;
    int threads_ = 1;
    bool is_cpu_ = true;
    std::unique_ptr<kernels::ThreadPool> pool_;
};

/// Computes a graph; a failure of the device is a runtime error, not an abort.
Status compute(const Device& device, ggml_cgraph* graph);

}  // namespace bastion
