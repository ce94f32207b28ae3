// Writes a GGUF file once more with its matrices in another type, by libllama's own quantiser (what the tool
// llama-quantize calls with --allow-requantize --pure).
//
//   bench_quantize IN.gguf OUT.gguf q4_0|q4_1|q5_0|q5_1|q8_0|f16|bf16|q4_k|q5_k|q6_k
#include <llama.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

int main(int argc, char** argv) {
    constexpr std::pair<const char*, std::pair<llama_ftype, ggml_type>> kTypes[] = {
        {"q4_0", {LLAMA_FTYPE_MOSTLY_Q4_0, GGML_TYPE_Q4_0}},   {"q4_1", {LLAMA_FTYPE_MOSTLY_Q4_1, GGML_TYPE_Q4_1}},
        {"q5_0", {LLAMA_FTYPE_MOSTLY_Q5_0, GGML_TYPE_Q5_0}},   {"q5_1", {LLAMA_FTYPE_MOSTLY_Q5_1, GGML_TYPE_Q5_1}},
        {"q8_0", {LLAMA_FTYPE_MOSTLY_Q8_0, GGML_TYPE_Q8_0}},   {"f16", {LLAMA_FTYPE_MOSTLY_F16, GGML_TYPE_F16}},
        {"bf16", {LLAMA_FTYPE_MOSTLY_BF16, GGML_TYPE_BF16}},   {"q4_k", {LLAMA_FTYPE_MOSTLY_Q4_K_S, GGML_TYPE_Q4_K}},
        {"q5_k", {LLAMA_FTYPE_MOSTLY_Q5_K_S, GGML_TYPE_Q5_K}}, {"q6_k", {LLAMA_FTYPE_MOSTLY_Q6_K, GGML_TYPE_Q6_K}}};
    const std::pair<llama_ftype, ggml_type>* chosen = nullptr;
    for (const auto& [name, type] : kTypes) {
        if (argc == 4 && std::strcmp(argv[3], name) == 0) chosen = &type;
    }
    if (!chosen) {
        std::fprintf(stderr,
                     "usage: bench_quantize IN.gguf OUT.gguf q4_0|q4_1|q5_0|q5_1|q8_0|f16|bf16|q4_k|q5_k|q6_k\n");
        return 2;
    }
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = chosen->first;
    params.token_embedding_type = params.output_tensor_type = chosen->second;
    params.allow_requantize = params.pure = true;
    if (llama_model_quantize(argv[1], argv[2], &params) != 0) {
        std::fprintf(stderr, "bench_quantize: error: %s could not be written from %s\n", argv[2], argv[1]);
        return 1;
    }
    return 0;
}
