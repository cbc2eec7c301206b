# tests of src/runtime
