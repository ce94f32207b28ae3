# The tiny random models of the model and engine tests: made once by tests/models/make_models.py, as a CTest fixture
# that every test needing them requires (FIXTURES_REQUIRED test_models). Include it where the test targets are defined.
set(BASTION_TEST_MODELS_DIR "${CMAKE_BINARY_DIR}/test-models")

set(test_python "${BASTION_DEPS_DIR}/venv/bin/python")
if(NOT EXISTS "${test_python}")
  find_program(test_python3 python3 REQUIRED)
  set(test_python "${test_python3}")
endif()

add_test(NAME make_models
         COMMAND "${test_python}" "${CMAKE_SOURCE_DIR}/tests/models/make_models.py" "${BASTION_TEST_MODELS_DIR}")
set_tests_properties(make_models PROPERTIES FIXTURES_SETUP test_models TIMEOUT 120)
