#include "budget/catalog.h"

#include <gtest/gtest.h>

#include <set>

namespace bastion {
namespace {

TEST(Catalog, NamesAreUniqueAndFound) {
    std::set<std::string> names;
    for (const KnownDevice& device : known_devices()) {
        EXPECT_TRUE(names.insert(device.name).second) << device.name;
        EXPECT_EQ(find_device(device.name), &device);
    }
    for (const KnownModel& model : known_models()) {
        EXPECT_TRUE(names.insert(model.name).second) << model.name;
        EXPECT_EQ(find_model(model.name), &model);
    }
    EXPECT_EQ(find_device("qwen3-8b"), nullptr);
    EXPECT_EQ(find_model(""), nullptr);
}

TEST(Catalog, DevicesHaveBelievableValues) {
    for (const KnownDevice& device : known_devices()) {
        const double flops_a_byte = device.peak().flops_per_s / device.peak().bytes_per_s;
        EXPECT_GT(flops_a_byte, 3) << device.name;
        EXPECT_LT(flops_a_byte, 500) << device.name;
        EXPECT_EQ(device.gpu, device.tflops > 15) << device.name;
    }
    EXPECT_DOUBLE_EQ(find_device("h200")->peak().flops_per_s, 989.4e12) << "dense, not the sparse 1979";
    EXPECT_DOUBLE_EQ(find_device("h200")->peak().bytes_per_s, 4.8e12);
}

/// The parameters a model is named after.
double billions(const ModelShape& s) {
    const double h = s.hidden, experts = s.experts > 0 ? s.experts : 1;
    const double layer = 2 * h * s.q_width + 2 * h * s.kv_width + 3 * h * s.ffn_width * experts + h * s.experts;
    return (s.layers * layer + 2 * h * s.vocab) / 1e9;
}

TEST(Catalog, ModelsHaveThePublishedNumberOfParameters) {
    EXPECT_NEAR(billions(find_model("qwen3-4b")->shape(2)), 4.02 + 0.39, 0.02) << "4.02, and its head counted apart";
    EXPECT_NEAR(billions(find_model("qwen3-8b")->shape(2)), 8.19, 0.02);
    EXPECT_NEAR(billions(find_model("llama-3.1-8b")->shape(2)), 8.03, 0.02);
    EXPECT_NEAR(billions(find_model("qwen3-coder-30b-a3b")->shape(2)), 30.53, 0.05);
}

TEST(Catalog, WeightsHaveTheSizeAskedFor) {
    const ModelShape shape = find_model("qwen3-coder-30b-a3b")->shape(0.5);
    for (const double bytes : {shape.attn_weight_bytes, shape.ffn_weight_bytes, shape.router_weight_bytes,
                               shape.head_weight_bytes, shape.embed_weight_bytes}) {
        EXPECT_EQ(bytes, 0.5);
    }
}

}  // namespace
}  // namespace bastion
