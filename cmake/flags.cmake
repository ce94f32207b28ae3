# Warnings, floating point and sanitizers for our own targets (never for the dependencies).
add_library(bastion_flags INTERFACE)
target_include_directories(bastion_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
# Contraction would let the compiler fuse a*b+c differently from one call site to the next (docs/exactness.md).
target_compile_options(bastion_flags INTERFACE -Wall -Wextra -Wshadow -ffp-contract=off)
target_compile_definitions(bastion_flags INTERFACE BASTION_VERSION="${PROJECT_VERSION}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarm on joined std::strings in this compiler (GCC bug 105329).
  target_compile_options(bastion_flags INTERFACE -Wno-restrict)
endif()
if(BASTION_WERROR)
  target_compile_options(bastion_flags INTERFACE -Werror)
endif()
if(BASTION_SANITIZE)
  target_compile_options(bastion_flags INTERFACE -fsanitize=${BASTION_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all)
  target_link_options(bastion_flags INTERFACE -fsanitize=${BASTION_SANITIZE})
endif()

# nlohmann/json comes with the pinned source; an installed one serves where that source is absent.
add_library(bastion_json INTERFACE)
if(EXISTS "${BASTION_LLAMA_DIR}/vendor/nlohmann/json.hpp")
  target_include_directories(bastion_json SYSTEM INTERFACE ${BASTION_LLAMA_DIR}/vendor)
else()
  find_package(nlohmann_json 3.10 REQUIRED)
  target_link_libraries(bastion_json INTERFACE nlohmann_json::nlohmann_json)
endif()
