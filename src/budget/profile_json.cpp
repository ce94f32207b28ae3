// The file form of a profile (bastion calibrate writes it, every engine reads it).
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "budget/calibration.h"

namespace bastion {
namespace {

using Json = nlohmann::ordered_json;

struct TextField {
    const char* key;
    std::string Profile::*member;
};
constexpr TextField kTextFields[] = {{"device", &Profile::device},
                                     {"target", &Profile::target},
                                     {"drafter", &Profile::drafter},
                                     {"build", &Profile::build}};

template <class Owner>
struct CountField {
    const char* key;
    int Owner::*member;
    int minimum;
};
constexpr CountField<ModelShape> kShapeCounts[] = {
    {"layers", &ModelShape::layers, 1},       {"hidden", &ModelShape::hidden, 1},
    {"q_width", &ModelShape::q_width, 1},     {"kv_width", &ModelShape::kv_width, 1},
    {"ffn_width", &ModelShape::ffn_width, 1}, {"vocab", &ModelShape::vocab, 1},
    {"experts", &ModelShape::experts, 0},     {"experts_used", &ModelShape::experts_used, 0}};
constexpr CountField<GridPoint> kGridCounts[] = {{"nodes", &GridPoint::nodes, 1}, {"context", &GridPoint::context, 0}};

enum class Range { any, not_negative, positive };

template <class Owner>
struct NumberField {
    const char* key;
    double Owner::*member;
    Range range;
};
constexpr NumberField<ModelShape> kShapeNumbers[] = {
    {"attn_weight_bytes", &ModelShape::attn_weight_bytes, Range::positive},
    {"ffn_weight_bytes", &ModelShape::ffn_weight_bytes, Range::positive},
    {"router_weight_bytes", &ModelShape::router_weight_bytes, Range::positive},
    {"head_weight_bytes", &ModelShape::head_weight_bytes, Range::positive},
    {"embed_weight_bytes", &ModelShape::embed_weight_bytes, Range::positive},
    {"kv_bytes", &ModelShape::kv_bytes, Range::positive},
    {"activation_bytes", &ModelShape::activation_bytes, Range::positive}};
constexpr NumberField<DevicePeak> kPeakNumbers[] = {{"flops_per_s", &DevicePeak::flops_per_s, Range::positive},
                                                    {"bytes_per_s", &DevicePeak::bytes_per_s, Range::positive}};
constexpr NumberField<GridPoint> kGridNumbers[] = {{"verify_ms", &GridPoint::verify_ms, Range::positive}};
constexpr NumberField<LinearFit> kFitNumbers[] = {{"a", &LinearFit::a, Range::not_negative},
                                                  {"b", &LinearFit::b, Range::any},
                                                  {"rmse_before_ms", &LinearFit::rmse_before_ms, Range::not_negative},
                                                  {"rmse_after_ms", &LinearFit::rmse_after_ms, Range::not_negative}};
constexpr NumberField<PartsFit> kPartsNumbers[] = {{"matrices", &PartsFit::matrices, Range::not_negative},
                                                   {"experts", &PartsFit::experts, Range::not_negative},
                                                   {"attention", &PartsFit::attention, Range::not_negative},
                                                   {"cache", &PartsFit::cache, Range::not_negative},
                                                   {"b", &PartsFit::b, Range::not_negative},
                                                   {"rmse_ms", &PartsFit::rmse_ms, Range::not_negative}};
constexpr NumberField<Profile> kProfileTimes[] = {{"ar_ms", &Profile::ar_ms, Range::positive},
                                                  {"draft_ms", &Profile::draft_ms, Range::not_negative},
                                                  {"aux_ms", &Profile::aux_ms, Range::not_negative}};
constexpr NumberField<Profile> kProfileBatch[] = {{"draft_more_ms", &Profile::draft_more_ms, Range::not_negative}};
constexpr NumberField<Profile> kProfileSeconds[] = {{"seconds", &Profile::seconds, Range::not_negative}};

template <class Owner, class Fields>
void write(Json& object, const Owner& owner, const Fields& fields) {
    for (const auto& field : fields) object[field.key] = owner.*(field.member);
}

/// One JSON object with its place in the file, for messages such as "profile 'x.json': grid[3].nodes must be ...".
struct Place {
    const Json& object;
    const std::string& file;
    std::string prefix;

    Error expected(const std::string& key, const std::string& what) const {
        const char* verb = object.is_object() && object.contains(key) ? " must be " : " is missing, expected ";
        return bad_input("profile '" + file + "': " + prefix + key + verb + what);
    }

