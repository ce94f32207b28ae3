# ggml and libllama from the pinned source in deps/ (scripts/setup.sh), built stock so that comparisons with
# libllama in the same process are fair. The Jinja engine of the same source is compiled alone.
if(BASTION_PURE_ONLY)
  return()
endif()
if(NOT EXISTS "${BASTION_LLAMA_DIR}/CMakeLists.txt")
  message(FATAL_ERROR "deps/llama.cpp is missing; run scripts/setup.sh (or `make setup`) first")
endif()

if(BASTION_SYSTEM_LLAMA)
  find_package(ggml 0.25.3 EXACT REQUIRED)
  find_package(llama REQUIRED)
else()
  set(BUILD_SHARED_LIBS OFF)
  foreach(part COMMON TESTS TOOLS EXAMPLES SERVER APP)
    set(LLAMA_BUILD_${part} OFF CACHE INTERNAL "")
  endforeach()
  add_subdirectory(${BASTION_LLAMA_DIR} ${CMAKE_BINARY_DIR}/llama.cpp EXCLUDE_FROM_ALL SYSTEM)
endif()

set(jinja_dir "${BASTION_LLAMA_DIR}/common")
file(GLOB jinja_sources "${jinja_dir}/jinja/*.cpp")
add_library(bastion_jinja STATIC ${jinja_sources} ${jinja_dir}/json.cpp ${jinja_dir}/unicode.cpp)
target_include_directories(bastion_jinja SYSTEM PUBLIC ${jinja_dir})
target_link_libraries(bastion_jinja PRIVATE ggml bastion_json)
# Its asserts check the shape of the template: in a debug build a malformed one would abort instead of being refused.
target_compile_definitions(bastion_jinja PRIVATE NDEBUG)
