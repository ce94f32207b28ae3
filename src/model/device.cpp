#include "model/device.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include "kernels/isa.h"

namespace bastion {
namespace {

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

/// Physical cores of the machine; hyper-threads slow a memory-bound decoder down.
int physical_cores() {
    std::set<std::pair<int, int>> cores;
    std::ifstream info("/proc/cpuinfo");
    std::string line;
    int package = 0;
    while (std::getline(info, line)) {
        const auto value = [&] { return std::atoi(line.substr(line.find(':') + 1).c_str()); };
        if (line.rfind("physical id", 0) == 0) package = value();
        if (line.rfind("core id", 0) == 0) cores.emplace(package, value());
    }
    const int logical = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    return cores.empty() ? logical : std::min<int>(logical, static_cast<int>(cores.size()));
}

/// What the process's control group leaves; unlimited outside containers.
std::size_t container_free_bytes() {
    std::size_t limit = 0, used = 0;
    std::ifstream max("/sys/fs/cgroup/memory.max"), current("/sys/fs/cgroup/memory.current");
    if (!(max >> limit) || !(current >> used)) return std::numeric_limits<std::size_t>::max();
    return limit > used ? limit - used : 0;
}

kernels::Isa needed_isa(Kernels kernels) {
    if (kernels == Kernels::packed_avx512) return kernels::Isa::avx512;
    if (kernels == Kernels::packed || kernels == Kernels::packed_avx2) return kernels::Isa::avx2;
    return kernels::Isa::portable;
}

/// What the kernels may use of a processor that has what they need.
kernels::Isa allowed_isa(Kernels kernels) {
    if (kernels == Kernels::generic) return kernels::Isa::portable;
    return kernels == Kernels::packed_avx2 ? kernels::Isa::avx2 : kernels::best_isa();
}

}  // namespace

std::vector<std::string> Device::names() {
    std::vector<std::string> names{"cpu"};
    for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_CPU)
            names.push_back(lower(ggml_backend_dev_name(dev)));
    }
    return names;
}

Result<std::unique_ptr<Device>> Device::open(const std::string& name, int threads, Kernels kernels) {
    if (threads < 0 || threads > 512) {
        return bad_input("threads is " + std::to_string(threads) + ", expected 0 to 512");
    }
    std::unique_ptr<Device> device(new Device());
    device->name_ = lower(name);
    device->is_cpu_ = device->name_ == "cpu";
    if (device->is_cpu_) {
        if (needed_isa(kernels) > kernels::best_isa()) {
            return bad_input(kernels == Kernels::packed_avx512
                                 ? "kernels packed-avx512 need a processor with AVX-512 VNNI"
                                 : "kernels packed need a processor with AVX2, FMA and F16C");
        }
        device->threads_ = threads > 0 ? threads : physical_cores();
        device->backend_.reset(ggml_backend_cpu_init());
        if (!device->backend_) return runtime_error("the CPU backend failed to start");
        if (kernels == Kernels::library) {
            ggml_backend_cpu_set_n_threads(device->backend_.get(), device->threads_);
        } else {
            // Our kernels bring their own threads; what is left to ggml is too small to share out.
            device->pool_ = std::make_unique<kernels::ThreadPool>(device->threads_, allowed_isa(kernels));
            device->threads_ = device->pool_->threads();
            ggml_backend_cpu_set_n_threads(device->backend_.get(), 1);
        }
        return device;
    }
    if (kernels != Kernels::automatic && kernels != Kernels::library) {
        return bad_input("kernels generic and packed run on the CPU only, not on " + name);
    }
    for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (lower(ggml_backend_dev_name(dev)) != device->name_) continue;
        device->backend_.reset(ggml_backend_dev_init(dev, nullptr));
        if (!device->backend_) return runtime_error("device " + name + " failed to start");
        return device;
    }
    std::string known;
    for (const std::string& n : names()) known += (known.empty() ? "" : ", ") + n;
    return bad_input("there is no device " + name + ", this machine and build have " + known);
}

const char* Device::kernels_name() const {
    if (!exact()) return "library";
    switch (pool_->isa()) {
        case kernels::Isa::avx512:
        case kernels::Isa::avx512_sums:
            return "packed-avx512";
        case kernels::Isa::avx2:
            return "packed-avx2";
        case kernels::Isa::portable:
            break;
    }
    return "generic";
}

std::string Device::description() const {
    return ggml_backend_dev_description(ggml_backend_get_device(backend_.get()));
}

std::size_t Device::free_bytes() const {
    if (is_cpu_) {
        std::ifstream info("/proc/meminfo");
        std::string key;
        std::size_t kib = 0;
        for (std::string unit; info >> key >> kib; std::getline(info, unit)) {
            if (key == "MemAvailable:") return std::min(kib * 1024, container_free_bytes());
        }
    }
    std::size_t free = 0, total = 0;
    ggml_backend_dev_memory(ggml_backend_get_device(backend_.get()), &free, &total);
    return free;
}

Status compute(const Device& device, ggml_cgraph* graph) {
    if (ggml_backend_graph_compute(device.backend(), graph) != GGML_STATUS_SUCCESS) {
        return runtime_error("device " + device.name() + " failed to compute a pass");
    }
    return {};
}

}  // namespace bastion