    /// The member object or array `key`.
    Result<const Json*> member(const char* key, bool array) const {
        const auto it = object.find(key);
        if (it != object.end() && (array ? it->is_array() : it->is_object())) return &*it;
        return expected(key, array ? "a non-empty array" : "an object");
    }
};

template <class Owner, class Fields>
Status read_counts(const Place& place, Owner& owner, const Fields& fields) {
    for (const auto& field : fields) {
        const Json value = place.object.value(field.key, Json());
        const bool fits =
            value.is_number_integer() && value >= field.minimum && value <= std::numeric_limits<int>::max();
        if (!fits) return place.expected(field.key, "an integer of at least " + std::to_string(field.minimum));
        owner.*(field.member) = value.template get<int>();
    }
    return {};
}

template <class Owner, class Fields>
Status read_numbers(const Place& place, Owner& owner, const Fields& fields) {
    for (const auto& field : fields) {
        const Json value = place.object.value(field.key, Json());
        const double number = value.is_number() ? value.template get<double>() : std::nan("");
        const bool fits = std::isfinite(number) && (field.range == Range::any || number > 0 ||
                                                    (field.range == Range::not_negative && number == 0));
        if (!fits) {
            return place.expected(field.key, field.range == Range::any            ? "a finite number"
                                             : field.range == Range::not_negative ? "a finite number of at least 0"
                                                                                  : "a finite number above 0");
        }
        owner.*(field.member) = number;
    }
    return {};
}

Status read_texts(const Place& place, Profile& profile) {
    for (const auto& field : kTextFields) {
        const Json value = place.object.value(field.key, Json());
        if (!value.is_string()) return place.expected(field.key, "a string");
        profile.*(field.member) = value.get<std::string>();
    }
    return {};
}

Status read_shape(const Place& place, ModelShape& shape) {
    BASTION_CHECK(read_counts(place, shape, kShapeCounts));
    BASTION_CHECK(read_numbers(place, shape, kShapeNumbers));
    if (shape.experts_used > shape.experts || (shape.experts > 0 && shape.experts_used == 0)) {
        return place.expected("experts_used", "between 1 and experts = " + std::to_string(shape.experts) +
                                                  ", or 0 for a model without experts");
    }
    return {};
}

Status read_parts(const Place& top, PartsFit& parts) {
    BASTION_ASSIGN(const Json* object, top.member("parts", false));
    const Place place{*object, top.file, "parts."};
    BASTION_CHECK(read_numbers(place, parts, kPartsNumbers));
    const Json overlapped = object->value("overlapped", Json());
    if (!overlapped.is_boolean()) return place.expected("overlapped", "true or false");
    parts.overlapped = overlapped.get<bool>();
    return {};
}

Status read_grid(const Place& place, std::vector<GridPoint>& grid) {
    BASTION_ASSIGN(const Json* points, place.member("grid", true));
    if (points->empty()) return place.expected("grid", "a non-empty array");
    for (const Json& point : *points) {
        const std::string name = "grid[" + std::to_string(grid.size()) + "]";
        if (!point.is_object()) return bad_input("profile '" + place.file + "': " + name + " must be an object");
        const Place here{point, place.file, name + "."};
        GridPoint read;
        BASTION_CHECK(read_counts(here, read, kGridCounts));
        BASTION_CHECK(read_numbers(here, read, kGridNumbers));
        grid.push_back(read);
    }
    return {};
}

}  // namespace

std::string profile_to_json(const Profile& profile) {
    Json root = Json::object();
    write(root, profile, kTextFields);
    write(root, profile, kProfileTimes);
    write(root, profile, kProfileBatch);
    root["grid"] = Json::array();
    for (const GridPoint& point : profile.grid) {
        Json object;
        write(object, point, kGridCounts);
        write(object, point, kGridNumbers);
        root["grid"].push_back(std::move(object));
    }
    write(root["fit"], profile.fit, kFitNumbers);
    if (profile.parts.valid()) {
        write(root["parts"], profile.parts, kPartsNumbers);
        root["parts"]["overlapped"] = profile.parts.overlapped;
    }
    write(root, profile, kProfileSeconds);
    write(root["peak"], profile.peak, kPeakNumbers);
    write(root["shape"], profile.shape, kShapeCounts);
    write(root["shape"], profile.shape, kShapeNumbers);
    // Names come from devices and files and may hold any bytes; JSON text may not.
    return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Profile> profile_from_json(const std::string& text, const std::string& file_name) {
    const Json root = Json::parse(text, nullptr, false);
    if (root.is_discarded()) return bad_input("profile '" + file_name + "' is not valid JSON");
    if (!root.is_object()) return bad_input("profile '" + file_name + "' must hold one JSON object");
    const Place top{root, file_name, ""};
    Profile profile;
    BASTION_CHECK(read_texts(top, profile));
    BASTION_CHECK(read_numbers(top, profile, kProfileTimes));
    // Profiles of one request alone have no such key: a pass over several blocks then counts as several passes.
    profile.draft_more_ms = profile.draft_ms;
    if (root.contains("draft_more_ms")) BASTION_CHECK(read_numbers(top, profile, kProfileBatch));
    BASTION_CHECK(read_grid(top, profile.grid));
    BASTION_ASSIGN(const Json* fit, top.member("fit", false));
    BASTION_CHECK(read_numbers(Place{*fit, file_name, "fit."}, profile.fit, kFitNumbers));
    if (root.contains("parts")) BASTION_CHECK(read_parts(top, profile.parts));
    BASTION_CHECK(read_numbers(top, profile, kProfileSeconds));
    BASTION_ASSIGN(const Json* peak, top.member("peak", false));
    BASTION_CHECK(read_numbers(Place{*peak, file_name, "peak."}, profile.peak, kPeakNumbers));
    BASTION_ASSIGN(const Json* shape, top.member("shape", false));
    BASTION_CHECK(read_shape(Place{*shape, file_name, "shape."}, profile.shape));
    return profile;
}

}  // namespace bastion
