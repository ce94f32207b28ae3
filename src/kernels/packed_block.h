// From blocks of a GGUF file to packed blocks.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ggml_ptr.h"
#include "kernels/packed_form.h"

namespace bastion::kernels {

/// The packed form of a type, if it has one.
std::optional<Form> form_of(ggml_type type);

/// Copies a source block (32 columns, or 256 for the two-level types) into lane `row` (0 to 15) of a packed block.
/// Writes every byte of that lane; nothing is rounded.
void pack_block(Form form, const char* source, int row, std::uint8_t* block);

/// The values of lane `row` of a packed block as f32, in column order.
void unpack_block(Form form, const std::uint8_t* block, int row, float* out);

}  // namespace bastion::kernels
