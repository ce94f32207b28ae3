// Owning pointers for ggml objects; the one place that pulls ggml's C++ header in.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>
