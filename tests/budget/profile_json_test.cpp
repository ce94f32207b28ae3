#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "budget/calibration.h"
#include "profiles.h"

namespace bastion {
namespace {

using Json = nlohmann::ordered_json;
using Pointer = Json::json_pointer;

Json good() { return Json::parse(profile_to_json(test::profile_with())); }

/// The message that refuses `text`; empty if it is accepted.
std::string refusal(const std::string& text) {
    const auto profile = profile_from_json(text, "my.json");
    if (profile.ok()) return "";
    EXPECT_EQ(profile.error().kind, ErrorKind::bad_input);
    EXPECT_NE(profile.error().message.find("my.json"), std::string::npos);
    return profile.error().message;
}

std::string refusal_with(const std::string& pointer, const Json& value) {
    Json changed = good();
    changed[Pointer(pointer)] = value;
    return refusal(changed.dump());
}

/// Pointers to every member of every object below `value`.
void collect_members(const Json& value, const Pointer& at, std::vector<Pointer>& out) {
    for (const auto& item : value.items()) {
        const Pointer here = value.is_array() ? at / std::stoul(item.key()) : at / item.key();
        if (value.is_object()) out.push_back(here);
        if (item.value().is_structured()) collect_members(item.value(), here, out);
    }
}

TEST(ProfileJson, ComesBackAsItWent) {
    Profile profile = test::profile_with(0.1, 1.0 / 3);
    profile.device = "cpu \"x\" 中";
    profile.draft_more_ms = 0.0625;
    profile.fit.b = -1e-17;
    profile.parts = {true, 1.5, 0.25, 3.5, 0.125, 2.0, 0.0625};
    profile.shape.experts = 128;
    profile.shape.experts_used = 8;
    profile.shape.attn_weight_bytes = 0.5625;
    const auto back = profile_from_json(profile_to_json(profile), "f");
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->device, profile.device);
    EXPECT_EQ(back->target, profile.target);
    EXPECT_EQ(back->drafter, profile.drafter);
    EXPECT_EQ(back->build, profile.build);
    EXPECT_EQ(back->ar_ms, profile.ar_ms);
    EXPECT_EQ(back->draft_ms, profile.draft_ms);
    EXPECT_EQ(back->draft_more_ms, 0.0625);
    EXPECT_TRUE(back->parts.overlapped);
    EXPECT_EQ(back->parts.matrices, 1.5);
    EXPECT_EQ(back->parts.experts, 0.25);
    EXPECT_EQ(back->parts.attention, 3.5);
    EXPECT_EQ(back->parts.cache, 0.125);
    EXPECT_EQ(back->parts.b, 2.0);
    EXPECT_EQ(back->parts.rmse_ms, 0.0625);
    EXPECT_EQ(back->aux_ms, profile.aux_ms);
    EXPECT_EQ(back->seconds, profile.seconds);
    EXPECT_EQ(back->fit.a, profile.fit.a);
    EXPECT_EQ(back->fit.b, profile.fit.b);
    EXPECT_EQ(back->fit.rmse_before_ms, profile.fit.rmse_before_ms);
    EXPECT_EQ(back->fit.rmse_after_ms, profile.fit.rmse_after_ms);
    EXPECT_EQ(back->peak.flops_per_s, profile.peak.flops_per_s);
    EXPECT_EQ(back->peak.bytes_per_s, profile.peak.bytes_per_s);
    EXPECT_EQ(back->shape.experts_used, 8);
    EXPECT_EQ(back->shape.attn_weight_bytes, 0.5625);
    ASSERT_EQ(back->grid.size(), profile.grid.size());
    for (std::size_t i = 0; i < back->grid.size(); ++i) {
        EXPECT_EQ(back->grid[i].nodes, profile.grid[i].nodes);
        EXPECT_EQ(back->grid[i].context, profile.grid[i].context);
        EXPECT_EQ(back->grid[i].verify_ms, profile.grid[i].verify_ms);
    }
    EXPECT_EQ(profile_to_json(*back), profile_to_json(profile));
}

TEST(ProfileJson, WithoutABatchedDraftEveryBlockCountsAsAPass) {
    Json json = good();
    json.erase("draft_more_ms");
    const auto profile = profile_from_json(json.dump(), "f");
    ASSERT_TRUE(profile.ok()) << profile.error().message;
    EXPECT_EQ(profile->draft_more_ms, profile->draft_ms);
}

TEST(ProfileJson, HasTheDocumentedKeys) {
    const Json json = good();
    for (const char* key : {"device", "target", "drafter", "ar_ms", "draft_ms", "aux_ms", "seconds"}) {
        EXPECT_TRUE(json.contains(key)) << key;
    }
    for (const char* key : {"nodes", "context", "verify_ms"}) EXPECT_TRUE(json["grid"][0].contains(key)) << key;
    for (const char* key : {"a", "b", "rmse_before_ms", "rmse_after_ms"}) EXPECT_TRUE(json["fit"].contains(key)) << key;
}

TEST(ProfileJson, EveryMissingKeyIsNamed) {
    std::vector<Pointer> members;
    collect_members(good(), Pointer(), members);
    ASSERT_GT(members.size(), 40u);
    for (const Pointer& member : members) {
        if (member.back() == "draft_more_ms") continue;  // may be left out
        Json cut = good();
        cut[member.parent_pointer()].erase(member.back());
        const std::string message = refusal(cut.dump());
        EXPECT_NE(message.find(member.back() + " is missing"), std::string::npos) << member << ": " << message;
    }
}

TEST(ProfileJson, EveryWrongTypeIsNamed) {
    std::vector<Pointer> members;
    collect_members(good(), Pointer(), members);
    for (const Pointer& member : members) {
        for (const Json& wrong : {Json(nullptr), Json(true), good()[member].is_string() ? Json(1) : Json("1")}) {
            const std::string message = refusal_with(member.to_string(), wrong);
            EXPECT_NE(message.find(member.back() + " must be "), std::string::npos) << member << ": " << message;
        }
    }
}

TEST(ProfileJson, NumbersOutOfRangeAreRefused) {
    EXPECT_EQ(refusal_with("/grid/3/verify_ms", -1),
              "profile 'my.json': grid[3].verify_ms must be a finite number above 0");
    EXPECT_EQ(refusal_with("/shape/layers", 0), "profile 'my.json': shape.layers must be an integer of at least 1");
    for (const char* pointer :
         {"/ar_ms", "/grid/0/verify_ms", "/peak/flops_per_s", "/shape/kv_bytes", "/grid/2/nodes"}) {
        EXPECT_NE(refusal_with(pointer, 0), "") << pointer;
    }
    for (const char* pointer : {"/draft_ms", "/aux_ms", "/seconds", "/fit/rmse_after_ms", "/grid/2/context"}) {
        EXPECT_EQ(refusal_with(pointer, 0), "") << pointer;
        EXPECT_NE(refusal_with(pointer, -1), "") << pointer;
    }
    EXPECT_NE(refusal_with("/grid/0/nodes", 1.5), "");
    EXPECT_NE(refusal_with("/grid/0/nodes", 3000000000u), "");
    EXPECT_NE(refusal_with("/shape/vocab", std::numeric_limits<std::uint64_t>::max()), "");
    EXPECT_EQ(refusal_with("/fit/b", -3.5), "");
    EXPECT_NE(refusal_with("/shape/experts", 8), "") << "experts without active ones";
    EXPECT_NE(refusal_with("/shape/experts_used", 8), "") << "more active experts than experts";
}

TEST(ProfileJson, WhatIsNoProfileIsRefused) {
    for (const char* text : {"", "{", "[]", "3", "null", "\"x\"", "{\"device\": 1e999}", "\xff\xfe"}) {
        EXPECT_NE(refusal(text), "") << text;
    }
    EXPECT_NE(refusal(good().dump() + "x"), "");
    EXPECT_NE(refusal_with("/grid", Json::array()), "");
    EXPECT_NE(refusal_with("/grid/1", 5), "");
    EXPECT_NE(refusal_with("/fit", Json::array()), "");
}

TEST(ProfileJson, EveryCutOfTheTextIsRefused) {
    const std::string text = profile_to_json(test::profile_with());
    for (std::size_t length = 0; length < text.size(); ++length) EXPECT_NE(refusal(text.substr(0, length)), "");
}

TEST(ProfileJson, NamesWithStrayBytesStillGiveJson) {
    Profile profile = test::profile_with();
    profile.target = "model\xff.gguf";
    const auto back = profile_from_json(profile_to_json(profile), "f");
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->target, "model\xEF\xBF\xBD.gguf");
}

}  // namespace
}  // namespace bastion
